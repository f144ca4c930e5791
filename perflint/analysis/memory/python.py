"""What functions and methods of Python and numpy do with what they are given."""

from __future__ import annotations

import ast

from perflint.syntax.walk import path_of, receiver_of

NEW = frozenset(  # something that shares nothing
    "abs all any bool bytes callable chr complex divmod float format hasattr hash help hex id input int isinstance"
    " issubclass len oct open ord pow print range repr round str type delattr".split()
)
SEE_ALL = frozenset({"builtins.globals", "builtins.locals", "builtins.vars", "builtins.exec", "builtins.eval"})
CONTAINERS_OF = frozenset("list tuple dict set frozenset sorted enumerate zip".split())  # new ones, of the same items
VIEWS = frozenset(  # of numpy and Python: another name for the memory that they are given
    "asarray asanyarray ascontiguousarray frombuffer memoryview reshape ravel squeeze transpose atleast_1d".split()
)
NAMESPACES = frozenset({"__dict__", "_buffers", "_parameters", "_modules"})  # of attributes, by their names
GRADING = frozenset({"zero_grad", "unscale_"})  # of modules, optimizers and scalers: they write to gradients
HOLDS = frozenset({"get", "items", "keys", "values", "copy"})
FILLS = frozenset("append appendleft extend extendleft insert add update setdefault put push register".split())
TAKES = frozenset("pop popleft popitem clear remove discard sort reverse fill partition itemset resize".split())
OPERATORS: dict[type[ast.operator], str] = {  # by what Python calls their methods
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.MatMult: "matmul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.BitAnd: "and",
}


def scaler_of(node: ast.AST, *methods: str) -> ast.expr | None:
    """The GradScaler, by its name, of which a call runs one of its methods, or of `methods`."""
    owner = receiver_of(node, *(methods or ("scale", "unscale_", "step", "update")))
    return owner if owner is not None and "scaler" in path_of(owner).lower() else None

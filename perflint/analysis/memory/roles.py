"""What operations of torch, functions of Python and numpy do with what they are given."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum

from perflint import torch_ops
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.walk import path_of, receiver_of


class Role(Enum):
    """What a consumer does with the tensor. None of these writes to it or needs it contiguous."""

    ELEMENTWISE = "elementwise"  # operands broadcast
    READ = "read"  # concatenation, indexing, gather
    MATMUL = "matmul"
    REDUCTION = "reduction"


@dataclass(frozen=True)
class Consumer:
    """An expression or statement that reads the tensor as its `operand`.

    `in_place`: it writes its result into another tensor, whose shape and layout therefore hold.
    """

    node: ast.AST
    operand: ast.expr
    role: Role
    in_place: bool = False


@dataclass(frozen=True)
class Reading:
    """All that happens to a tensor; `converted`: it is moved, or cast, on the way.

    `shown`: code in other files may get hold of it, too.
    """

    consumers: tuple[Consumer, ...]
    converted: bool
    shown: bool


class NotAnalysed(Exception):
    """Something happens to the tensor of which too little is known."""


_DISTRIBUTIONS = frozenset(
    f"torch.distributions.{module}{name}"
    for name in "Normal LogNormal Laplace Uniform Beta Gamma Bernoulli".split()
    for module in ("", f"{name.lower()}.")
) | {"torch.distributions.log_normal.LogNormal"}
WRAPPERS = frozenset({"torch.autograd.Variable", "torch.autograd.variable.Variable"})
_COPIES = frozenset({"clone"})  # pointwise in the table, and the end of every saving


def joins(qualified: str) -> bool:
    """Does torch's function of that name make one tensor of several?"""
    operation = torch_ops.of_function(qualified)
    return operation is not None and operation.does("joining")


def is_view(name: str) -> bool:
    """Does an operation of that name give one view, whatever the layout?"""
    return torch_ops.does(name, "restriding")


def converts(name: str) -> bool:
    """Does a method of that name move the tensor, or cast it?"""
    return torch_ops.does(name, "cast") or torch_ops.does(name, "move")


def measures(name: str) -> bool:
    operation = torch_ops.of_attribute(name) or torch_ops.of_method(name)
    return operation is not None and operation.does("measuring")


def _role(operation: torch_ops.Operation) -> Role | None:
    if operation.does("matmul"):
        return Role.MATMUL
    if operation.does("indexing") or operation.does("repeating"):
        return Role.READ
    gives_itself = operation.shares and not operation.in_place  # as positive does
    return Role.ELEMENTWISE if operation.does("pointwise") and not gives_itself else None


def role_of_method(name: str, *, receiver: bool) -> Role:
    """What the tensor's method `name` does with the tensor itself, or with an argument."""
    entry = torch_ops.of_method(name)
    if entry is None or name in _COPIES or (receiver and entry.in_place):
        raise NotAnalysed
    if not receiver and entry.name == "copy_":
        return Role.READ
    role = _role(entry) or (Role.REDUCTION if receiver and entry.does("reduction") else None)
    if role is None:
        raise NotAnalysed
    return role


def is_written(operation: torch_ops.Operation, call: ast.Call, node: ast.expr) -> bool:
    return any(node in each.of(call) for each in operation.writes)


def role_of_function(name: str, call: ast.Call, node: ast.expr, keyword: str) -> tuple[Role, bool] | None:
    """What torch's function `name` does with its argument, and whether it writes into another; None for nothing."""
    short = name.rpartition(".")[2]
    entry = torch_ops.of_function(name)
    if name in _DISTRIBUTIONS:
        return Role.READ, False
    if entry is None or short in _COPIES or any(each.arg in ("out", "inplace") for each in call.keywords):
        raise NotAnalysed
    if short == "scaled_dot_product_attention" and (keyword == "attn_mask" or call.args[3:4] == [node]):
        return Role.READ, False
    if is_written(entry, call, node):
        raise NotAnalysed
    if entry.in_place and not entry.does("matmul"):
        return Role.ELEMENTWISE, True
    role = Role.ELEMENTWISE if name == "torch.where" and len(call.args) > 1 else _role(entry)
    if role is None and (entry.does("reduction") or entry.does("distance")):
        role = Role.REDUCTION
    if role is None and not entry.does("like"):
        raise NotAnalysed
    return None if role is None else (role, False)


def role_of_module(module: Value) -> Role | None:
    """What one of torch's modules does with its input; None for one that may give the tensor itself."""
    operation = torch_ops.of_forward(module.name) if module.kind is Kind.MODULE and module.node is None else None
    if operation is not None and operation.does("distance"):
        return Role.REDUCTION
    if operation is not None and operation.does("pointwise") and not operation.writes:
        return Role.ELEMENTWISE
    if operation is None or not (operation.shares and operation.does("same_shape") and module.sure):
        raise NotAnalysed
    return None


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

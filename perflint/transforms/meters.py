"""The methods of a meter: whether they only keep the numbers that they are given, and in which attributes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from perflint.analysis.program import Program
from perflint.analysis.values.codes import named_functions
from perflint.syntax.walk import path_of, receiver_of

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_OPERANDS = (ast.Call, ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.operator, ast.expr_context)
_NUMERIC = {"max", "min", "len", "float", "int"}
TEXTS = frozenset({"__str__", "__repr__", "__format__"})  # of the meter itself, which nobody asks for


def kept(program: Program, functions: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Of the methods of the program, named as other files do, in which attributes they keep their first argument."""
    named = named_functions(program.tree) if functions else ()
    found = {name: kept_by(program, node) for name, node in named if name in functions and "." in name}
    return {name: attributes for name, attributes in found.items() if attributes}


def kept_by(program: Program, method: ast.AST) -> tuple[str, ...]:
    """The attributes in which a method of a meter keeps its first argument; none where its class does more with it.

    They are computed from it by arithmetic alone, and nothing else of the class reads them but for its own text.
    """
    of_class = program.class_around(method)
    if not isinstance(method, ast.FunctionDef) or of_class is None or not is_closed(program, of_class):
        return ()
    if method.decorator_list or len(method.args.args) < 2:
        return ()
    found: set[str] = set()
    while (more := _fed(program, of_class, method, found)) is not None and more != found:
        found = more
    names = sorted(each.removeprefix("self.") for each in found)
    return () if more is None or any(map(program.is_edited_elsewhere, names)) else tuple(names)


def is_closed(program: Program, of_class: ast.ClassDef) -> bool:
    """Does the file tell all that the methods of a class do with its objects, which they never pass on?"""
    if of_class.decorator_list or of_class.keywords or not _is_plain(program, of_class):
        return False
    for each in of_class.body:
        if isinstance(each, ast.FunctionDef):
            first = [arg.arg for arg in (*each.args.posonlyargs, *each.args.args)[:1]]
            is_static = any(path_of(one) in ("staticmethod", "classmethod") for one in each.decorator_list)
            is_hook = each.name[:2] == "__" and each.name not in ("__init__", *TEXTS)
            if is_hook or each.args.posonlyargs or (first != ["self"] and not is_static):
                return False
        elif not isinstance(getattr(each, "value", None), ast.Constant):
            return False
    selves = (each for each in ast.walk(of_class) if isinstance(each, ast.Name) and each.id == "self")
    return all(_is_of_attribute(program, each) for each in selves)


def _is_plain(program: Program, of_class: ast.ClassDef) -> bool:
    """Has it no base, and does nobody set its attributes from outside?"""
    stores = (each for each in program.of_type(ast.Attribute) if isinstance(each.ctx, ast.Store))
    is_patched = any(path_of(each.value) == of_class.name for each in stores)
    return not is_patched and all(program.qualified(each) == "builtins.object" for each in of_class.bases)


def _is_of_attribute(program: Program, name: ast.Name) -> bool:
    """Is an attribute of the object read, a method called as a statement, or `format(**self.__dict__)` returned?"""
    read = program.parent(name)
    if not isinstance(read, ast.Attribute):
        return False
    above = program.parent(read)
    around = program.parent(above) if above is not None else None
    if isinstance(above, ast.Call) and above.func is read:
        return isinstance(around, ast.Expr)
    if read.attr != "__dict__":
        return not read.attr.startswith("__")
    is_format = isinstance(above, ast.keyword) and above.arg is None and receiver_of(around, "format") is not None
    return is_format and isinstance(program.parent(around), ast.Return) if around is not None else False


def _fed(program: Program, of_class: ast.ClassDef, method: ast.FunctionDef, known: set[str]) -> set[str] | None:
    """The attributes that are computed from the argument or from those `known`; None where something else is."""
    argument, found = method.args.args[1].arg, set(known)
    added = {path_of(each.target) for each in ast.walk(of_class) if isinstance(each, ast.AugAssign)}
    stores, computed = list[ast.AST](), set[ast.stmt]()
    methods = (each for each in of_class.body if isinstance(each, ast.FunctionDef) and each.name not in TEXTS)
    for owner, node in ((each, node) for each in methods for node in ast.walk(each)):
        is_argument = owner is method and isinstance(node, ast.Name) and node.id == argument
        if not is_argument and not (isinstance(node, ast.Attribute) and path_of(node) in known):
            continue
        if not isinstance(getattr(node, "ctx", None), ast.Load):
            stores.append(node)
            continue
        target = _target(program, node)
        is_alias = isinstance(program.parent(node), ast.Assign)
        if target is None or (is_alias and added & {target, path_of(node)}):
            return None  # two names of one tensor, of which one is added to in place
        found.add(target)
        computed.add(program.statement_of(node))
    return (
        found if all(program.statement_of(each) in computed or _is_number(program, each) for each in stores) else None
    )


def _is_number(program: Program, node: ast.AST) -> bool:
    value = program.value(node)
    return value.is_literal and isinstance(value.literal, int | float)


def _target(program: Program, node: ast.AST) -> str | None:
    """The attribute of self to which a statement assigns what it computes from `node` by arithmetic; None elsewhere."""
    above = program.parent(node)
    while isinstance(above, ast.BinOp) and isinstance(above.op, _ARITHMETIC):
        other = above.left if above.right is node else above.right
        if (isinstance(above.op, ast.Div) and above.right is node) or not _is_operand(program, other):
            return None
        node, above = above, program.parent(above)
    if isinstance(above, ast.Assign) and len(above.targets) == 1:
        path = path_of(above.targets[0])
    elif isinstance(above, ast.AugAssign) and isinstance(above.op, _ARITHMETIC):
        path = path_of(above.target)
    else:
        return None
    return path if path.startswith("self.") and path.count(".") == 1 else None


def _is_operand(program: Program, node: ast.expr) -> bool:
    """Is it a number where the arguments of the method and the attributes of the object are?"""
    given = {each.arg for each in program.of_type(ast.arg) if program.function_of(each) is program.function_of(node)}
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id not in given | _NUMERIC and not _is_number(program, each):
            return False
        if isinstance(each, ast.Call) and path_of(each.func) not in _NUMERIC:
            return False
        if not isinstance(each, _OPERANDS):
            return False
    return True

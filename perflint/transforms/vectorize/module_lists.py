"""Tells how the modules that an `nn.ModuleList` holds were built."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.syntax.walk import path_of

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_ADD_ONE = {"append": 0, "insert": 1}
_WALKS = frozenset("len enumerate zip reversed range list tuple".split())
_LOOK = frozenset("parameters named_parameters state_dict to cuda cpu float double half train eval".split())


def list_of(function: ast.expr, program: Program) -> ast.expr | None:
    """What `function` is an item of: `cells[i]`, or a name that a loop gives one item of a list after the other."""
    if isinstance(function, ast.Subscript):
        return None if isinstance(function.slice, ast.Slice) else function.value
    if not isinstance(function, ast.Name):
        return None
    loops = (each for each in program.ancestors(function) if isinstance(each, ast.For))
    loop = next((each for each in loops if function.id in _names(each.target)), None)
    if loop is None or any(_stores(node, function.id) for each in loop.body for node in ast.walk(each)):
        return None
    return _walked(loop.target, loop.iter, function.id)


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _stores(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)


def _walked(target: ast.expr, walked: ast.expr, name: str) -> ast.expr | None:
    """The list of which a loop's target `name` is one item after the other."""
    if isinstance(target, ast.Name):
        return walked if target.id == name and not isinstance(walked, ast.Call) else None
    if not isinstance(target, ast.Tuple) or not isinstance(walked, ast.Call) or not isinstance(walked.func, ast.Name):
        return None
    parts = target.elts
    if walked.func.id == "enumerate" and len(parts) == 2 and walked.args:
        return _walked(parts[1], walked.args[0], name)
    if walked.func.id == "zip" and len(parts) == len(walked.args):
        found = (_walked(part, each, name) for part, each in zip(parts, walked.args, strict=True))
        return next((each for each in found if each is not None), None)
    return None


def items(program: Program, built: ast.Call, whole: ast.expr) -> list[ast.expr] | None:
    """What the list `whole`, which `built` made, ever holds; None where that is not in sight."""
    if program.qualified(built.func) != "torch.nn.ModuleList" or built.keywords or len(built.args) > 1:
        return None
    found: list[ast.expr] = []
    for part in _displayed(program, built.args[0]) if built.args else ():
        if part is None:
            return None
        found.append(part)
    for part in added(program, whole):
        if part is None:
            return None
        found.append(part)
    return found


def _displayed(program: Program, node: ast.expr) -> Iterator[ast.expr | None]:
    """The items of a list, as they are written; None where they are not in sight."""
    if isinstance(node, ast.List | ast.Tuple):
        yield from (None if isinstance(each, ast.Starred) else each for each in node.elts)
    elif isinstance(node, ast.ListComp | ast.GeneratorExp):
        yield from _choices(node.elt)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _displayed(program, node.left)
        yield from _displayed(program, node.right)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
        yield from _displayed(program, node.left)
    elif isinstance(node, ast.Name):
        yield from _collected(program, node)
    else:
        yield None


def _choices(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from _choices(node.body)
        yield from _choices(node.orelse)
    else:
        yield node


def _collected(program: Program, name: ast.Name) -> Iterator[ast.expr | None]:
    """The items of a local list that is filled where it is made."""
    around = program.function_of(name) or program.tree
    for node in ast.walk(around):
        if isinstance(node, ast.Name) and node.id == name.id and node is not name:
            if _is_held(program, node):
                continue
            parent = program.parent(node)
            if isinstance(parent, ast.Assign) and parent.targets == [node] and not isinstance(parent.value, ast.Name):
                yield from _displayed(program, parent.value)
            else:
                yield from _grown(program, node)


def _is_held(program: Program, node: ast.Name) -> bool:
    """Is a list only handed to a list of modules?"""
    parent = program.parent(node)
    return isinstance(parent, ast.Call) and program.qualified(parent.func) == "torch.nn.ModuleList"


def added(program: Program, whole: ast.expr) -> Iterator[ast.expr | None]:
    """What is added to the list `whole` after it was made."""
    owner, _, name = path_of(whole).rpartition(".")
    uses: list[ast.Attribute] | list[ast.Name]
    if owner:
        uses = [node for node in program.of_type(ast.Attribute) if node.attr == name]
        uses = [node for node in uses if path_of(node.value) != "self" or are_kin(program, whole, node)]
    else:
        uses = [node for node in program.of_type(ast.Name) if node.id == name]
    for node in uses:
        if isinstance(node.ctx, ast.Load):
            yield from _grown(program, node)


def home_of(program: Program, node: ast.AST) -> ast.ClassDef | None:
    """The class around `node`."""
    return next((each for each in program.ancestors(node) if isinstance(each, ast.ClassDef)), None)


def are_kin(program: Program, one: ast.AST, other: ast.AST) -> bool:
    """Do both stand in the same class, or the second in a base or a subclass of the first's?"""
    home = home_of(program, one)
    others = [each for each in program.ancestors(other) if isinstance(each, ast.ClassDef)]
    return home is not None and any(
        home is each or f"@{home.name}" in program.base_names(each) or f"@{each.name}" in program.base_names(home)
        for each in others
    )


def _grown(program: Program, node: ast.expr) -> Iterator[ast.expr | None]:
    """What a mention of a list adds to it; None where that is not in sight."""
    parent = program.parent(node)
    if isinstance(parent, ast.Attribute) and parent.attr not in _LOOK:
        call = program.parent(parent)
        position = _ADD_ONE.get(parent.attr)
        if isinstance(call, ast.Call) and position is not None and len(call.args) == position + 1:
            yield from _choices(call.args[position])
        elif isinstance(call, ast.Call) and parent.attr == "extend" and len(call.args) == 1:
            yield from _displayed(program, call.args[0])
        else:
            yield None
    elif isinstance(parent, ast.Subscript):
        yield from () if isinstance(parent.ctx, ast.Load) else (None,)
    elif isinstance(parent, ast.Call) and node in parent.args and getattr(parent.func, "id", "") not in _WALKS:
        yield None

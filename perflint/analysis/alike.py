"""Tells whether two modules are made alike, so that their parameters are as many and come in the same order."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.modules import GIVE_BACK
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import last_name, path_of

_COPIES = frozenset({"copy.deepcopy", "copy.copy"})
_DEPTH = 8


def alike(program: Program, one: ast.expr, other: ast.expr, depth: int = _DEPTH) -> bool:
    """Are two modules made by the same code, one of the other, or is one given the states of the other?

    Those of a function's parameters are if all calls in the file give it such.
    """
    if not depth:
        return False
    parameters = [_parameter(program, each) for each in (one, other)]
    if parameters[0] is not None and parameters[1] is not None:
        first, second = (program.given(each) for each in parameters if each is not None)
        pairs = [(mine, theirs) for (_, mine), (_, theirs) in zip(first, second, strict=True)]
        return bool(pairs) and all(
            mine is not None and theirs is not None and alike(program, mine, theirs, depth - 1)
            for mine, theirs in pairs
        )
    if any(_is_rebuilt(program, each) for each in (one, other)):
        return False
    made = [_recipes(program, each, _DEPTH) for each in (one, other)]
    is_same = made[0] == made[1] and len(made[0]) == 1 and "" not in made[0]
    return is_same or _is_loaded(program, one, other) or _is_loaded(program, other, one)


def _parameter(program: Program, node: ast.expr) -> ast.arg | None:
    found = [*program.get(Flow).definitions(node)] if isinstance(node, ast.Name) else []
    return found[0] if len(found) == 1 and isinstance(found[0], ast.arg) else None


def _recipes(program: Program, node: ast.expr, depth: int) -> set[str]:
    """What makes the module, one or several of these; "" among them where that isn't known."""
    if not depth:
        return {""}
    if not isinstance(node, ast.Call):
        sources = program.get(Origins).sources(node)
        return {each for part in sources for each in _recipes(program, part, depth - 1)} or {""}
    if isinstance(node.func, ast.Attribute) and node.func.attr in GIVE_BACK and program.callee(node) is None:
        return _recipes(program, node.func.value, depth - 1)
    if program.qualified(node.func) in _COPIES and node.args:
        return _recipes(program, node.args[0], depth - 1)
    is_maker = program.value(node.func).kind is Kind.CLASS or last_name(node.func)[:1].isupper()
    return {_pinned(program, node)} if is_maker or program.callee(node) is not None else {""}


def _pinned(program: Program, call: ast.Call) -> str:
    """The text of a call, with the definitions of the variables in it."""
    names = (each for each in ast.walk(call) if isinstance(each, ast.Name))
    flow = program.get(Flow)
    pins = sorted({(each.id, id(one)) for each in names for one in flow.definitions(each)})
    return f"{ast.unparse(call)} {pins}"


def _is_rebuilt(program: Program, module: ast.expr) -> bool:
    """Is a part of it replaced, as far as the file tells?"""
    if isinstance(module, ast.Call):
        return False
    path = path_of(module)
    parts: Sequence[ast.Attribute | ast.Subscript] = program.of_type(ast.Attribute, ast.Subscript)
    return not path or any(path_of(each.value) == path for each in parts if not isinstance(each.ctx, ast.Load))


def _is_loaded(program: Program, one: ast.expr, other: ast.expr) -> bool:
    """Is `one` given all states of `other`, which fails where they differ?"""
    for call in program.of_type(ast.Call):
        method = call.func if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict" else None
        state = call.args[0] if method is not None and len(call.args) == 1 and not call.keywords else None
        source = state.func if isinstance(state, ast.Call) and isinstance(state.func, ast.Attribute) else None
        if method is None or source is None or source.attr != "state_dict":
            continue
        is_there = (path_of(method.value), path_of(source.value)) == (path_of(one), path_of(other))
        is_attribute = path_of(one).startswith("self.") and path_of(other).startswith("self.")
        around = program.class_around if is_attribute else program.function_of
        if is_there and around(call) is around(one):
            return True
    return False

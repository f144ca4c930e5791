"""Whose parameters a collection holds, such as an optimizer is given: through groups, lists that grow, and helpers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.syntax.walk import COMPREHENSIONS, last_name, own_nodes, path_of

_GIVE = frozenset("parameters named_parameters modules named_modules children named_children".split())
_PASS = frozenset("builtins.list builtins.tuple builtins.set builtins.dict builtins.iter builtins.sorted".split())
_HAND_ON = frozenset("items values copy union".split())
_GROW = frozenset({"append", "extend", "add", "update", "insert"})
_NAMED = re.compile(r"param|group|weights|vars$", re.IGNORECASE)


@dataclass(frozen=True)
class Optimized:
    """The `modules` whose parameters a collection holds; `complete` where it surely holds nothing else."""

    modules: tuple[ast.expr, ...]
    complete: bool


def optimized(program: Program, params: ast.expr) -> Optimized | None:
    """Whose parameters `params` holds; None where it holds other tensors, or nothing tells that it has parameters."""
    modules, pending = dict[ast.expr, None](), dict[ast.AST, None]({params: None})
    is_named = False
    for each in _growing(pending):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _GIVE:
            modules[each.func.value] = None
            continue
        parts = _parts(program, each)
        if parts is None:
            if not _NAMED.search(last_name(each)) or last_name(each)[:1].isupper():
                return None
            is_named = True
            continue
        pending.update(dict.fromkeys(parts))
    return Optimized(tuple(modules), not is_named) if modules or is_named else None


def _growing(pending: dict[ast.AST, None]) -> Iterator[ast.AST]:
    """The nodes, those that are added on the way included."""
    done = 0
    while done < len(pending):
        yield list(pending)[done]
        done += 1


def _parts(program: Program, node: ast.AST) -> list[ast.AST] | None:
    """What a collection is made of; None where that isn't known."""
    if isinstance(node, ast.Name | ast.Attribute):
        found = [each for each in program.get(Origins).of(node) if each is not node]
        return [*found, *_grown(program, node)] if found else None
    if isinstance(node, ast.AugAssign):
        return [node.value]
    if isinstance(node, ast.For | ast.comprehension):
        return [node.iter]
    if isinstance(node, COMPREHENSIONS):
        return [node.value if isinstance(node, ast.DictComp) else node.elt]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return list(node.elts)
    if isinstance(node, ast.Starred):
        return [node.value]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Subscript):
        return [node.value]
    if isinstance(node, ast.Dict):
        groups = [v for k, v in zip(node.keys, node.values, strict=True) if getattr(k, "value", "") == "params"]
        return list(groups or node.values)
    return _given(program, node) if isinstance(node, ast.Call) else None


def _given(program: Program, call: ast.Call) -> list[ast.AST] | None:
    name = program.qualified(call.func)
    if name == "builtins.dict" and (given := [each.value for each in call.keywords if each.arg == "params"]):
        return list(given)
    if name in _PASS or name.startswith("itertools.chain"):
        return list(call.args)
    if name in ("builtins.filter", "builtins.map"):
        return list(call.args[1:])
    if name == "builtins.enumerate":
        return list(call.args[:1])
    if isinstance(call.func, ast.Attribute) and call.func.attr in _HAND_ON:
        return [call.func.value]
    found = [each for each in program.get(Origins).of(call) if each is not call]
    return found or None


def _grown(program: Program, node: ast.expr) -> list[ast.AST]:
    """What is added to the collection by methods or `+=`, wherever in the same function."""
    path, scope = path_of(node), program.scope_of(node)
    found: list[ast.AST] = []
    for each in own_nodes(scope):
        if isinstance(each, ast.AugAssign) and path_of(each.target) == path:
            found.append(each)
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _GROW:
            found += each.args[-1:] if path_of(_whole(each.func.value)) == path else []
    return found


def _whole(node: ast.expr) -> ast.expr:
    """The collection that a subscript takes a part of."""
    return _whole(node.value) if isinstance(node, ast.Subscript) else node

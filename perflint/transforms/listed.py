"""Copies a tensor to the host once, in front of the loop that reads its numbers one by one."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

from perflint import torch_ops
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.program import Program
from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, own_nodes, path_of
from perflint.transforms.host_reads import Read, read_of
from perflint.transforms.names import taken_around
from perflint.transforms.operations import InsertBefore, Replace, expression, statement
from perflint.transforms.rewrite import rewrite

_WITH_STEP = 3  # arguments of a range, which may count down
_SUSPENDING = (ast.Yield, ast.YieldFrom, ast.Await)  # others run meanwhile


@dataclass(frozen=True)
class _Element:
    """A read of one number of the tensor called `name`, at an index that the `loop` over a range counts."""

    read: Read
    name: ast.Name
    index: ast.expr
    loop: ast.For


def listed(program: Program, sync: Sync, syncs: Collection[Sync]) -> Fix | None:
    """The fix of `ids[i].item()` for each i of a range, with all such reads in the loop; None where it isn't that."""
    first = _element(program, sync)
    if first is None or not _stays(program, first):
        return None
    found = (_element(program, each) for each in syncs)
    alike = [each for each in found if each and each.loop is first.loop and each.name.id == first.name.id]
    values = taken_around(program, first.loop).fresh(f"{first.name.id}_list")
    copied = statement(f"{{values}} = {_copied(program, alike)}", values=values, name=first.name, end=_end(first.loop))
    change = rewrite(
        program,
        InsertBefore(first.loop, (copied,)),
        *(Replace(each.read.top, _number(each, values)) for each in alike),
    )
    title = f"copy `{first.name.id}` to the host once, in front of the loop"
    if _is_tensor(program, first.name):
        return Fix(title, Safety.EXACT, change)
    return Fix(f"{title}, if it is one tensor", Safety.BEHAVIOUR, change)


def _element(program: Program, sync: Sync) -> _Element | None:
    if sync.kind not in ("item", "int", "float"):
        return None
    read = read_of(program, sync)
    base = read.base
    if not read.is_scalar or not isinstance(base, ast.Subscript) or not isinstance(base.value, ast.Name):
        return None
    loop = _counting(program, base.slice)
    if loop is None or program.value(base.value).kind is not Kind.TENSOR:
        return None
    return _Element(read, base.value, base.slice, loop)


def _counting(program: Program, index: ast.expr) -> ast.For | None:
    """The loop over a range that counts the index, alone or with a constant added, if it is around that directly."""
    if isinstance(index, ast.BinOp) and isinstance(index.op, ast.Add | ast.Sub):
        parts = [each for each in (index.left, index.right) if not _is_integer(each)]
        index = parts[0] if len(parts) == 1 else index
    found = program.get(Flow).graph(index).definitions(index) if isinstance(index, ast.Name) else ()
    made = next(iter(found), None)
    for each in program.ancestors(index):
        if isinstance(each, (*FUNCTIONS, *COMPREHENSIONS)):
            break
        if isinstance(each, ast.For) and each.target is getattr(made, "node", None):
            return each if len(found) == 1 and _arguments(program, each) else None
    return None


def _is_integer(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _arguments(program: Program, loop: ast.For) -> list[ast.expr] | None:
    call = loop.iter
    is_range = isinstance(call, ast.Call) and program.qualified(call.func) == "builtins.range" and not call.keywords
    return call.args if is_range and isinstance(call, ast.Call) else None


def _is_tensor(program: Program, name: ast.Name) -> bool:
    """Is it surely one tensor, or used as such, and not a list of them?"""
    graph = program.get(Flow).graph(name)
    made = next(iter(graph.definitions(name)))
    call = made.source if isinstance(made, Definition) else None
    if program.value(name).sure or (isinstance(call, ast.Call) and _is_of_tensor(call.func)):
        return True
    uses = made.uses if isinstance(made, Definition) else ()
    return any(isinstance(above := program.parent(use), ast.Attribute) and _is_of_tensor(above) for use in uses)


def _is_of_tensor(node: ast.expr) -> bool:
    """Is it an attribute that tensors have, and lists don't?"""
    attribute = node.attr if isinstance(node, ast.Attribute) else ""
    return attribute == "shape" or (torch_ops.of_method(attribute) is not None and not hasattr(list, attribute))


def _stays(program: Program, element: _Element) -> bool:
    """Is the tensor the same, with the same numbers, all through the loop?"""
    graph, memory = program.get(Flow).graph(element.name), program.get(Memory)
    made = graph.definitions(element.name)
    if len(made) != 1 or any(graph.is_within(each.node, element.loop) for each in made if isinstance(each, Definition)):
        return False
    if any(isinstance(each, _SUSPENDING) for each in own_nodes(element.loop)):
        return False
    writes = memory.writes_after(element.name, element.loop)
    is_known = memory.points_to(element.name).is_known
    return is_known and not any(each.deferred or graph.is_within(each.node, element.loop) for each in writes)


def _copied(program: Program, elements: Collection[_Element]) -> str:
    """What copies the numbers that are read: no more than the loop counts to, where no index may count from the end."""
    first = next(iter(elements))
    flat = "" if program.get(Shapes).shape(first.name).rank == 1 else ".flatten()"
    is_plain = all(isinstance(each.index, ast.Name) for each in elements) and _is_plain(program, first)
    return f"{{name}}{'[:{end}]' if is_plain else ''}{flat}.tolist()"


def _is_plain(program: Program, element: _Element) -> bool:
    """Does the loop count up to what can be written once more, and isn't the length of the tensor?"""
    counted, end, name = _arguments(program, element.loop) or [], _end(element.loop), element.name.id
    is_length = isinstance(end, ast.Call) and program.qualified(end.func) == "builtins.len"
    is_all = ast.unparse(end) in (f"len({name})", f"{name}.shape[0]", f"{name}.size(0)")
    return len(counted) < _WITH_STEP and not is_all and (is_length or path_of(end) != "" or _is_integer(end))


def _end(loop: ast.For) -> ast.expr:
    assert isinstance(loop.iter, ast.Call)
    return loop.iter.args[min(1, len(loop.iter.args) - 1)]


def _number(element: _Element, values: str) -> ast.expr:
    number = expression("{values}[{index}]", values=values, index=element.index)
    convert = element.read.converts_to
    return expression(f"{convert}({{number}})", number=number) if convert else number

"""Copies a tensor to the host once, before the loop that reads its numbers one by one."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from perflint.analysis.call_graph import handlers
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.program import Program
from perflint.analysis.values.dtypes import FLOAT, is_wide_integer, number_kind
from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, integer, own_nodes, path_of
from perflint.transforms.host_code import Read, read_of
from perflint.transforms.operations import InsertBefore, Replace, expression, statement
from perflint.transforms.rewrite import rewrite, taken_around

_SUSPENDING = (ast.Yield, ast.YieldFrom, ast.Await)  # others run meanwhile


@dataclass(frozen=True)
class _Element:
    """A read of one number of the tensor `name`, at an index counted by `loop`, over a range."""

    read: Read
    name: ast.Name
    index: ast.expr
    loop: ast.For


def listed(program: Program, sync: Sync, syncs: Collection[Sync]) -> Fix | None:
    """The fix of `ids[i].item()` for each i of a range, with all such reads in the loop; None of other code.

    Where loops around it count such reads too, the outermost that leaves the tensor as it is.
    """
    first = _element(program, sync)
    if first is None:
        return None
    made, found = program.get(Flow).graph(first.name).definitions, (_element(program, each) for each in syncs)
    alike = [each for each in found if each and made(each.name) == made(first.name)]
    around = {each.loop: each for each in alike if _is_in(program, first.loop, each.loop)}
    outer = sorted((each for each in around.values() if _stays(program, each)), key=lambda each: each.loop.lineno)
    if not outer:
        return None
    loop = outer[0].loop
    alike = [outer[0], *(each for each in alike if _is_in(program, each.loop, loop) and each is not outer[0])]
    values = taken_around(program, loop).fresh(f"{first.name.id}_list")
    rank, end = program.get(Shapes).shape(first.name).rank, _end(program, alike)
    part = expression("{name}[:{end}]", name=first.name, end=end) if end is not None else first.name
    flat = "" if rank == 1 else ".flatten()"
    copied = statement(f"{{values}} = {{part}}{flat}.tolist()", values=values, part=part)
    change = rewrite(
        program,
        InsertBefore(loop, (copied,)),
        *(Replace(each.read.top, _number(program, each, values)) for each in alike),
    )
    title = f"copy `{first.name.id}` to the host once, in front of the loop"
    if not program.value(first.name).sure:
        return Fix(f"{title}, if it is one tensor", Safety.BEHAVIOUR, change)
    if rank != 1 and any(handlers(program, loop)):
        return Fix(f"{title}, if no row of it has several numbers", Safety.BEHAVIOUR, change)
    return Fix(title, Safety.EXACT, change)


def _is_in(program: Program, loop: ast.For, other: ast.For) -> bool:
    return loop is other or other in program.ancestors(loop)


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
    if isinstance(index, ast.BinOp) and isinstance(index.op, ast.Add | ast.Sub) and integer(index.right) is not None:
        index = index.left
    made = program.get(Flow).graph(index).only_definition(index)
    for each in program.ancestors(index):
        if isinstance(each, (*FUNCTIONS, *COMPREHENSIONS)):
            break
        if isinstance(each, ast.For) and made is not None and each.target is made.node:
            return each if program.call_of(each.iter, "builtins.range") is not None else None
    return None


def _stays(program: Program, element: _Element) -> bool:
    graph, memory, loop = program.get(Flow).graph(element.name), program.get(Memory), element.loop
    made, inside = graph.only_definition(element.name), {*ast.walk(loop)}  # with the head, and an else
    if made is None or made.node in inside or _may_be_none(made.source):
        return False
    if element.name.id in graph.shared or any(isinstance(each, _SUSPENDING) for each in own_nodes(loop)):
        return False
    writes = memory.writes_after(element.name, loop.iter)
    is_known = memory.points_to(element.name).is_known
    return is_known and not any(each.deferred or each.node in inside for each in writes)


def _may_be_none(source: ast.expr | None) -> bool:
    get = source.func if isinstance(source, ast.Call) else None
    return isinstance(source, ast.IfExp | ast.BoolOp) or (isinstance(get, ast.Attribute) and get.attr == "get")


def _end(program: Program, elements: Sequence[_Element]) -> ast.expr | None:
    """How many numbers are read, if the loop counts from 0 to what can be written again; None for all."""
    first = elements[0]
    call = program.call_of(first.loop.iter, "builtins.range")
    if call is None or len(call.args) > 1 or any(each.loop is not first.loop for each in elements):
        return None
    end, name = call.args[0], first.name.id
    is_plain = all(isinstance(each.index, ast.Name) for each in elements)
    length = program.call_of(end, "builtins.len")
    is_written = path_of(length.args[0] if length is not None and length.args else end) or integer(end) is not None
    is_all = ast.unparse(end) in (f"len({name})", f"{name}.shape[0]", f"{name}.size(0)")
    return end if is_plain and is_written and not is_all else None


def _number(program: Program, element: _Element, values: str) -> ast.expr:
    number = expression("{values}[{index}]", values=values, index=element.index)
    convert, base = element.read.converts_to, element.read.base
    is_said = is_wide_integer(program, base) if convert == "int" else number_kind(program, base) == FLOAT
    return expression(f"{convert}({{number}})", number=number) if convert and not is_said else number

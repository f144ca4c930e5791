"""Copies a tensor to the host once, in front of the loop that reads its numbers one by one."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

from perflint.analysis.call_graph import handlers
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.program import Program
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
    """A read of one number of the tensor called `name`, at an index that the `loop` over a range counts.

    `offset` is the constant that the index adds to what is counted; None for another one.
    """

    read: Read
    name: ast.Name
    index: ast.expr
    loop: ast.For
    offset: int | None


def listed(program: Program, sync: Sync, syncs: Collection[Sync]) -> Fix | None:
    """The fix of `ids[i].item()` for each i of a range, with all such reads in the loop; None where it isn't that.

    Where loops around it count such reads, too, the outermost of them that leaves the tensor as it is.
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
    copied = statement(f"{{values}} = {_copied(program, alike)}", values=values, name=first.name, end=_end(loop))
    change = rewrite(
        program,
        InsertBefore(loop, (copied,)),
        *(Replace(each.read.top, _number(each, values)) for each in alike),
    )
    title = f"copy `{first.name.id}` to the host once, in front of the loop"
    if not program.value(first.name).sure:
        return Fix(f"{title}, if it is one tensor", Safety.BEHAVIOUR, change)
    if program.get(Shapes).shape(first.name).rank != 1 and any(handlers(program, loop)):
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
    counted, offset = _parts(base.slice)
    loop = _counting(program, counted)
    if loop is None or program.value(base.value).kind is not Kind.TENSOR:
        return None
    return _Element(read, base.value, base.slice, loop, offset)


def _parts(index: ast.expr) -> tuple[ast.expr, int | None]:
    """An index without the constant that is added to it, and that constant; None where it isn't such a sum."""
    if not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Add | ast.Sub):
        return index, 0
    first, second = integer(index.left), integer(index.right)
    if second is not None:
        return index.left, second if isinstance(index.op, ast.Add) else -second
    return index.right, first if isinstance(index.op, ast.Add) else None


def _counting(program: Program, index: ast.expr) -> ast.For | None:
    found = program.get(Flow).graph(index).definitions(index) if isinstance(index, ast.Name) else ()
    made = next(iter(found), None)
    for each in program.ancestors(index):
        if isinstance(each, (*FUNCTIONS, *COMPREHENSIONS)):
            break
        if isinstance(each, ast.For) and each.target is getattr(made, "node", None):
            return each if len(found) == 1 and _arguments(program, each) else None
    return None


def _arguments(program: Program, loop: ast.For) -> list[ast.expr] | None:
    call = loop.iter
    is_range = isinstance(call, ast.Call) and program.qualified(call.func) == "builtins.range" and not call.keywords
    return call.args if is_range and isinstance(call, ast.Call) else None


def _stays(program: Program, element: _Element) -> bool:
    """Is the tensor there, and the same, with the same numbers, from in front of the loop to its end?"""
    graph, memory, loop = program.get(Flow).graph(element.name), program.get(Memory), element.loop
    made = graph.definitions(element.name)
    inside = {*ast.walk(loop)}  # with the head, and an else
    known = [each for each in made if isinstance(each, Definition) and each.node not in inside]
    if len(made) != 1 or not known or _may_be_none(known[0].source):
        return False
    if element.name.id in graph.shared or any(isinstance(each, _SUSPENDING) for each in own_nodes(loop)):
        return False
    writes = memory.writes_after(element.name, loop.iter)
    is_known = memory.points_to(element.name).is_known
    return is_known and not any(each.deferred or each.node in inside for each in writes)


def _may_be_none(source: ast.expr | None) -> bool:
    get = source.func if isinstance(source, ast.Call) else None
    return isinstance(source, ast.IfExp | ast.BoolOp) or (isinstance(get, ast.Attribute) and get.attr == "get")


def _copied(program: Program, elements: Collection[_Element]) -> str:
    first = next(iter(elements))
    flat = "" if program.get(Shapes).shape(first.name).rank == 1 else ".flatten()"
    start = _start(program, first.loop)
    offsets = [each.offset if each.loop is first.loop else None for each in elements]
    known = [each for each in offsets if each is not None]
    if start is None or len(known) < len(offsets) or start + min(known) < 0 or not _is_plain(program, first):
        return f"{{name}}{flat}.tolist()"
    more, number = max(0, *known), integer(_end(first.loop))
    end = str(number + more) if number is not None else f"{{end}} + {more}" if more else "{end}"
    return f"{{name}}[:{end}]{flat}.tolist()"


def _start(program: Program, loop: ast.For) -> int | None:
    first, *others = _arguments(program, loop) or [loop.iter]
    counts_up = len(others) < 2 or (integer(others[1]) or 0) > 0
    return (integer(first) if others else 0) if counts_up else None


def _is_plain(program: Program, element: _Element) -> bool:
    """Can the end of the range be written once more, and isn't it the length of the tensor?"""
    end, name = _end(element.loop), element.name.id
    is_length = isinstance(end, ast.Call) and program.qualified(end.func) == "builtins.len"
    is_all = ast.unparse(end) in (f"len({name})", f"{name}.shape[0]", f"{name}.size(0)")
    written = end.args[0] if is_length and isinstance(end, ast.Call) else end
    return not is_all and (path_of(written) != "" or integer(end) is not None)


def _end(loop: ast.For) -> ast.expr:
    assert isinstance(loop.iter, ast.Call)
    return loop.iter.args[min(1, len(loop.iter.args) - 1)]


def _number(element: _Element, values: str) -> ast.expr:
    number = expression("{values}[{index}]", values=values, index=element.index)
    convert = element.read.converts_to
    return expression(f"{convert}({{number}})", number=number) if convert else number

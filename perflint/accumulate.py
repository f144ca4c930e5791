"""Keeps what a loop adds up on the device, and converts it behind the loop to what it was."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.host_reads import Read, read_of, way_to
from perflint.program.dtypes import FLOAT, INTEGER, number_kind
from perflint.program.heat import Heat
from perflint.program.occurrences import occurrences, seen_elsewhere, start_region
from perflint.program.syncs import Sync
from perflint.program.values import Kind, Value
from perflint.program.walk import FUNCTIONS, LOOPS, Loop, own_nodes, path_of
from perflint.rule import Edit, Fix, Safety

if TYPE_CHECKING:
    from perflint.program import Program

_NO_DOUBLES = ("mps", "xpu")  # devices without 64-bit floats


class Blocked(Exception):
    """No fix: the message says what stands in the way."""


@dataclass(frozen=True)
class Accumulator:
    """A variable to which each iteration of `loop` adds; `additions` are the statements that do."""

    path: str
    loop: Loop
    scope: ast.AST
    additions: tuple[ast.stmt, ...]


def accumulation(program: Program, sync: Sync) -> Fix:
    """The fix of a read whose value is only added up, or collected in a list; raises Blocked."""
    read = read_of(program, sync)
    statement = program.statement_of(read.top)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add | ast.Sub):
        return _sum(program, read, statement, path_of(statement.target), statement.value)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.BinOp):
        path, value = path_of(statement.targets[0]), statement.value
        if path and path_of(value.left) == path and isinstance(value.op, ast.Add | ast.Sub):
            return _sum(program, read, statement, path, value.right)
    call = program.parent(read.top)
    if isinstance(statement, ast.Expr) and call is statement.value and isinstance(call, ast.Call):
        func = call.func
        if (
            isinstance(func, ast.Attribute)
            and func.attr == "append"
            and call.args == [read.top]
            and path_of(func.value)
        ):
            return _list(program, read, statement, path_of(func.value))
    raise Blocked("")


# -- sums


def _sum(program: Program, read: Read, statement: ast.stmt, path: str, added: ast.expr) -> Fix:
    if not path:
        return _part_of_tensor(program, read, statement, added)
    if not read.is_scalar:
        raise Blocked("a whole tensor is copied, not one number")
    safety = _linear(program, read, added)
    found = _accumulator(program, read, statement, path)
    starts = _starting_values(program, found)
    is_count = (
        number_kind(program, read.base) == INTEGER
        and read.converts_to != "float"
        and all(isinstance(each, int) for each in starts)
    )
    if is_count and added is not read.top and not _adds_integers(program, added):
        raise Blocked("it is scaled by what may be no integer")
    kind = INTEGER if is_count else number_kind(program, read.base)
    if kind != FLOAT and not is_count:
        if any(isinstance(each, int) for each in starts) and read.converts_to != "float" and kind != FLOAT:
            safety = Safety.BEHAVIOUR  # were it an integer, the sum would have been one
    elif read.converts_to == "int" and not is_count:
        raise Blocked("int() cuts the value off in every iteration")
    if is_count:
        edits = [read.replaced(program, "")]
    else:
        single = any(word in program.text for word in _NO_DOUBLES)
        edits = [read.replaced(program, ".detach().float()" if single else ".detach().double()")]
        safety = max(safety, Safety.ROUNDING, key=_ORDER.index) if single else safety
    convert = "int" if is_count else "float"
    edits += _conversions_inside(program, found, starts, convert)
    _check_other_additions(program, found, statement, is_count)
    keeps_integer = convert == "float" and any(isinstance(each, int) for each in starts)
    conversion = f"{path} if isinstance({path}, int) else float({path})" if keeps_integer else f"{convert}({path})"
    edits.append(_behind(program, found.loop, f"{path} = {conversion}"))
    return Fix(f"add `{path}` up on the device and read it once, behind the loop", safety, tuple(edits))


def _part_of_tensor(program: Program, read: Read, statement: ast.stmt, added: ast.expr) -> Fix:
    target = statement.target if isinstance(statement, ast.AugAssign) else None
    if isinstance(target, ast.Subscript) and added is read.top and read.is_scalar and read.converts_to != "int":
        value = program.value(target.value)
        if value.on_device and value.sure:
            edits = (read.replaced(program, ".detach()"),)
            return Fix("add on the device, where the sum is", Safety.ROUNDING, edits)
    raise Blocked("it is added to a part of a larger object")


_ORDER = [Safety.EXACT, Safety.ROUNDING, Safety.BEHAVIOUR]


def _linear(program: Program, read: Read, added: ast.expr) -> Safety:
    """The safety of doing on the device what leads from the read to the sum; raises Blocked where it cannot be done."""
    safety = Safety.EXACT
    for operation, part in way_to(program, read.top, added):
        if isinstance(operation, ast.UnaryOp) and isinstance(operation.op, ast.USub):
            continue
        if not isinstance(operation, ast.BinOp) or not isinstance(operation.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            raise Blocked("host arithmetic needs it in every iteration")
        other = operation.right if part is operation.left else operation.left
        if isinstance(operation.op, ast.Div):
            if part is not operation.left:
                raise Blocked("host arithmetic needs it in every iteration")
            safety = Safety.ROUNDING  # a device divides by multiplying with the reciprocal
        if program.value(other).kind is not Kind.NUMBER:
            raise Blocked(f"`{program.segment(other)}` is not known to be a number")
    return safety


def _adds_integers(program: Program, added: ast.expr) -> bool:
    return all(
        not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div | ast.Mult) for node in ast.walk(added)
    ) and all(not isinstance(node, ast.Constant) or isinstance(node.value, int) for node in ast.walk(added))


def _starting_values(program: Program, found: Accumulator) -> list[int | float]:
    """The literal numbers that the variable may hold when the loop starts, or is set to in it; raises Blocked."""
    region = start_region(program, found.loop, found.path, _is_number)
    if region is None:
        raise Blocked(f"`{found.path}` is not known to start as a number")
    starts: list[int | float] = []
    for node in (node for each in region for node in occurrences(each, found.path)):
        if isinstance(node.ctx, ast.Load) or program.statement_of(node) in found.additions:
            continue
        value = program.value(node)
        if (
            not isinstance(node.ctx, ast.Store)
            or not isinstance(program.statement_of(node), ast.Assign | ast.AnnAssign)
            or not _is_number(value)
        ):
            raise Blocked(f"line {node.lineno} sets `{found.path}` to something else")
        assert isinstance(value.literal, int | float)
        starts.append(value.literal)
    return starts


def _is_number(value: Value) -> bool:
    return value.is_literal and isinstance(value.literal, int | float) and not isinstance(value.literal, bool)


def _conversions_inside(
    program: Program, found: Accumulator, starts: Sequence[int | float], convert: str
) -> list[Edit]:
    """Edits that convert the sum where the loop reads it now and then."""
    edits = []
    for node in occurrences(found.loop, found.path):
        if not isinstance(node.ctx, ast.Load) or program.statement_of(node) in found.additions:
            continue
        if program.heat(node) is not Heat.ONCE:
            raise Blocked(f"line {node.lineno} reads `{found.path}` in every iteration")
        if (
            convert == "float"
            and any(isinstance(each, int) for each in starts)
            and not _follows(program, node, found.additions)
        ):
            raise Blocked(f"line {node.lineno} reads `{found.path}`, which may still be an integer there")
        edits.append(_converted(program, node, found.path, convert))
    return edits


def _converted(program: Program, node: ast.Name | ast.Attribute, path: str, convert: str) -> Edit:
    start, end = program.span(node)
    in_string = any(isinstance(each, ast.JoinedStr) for each in program.ancestors(node))
    if program.text[start:end] != path or (in_string and program.text[end:].lstrip()[:1] == "="):
        raise Blocked(f"line {node.lineno} reads `{path}` inside a string")
    return Edit(start, end, f"{convert}({path})")


def _follows(program: Program, node: ast.AST, additions: Sequence[ast.stmt]) -> bool:
    """Does one of `additions` stand before `node` in the block of a statement around it?"""
    around = [program.statement_of(node), *(each for each in program.ancestors(node) if isinstance(each, ast.stmt))]
    for addition in additions:
        block = program.block_of(addition)
        here = next((index for index, each in enumerate(block) if each in around), None)
        if here is not None and block.index(addition) < here:
            between = block[block.index(addition) + 1 : here + 1]
            stores = [
                n
                for each in between
                for n in occurrences(each, path_of(getattr(addition, "target", None) or addition))
                if isinstance(n.ctx, ast.Store)
            ]
            return all(store.lineno >= node.lineno for store in stores)
    return False


def _check_other_additions(program: Program, found: Accumulator, statement: ast.stmt, is_count: bool) -> None:
    for other in found.additions:
        if other is statement:
            continue
        value = other.value if isinstance(other, ast.AugAssign) else None
        if (
            value is None
            or program.value(value).kind is not Kind.NUMBER
            or (is_count and not _is_integer(program, value))
        ):
            raise Blocked(f"line {other.lineno} adds something else to `{found.path}`")


def _is_integer(program: Program, node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item":
        return number_kind(program, node.func.value) == INTEGER
    return number_kind(program, node) == INTEGER


# -- lists


def _list(program: Program, read: Read, statement: ast.stmt, path: str) -> Fix:
    if not read.is_scalar:
        raise Blocked(
            "a whole tensor is collected in every iteration: keep it on the device and copy all behind the loop if its memory allows"
        )
    if read.converts_to:
        wanted = FLOAT if read.converts_to == "float" else INTEGER
        if number_kind(program, read.base) != wanted:
            raise Blocked(f"{read.converts_to}() may change the type of the value")
    torch = next(
        (
            alias.asname or "torch"
            for node in program.tree.body
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "torch"
        ),
        "",
    )
    if not torch or "." in path:
        raise Blocked("`torch` is not imported by that name" if not torch else f"`{path}` may be read elsewhere")
    found = _accumulator(program, read, statement, path)
    uses = len(occurrences(found.loop, path))
    region = start_region(program, found.loop, path, _is_empty)
    if (
        region is None
        or any(occurrences(each, path) for each in region[1:-1])
        or len(occurrences(region[-1], path)) != uses
    ):
        raise Blocked(f"`{path}` is not known to be empty when the loop starts")
    if len(found.additions) > 1:
        raise Blocked(f"several lines append to `{path}`")
    if any(
        node is not found.loop and isinstance(node, ast.Name) and node.id == path and isinstance(node.ctx, ast.Store)
        for node in own_nodes(found.loop)
    ):
        raise Blocked(f"`{path}` starts anew in the loop")
    for node in occurrences(found.loop, path):
        if program.statement_of(node) not in found.additions and not _is_length(program, node):
            raise Blocked(f"line {node.lineno} reads `{path}` in the loop")
    indent = "\n" + _indent(program, found.loop)
    text = f"if {path}:{indent}    {path}[:] = {torch}.stack({path}).flatten().tolist()"
    edits = (read.replaced(program, ".detach().clone()"), _behind(program, found.loop, text))
    return Fix(f"collect `{path}` on the device and read it once, behind the loop", Safety.EXACT, edits)


def _is_empty(value: Value) -> bool:
    return value.kind is Kind.SEQUENCE and value.items == ()


def _is_length(program: Program, node: ast.AST) -> bool:
    call = program.parent(node)
    return isinstance(call, ast.Call) and program.qualified(call.func) == "builtins.len"


# -- the loop and what is around it


def _accumulator(program: Program, read: Read, statement: ast.stmt, path: str) -> Accumulator:
    scope = program.function_of(statement) or program.tree
    loop = program.hot_loop(read.top)
    if not isinstance(loop, LOOPS):
        raise Blocked(f"the loop that makes it hot is elsewhere, and `{path}` lives longer than one call")
    loop = _outermost(program, loop, path)
    additions = tuple(
        {program.statement_of(node): None for node in occurrences(loop, path) if _is_addition(program, node, path)}
    )
    if reason := seen_elsewhere(program, scope, path, loop):
        raise Blocked(reason)
    if any(occurrences(each, path) for each in loop.orelse):
        raise Blocked(f"the loop's else reads `{path}`")
    _check_exits(program, loop, scope, path)
    return Accumulator(path, loop, scope, additions)


def _is_addition(program: Program, node: ast.Name | ast.Attribute, path: str) -> bool:
    statement = program.statement_of(node)
    if isinstance(statement, ast.AugAssign):
        return statement.target is node and isinstance(statement.op, ast.Add | ast.Sub)
    if isinstance(statement, ast.Assign):
        value = statement.value
        return (
            len(statement.targets) == 1
            and path_of(statement.targets[0]) == path
            and isinstance(value, ast.BinOp)
            and path_of(value.left) == path
        )
    call = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "append"
        and call.func.value is node
    )


def _outermost(program: Program, loop: Loop, path: str) -> Loop:
    """The outermost loop around which holds no other use of the variable than `loop` does."""
    uses = len(occurrences(loop, path))
    for parent in program.ancestors(loop):
        if isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
            break
        if isinstance(parent, LOOPS):
            if len(occurrences(parent, path)) != uses:
                break
            loop = parent
    return loop


def _check_exits(program: Program, loop: Loop, scope: ast.AST, path: str) -> None:
    for node in own_nodes(loop):
        if isinstance(node, ast.Return) and ("." in path or occurrences(node, path)):
            raise Blocked(f"line {node.lineno} leaves the loop with `{path}` unread")
        if isinstance(node, ast.Delete) and occurrences(node, path):
            raise Blocked(f"line {node.lineno} deletes `{path}`")
    child: ast.AST = loop
    for parent in program.ancestors(loop):
        if parent is scope:
            break
        if isinstance(parent, ast.Try) and child in parent.body and (parent.handlers or parent.finalbody):
            inside = {node for each in parent.body for node in own_nodes(each)}
            later = [node for node in occurrences(scope, path) if node not in inside and node.lineno > parent.lineno]
            if later or "." in path:
                raise Blocked(f"an exception may leave the loop, and `{path}` is read behind it")
        child = parent


def _indent(program: Program, loop: Loop) -> str:
    start = program.span(loop)[0]
    line = program.source.line_start(loop.lineno)
    return program.text[line:start]


def _behind(program: Program, loop: Loop, statement: str) -> Edit:
    """Inserts a statement right behind `loop`."""
    line = (loop.end_lineno or loop.lineno) + 1
    indent = _indent(program, loop)
    if line > program.source.line_count:
        end = len(program.text)
        broken = "" if program.text.endswith(("\n", "\r")) else "\n"
        return Edit(end, end, f"{broken}{indent}{statement}\n")
    start = program.source.line_start(line)
    return Edit(start, start, f"{indent}{statement}\n")

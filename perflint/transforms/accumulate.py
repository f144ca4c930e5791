"""Keeps on the device what a loop adds up, and reads it after the loop, where it becomes what it was."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from perflint.analysis.data.origins import Origins
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, sources_of
from perflint.analysis.ir.occurrences import occurrences, start_region
from perflint.analysis.links import Heat, Says
from perflint.analysis.program import GradMode, Program
from perflint.analysis.values.dtypes import (
    FLOAT,
    INTEGER,
    is_integer,
    is_wide_integer,
    may_be_complex,
    number_kind,
)
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, LOOPS, own_nodes, path_of, receiver_of
from perflint.transforms.collected import (
    ANY_SHAPE,
    Accumulator,
    accumulator_of,
    collection,
    last_conversion,
    shape_of_one,
)
from perflint.transforms.host_code import Read, item_of, read_of, way_to
from perflint.transforms.operations import (
    InsertAfter,
    Operation,
    Replace,
    ReplaceStatements,
    expression,
    new,
    standing_for,
)
from perflint.transforms.operations import statement as statement_of
from perflint.transforms.rewrite import Blocked, check_written, rewrite

_ORDERING = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_FRACTIONS = re.compile(r"\b(fractions|decimal|sympy)\b")
_BY_NAME = {f"builtins.{each}" for each in ("exec", "eval", "locals", "vars")}  # what may read any variable
_MUCH = 1 << 20
_ORDER = [Safety.EXACT, Safety.ROUNDING, Safety.BEHAVIOUR]

_OFTEN = (*LOOPS, *FUNCTIONS, *COMPREHENSIONS, ast.JoinedStr)  # or where it would be hard to read

_WITHOUT = re.compile(r"\b(mps|xpu|accelerator)\b")  # and what may be one
_WITH = re.compile(r"(cuda|cpu)(:|$)")


def accumulation(program: Program, sync: Sync) -> Fix:
    """Raises Blocked, without a reason for reads of other kinds."""
    read = read_of(program, sync)
    statement = program.statement_of(read.top)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add | ast.Sub):
        return _sum(program, read, statement, path_of(statement.target), statement.value)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.BinOp):
        path, value = path_of(statement.targets[0]), statement.value
        if path and path_of(value.left) == path and isinstance(value.op, ast.Add | ast.Sub):
            return _sum(program, read, statement, path, value.right)
        if path and path_of(value.right) == path and isinstance(value.op, ast.Add):
            return _sum(program, read, statement, path, value.left)
    call = program.parent(read.top)
    name = receiver_of(call, "append") if isinstance(call, ast.Call) and call.args == [read.top] else None
    if isinstance(statement, ast.Expr) and call is statement.value and name is not None and path_of(name):
        return collection(program, read, statement, name)
    raise Blocked("")


def _sum(program: Program, read: Read, statement: ast.stmt, path: str, added: ast.expr) -> Fix:
    if not path:
        raise Blocked("it is added to a part of a larger object")
    if not read.is_scalar:
        raise Blocked("a whole tensor is copied, not one number")
    if not read.converts_to:
        _check_real(program, read.base)
    safety, proviso = _linear(program, read, added), ""
    found = accumulator_of(program, read, statement, path)
    starts = _starting_values(program, found)
    may_be_integer = any(isinstance(each, int) for each in starts)
    is_float = read.converts_to == "float" or _is_divided(program, read, added)
    kind = FLOAT if is_float else _kind_of_sum(program, read, starts)
    if may_be_integer and kind == FLOAT and number_kind(program, read.base) == INTEGER and not is_float:
        raise Blocked("it starts as an integer here and as a float there")
    if kind == INTEGER:
        if not all(_is_integer(program, other) for other in _others(program, read.top, added)):
            raise Blocked("it is combined with what may be no integer")
        suffix, convert = "" if is_wide_integer(program, read.base) else ".long()", "int"
        if (
            not _is_bounded(program, read.base)
            or any(_others(program, read.top, added))
            or any(abs(each) > _MUCH for each in starts)
        ):
            safety, proviso = Safety.BEHAVIOUR, ", where it stays below 2**63"
    else:
        if read.converts_to == "int":
            raise Blocked("int() cuts the value off in every iteration")
        if kind != FLOAT and may_be_integer:
            safety, proviso = Safety.BEHAVIOUR, ", as a float, also where integers are added"
        is_recorded = program.grad_mode(read.base, callers=False) is not GradMode.OFF
        is_whole = number_kind(program, read.base) == INTEGER
        suffix, convert = "" if is_whole or not is_recorded else ".detach()", "float"
        if program.get(_has_doubles):
            suffix += ".double()"
        else:
            safety = max(safety, Safety.ROUNDING, key=_ORDER.index)
            if program.is_said(Says.FORMATS):  # the program may compute in formats that are too short
                suffix += ".float()"
    suffix += shape_of_one(program, read.base)
    _check_other_additions(program, found, statement, kind)
    keeps_integer = convert == "float" and may_be_integer
    inside = _conversions_inside(program, found, convert, keeps_integer)
    after = _reads_after(program, found)
    if after is not None and all(_reads_alike(program, each) for each in after) and all(abs(n) < _MUCH for n in starts):
        keeps_integer = False  # an integer gives what the same float does
    behind = list[Operation]()
    if after and len(found.additions) == 1 and (once := _only_read(program, found, after)):
        behind = _converted(program, once, convert)
    elif after != []:
        converted = statement_of(f"{{path}} = {convert}({{path}})", path=path)
        behind = [InsertAfter(last_conversion(program, found), (converted,))]
    change = rewrite(program, read.replaced(suffix), *inside, *behind)
    when = "read it once, after the loop" if behind else "read it where that is needed"
    if shape_of_one(program, read.base):
        safety, proviso = Safety.BEHAVIOUR, ANY_SHAPE
    if keeps_integer and behind:
        proviso = proviso or ", where it is 0.0 and not 0 if nothing was added"
        safety = Safety.BEHAVIOUR
    return Fix(f"add `{path}` up on the device and {when}{proviso}", safety, change)


def _reads_after(program: Program, found: Accumulator) -> list[ast.Name] | None:
    function = program.function_of(found.loop)
    if function is None:
        return None
    if any(isinstance(each, ast.Name) and program.qualified(each) in _BY_NAME for each in own_nodes(function)):
        return None
    nodes = [node for node in occurrences(found.scope, found.path) if isinstance(node, ast.Name)]
    declared = (each for each in ast.walk(function) if isinstance(each, ast.Global | ast.Nonlocal))
    if any(found.path in each.names for each in declared) or any(program.function_of(n) is not function for n in nodes):
        return None
    graph = program.get(Flow).graph(found.loop)
    outside = [node for node in nodes if not graph.is_within(node, found.loop)]
    updates = [node for node in outside if isinstance(program.parent(node), ast.AugAssign | ast.Delete)]
    reads = (node for node in outside if isinstance(node.ctx, ast.Load) and node not in updates)
    return [*updates, *(node for node in reads if _may_be_sum(graph.definitions(node), found))]


def _only_read(program: Program, found: Accumulator, after: Sequence[ast.Name]) -> ast.Name | None:
    """The one place that reads the sum, as often as the loop runs; none if it may read something else, too."""
    read, graph = after[0], program.get(Flow).graph(found.loop)
    values = [*sources_of(held)] if (held := graph.read(read)) is not None else []
    made = [each.node for each in values if isinstance(each, Definition)]
    around = [next(each for each in program.ancestors(node) if isinstance(each, _OFTEN)) for node in (read, found.loop)]
    is_plain = not isinstance(program.statement_of(read), ast.Delete)
    is_sum = len(made) == len(values) > 0 and all(
        program.statement_of(each) in found.additions or _is_number(program.value(each)) for each in made
    )
    return read if len(after) == 1 and is_plain and is_sum and around[0] is around[1] else None


def _converted(program: Program, read: ast.Name, convert: str) -> list[Operation]:
    update = program.parent(read)
    if program.call_of(update, "builtins.float", f"builtins.{convert}") is not None:
        return []
    if not isinstance(update, ast.AugAssign) or read is not update.target:
        return [Replace(read, expression(f"{convert}({{sum}})", sum=read))]
    value = ast.BinOp(expression(f"{convert}({{sum}})", sum=read.id), update.op, update.value)
    made = statement_of("{path} = {value}", path=read.id, value=new(value))
    return [ReplaceStatements((update,), (standing_for(made, update),))]


def _may_be_sum(values: Collection[object], found: Accumulator) -> bool:
    return any(
        not isinstance(each, Definition) or any(each.node in ast.walk(a) for a in found.additions) for each in values
    )


def _reads_alike(program: Program, node: ast.expr) -> bool:
    read = program.parent(node)
    if isinstance(read, ast.Compare):
        return all(isinstance(each, _ORDERING) for each in read.ops)
    if _shows_as_float(program, node):
        return True
    if isinstance(read, ast.AugAssign) and read.target is node:
        divisor = read.value
    elif isinstance(read, ast.BinOp) and read.left is node:
        divisor = read.right
    else:
        return False
    # By fractions alone, integers are divided otherwise.
    is_plain = program.value(divisor).kind is Kind.NUMBER or not _FRACTIONS.search(program.text)
    return isinstance(read.op, ast.Div) and is_plain


def _shows_as_float(program: Program, node: ast.expr) -> bool:
    read = program.parent(node)
    form = read.format_spec if isinstance(read, ast.FormattedValue) else None
    last = form.values[-1:] if isinstance(form, ast.JoinedStr) else []
    return any(isinstance(each, ast.Constant) and str(each.value).endswith(tuple("eEfFgG%")) for each in last)


def _kind_of_sum(program: Program, read: Read, starts: Sequence[int | float]) -> str:
    kind = number_kind(program, read.base)
    return FLOAT if kind == INTEGER and not all(isinstance(each, int) for each in starts) else kind


def _is_divided(program: Program, read: Read, added: ast.expr) -> bool:
    steps = (step for step, _ in way_to(program, read.top, added))
    return any(isinstance(step, ast.BinOp) and isinstance(step.op, ast.Div) for step in steps)


def _linear(program: Program, read: Read, added: ast.expr) -> Safety:
    safety = Safety.EXACT
    for step, part in way_to(program, read.top, added):
        if isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub):
            continue
        if not isinstance(step, ast.BinOp) or not isinstance(step.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            raise Blocked("host arithmetic needs it in every iteration")
        if isinstance(step.op, ast.Div):
            if part is not step.left:
                raise Blocked("host arithmetic needs it in every iteration")
            safety = Safety.ROUNDING  # a device divides by multiplying with the reciprocal
        if isinstance(step.op, ast.Sub):
            _check_subtracted(program, step.right if part is step.left else step.left)
    for other in _others(program, read.top, added):
        if any(map(item_of, ast.walk(other))):
            raise Blocked("it is combined with another read, and host arithmetic may fail where a device's does not")
        if program.value(other).kind is not Kind.NUMBER and receiver_of(other, "double") is None:
            raise Blocked(f"`{program.segment(other)}` is not known to be a number")
        _check_real(program, other)
    return safety


def _check_real(program: Program, node: ast.expr) -> None:
    if may_be_complex(program, node):
        raise Blocked("the sum may be a complex number: the file computes with such")


def _others(program: Program, read: ast.expr, added: ast.expr) -> Iterator[ast.expr]:
    for step, part in way_to(program, read, added):
        if isinstance(step, ast.BinOp):
            yield step.right if part is step.left else step.left


def _is_bounded(program: Program, node: ast.expr) -> bool:
    if program.value(node).dtype == "bool":
        return True
    found = operation(program, node)
    if found is None or found.tensor is None:
        return False
    if "making_longs" in found.traits and "same_kind" not in found.traits:
        return True  # indices, and how many there are
    return "same_kind" in found.traits and _is_bounded(program, found.tensor)


def _starting_values(program: Program, found: Accumulator) -> list[int | float]:
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


def _conversions_inside(program: Program, found: Accumulator, convert: str, keeps_integer: bool) -> list[Replace]:
    converted = []
    for node in occurrences(found.loop, found.path):
        if not isinstance(node.ctx, ast.Load) or program.statement_of(node) in found.additions:
            continue
        check_cold(program, node)
        if keeps_integer and not _follows(program, node, found):
            raise Blocked(f"line {node.lineno} reads `{found.path}`, which may still be an integer there")
        check_written(program, node)
        converted.append(Replace(node, expression(f"{convert}({{sum}})", sum=node)))
    return converted


def check_cold(program: Program, node: ast.expr) -> None:
    if program.heat(node) is not Heat.ONCE:
        raise Blocked(
            f"line {node.lineno} reads `{program.segment(node)}` in every iteration: let it do so every few steps"
        )


def _follows(program: Program, node: ast.expr, found: Accumulator) -> bool:
    graph = program.get(Flow).graph(node)
    stores = (each for each in occurrences(found.loop, found.path) if isinstance(each.ctx, ast.Store))
    resets = [each for each in stores if program.statement_of(each) not in found.additions]
    return any(
        graph.dominates(each, node) and not any(graph.reaches(reset, node, avoiding=each) for reset in resets)
        for each in found.additions
    )


def _check_other_additions(program: Program, found: Accumulator, statement: ast.stmt, kind: str) -> None:
    for other in found.additions:
        if other is statement:
            continue
        value = other.value if isinstance(other, ast.AugAssign) else None
        if (
            value is None
            or program.value(value).kind is not Kind.NUMBER
            or (kind == INTEGER and not _is_integer(program, value))
        ):
            raise Blocked(f"line {other.lineno} adds something else to `{found.path}`")
        _check_real(program, value)
        if isinstance(other, ast.AugAssign) and isinstance(other.op, ast.Sub):
            _check_subtracted(program, other.value)


def _check_subtracted(program: Program, node: ast.expr) -> None:
    if not _is_no_bool(program, node):
        raise Blocked(f"`{program.segment(node)}` may be a bool, which is not subtracted from a tensor")


def _is_no_bool(program: Program, node: ast.expr) -> bool:
    is_computed = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div)
    return is_computed or is_integer(program, node) or number_kind(program, item_of(node) or node) == FLOAT


def _is_integer(program: Program, node: ast.expr) -> bool:
    return number_kind(program, item_of(node) or node) == INTEGER


def _has_doubles(program: Program) -> bool:
    """Does the program itself move its tensors, each time to CUDA or the host?

    Otherwise callers, the command line or other files may choose any device.
    """
    devices = list(_devices(program))
    return bool(devices) and not _WITHOUT.search(program.text) and all(_is_cuda(program, each) for each in devices)


def _devices(program: Program) -> Iterator[ast.expr]:
    for call in program.of_type(ast.Call):
        if receiver_of(call, "cuda") is not None:
            yield call
        moved = call.args[:1] if receiver_of(call, "to") is not None else []
        named = [each.value for each in call.keywords if each.arg == "device"]
        yield from (each for each in (*moved, *named) if program.value(each).kind not in (Kind.LIBRARY, Kind.TENSOR))


def _is_cuda(program: Program, device: ast.expr) -> bool:
    return receiver_of(device, "cuda") is not None or all(
        _names_cuda(program, each) for each in program.get(Origins).of(device)
    )


def _names_cuda(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_cuda(program, node.body) and _is_cuda(program, node.orelse)
    if isinstance(node, ast.JoinedStr):
        return bool(node.values) and _names_cuda(program, node.values[0])
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(_WITH.match(node.value))
    if (made := program.call_of(node, "torch.device")) is not None:
        return bool(made.args) and _is_cuda(program, made.args[0])
    return isinstance(node, ast.Attribute) and node.attr == "device"  # where another tensor is

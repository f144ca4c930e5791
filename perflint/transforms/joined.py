"""Turns a tensor that grows by concatenation in a loop into a list joined after it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from perflint.analysis.autograd.effects import steps_optimizer
from perflint.analysis.call_graph import handlers
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.ir.graph import Value as IRValue
from perflint.analysis.ir.occurrences import occurrences, start_region
from perflint.analysis.links import Says
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.locations import ANYWHERE, Location, Locations, made
from perflint.analysis.memory.points_to import PointsTo
from perflint.analysis.program import Program
from perflint.analysis.values.hints import scripting
from perflint.analysis.values.operations import TorchCall, operation
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import LOOPS, Loop, PlainLoop, own_nodes, path_of
from perflint.transforms.aliases import is_made_in, names_of
from perflint.transforms.collected import alone_in
from perflint.transforms.operations import (
    InsertAfter,
    InsertBefore,
    ReplaceStatements,
    derived,
    expression,
    new,
    standing_for,
    statement,
)
from perflint.transforms.rewrite import Blocked, rewrite, taken_around

_SWITCH = "torch.set_grad_enabled"


@dataclass(frozen=True)
class _Update:
    """The statement that joins `parts` to the tensor `name`: `before`, `join` or both set it.

    `starts`: the first iteration finds None, or nothing, and takes the parts alone.
    """

    name: str
    statement: ast.stmt
    join: ast.Call
    parts: Sequence[ast.expr]
    prepends: bool
    starts: ast.expr | None


@dataclass(frozen=True)
class Growth:
    """`path = torch.cat([path, part])`, by `call`."""

    path: str
    part: ast.expr
    call: TorchCall


def growth(program: Program, statement: ast.stmt) -> Growth | None:
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return None
    path, call = path_of(statement.targets[0]), operation(program, statement.value)
    parts = call.tensor if call is not None and call.name == "cat" else None
    if call is None or not path or not isinstance(parts, ast.List | ast.Tuple) or len(parts.elts) != 2:
        return None
    return Growth(path, parts.elts[1], call) if path_of(parts.elts[0]) == path else None


def joined_behind(program: Program, growing: TorchCall) -> Fix:
    """Raises Blocked."""
    update = _update(program, growing.call)
    scope = program.function_of(update.statement) or program.tree
    inner = next(each for each in program.ancestors(update.statement) if isinstance(each, LOOPS))
    loop = alone_in(program, inner, scope, update.name)
    if isinstance(loop, ast.AsyncFor):
        raise Blocked("other code may run before the loop is over")
    added = {node for each in (*update.parts, update.starts) if each is not None for node in ast.walk(each)}
    own = set(ast.walk(update.statement)) - added
    for node in occurrences(loop, update.name):
        if node not in own:
            raise Blocked(f"the loop reads `{update.name}`", node)
    _check_plain(program, update.statement, loop)
    _check_same_each_time(program, growing.call, loop)
    for part in update.parts:
        result = update.name if update.starts is not None else ""
        _check_own(program, part, inner, update.statement, loop, result=result)
    kept = taken_around(program, loop).fresh(f"{update.name}_parts")
    change = rewrite(
        program,
        _start(program, update, loop, kept),
        ReplaceStatements((update.statement,), (standing_for(_append(update, kept), update.statement),)),
        InsertAfter(loop, (_join(update, kept),)),
    )
    safety = Safety.BEHAVIOUR if any(isinstance(each, ast.Subscript) for each in update.parts) else Safety.EXACT
    proviso = " (it keeps alive what they are parts of)" if safety is Safety.BEHAVIOUR else ""
    return Fix(f"collect the parts of `{update.name}` in a list and join it after the loop{proviso}", safety, change)


def _update(program: Program, join: ast.Call) -> _Update:
    statement = program.statement_of(join)
    assert isinstance(statement, ast.Assign) and isinstance(join.args[0], ast.List | ast.Tuple)
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        raise Blocked(f"`{ast.unparse(target)}` may be read elsewhere in the meantime")
    elements = join.args[0].elts
    own = [index for index, each in enumerate(elements) if path_of(each) == target.id]
    if own not in ([0], [len(elements) - 1]) or len(elements) < 2:
        raise Blocked(f"`{target.id}` stands between other parts, or is joined with itself")
    if any(isinstance(each, ast.Starred) for each in elements):
        raise Blocked("it isn't known how many parts there are")
    parts = [each for each in elements if path_of(each) != target.id]
    prepends = own != [0]
    if prepends and len(parts) > 1:
        raise Blocked("several parts go in front at once")
    first, whole = _first(program, statement, target.id)
    if first is not None and [ast.dump(first)] != [ast.dump(each) for each in parts]:
        raise Blocked("the first iteration sets it to something else", first)
    return _Update(target.id, whole, join, parts, prepends, first)


def _first(program: Program, statement: ast.Assign, name: str) -> tuple[ast.expr | None, ast.stmt]:
    value = statement.value
    if isinstance(value, ast.IfExp):
        return _chosen(value.test, value.body, value.orelse, name), statement
    around = program.parent(statement)
    if not isinstance(around, ast.If) or len(around.body) != 1 or len(around.orelse) != 1:
        return None, statement
    other = around.body[0] if statement is around.orelse[0] else around.orelse[0]
    if not isinstance(other, ast.Assign) or [path_of(each) for each in other.targets] != [name]:
        return None, statement
    branches = (other.value, value) if other is around.body[0] else (value, other.value)
    return _chosen(around.test, *branches, name), around


def _chosen(test: ast.expr, body: ast.expr, orelse: ast.expr, name: str) -> ast.expr:
    is_test = isinstance(test, ast.Compare) and path_of(test.left) == name and len(test.ops) == 1
    if isinstance(test, ast.Compare) and is_test and getattr(test.comparators[0], "value", name) is None:
        return body if isinstance(test.ops[0], ast.Is) else orelse
    raise Blocked("the first iteration is distinguished by another test than `is None`", test)


def _check_plain(program: Program, statement: ast.stmt, loop: Loop) -> None:
    compiler = scripting(program)
    if compiler is not None or program.is_said(Says.COMPILES):
        raise Blocked("torch.jit compiles this program: it may know tensors alone", compiler)
    if any(isinstance(each, ast.Yield | ast.YieldFrom | ast.Await) for each in own_nodes(loop)):
        raise Blocked("other code may run before the loop is over")
    if any(program.call_of(each, _SWITCH) for each in own_nodes(loop)):
        raise Blocked("the loop switches gradients on or off")
    graph = program.get(Flow).graph(loop)
    if graph.is_caught_in(statement, loop):
        raise Blocked("the loop goes on where it can't be joined", statement)
    if any(handlers(program, loop)):
        raise Blocked("the code around the loop handles what joining may raise in an iteration")
    for each in program.ancestors(statement):
        if each is loop:
            return
        if isinstance(each, ast.With | ast.AsyncWith):
            raise Blocked("it is joined in a context that the loop enters", each)


def _check_same_each_time(program: Program, join: ast.Call, loop: Loop) -> None:
    stored = {each.id for each in own_nodes(loop) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    for given in (*join.args[1:], *(each.value for each in join.keywords)):
        number = given.operand if isinstance(given, ast.UnaryOp) else given
        if not isinstance(number, ast.Constant | ast.Name) or getattr(number, "id", "") in stored:
            raise Blocked(f"`{program.segment(given)}` may differ between iterations")
    if any(each.arg in ("out", None) for each in join.keywords):
        raise Blocked("the result is written into another tensor")


def _start(program: Program, update: _Update, loop: PlainLoop, kept: str) -> InsertBefore | ReplaceStatements:
    def starts(value: Value) -> bool:
        return value.kind is Kind.NONE if update.starts is not None else value.kind is not Kind.NONE

    scope = program.function_of(loop) or program.tree
    region = start_region(program, loop, update.name, starts)
    first = region[0] if region is not None else None
    plain = isinstance(first, ast.Assign) and [path_of(each) for each in first.targets] == [update.name]
    unread = region is not None and not any(occurrences(each, update.name) for each in region[1:-1])
    alone = region is not None and len(occurrences(region[-1], update.name)) == len(occurrences(loop, update.name))
    if isinstance(first, ast.Assign) and plain and unread and alone:
        if update.starts is not None:
            return ReplaceStatements((first,), (standing_for(statement("{kept} = []", kept=kept), first),))
        _check_own(program, first.value, scope, first, loop, result=update.name)
        made = statement("{kept} = [{start}]", kept=kept, start=first.value)
        return ReplaceStatements((first,), (standing_for(made, first),))
    if update.starts is not None or first is None:
        raise Blocked(f"`{update.name}` may be a tensor that others know when the loop starts")
    name = next(each for each in occurrences(first, update.name) if isinstance(each.ctx, ast.Store))
    _check_own(program, name, scope, name, loop, result=update.name)
    return InsertBefore(loop, (statement("{kept} = [{name}]", kept=kept, name=update.name),))


def _append(update: _Update, kept: str) -> ast.stmt:
    if len(update.parts) == 1:
        return statement("{kept}.append({part})", kept=kept, part=update.parts[0])
    return statement("{kept} += [{*parts}]", kept=kept, parts=update.parts)


def _join(update: _Update, kept: str) -> ast.stmt:
    parts = expression("{kept}[::-1]" if update.prepends else "{kept}", kept=kept)
    if update.join.lineno == update.join.end_lineno:
        joined = derived(update.join, {update.join.args[0]: parts})  # which keeps blanks around keywords
    else:
        joined = new(ast.Call(update.join.func, [parts, *update.join.args[1:]], update.join.keywords))
    template = "{name} = {joined} if {kept} else None" if update.starts is not None else "{name} = {joined}"
    return statement(template, name=update.name, joined=joined, kept=kept)


def _check_own(
    program: Program, node: ast.expr, within: ast.AST, point: ast.AST, loop: Loop, *, result: str = ""
) -> None:
    """Raise Blocked unless `within` makes `node` anew whenever it runs, unchanged until `loop` is over.

    It may be the `result`, after no iteration or one: then nothing may change it later by another name.
    """
    memory = program.get(Memory)
    points, graph = memory.points_to(node), memory.graph(node)
    own = program.get(_FreshMemory).points_to(node).of(node)
    is_own = points.is_known and all(is_made_in(graph, within, place) for place in own)
    places = own | {place for place in points.of(node) if is_made_in(graph, within, place)}
    if not is_own or any(_may_change(program, place, point, loop, result) for place in places):
        raise Blocked(f"`{program.segment(node)}` isn't known to be a tensor of its own, which nothing else changes")


class _Fresh(PointsTo):
    def result(self, call: ast.Call) -> Locations:
        is_ours = self.program.callee(call) is not None or self._dispatched(call)
        is_new = self.program.value(call.func).kind is Kind.MODULE and not is_ours
        return frozenset({made(call)}) if is_new else super().result(call)

    def _defined(self, value: IRValue) -> Locations:
        source = value.source if isinstance(value, Definition) and value.steps[:1] == ("each",) else None
        is_batch = source is not None and self.program.value(source).kind is Kind.LOADER
        return frozenset({made(value.node)}) if isinstance(value, Definition) and is_batch else super()._defined(value)


class _FreshMemory(Memory):
    analysis = _Fresh


def _may_change(program: Program, place: Location, point: ast.AST, loop: Loop, result: str) -> bool:
    memory = program.get(Memory)
    points, graph = memory.points_to(point), memory.graph(point)
    root = place.root
    assert isinstance(root, ast.AST)
    holders = [each for (each, _), held in points.cells.held.items() if place in held]
    is_kept = any(not is_made_in(graph, loop, each) for each in holders)
    is_kept |= any(place in points.held(phi) for phi in graph.carried(loop))
    for write in [*points.writes]:
        if not write.reaches([place]) or (write.to == ANYWHERE and steps_optimizer(program, write.node)):
            continue
        again = is_kept or graph.reaches(point, write.node, avoiding=root)
        by_then = graph.is_within(write.node, loop) or graph.reaches(write.node, loop, avoiding=root)
        by_other = result and {name.id for name in names_of(program, points, write, called=True)} != {result}
        if write.deferred or (again and (by_then or by_other)):
            return True
    return False

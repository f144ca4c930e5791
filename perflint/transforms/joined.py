"""Turns a tensor that grows by concatenation in a loop into a list that is joined behind the loop."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.occurrences import occurrences, start_region
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.values.operations import TorchCall, operation
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.edits import Fix, Safety
from perflint.syntax.walk import FUNCTIONS, LOOPS, Loop, PlainLoop, own_nodes, path_of
from perflint.transforms.accumulator import alone_in
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.ownership import is_new, memory_of
from perflint.transforms.names import taken_around
from perflint.transforms.operations import InsertAfter, InsertBefore, ReplaceStatements, new, standing_for
from perflint.transforms.rewrite import rewrite
from perflint.transforms.template import expression, statement

_READERS = frozenset({"builtins.print", "builtins.len", "builtins.float", "builtins.int", "builtins.str"})
_DEPTH = 3  # of names and functions through which a part is followed


@dataclass(frozen=True)
class _Update:
    """The statement that joins `parts` to the tensor `name`: `before`, `join` or both set it.

    `starts`: the value that the first iteration finds is None, or none at all, and it takes the parts alone.
    """

    name: str
    statement: ast.stmt
    join: ast.Call
    parts: Sequence[ast.expr]
    prepends: bool
    starts: ast.expr | None


def joined_behind(program: Program, growing: TorchCall) -> Fix:
    """The fix for `name = torch.cat([name, part])` in a loop in which nothing else reads the name; raises Blocked."""
    update = _update(program, growing.call)
    scope = program.function_of(update.statement) or program.tree
    inner = next(each for each in program.ancestors(update.statement) if isinstance(each, LOOPS))
    loop = alone_in(program, inner, scope, update.name)
    if isinstance(loop, ast.AsyncFor):
        raise Blocked("other code may run before the loop is over")
    inside = set(ast.walk(update.statement))
    for node in occurrences(loop, update.name):
        if node not in inside:
            raise Blocked(f"the loop reads `{update.name}`", node)
    _check_plain(program, update.statement, loop)
    _check_same_each_time(program, growing.call, loop)
    for part in update.parts:
        _check_own(program, part, inner, update.statement, loop)
    kept = taken_around(program, loop).fresh(f"{update.name}_parts")
    change = rewrite(
        program,
        _start(program, update, loop, kept),
        ReplaceStatements((update.statement,), (standing_for(_append(update, kept), update.statement),)),
        InsertAfter(loop, (_join(update, kept),)),
    )
    safety = Safety.BEHAVIOUR if any(isinstance(each, ast.Subscript) for each in update.parts) else Safety.EXACT
    proviso = " (it keeps alive what they are parts of)" if safety is Safety.BEHAVIOUR else ""
    return Fix(f"collect the parts of `{update.name}` in a list and join it behind the loop{proviso}", safety, change)


def _update(program: Program, join: ast.Call) -> _Update:
    """What the statement around `join` does; raises Blocked."""
    statement = program.statement_of(join)
    assert isinstance(statement, ast.Assign) and isinstance(join.args[0], ast.List | ast.Tuple)
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        raise Blocked(f"`{path_of(target)}` may be read elsewhere in the meantime")
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
    """What the first iteration sets the name to, if that is told apart by `is None`, and the whole statement."""
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
    """The branch that is taken while the variable is None; raises Blocked for other tests."""
    is_test = isinstance(test, ast.Compare) and path_of(test.left) == name and len(test.ops) == 1
    if isinstance(test, ast.Compare) and is_test and getattr(test.comparators[0], "value", name) is None:
        return body if isinstance(test.ops[0], ast.Is) else orelse
    raise Blocked("the first iteration is told apart by another test than `is None`", test)


def _check_plain(program: Program, statement: ast.stmt, loop: Loop) -> None:
    """Raise Blocked where other code runs in between, or `statement` in a context of its own, such as no_grad."""
    if any(isinstance(each, ast.Yield | ast.YieldFrom | ast.Await) for each in own_nodes(loop)):
        raise Blocked("other code may run before the loop is over")
    for each in program.ancestors(statement):
        if each is loop:
            return
        if isinstance(each, ast.With | ast.AsyncWith):
            raise Blocked("it is joined in a context that the loop enters", each)


def _check_same_each_time(program: Program, join: ast.Call, loop: Loop) -> None:
    """Raise Blocked unless the axis, and what else `join` is told, is the same in each iteration and behind them."""
    stored = {each.id for each in own_nodes(loop) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    for given in (*join.args[1:], *(each.value for each in join.keywords)):
        number = given.operand if isinstance(given, ast.UnaryOp) else given
        if not isinstance(number, ast.Constant | ast.Name) or getattr(number, "id", "") in stored:
            raise Blocked(f"`{program.segment(given)}` may differ between iterations")
    if any(each.arg in ("out", None) for each in join.keywords):
        raise Blocked("the result is written into another tensor")


def _start(program: Program, update: _Update, loop: PlainLoop, kept: str) -> InsertBefore | ReplaceStatements:
    """Makes the list: in place of the value that the variable starts with, or in front of the loop."""

    def starts(value: Value) -> bool:
        return value.kind is Kind.NONE if update.starts is not None else value.kind is not Kind.NONE

    region = start_region(program, loop, update.name, starts)
    first = region[0] if region is not None else None
    plain = isinstance(first, ast.Assign) and [path_of(each) for each in first.targets] == [update.name]
    unread = region is not None and not any(occurrences(each, update.name) for each in region[1:-1])
    alone = region is not None and len(occurrences(region[-1], update.name)) == len(occurrences(loop, update.name))
    if isinstance(first, ast.Assign) and plain and unread and alone:
        if update.starts is not None:
            return ReplaceStatements((first,), (standing_for(statement("{kept} = []", kept=kept), first),))
        _check_own(program, first.value, program.function_of(loop) or program.tree, update.statement, loop)
        made = statement("{kept} = [{start}]", kept=kept, start=first.value)
        return ReplaceStatements((first,), (standing_for(made, first),))
    if update.starts is not None or first is None:
        raise Blocked(f"`{update.name}` may be a tensor that others know when the loop starts")
    name = next(each for each in occurrences(first, update.name) if isinstance(each.ctx, ast.Store))
    _check_own(program, name, program.function_of(loop) or program.tree, update.statement, loop)
    return InsertBefore(loop, (statement("{kept} = [{name}]", kept=kept, name=update.name),))


def _append(update: _Update, kept: str) -> ast.stmt:
    if len(update.parts) == 1:
        return statement("{kept}.append({part})", kept=kept, part=update.parts[0])
    return statement("{kept} += [{*parts}]", kept=kept, parts=update.parts)


def _join(update: _Update, kept: str) -> ast.stmt:
    parts = expression("{kept}[::-1]" if update.prepends else "{kept}", kept=kept)
    joined = new(ast.Call(update.join.func, [parts, *update.join.args[1:]], update.join.keywords))
    template = "{name} = {joined} if {kept} else None" if update.starts is not None else "{name} = {joined}"
    return statement(template, name=update.name, joined=joined, kept=kept)


def _check_own(program: Program, node: ast.expr, within: ast.AST, update: ast.stmt, loop: Loop) -> None:
    """Raise Blocked unless `within` makes `node` anew whenever it runs, and nothing else in there may change it."""
    if not _Owned(program, within, update, loop.end_lineno or loop.lineno).holds(node):
        raise Blocked(f"`{program.segment(node)}` isn't known to be a tensor of its own, which nothing else changes")


@dataclass(frozen=True)
class _Owned:
    """Follows values to where the code of `within` makes them; `update` may hold them, and all behind line `until`."""

    program: Program
    within: ast.AST
    update: ast.stmt | None = None
    until: float = math.inf
    depth: int = _DEPTH

    def holds(self, node: ast.expr) -> bool:
        """Is the memory of `node` made anew whenever that code runs, and only read by the rest of it?"""
        program, source = self.program, memory_of(self.program, node)
        if isinstance(source, ast.IfExp):
            return self.holds(source.body) and self.holds(source.orelse)
        if isinstance(source, ast.Name):
            definitions = program.get(Flow).definitions(source) or frozenset({source})
            made = self.depth > 0 and all(map(self._defines, definitions))
            return made and self._is_only_read(source, definitions)
        if not isinstance(source, ast.Call):
            return isinstance(source, ast.expr) and is_new(program, source)
        if is_new(program, source) or program.value(source.func).kind is Kind.MODULE:
            return True
        callee = program.callee(source)
        if isinstance(callee, ast.FunctionDef):
            given = [each.value for each in own_nodes(callee) if isinstance(each, ast.Return)]
            inner = _Owned(program, callee, depth=self.depth - 1)
            return self.depth > 0 and bool(given) and all(each is not None and inner.holds(each) for each in given)
        found = operation(program, source)
        return found is not None and found.tensor is not None and "random" not in found.traits and self._moved(found)

    def _moved(self, found: TorchCall) -> bool:
        return bool({"cast", "move", "view"} & found.traits) and found.tensor is not None and self.holds(found.tensor)

    def _defines(self, definition: ast.AST) -> bool:
        program = self.program
        around = next((e for e in program.ancestors(definition) if e is self.within or isinstance(e, FUNCTIONS)), None)
        if around is not self.within or isinstance(definition, ast.arg):
            return False
        parent = program.parent(definition)
        if isinstance(parent, ast.Tuple):
            parent = program.parent(parent)
        if isinstance(parent, ast.For):
            return parent is self.within and program.value(parent.iter).kind is Kind.LOADER
        return isinstance(parent, ast.Assign) and replace(self, depth=self.depth - 1).holds(parent.value)

    def _is_only_read(self, name: ast.Name, definitions: Collection[ast.AST]) -> bool:
        """Does all that the code does with the variable, until it is joined, compute something new of it?"""
        bindings = self.program.get(Flow).bindings(name)
        inside = set(ast.walk(self.update)) if self.update is not None else set()
        uses = [use for each in definitions for use in bindings.uses.get(each, ()) if use not in inside]
        return name.id not in bindings.shared and all(use.lineno > self.until or self._reads(use) for use in uses)

    def _reads(self, name: ast.Name) -> bool:
        program, around = self.program, self.program.parent(name)
        if isinstance(name.ctx, ast.Store):
            return not isinstance(around, ast.AugAssign)
        if isinstance(around, ast.BinOp | ast.Compare):  # other classes may define their own
            parts = (around.left, *([around.right] if isinstance(around, ast.BinOp) else around.comparators))
            return {program.value(each).kind for each in parts} <= {Kind.TENSOR, Kind.NUMBER}
        if isinstance(around, ast.FormattedValue):
            return True
        if isinstance(around, ast.Return):
            return self.update is None
        if isinstance(around, ast.Attribute):
            call = program.parent(around)
            if not isinstance(call, ast.Call) or call.func is not around:
                return is_metadata(around)
            around = call
        if not isinstance(around, ast.Call):
            return False
        function = program.value(around.func)
        if program.qualified(around.func) in _READERS:
            return True
        if function.kind is Kind.MODULE and torch_ops.class_kind(function.name) == "loss":
            return True
        found = operation(program, around)
        if found is None or found.does.writes or found.does.shares:
            return False
        return found.does.result in ("number", "bool", "size") or bool(found.traits & {"pointwise", "reduction"})

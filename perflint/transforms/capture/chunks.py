"""Makes a loop that ends by a test a function of one step, so that the test is read once in several steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Outer, sources_of
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.program import GradMode, Program
from perflint.analysis.values.dtypes import INTEGER, number_kind
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, integer, own_nodes, path_of, receiver_of
from perflint.transforms.aliases import aliases, names_of
from perflint.transforms.capture.calls import check_call
from perflint.transforms.capture.obstacles import VERDICTS, Obstacles, may_read
from perflint.transforms.capture.parts import makes_lists
from perflint.transforms.host_code import item_of
from perflint.transforms.joined import growth
from perflint.transforms.operations import (
    FIT,
    Operation,
    Replace,
    ReplaceStatements,
    apart,
    assignment,
    derived,
    expression,
    in_rows,
    new,
    number,
    reference,
    standing_for,
    statement,
    tuple_of,
)
from perflint.transforms.rewrite import Blocked, check_alone, shown, taken_around

_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)  # that are made on the device
_AS_TENSOR = "write it as one comparison of a tensor, or its `.all()` or `.any()`"
_DIMS = ("0", "1", "-1")  # along which the tests are stacked as the results are
_LAST = 1 << 30  # lines


def end_of(program: Program, loop: PlainLoop) -> ast.If | None:
    ifs = [each for each in loop.body if isinstance(each, ast.If) and len(each.body) == 1 and not each.orelse]
    found = [each for each in ifs if isinstance(each.body[0], ast.Break) and may_read(program, each.test)]
    return found[0] if len(found) == 1 else None


def stepped(program: Program, loop: PlainLoop, end: ast.If, name: str) -> tuple[Operation, ...]:
    if loop.orelse:
        raise Blocked("the loop's `else` runs only if no `break` does: test after the loop instead", loop.orelse[0])
    if program.grad_mode(loop) is not GradMode.OFF:
        raise Blocked(
            "the test is read on the host, and gradients may be recorded: put the loop under `torch.no_grad()`",
            end.test,
        )
    if not isinstance(program.function_of(loop), ast.FunctionDef):
        raise Blocked("it is in no plain function: put the loop into a `def`", loop)
    steps = _steps(program, loop)
    for node in own_nodes(loop):
        is_super = isinstance(node, ast.Name) and node.id == "super"
        if is_super or (isinstance(node, ast.Break | ast.Continue | ast.Return) and node is not end.body[0]):
            raise Blocked("it is left, or goes on, at several places: end it by one test", node)
    if end is not loop.body[-1]:
        raise Blocked("the last step skips what stands behind the test: test at the end of a step", end)
    found = list(_collected(program, loop))
    gone = {each.statement: each.value for each in found}
    Obstacles(program, quiet=True, strict=True).check([gone.get(each, each) for each in loop.body[:-1]], loop)
    assert isinstance(loop, ast.For)
    return tuple(_Rewriting(program, loop, end, steps, found).operations(name))


def _steps(program: Program, loop: PlainLoop) -> ast.expr:
    call = program.call_of(loop.iter, "builtins.range") if isinstance(loop, ast.For) else None
    if not isinstance(loop, ast.For) or call is None or call.keywords:
        raise Blocked("its steps are not counted by range(): give it a bound, such as `for _ in range(n)`", loop)
    target, first = loop.target, integer(call.args[0]) if len(call.args) == 2 else 0
    if not isinstance(target, ast.Name) or len(call.args) > 2 or first is None:
        raise Blocked(f"{shown(program, call)} doesn't count one by one from a number: count from 0", loop)
    if not first:
        return call.args[-1]
    if any(isinstance(node, ast.Name) and node.id == target.id for each in loop.body for node in own_nodes(each)):
        raise Blocked(f"its steps count from {first}, and look at that: count from 0", loop)
    stop = integer(call.args[1])
    return expression("{x} - {n}", x=call.args[1], n=first) if stop is None else number(max(stop - first, 0))


def _unread(program: Program, node: ast.expr) -> ast.expr:
    read = program.call_of(node, "builtins.bool", "builtins.int")
    return _unread(program, read.args[0]) if read is not None and len(read.args) == 1 else item_of(node) or node


def _tensor_test(program: Program, test: ast.expr, loop: PlainLoop) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return expression("{test}.logical_not()", test=_tensor_test(program, test.operand, loop))
    code, function = _unread(program, test), getattr(_unread(program, test), "func", None)
    if isinstance(code, ast.Compare) and len(code.ops) == 1 and isinstance(code.ops[0], _COMPARISONS):
        tensor = _unread(program, code.left)
        if tensor is not code.left and number_kind(program, tensor) != INTEGER:
            reason = f"may be compared otherwise on the device, if it is a float: compare {shown(program, tensor)}"
            raise Blocked(f"{shown(program, code.left)} {reason}", code.left)
        parts, code = [tensor, *code.comparators], derived(code, {code.left: tensor})
    elif getattr(function, "attr", "") in VERDICTS or program.value(code).dtype == "bool":
        parts = [code]
    else:
        raise Blocked(f"{shown(program, test)} is read on the host in each step: {_AS_TENSOR}", test)
    for node in (node for each in parts for node in own_nodes(each)):
        if isinstance(node, ast.Call):
            check_call(program, node, loop, strict=True)
        is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        if is_not or isinstance(node, ast.BoolOp | ast.Lambda | ast.NamedExpr):
            raise Blocked(f"{shown(program, test)} is read on the host in each step: {_AS_TENSOR}", test)
    return code


@dataclass(frozen=True)
class Collected:
    """A list to which `statement` appends `value`, and which is only stacked along `dim` after the loop.

    `empty` makes it; `undone` takes the stacking away.
    """

    name: str
    value: ast.expr
    statement: ast.stmt
    empty: ast.stmt
    dim: str
    undone: Operation


def _collected(program: Program, loop: PlainLoop) -> Iterator[Collected]:
    for each in loop.body:
        if (grown := growth(program, each)) is not None:
            raise Blocked(f"`{grown.path}` grows from step to step: append to a list, and stack that", each)
        call = each.value if isinstance(each, ast.Expr) else None
        name = receiver_of(call, "append")
        if isinstance(call, ast.Call) and isinstance(name, ast.Name) and len(call.args) == 1:
            found = _stacked(program, loop, each, name, call.args[0])
            if found is None:
                reason = "is not filled by this alone, and only stacked when the loop is over: do both in one way"
                raise Blocked(f"`{name.id}` {reason}", each)
            yield found


def _stacked(
    program: Program, loop: PlainLoop, appending: ast.stmt, name: ast.Name, value: ast.expr
) -> Collected | None:
    graph, block = program.get(Flow).graph(loop), program.block_of(loop)
    made = graph.only_definition(name)
    if made is None or name.id in graph.captured or name.id in graph.shared:
        return None
    empty = program.statement_of(made.node)
    uses = [use for use in made.uses if program.statement_of(use) is not appending]
    is_joined = any(made in phi.operands.values() for phis in graph.phis.values() for phi in phis)
    if empty not in block[: block.index(loop)] or not makes_lists(empty) or is_joined or len(uses) != 1:
        return None
    stack = operation(program, program.parent(uses[0]) or uses[0])
    behind = program.statement_of(uses[0])
    if stack is None or stack.name != "stack" or stack.tensor is not uses[0] or stack.joined_axis is None:
        return None
    is_plain = len(stack.arguments) + len(stack.call.keywords) <= 1
    at_once = isinstance(behind, ast.Return | ast.Assign | ast.Expr) and all(
        not isinstance(each, ast.IfExp | ast.BoolOp | ast.Lambda | ast.comprehension)
        and not hasattr(each, "generators")
        for each in program.ancestors(stack.call)
        if isinstance(each, ast.expr)
    )
    if not is_plain or not at_once or behind not in block[block.index(loop) :]:
        return None
    undone: Operation = Replace(stack.call, reference(name.id))
    targets = behind.targets if isinstance(behind, ast.Assign) and behind.value is stack.call else []
    if [path_of(each) for each in targets] == [name.id]:
        check_alone(program, behind)
        undone = ReplaceStatements((behind,), ())
    return Collected(name.id, value, appending, empty, str(stack.joined_axis), undone)


class _Rewriting:
    """Makes the loop's body a function of one step, in the same place and depth; raises Blocked."""

    def __init__(self, program: Program, loop: ast.For, end: ast.If, steps: ast.expr, lists: list[Collected]) -> None:
        self._program, self._loop, self._end, self._steps, self._found = program, loop, end, steps, lists
        self._graph, self._taken = program.get(Memory).graph(loop), taken_around(program, loop)
        found = ((node for node in own_nodes(each) if isinstance(node, ast.Name)) for each in loop.body)
        self._names = [name for names in found for name in sorted(names, key=_is_store)]
        self._stored = {each.id: each for each in self._names if _is_store(each)}
        self._lists, self._index = {each.name for each in lists}, path_of(loop.target)
        self._state = self._carried()
        self._check_aliases()

    def _carried(self) -> list[str]:
        graph, loop, region = self._graph, self._loop, self._graph.regions[self._loop]
        for name in sorted(self._stored.keys() & (graph.shared | graph.captured.keys())):
            reason = "which a step sets, is seen by other code at any time: give it that as an argument"
            raise Blocked(f"`{name}`, {reason}", next(iter(graph.captured.get(name, ())), loop))
        values = {graph.read(name) for name in self._names if name in graph.values}
        exposed = {
            phi.name: graph.initial_values(loop, phi)
            for phi in graph.phis.get(region.header, [])
            if phi in values or any(user is not phi and user.block in region.blocks for user in phi.users)
        }
        if not exposed:
            raise Blocked("no step needs what the one before computed, as far as names tell", loop)
        for name, entering in exposed.items():
            if any(isinstance(each, Outer) for value in entering for each in sources_of(value)):
                raise Blocked(f"`{name}` may not be set before the loop: give it a value there in any case", loop)
            if any(self._program.value(node).kind is Kind.NUMBER for node in self._names if node.id == name):
                reason = "is counted on the host, and a replay would not count: use the number of the step"
                raise Blocked(f"`{name}` {reason}", self._stored[name])
        deleted = {each.id for each in graph.places if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Del)}
        self._live = graph.live_out(loop) | deleted
        for name in sorted((self._stored.keys() - exposed.keys() | {self._index}) & self._live):
            reason = "and not handed from step to step: append it to a list that is stacked"
            raise Blocked(f"`{name}` is read after the loop; it is set in each step {reason}", self._stored.get(name))
        return list(dict.fromkeys(each.id for each in self._names if each.id in exposed))

    def _check_aliases(self) -> None:
        """Raise Blocked where a step may find what it collects, or one of two names of a result is written later.

        The other name would show the write; results that are copied apart would not.
        """
        program, graph, loop = self._program, self._graph, self._loop
        points = program.get(Memory).points_to(loop)
        lists = {place for name in self._lists for place in points.outer(name) if not place.is_outside}
        for node in self._names:
            if node.id not in self._lists and not lists.isdisjoint(points.cells.reach(points.of(node))):
                raise Blocked(f"`{node.id}` may hold what the steps collect: read it after the loop", node)
        made, left = self._stored.keys() | self._lists, self._live | self._lists
        for write in [*points.writes]:
            if write.attribute or graph.is_within(write.node, loop) or not graph.runs_after(write.node, loop):
                continue
            for name in names_of(program, points, write, called=True):
                known = aliases(program, loop, frozenset({write.to})) | {name.id}
                if known & made and (others := known & left - {name.id}):
                    shared = f"`{min(others)}` may share its memory"
                    raise Blocked(f"`{name.id}` may be written to in place when the loop is over, and {shared}", name)

    def operations(self, name: str) -> Iterator[Operation]:
        dims = {each.dim for each in self._found}
        if len(dims) > 1 or not dims <= {*_DIMS}:
            raise Blocked("what the steps collect is stacked in several ways: stack along one dimension", self._loop)
        test = _tensor_test(self._program, self._end.test, self._loop)
        for each in (self._loop, self._end, *(each.empty for each in self._found)):
            check_alone(self._program, each)
        step, carried = self._taken.fresh("step"), self._taken.fresh("carried")
        body, outputs = list[ast.stmt](), list[ast.expr | str]()
        if len(self._state) > 1:
            body.append(statement("{*state}, = {carried}", state=[*map(reference, self._state)], carried=carried))
        appended = {each.statement: each for each in self._found}
        for old in self._loop.body[:-1]:
            if old not in appended:
                body.append(old)
                continue
            check_alone(self._program, old)
            value = appended[old].value
            output = self._output(appended[old])
            if not isinstance(value, ast.Name) or value.id != output:
                body.append(standing_for(assignment(output, value), old))
            outputs.append(output)
        outputs.append(expression("{test}.reshape(1)", test=test) if outputs else test)
        made = statement("return {*parts},", parts=[tuple_of(self._state), tuple_of(outputs)])
        body.append(standing_for(made, self._end, last=_LAST, alone=False))
        given = self._state[0] if len(self._state) == 1 else carried
        function = statement(
            "def {step}({index}, {given}):\n    {*body}", step=step, index=self._index, given=given, body=body
        )
        standing_for(function, self._loop, head=True)
        yield ReplaceStatements((self._loop,), (apart(function), apart(self._call(name, step))))
        yield from (ReplaceStatements((each,), ()) for each in {each.empty: 0 for each in self._found})
        yield from (each.undone for each in self._found)

    def _output(self, each: Collected) -> str:
        rest = self._loop.body[self._loop.body.index(each.statement) + 1 :]
        bound = {
            node.id
            for part in rest
            for node in own_nodes(part)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        if isinstance(each.value, ast.Name) and each.value.id not in bound:
            return each.value.id
        return self._taken.fresh(f"new_{each.name}")

    def _call(self, name: str, step: str) -> ast.stmt:
        state, steps = tuple_of(self._state), self._steps
        dim = next((each.dim for each in self._found), "0")
        words = {"until": expression("lambda outputs: outputs[-1]" if self._found else "lambda ended: ended")}
        words |= {"dim": expression(dim)} if dim != "0" else {}
        targets = [tuple_of([*(each.name for each in self._found), "_"])]
        if self._live & {*self._state}:
            targets = [state, *targets]
        else:
            words["last_state"] = expression("False")
        keywords = [ast.keyword(word, value) for word, value in words.items()]
        call = in_rows(new(ast.Call(reference(name), [reference(step), state, steps], keywords)), FIT)
        made: ast.stmt = new(ast.Assign([tuple_of(targets, ast.Store())], call))
        if self._found or (integer(steps) or 0) > 0:
            return made
        if not path_of(steps):
            raise Blocked(f"{shown(self._program, self._loop.iter)} may be empty: name the number of steps", self._loop)
        return statement("if {steps} > 0:\n    {*made}", steps=steps, made=[made])


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)

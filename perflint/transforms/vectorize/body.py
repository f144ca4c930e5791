"""Lifts the statements of a loop's body, one by one, into statements on all steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from perflint.syntax.walk import PlainLoop, path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.template import assignment, expression, reference, statement
from perflint.transforms.vectorize import recurrent
from perflint.transforms.vectorize.cells import lift_cell
from perflint.transforms.vectorize.choices import lift_choice
from perflint.transforms.vectorize.layers import lift_layers
from perflint.transforms.vectorize.lines import Line
from perflint.transforms.vectorize.results import Results
from perflint.transforms.vectorize.scope import Scope, place_of, tensor
from perflint.transforms.vectorize.seen import is_handed_behind, is_read_once
from perflint.transforms.vectorize.states import collected, is_left, is_of, may_be_named
from perflint.transforms.vectorize.steps import Carried, Layers, Lifted, Parts, Same, State, Steps, is_named


def lift_body(scope: Scope, statements: list[ast.stmt], results: Results) -> Iterator[Line]:
    """The statements that take the place of the loop's; raises Blocked."""
    yield from _lines(scope, statements, results)
    for path in sorted(scope.draft.consumed):
        if not is_left(scope.values, path):
            raise Blocked(f"`{path}` goes into an RNN, and is not what it returns", statements[-1])


def _lines(scope: Scope, statements: list[ast.stmt], results: Results) -> Iterator[Line]:
    def inner(scope: Scope, statements: list[ast.stmt]) -> Iterator[Line]:
        return _lines(scope, statements, results)

    for node in statements:
        if isinstance(node, ast.For):
            yield from lift_layers(scope, node, inner)
        elif isinstance(node, ast.If) and scope.layer is not None:
            yield from lift_choice(scope, node, inner)
        else:
            new = _lifted(scope, node, results)
            yield Line(node, (*scope.draft.before, *new))
            scope.draft.before.clear()


def inner_statements(scope: Scope, statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that take the place of those of a function that the loop's body calls; raises Blocked."""
    for node in statements:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            raise Blocked(_why(node), node)
        yield from _assigned(scope, node.targets[0], node.value, node)


def _lifted(scope: Scope, node: ast.stmt, results: Results) -> tuple[ast.stmt, ...]:
    if (kept := collected(scope, node)) is not None:
        return kept
    result = results.lift(scope, node) if scope.layer is None else None
    if result is not None:
        return (result,)
    if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return ()
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return _assigned(scope, node.targets[0], node.value, node)
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return _assigned(scope, node.target, node.value, node)
    raise Blocked(_why(node), node)


def _why(node: ast.stmt) -> str:
    if isinstance(node, ast.If):
        return "a test is made in each step"
    if isinstance(node, PlainLoop):
        return "there is another loop in it"
    if isinstance(node, ast.Break | ast.Return | ast.Continue):
        return "a step may end the loop"
    if isinstance(node, ast.AugAssign):
        return f"`{ast.unparse(node.target)}` is changed in place"
    return "it does something else than compute"


def _assigned(scope: Scope, target: ast.expr, value: ast.expr, node: ast.stmt) -> tuple[ast.stmt, ...]:
    if recurrent.is_recurrent(scope, value):
        assert isinstance(value, ast.Call)
        if scope.program.value(value.func).name.endswith("Cell"):
            before, left = lift_cell(scope, value)
            return (*before, *_given(scope, target, left, node))
        return _rnn(scope, target, value, node)
    return tuple(_given(scope, target, scope.lift(value), node))


def _given(scope: Scope, target: ast.expr, value: Lifted, node: ast.stmt) -> Iterator[ast.stmt]:
    """Give `target` a value that has been lifted."""
    if isinstance(value, Carried):
        value = _handed_down(target, value, node)
    if isinstance(target, ast.Tuple | ast.List):
        if not isinstance(value, Parts) or len(value.items) != len(target.elts):
            raise Blocked("several names get the parts of one value", node)
        _check_apart(target.elts, value.items, node)
        for part, item in zip(target.elts, value.items, strict=True):
            if isinstance(item, Carried):
                scope.values[place_of(part)] = item
            else:
                yield from _given(scope, part, item, node)
        return
    if isinstance(value, State | Parts | Layers):
        yield from _bind_state(scope, target, value, node)
        return
    step = tensor(value, target)
    if not isinstance(target, ast.Name):
        raise Blocked(f"`{ast.unparse(target)}` is changed in each step", node)
    yield from _bind_steps(scope, target.id, step)


def _bind_steps(scope: Scope, variable: str, step: Steps | Same) -> Iterator[ast.stmt]:
    """Let the variable hold what a step computes, in all steps."""
    name = scope.local(variable)
    if name in scope.facts.handed_on and name in scope.draft.shifted and name not in scope.facts.read_behind:
        scope.values[variable] = step
        return
    for path, other in scope.values.items():
        if isinstance(other, State) and other.outputs is not None and is_named(other.outputs.code, name):
            scope.values[path] = replace(other, outputs=None)  # the name holds something else now
    if not is_named(step.code, name):
        yield assignment(name, step.code)
    if isinstance(step, Same):
        scope.values[variable] = Same(reference(name), step.rank, step.is_number)
    else:
        is_only_here = scope.callee is None and is_read_once(scope, name)
        scope.values[variable] = replace(step, code=reference(name)) if is_only_here else step.named(reference(name))


def _handed_down(target: ast.expr, value: Carried, node: ast.stmt) -> Parts:
    """The parts of a pair that the step before left: `h, c = states[i]`."""
    if not isinstance(target, ast.Tuple) or not all(isinstance(each, ast.Name) for each in target.elts):
        raise Blocked(f"the step needs `{value.path}` of the step before", node)
    return Parts(tuple(Carried(f"{value.path}[{position}]") for position in range(len(target.elts))))


def _check_apart(targets: list[ast.expr], values: tuple[Lifted, ...], node: ast.stmt) -> None:
    """Raise Blocked where a later part is made of a name that an earlier one of the same assignment overwrites."""
    given: set[str] = set()
    for target, value in zip(targets, values, strict=True):
        parts = ast.walk(value.code) if isinstance(value, Steps | Same) else ()
        if any(isinstance(part, ast.Name) and part.id in given for part in parts):
            raise Blocked("names exchange their values", node)
        given.add(path_of(target))


def _bind_state(scope: Scope, target: ast.expr, value: State | Parts | Layers, node: ast.stmt) -> Iterator[ast.stmt]:
    """Let `target` stand for the state that an RNN left, or for a list of those of its layers."""
    name = place_of(target)
    if value == Parts(()) and isinstance(target, ast.Name):
        value = Layers(reference(name), is_kept=is_handed_behind(scope, name))
        if value.is_kept:
            yield assignment(name, expression("[]"))
    elif not name or not (is_of(value, name) or (isinstance(target, ast.Name) and may_be_named(value))):
        raise Blocked("a state is handed on under another name", node)
    elif scope.callee is None and is_of(value, name) and not (isinstance(value, State) and value.is_output):
        scope.draft.final.add(name)
    if isinstance(value, Layers) and not is_named(value.code, name) and name in scope.facts.read_behind:
        yield assignment(name, value.code)
    scope.values[name] = value


def _bind_states(scope: Scope, target: ast.expr, states: list[State], node: ast.stmt) -> Iterator[ast.stmt]:
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    if len(parts) != len(states):
        raise Blocked("the state that goes in is not the one that came out", node)
    for part, state in zip(parts, states, strict=True):
        yield from _bind_state(scope, part, state, node)


def _rnn(scope: Scope, target: ast.expr, call: ast.Call, node: ast.stmt) -> tuple[ast.stmt, ...]:
    """`out, h = self.rnn(x_t, h)`."""
    if not isinstance(target, ast.Tuple) or len(target.elts) != 2 or not isinstance(target.elts[0], ast.Name):
        raise Blocked("the RNN's output and state are not kept apart", node)
    paths = recurrent.carried_paths(scope, call)
    code, outputs, one_layer = recurrent.sequence_call(scope, call, paths)
    name = target.elts[0].id
    written = scope.draft.taken.fresh("steps") if name == "_" else scope.local(name)
    outputs = outputs.named(reference(written))
    scope.values[name] = outputs
    both = scope.program.value(call.func).name.endswith("LSTM") and len(paths) == 1  # h and c in one
    first = Steps(reference(written), outputs.axis, 2, 2, own=True) if one_layer and outputs.rank == 3 else None
    states = [State(path, first if position == 0 else None, is_pair=both) for position, path in enumerate(paths)]
    made = statement("{outputs}, {state} = {code}", outputs=written, state=recurrent.written(paths), code=code)
    return (made, *_bind_states(scope, target.elts[1], states, node))

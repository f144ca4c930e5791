"""Lifts the statements of a loop's body, one by one, into statements on all steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.lift import recurrent
from perflint.lift.expressions import lift
from perflint.lift.results import Results
from perflint.lift.scope import Scope, tensor
from perflint.lift.steps import Cannot, Parts, Same, State, Steps


@dataclass(frozen=True)
class Line:
    """The statements, as text, that take the place of one."""

    statement: ast.stmt
    texts: tuple[str, ...]


def lift_body(scope: Scope, statements: list[ast.stmt], results: Results) -> Iterator[Line]:
    """The statements that take the place of the loop's; raises Cannot."""
    for statement in statements:
        yield Line(statement, _lifted(scope, statement, results))


def _lifted(scope: Scope, node: ast.stmt, results: Results) -> tuple[str, ...]:
    text = results.lift(scope, node)
    if text is not None:
        return (text,)
    if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return ()
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return _assigned(scope, node.targets[0], node.value, node)
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return _assigned(scope, node.target, node.value, node)
    raise Cannot(_why(node), node)


def _why(node: ast.stmt) -> str:
    if isinstance(node, ast.If):
        return "a test is made in each step"
    if isinstance(node, ast.For | ast.While):
        return "there is another loop in it"
    if isinstance(node, ast.Break | ast.Return | ast.Continue):
        return "a step may end the loop"
    if isinstance(node, ast.AugAssign):
        return f"`{ast.unparse(node.target)}` is changed in place"
    return "it does something else than compute"


def _assigned(scope: Scope, target: ast.expr, value: ast.expr, node: ast.stmt) -> tuple[str, ...]:
    if recurrent.is_recurrent(scope, value):
        assert isinstance(value, ast.Call)
        if scope.program.value(value.func).name.endswith("Cell"):
            return _cell(scope, target, value, node)
        return _rnn(scope, target, value, node)
    found = lift(scope, value)
    if isinstance(target, ast.Tuple | ast.List):
        raise Cannot("several names get a value at once", node)
    if not isinstance(target, ast.Name):
        raise Cannot(f"`{ast.unparse(target)}` is changed in each step", node)
    if isinstance(found, Parts | State):
        raise Cannot("a state is handed on under another name", node)
    step = tensor(found, value)
    name = target.id
    if step.text == name:
        scope.values[name] = step
        return ()
    scope.values[name] = step.named(name) if isinstance(step, Steps) else Same(name, step.rank, step.is_number)
    return (f"{name} = {step.text}",)


def _rnn(scope: Scope, target: ast.expr, call: ast.Call, node: ast.stmt) -> tuple[str, ...]:
    """`out, h = self.rnn(x_t, h)`."""
    if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        raise Cannot("the RNN's output and state are not kept apart", node)
    output, state = target.elts
    paths = recurrent.paths_of(state)
    recurrent.check_state(scope, call, paths)
    text, outputs, one_layer = recurrent.sequence_call(scope, call, lift)
    if not isinstance(output, ast.Name):
        raise Cannot("the RNN's output has no name", node)
    outputs = outputs.named(output.id)
    scope.values[output.id] = outputs
    first = Steps(outputs.text, outputs.axis, 2, 2) if one_layer and outputs.rank == 3 else None
    scope.final.update(paths)
    for position, path in enumerate(paths):
        scope.values[path] = State(path, first if position == 0 else None)
    return (f"{scope.text(target)} = {text}",)


def _cell(scope: Scope, target: ast.expr, call: ast.Call, node: ast.stmt) -> tuple[str, ...]:
    """`h, c = self.cell(x_t, (h, c))`, or `h = self.cell(x_t, h)`."""
    names = recurrent.paths_of(target)
    recurrent.check_state(scope, call, names)
    if any("." in name for name in names):
        raise Cannot("the Cell's state is an attribute", node)
    text, axis = recurrent.cell_call(scope, call, lift, names)
    outputs = scope.fresh(f"{names[0]}_steps")
    scope.values[names[0]] = Steps(outputs, axis, 2, 2)
    for name in names[1:]:
        scope.values[name] = State(name)
    scope.final.update(names[1:])
    last = [name if name in scope.read_behind and name != names[0] else "_" for name in names]
    again = [f"{name} = {name}.squeeze(0)" for name in last if name != "_"]
    return f"{outputs}, {', '.join(last)} = {text}", *again

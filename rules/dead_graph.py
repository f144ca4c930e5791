"""A module builds a graph that is thrown away at once: its result is detached where it is made.

## What it does

Reports `module(x).detach()`, also of a method of a module, and with a subscript or an attribute in between, in code
that runs in every step while gradients are recorded. Left alone are results of which the graph is used besides
(`fake = generator(z)`, then `fake.detach()`), modules that differentiate themselves or are frozen, losses, and tests.

## Why it is slow

Each operation of the module is recorded, and what it needs for its gradient is kept, until `detach` lets go of all of
it: memory of the size of a forward pass for training, and the time to allocate it.

## Example

```python
target = target_network(states).detach()
```

## Use instead

```python
with torch.no_grad():
    target = target_network(states)
```

## Fix safety

`exact` where the code of the module is in this file, or torch's, and `rounding` where it is in other files of the
project, or this one speaks of a transformer, which may take its fast path without gradients; else `behaviour`, for a
`forward` that differentiates fails below `torch.no_grad()`. It is `behaviour`, too, where the file registers hooks, or
the module shows what it computes or gives it to code that isn't known. `detach` stays where the module may return what
it is given. There is no fix where the module keeps what it computes, or asks whether gradients are recorded, where the
statement computes something else besides, and below `autocast`, which keeps what it converts without gradients for
later.

## Measured

One H100, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): 30 steps of a small network that learns from one of 13
layers: 999 MB at the peak before, 663 MB after; 218 ms both, within the noise. Bitwise the same results.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Effect, Finding, Fix, GradMode, Options, Program, Rule

_LAYER = re.compile(r"torch\.nn\.(Linear|Conv\w+|LayerNorm|BatchNorm\w+|Embedding)$")


class DeadGraph(Rule):
    """Detached results of modules, at the method's name."""

    group = "memory"
    triggers = (".detach()",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield each `detach` of what a module gives."""
        for detach in () if program.is_test else program.of_type(ast.Call):
            run = _run(program, detach)
            if run is None or not api.runs_often(program, detach):
                continue
            if program.grad_mode(detach) is not GradMode.ON or program.is_frozen(run.func):
                continue
            if program.effects(run, Effect.DIFFERENTIATES):
                continue
            fixes, blocked = api.tried(_fix, program, detach, run)
            message = f"`{program.segment(run.func)}` builds a graph, which `detach` throws away at once"
            span, by = api.call_span(program, detach), program.hot_by(detach)
            yield self.finding(span, message, kind="detach", fixes=fixes, blocked=blocked, hot_by=by)


def _run(program: Program, detach: ast.Call) -> ast.Call | None:
    """The call of a module whose result is all that is detached."""
    if not isinstance(detach.func, ast.Attribute) or detach.func.attr != "detach" or detach.args:
        return None
    made = detach.func.value
    while isinstance(made, ast.Attribute | ast.Subscript):
        made = made.value
    if not isinstance(made, ast.Call) or made not in program.effects(made, Effect.RECORDS):
        return None
    return made


def _fix(program: Program, detach: ast.Call, run: ast.Call) -> Fix:
    """The statement below `with torch.no_grad()`, without `detach`; raises Blocked."""
    statement = program.statement_of(detach)
    if not isinstance(statement, ast.Assign) or statement.value is not detach:
        raise Blocked("the statement computes something else besides: give the result a name of its own")
    if any(isinstance(each, ast.NamedExpr | ast.Await | ast.Yield) for each in ast.walk(run)):
        raise Blocked("the call does more than compute")
    for given in (*run.args, *(each.value for each in run.keywords)):
        if runs := program.effects(given, Effect.RUNS_MODULE):
            raise Blocked("what the module is given is computed by another one", runs[0])
    if "autocast" in program.text:
        raise Blocked("autocast would keep the weights that it converts without gradients for what comes behind")
    safety, proviso = api.without_gradients(program, run)
    assert isinstance(detach.func, ast.Attribute)
    block = api.statement(
        "with {switch}():\n    {kept}", switch=api.of_torch(program, "no_grad", detach), kept=[statement]
    )
    drops = () if _may_return_its_input(program, run) else (api.Replace(detach, detach.func.value),)
    change = api.rewrite(program, api.ReplaceStatements((statement,), (block,)), *drops)
    title = f"compute it below `with torch.no_grad():`{proviso}"
    return Fix(title, safety, change)


def _may_return_its_input(program: Program, run: ast.Call) -> bool:
    """May the call give an argument itself, or is it not in sight what it gives?"""
    callee = program.callee(run)
    returned = [each.value for each in api.own_nodes(callee) if isinstance(each, ast.Return)] if callee else []
    return not returned or not all(each is not None and _makes(program, each) for each in returned)


def _makes(program: Program, node: ast.expr) -> bool:
    """Does the expression surely give a new tensor?"""
    found = api.operation(program, node)
    if found is not None:
        return not api.is_view(found.name) and not api.converts(found.name) and "dropout" not in found.name
    return isinstance(node, ast.BinOp) or (
        isinstance(node, ast.Call) and _LAYER.match(program.value(node.func).name) is not None
    )

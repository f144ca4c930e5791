"""A backward pass keeps the graph of its step for another one, which never comes.

## What it does

Reports `loss.backward(retain_graph=True)` in a loop of steps, where all that the loop computes with gradients is
differentiated there and nowhere else. Left alone are losses of a graph that was begun before the loop, or is carried
from step to step, steps with several backward passes, graphs that are kept, returned or given to code that is not
known, and tests.

## Why it is slow

A backward pass frees the activations as it uses them. Retained, they stay until the loss is replaced, which is
after the next forward pass: two steps' activations are in memory at once.

## Example

```python
for images, labels in loader:
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
```

## Use instead

```python
for images, labels in loader:
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix safety

`behaviour`: the numbers are the same, but a module that keeps what it computed in one step, and goes on from there in
the next, makes the backward pass raise an error. It is advice, as it costs memory alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Fate, Finding, Fix, Kind, Options, Program, Rule, Safety, Severity

_MOVES = frozenset({"to", "cuda", "type"})
_ENDS = frozenset({Fate.DIFFERENTIATED, Fate.OBSERVED})
_DATA = frozenset({Kind.TENSOR, Kind.UNKNOWN, Kind.SEQUENCE, Kind.MAPPING})


class RetainedGraph(Rule):
    group = "memory"
    severity = Severity.ADVICE
    triggers = ("retain_graph",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for call in () if program.is_test else program.of_type(ast.Call):
            if getattr(call.func, "attr", "") != "backward" or not _retains(call):
                continue
            loop = next((e for e in program.ancestors(call) if isinstance(e, (*api.LOOPS, *api.FUNCTIONS))), None)
            if not isinstance(loop, api.LOOPS) or not _is_alone(program, call, loop):
                continue
            fixes, blocked = api.tried(_fix, program, call)
            message = "the step's activations are kept for another backward pass, which never comes"
            yield self.finding(api.call_span(program, call), message, kind="backward", fixes=fixes, blocked=blocked)


def _retains(call: ast.Call) -> bool:
    told = api.bind(call, ("gradient", "retain_graph", "create_graph"))
    retained, created = told.get("retain_graph"), told.get("create_graph")
    return isinstance(retained, ast.Constant) and retained.value is True and created is None


def _is_alone(program: Program, call: ast.Call, loop: api.Loop) -> bool:
    """Does no other backward pass come by what the loop computes, and this one by nothing else?"""
    ends = program.graph_uses(loop)
    passes = {each.node for each in ends if each.fate is Fate.DIFFERENTIATED}
    if passes != {call} or any(each.fate not in _ENDS for each in ends):
        return False
    names = [each for each in ast.walk(loop) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    return not any(_may_have_graph(program, each, loop) for each in names)


def _may_have_graph(program: Program, name: ast.Name, loop: api.Loop) -> bool:
    """May it be a tensor with a graph of code in front of the loop, or of an earlier iteration?"""
    parent, made = program.parent(name), api.flow(program).definitions(name)
    whole = parent if isinstance(parent, ast.Attribute) else name
    is_called = isinstance(parent, ast.Call) and parent.func is name
    is_target = isinstance(parent, ast.Call) and getattr(parent.func, "attr", "") in _MOVES
    kinds = {program.value(name).kind, program.value(whole).kind}
    if is_called or is_target or program.qualified(name) or not kinds <= _DATA:
        return False
    if isinstance(loop, ast.For) and name in ast.walk(loop.iter):
        return False
    inside, graph = set(ast.walk(loop)), api.flow(program).graph(name)
    for each in made:
        source = getattr(program.statement_of(each), "value", None)
        if each in inside and isinstance(each, ast.Name):
            if not {each, name} <= graph.places.keys() or not graph.dominates(each, name):
                return True  # loop-carried, or so it may be
        elif source is None or any(end.fate is Fate.DIFFERENTIATED for end in program.graph_uses(source)):
            return True
    return not made


def _fix(program: Program, call: ast.Call) -> Fix:
    if call.args:
        raise Blocked("it is given gradients by position", call)
    told = [f"{each.arg}={{{each.arg}}}" for each in call.keywords if each.arg and each.arg != "retain_graph"]
    given = {each.arg: each.value for each in call.keywords if each.arg}
    made = api.expression(f"{{func}}({', '.join(told)})", func=call.func, **given)
    title = "free the graph, if no module continues from what it computed in an earlier step"
    return Fix(title, Safety.BEHAVIOUR, api.rewrite(program, api.Replace(call, made)))

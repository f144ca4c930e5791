"""A module builds a graph that nobody uses: its result is detached before anything else is done with it.

## What it does

Reports calls of modules, or of their methods, whose results are only ever read detached while gradients are recorded:
`module(x).detach()`, or `fake = generator(z)` where each read is `fake.detach()`, also by a helper, as in
`to_numpy(actor(x))`; and what a generator makes for a step of the discriminator alone. The call runs in every step, of
training or an environment, or once a rollout, or its function is named for acting. Left alone are results that other
code may see, modules that are frozen or differentiate themselves, losses, tests, and what `eval-without-no-grad`
reports.

## Why it is slow

What each operation needs for its gradient is kept until `detach` lets go of it, or is differentiated for nobody.

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

`exact` where the code of the module is in this file, or torch's; `rounding` where it is in other files of the project,
or this one speaks of a transformer, which may take its fast path without gradients; else `behaviour`: a `forward` that
differentiates fails under `torch.no_grad()`, and with a `key_padding_mask` the fast path sets rows of padding to zero.
`behaviour`, too, where files register hooks, or a module of another file keeps what it computes or asks for gradients;
in this file, there is no fix then, nor under `autocast`, which keeps what it converts there, nor where another graph
may join in. `detach` stays where the module may return what it is given. What only computes with such results goes into
their block, and a function that would take several blocks is decorated with `@torch.no_grad()`, if nobody
differentiates what it gives.

## Measured

One H100, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): 30 steps of a small network that learns from one of 13
layers: 999 MB at the peak before, 663 MB after; 218 ms both, within the noise. Bitwise the same results.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from typing import TypeGuard

from perflint import api
from perflint.api import Blocked, Effect, Finding, Fix, Options, Program, Rule, Safety, UnusedGraph

_ACTS = re.compile(r"(^|_)(act|acts|actions?|explore|exploit|greedy|eval_step)(_|$)", re.IGNORECASE)


class DeadGraph(Rule):
    group = "memory"
    triggers = ("torch",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        places = [] if program.is_test else [e for e in api.unused_graphs(program) if _runs_often(program, e.run)]
        evaluated = api.evaluated(program) if places else set()
        dead = [each for each in places if each.run not in evaluated]
        for each in dead:
            fixes, blocked = api.tried(_fix, program, each, dead)
            message = f"calling `{program.segment(each.run.func)}` builds a graph, {each.fate}"
            cut, by = each.end(program) if each.is_at_once else None, program.hot_by(each.run)
            span = api.call_span(program, cut) if cut is not None else program.span(each.run)
            yield self.finding(span, message, kind="detach", fixes=fixes, blocked=blocked, hot_by=by)


def _runs_often(program: Program, run: ast.Call) -> bool:
    """Does it run in every step, of a model or of an environment, or in a function that acts in one, by its name?"""
    loops = api.loops_around(program, run) if ".step(" in program.text else ()
    acts = any(api.steps_an_environment(program, node) for loop in loops for node in api.own_nodes(loop))
    acts |= _ACTS.search(getattr(program.function_of(run), "name", "")) is not None
    return acts or any(each(program, run) for each in (api.runs_often, api.runs_model_beside, api.steps_beside))


def _fix(program: Program, found: UnusedGraph, dead: list[UnusedGraph]) -> Fix:
    """The statement, with those beside it, under `with torch.no_grad()`; raises Blocked."""
    promises = {program.statement_of(found.run): (found, *_promise(program, found))}
    function = program.function_of(found.run)
    for each in (each for each in dead if each is not found and program.function_of(each.run) is function):
        with contextlib.suppress(Blocked):
            promises[program.statement_of(each.run)] = (each, *_promise(program, each))
    group = api.together(program, program.statement_of(found.run), promises)
    if not promises.keys() <= {each for one in group for each in ast.walk(one)} and _computes_alone(function, program):
        with contextlib.suppress(Blocked):
            quiet, safety, proviso = api.all_quiet(program, function)
            return Fix(f"put `@torch.no_grad()` on `{function.name}`{proviso}", safety, api.rewrite(program, quiet))
    made = [promises[each] for whole in group for each in ast.walk(whole) if each in promises]
    drops = [drop for each, _, _ in made for drop in api.dead_detach(program, each)]
    change = api.rewrite(program, api.under_no_grad(program, group), *drops)
    worst = max((each for _, each, _ in made), key=list(Safety).index)
    provisos = dict.fromkeys(each for _, _, each in made)
    return Fix(f"run it under `with torch.no_grad():`{''.join(provisos)}", worst, change)


def _computes_alone(node: ast.AST | None, program: Program) -> TypeGuard[ast.FunctionDef]:
    if not isinstance(node, ast.FunctionDef) or program.effects(node, Effect.DIFFERENTIATES):
        return False
    return not any(isinstance(each, ast.Yield | ast.YieldFrom) for each in api.own_nodes(node))


def _promise(program: Program, found: UnusedGraph) -> tuple[Safety, str]:
    run, statement = found.run, program.statement_of(found.run)
    value = statement.value if isinstance(statement, ast.Assign | ast.Return) else None
    while value is not None and value is not run:
        arguments = api.arguments_of(value) if isinstance(value, ast.Call) else []
        is_plain = not any(isinstance(part, ast.Call) for each in arguments for part in ast.walk(each))
        inner = value.func if isinstance(value, ast.Call) and is_plain else value
        behind = inner.value if isinstance(inner, ast.Attribute | ast.Subscript) else None
        value = inner.args[0] if isinstance(inner, ast.Call) and inner is found.cut else behind
    if value is None or found.joins_others(program):
        raise Blocked("the statement computes something else besides: give the result a name of its own")
    if any(isinstance(each, ast.NamedExpr | ast.Await | ast.Yield) for each in ast.walk(run)):
        raise Blocked("the call does more than compute")
    for given in api.arguments_of(run):
        if runs := program.effects(given, Effect.RUNS_MODULE):
            raise Blocked("what the module is given is computed by another one", runs[0])
    if "autocast" in program.text:
        raise Blocked("autocast would keep the weights that it converts without gradients for what comes behind")
    return api.without_gradients(program, run)

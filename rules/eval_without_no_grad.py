"""A model is evaluated over a loader, and every batch builds a graph that nobody differentiates.

## What it does

Reports loops over batches that run a model in evaluation mode, set there or by all known callers, where gradients
are recorded. Left alone are loops that train or differentiate, themselves or in what they call or run (adversarial
examples and forces, too), loops of functions that somebody calls without gradients, hooks that a framework calls so
(`validation_step`), models that the file may freeze, and tests.

## Why it is slow

Each operation records how to differentiate it, and keeps what it needs for that: the activations of every layer stay
in memory until the results are gone, those of all batches where the results are collected or summed up.

## Example

```python
def evaluate(model, loader):
    model.eval()
    for images, labels in loader:
        ...
```

## Use instead

```python
@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    for images, labels in loader:
        ...
```

## Fix safety

`exact` where the code of all that is run is in this file, or torch's, and nothing shows, keeps or asks for a graph;
`rounding` where it is in other files of the project, or this one speaks of a transformer, which may take its fast path
without gradients. `behaviour` where it isn't known: a `forward` that differentiates fails below `torch.no_grad()`; and
where the file registers hooks, a function that is run has a decorator of unknown effect, or what is computed is shown
as a tensor (`print(loss)` tells of its graph), converted by `.numpy()`, saved, or given to code that isn't known. A
function that does nothing but evaluate is decorated; in others the loop goes below a `with`. There is no fix where
somebody may back-propagate, or keeps, what is computed, in a `forward` too, or where code that is run asks whether
gradients are recorded. It is assumed that functions that are not known don't differentiate, unless they are called so
or given a module, and that no unknown caller back-propagates what a function returns that is called here.

## Measured

One H100, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): 30 batches of 128 pictures through a small convolutional
network: 289 MB at the peak before, 122 MB after; 96 ms both, within the noise of that host. Bitwise the same results.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Effect, Fate, Finding, Fix, GradMode, LoopKind, Options, Program, Rule

_EVALUATION = re.compile(r"(^|_)(eval|val|valid|validat|test|infer|predict|score|extract)", re.IGNORECASE)
_WHY = {
    Fate.DIFFERENTIATED: "what it computes is back-propagated",
    Fate.KEPT: "others may back-propagate `{}`",
    Fate.RETURNED: "what it returns may be back-propagated in another file",
    Fate.LOST: "it isn't known what becomes of `{}`",
}


class EvalWithoutNoGrad(Rule):
    """Loops that evaluate a model and build graphs."""

    group = "memory"
    triggers = (".eval()", ".train(False)")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield each such loop, at its head; but the first of a function that does nothing else."""
        found: set[ast.AST] = set()
        for loop in () if program.is_test else program.of_type(ast.For):
            function = program.function_of(loop)
            if found & {function or loop, *program.ancestors(loop)} or not _evaluates(program, loop):
                continue
            place = function if isinstance(function, ast.FunctionDef) and _only_evaluates(program, function) else loop
            found.add(place)
            fixes, blocked = api.tried(_fix, program, place)
            message = "the model is evaluated with gradients: each batch builds a graph that nobody differentiates"
            kind = "loop" if place is loop else "function"
            yield self.finding(api.head_span(program, loop), message, kind=kind, fixes=fixes, blocked=blocked)


def _evaluates(program: Program, loop: ast.For) -> bool:
    """Does the loop run a model that is in evaluation mode, with gradients, and never ask for one?"""
    if program.loop_kind(loop) is not LoopKind.STEP or program.grad_mode(loop) is not GradMode.ON:
        return False
    modes, runs = program.training_modes(loop), program.effects(loop, Effect.RUNS_MODULE)
    paths = {api.path_of(each.func) for each in runs if isinstance(each, ast.Call)}
    if False not in modes.values() or any(modes.get(path) for path in paths):
        return False
    if any(program.is_frozen(each.func) for each in runs if isinstance(each, ast.Call)):
        return False
    is_recorded = bool(runs) and runs == program.effects(loop, Effect.RECORDS)
    return is_recorded and not program.effects(loop, Effect.DIFFERENTIATES)


def _only_evaluates(program: Program, function: ast.FunctionDef) -> bool:
    """Is it named for evaluating, and does nothing in it train, or run without gradients already?"""
    runs = program.effects(function, Effect.RUNS_MODULE)
    if not _EVALUATION.search(function.name) or runs != program.effects(function, Effect.RECORDS):
        return False
    return not program.effects(function, Effect.DIFFERENTIATES)


def _fix(program: Program, place: ast.For | ast.FunctionDef) -> Fix:
    """Gradients switched off for the function, or for the loop in a function that does more; raises Blocked."""
    uses = program.graph_uses(place)
    for use in uses:
        if use.fate in _WHY:
            raise Blocked(_WHY[use.fate].format(ast.unparse(use.node)), use.node)
    safety, title = api.without_gradients(program, place, uses)
    switch = api.of_torch(program, "no_grad", place)
    if isinstance(place, ast.FunctionDef):
        change = api.rewrite(program, api.Decorate(place, api.expression("{switch}()", switch=switch)))
        return Fix(f"put `@torch.no_grad()` on `{place.name}`{title}", safety, change)
    if any(isinstance(each, ast.Yield | ast.YieldFrom | ast.Await) for each in api.own_nodes(place)):
        raise Blocked("whoever is given control inside of the loop would compute without gradients, too")
    block = api.statement("with {switch}():\n    {loop}", switch=switch, loop=[place])
    change = api.rewrite(program, api.ReplaceStatements((place,), (block,)))
    return Fix(f"put the loop below `with torch.no_grad():`{title}", safety, change)

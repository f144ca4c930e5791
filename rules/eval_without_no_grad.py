"""A model is evaluated over a loader, and every batch builds a graph that nobody differentiates.

## What it does

Reports loops that run a model in evaluation mode, set there or by all known callers, where gradients are recorded, and
functions that do, or whose name says so (`predict`, `sample_images`) and whose results nobody differentiates. Left
alone is what trains or differentiates, itself or in what it calls or runs (adversarial examples and forces, too), code
of functions that somebody calls without gradients, hooks that a framework calls so (`validation_step`), models that the
file may freeze, and tests.

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
from perflint.api import (
    LOOPS,
    Blocked,
    Effect,
    Fate,
    Finding,
    Fix,
    GradMode,
    LoopKind,
    Options,
    PlainLoop,
    Program,
    Rule,
)

_EVALUATION = re.compile(
    r"(^|_)(eval|val|valid|validat|test|infer|predict|score|extract|sampl|generat|decod|visuali|render)", re.IGNORECASE
)
_INHERITED = frozenset({"forward", "__call__", "__init__", "__getitem__", "loss", "step"})
_WHY = {
    Fate.DIFFERENTIATED: "what it computes is back-propagated",
    Fate.KEPT: "others may back-propagate `{}`",
    Fate.RETURNED: "what it returns may be back-propagated in another file",
    Fate.LOST: "it isn't known what becomes of `{}`",
}


class EvalWithoutNoGrad(Rule):
    """Loops that evaluate a model and build graphs."""

    group = "memory"
    triggers = (".eval()", ".train(False)", ".data", ".item()", ".numpy()", "argmax", "save_image")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield each such loop, at its head; but the first of a function that does nothing else; and such functions."""
        found: set[ast.AST] = set()
        for node, place in () if program.is_test else _places(program):
            inside = {each for each in found if node in program.ancestors(each)}
            if inside or found & {place, node, *program.ancestors(node)}:
                continue
            found |= {place, node}
            fixes, blocked = api.tried(_fix, program, place)
            batch = "each batch" if isinstance(node, ast.For) else "each call" if place is node else "each iteration"
            message = f"the model is evaluated with gradients: {batch} builds a graph that nobody differentiates"
            kind = "loop" if isinstance(place, LOOPS) else "function"
            yield self.finding(api.head_span(program, node), message, kind=kind, fixes=fixes, blocked=blocked)


def _places(program: Program) -> Iterator[tuple[ast.stmt, PlainLoop | ast.FunctionDef]]:
    """Loops over batches, functions, and other loops, that evaluate; each with what to switch gradients off for."""
    loops: list[ast.For] = program.of_type(ast.For)
    for loop in loops:
        if program.loop_kind(loop) is LoopKind.STEP and _evaluates(program, loop):
            around = program.function_of(loop)
            is_all = isinstance(around, ast.FunctionDef) and _only_evaluates(program, around)
            yield loop, around if is_all and isinstance(around, ast.FunctionDef) else loop
    functions: list[ast.FunctionDef] = program.of_type(ast.FunctionDef)
    for function in functions:
        if function.name not in _INHERITED and _is_evaluation(program, function):
            yield function, function
    others: list[PlainLoop] = program.of_type(ast.For, ast.While)
    for other in others:
        if _modes(program, other) == {False} and _evaluates(program, other):
            yield other, other


def _is_evaluation(program: Program, function: ast.FunctionDef) -> bool:
    """Does it run a model itself, by its mode or its name only to evaluate it, and never ask for a gradient?"""
    own = set(api.own_nodes(function))
    runs = program.effects(function, Effect.RECORDS)
    contexts = (each for each in own if isinstance(each, ast.With))
    if any(program.grad_mode(each.body[0], callers=False) is not GradMode.ON for each in contexts):
        return False
    if own.isdisjoint(runs) or program.effects(function, Effect.RUNS_MODULE) != runs:
        return False
    modes = _modes(program, function)
    if not _evaluates(program, function) or not (
        modes == {False} or _is_named(program, function, own.intersection(runs))
    ):
        return False
    is_named = _EVALUATION.search(function.name) is not None
    return (is_named and modes == {False}) or not any(each.fate in _WHY for each in program.graph_uses(function))


def _is_named(program: Program, function: ast.FunctionDef, runs: set[ast.AST]) -> bool:
    """Does its name say that it evaluates what the file trains: modules that it calls, rather than their methods?"""
    is_whole = any(isinstance(each, ast.Call) and program.value(each.func).owner is None for each in runs)
    return is_whole and "backward(" in program.text and _EVALUATION.search(function.name) is not None


def _modes(program: Program, place: ast.AST) -> set[bool | None]:
    """The modes of the modules that `place` itself runs; None where one isn't known."""
    own = set(api.own_nodes(place))
    runs = (each for each in program.effects(place, Effect.RUNS_MODULE) if each in own and isinstance(each, ast.Call))
    return {_mode(program.training_modes(each), api.path_of(each.func)) for each in runs}


def _mode(modes: dict[str, bool], path: str) -> bool | None:
    """The mode of the module at `path`, or of that whose part or method it is."""
    while path and path not in modes:
        path = path.rpartition(".")[0]
    return modes.get(path)


def _evaluates(program: Program, place: ast.For | ast.While | ast.FunctionDef) -> bool:
    """Does it run a model that is in evaluation mode, or may be, with gradients, and never ask for one?"""
    runs = program.effects(place, Effect.RUNS_MODULE)
    point = next((each for each in runs if each in set(api.own_nodes(place))), place)
    if program.grad_mode(place if isinstance(place, LOOPS) else point) is not GradMode.ON:
        return False
    modes = program.training_modes(point)
    paths = {api.path_of(each.func) for each in runs if isinstance(each, ast.Call)}
    is_batches = isinstance(place, ast.For) and program.loop_kind(place) is LoopKind.STEP
    if (is_batches and False not in modes.values()) or any(_mode(modes, path) for path in paths):
        return False
    if any(program.is_frozen(each.func) for each in runs if isinstance(each, ast.Call)):
        return False
    is_recorded = bool(runs) and runs == program.effects(place, Effect.RECORDS)
    return is_recorded and not program.effects(place, Effect.DIFFERENTIATES)


def _only_evaluates(program: Program, function: ast.FunctionDef) -> bool:
    """Is it named for evaluating, and does nothing in it train, or run without gradients already?"""
    runs = program.effects(function, Effect.RUNS_MODULE)
    if not _EVALUATION.search(function.name) or runs != program.effects(function, Effect.RECORDS):
        return False
    return not program.effects(function, Effect.DIFFERENTIATES)


def _fix(program: Program, place: PlainLoop | ast.FunctionDef) -> Fix:
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

"""A model is evaluated over a loader, and every batch builds a graph that nobody differentiates.

## What it does

Reports, where gradients are recorded and nobody differentiates the results,

- loops that run a model in evaluation mode, which is set there, or by all known callers,
- functions that do, or whose name says so (`predict`, `sample_images`),
- calls of a function that trains, with arguments that tell it not to (`run_epoch(loader, train=False)`, no optimizer),
- loops that train in some phases only (`for phase in ["train", "val"]`).

Left alone is what trains or differentiates, itself or in what it calls or runs (adversarial examples and forces, too);
functions that somebody calls without gradients, or that hand results with a graph to other files; hooks that a
framework calls without gradients (`validation_step`); models that the file may freeze; and tests.

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

`exact` where the code of all that is run is in this file, or torch's; `rounding` where it is in other files of the
project, or this one speaks of a transformer, which may take its fast path without gradients. `behaviour` where it isn't
known: a `forward` that differentiates fails below `torch.no_grad()`; where files register hooks; where code of another
file keeps what it computes or asks for gradients; where a decorator's effect isn't known; where a `key_padding_mask` is
given (rows of padding are zero on that fast path); and where a result is printed as a tensor, saved, converted by
`.numpy()` or given to unknown code.

A function that only evaluates is decorated; elsewhere the loop, or the call that tells a function not to train, goes
below a `with`, or, of a long loop, just the calls of models. There is no fix where a caller may back-propagate what is
computed, or keeps it, or where code that is run asks whether gradients are recorded, nor for one phase of a loop.
Unknown functions are taken not to differentiate, unless their name says so or they are given a module.

## Measured

One H100, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): 30 batches of 128 pictures through a small convolutional
network: 289 MB at the peak before, 122 MB after; 96 ms both, within the noise of that host. Bitwise the same results.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import LOOPS, Blocked, Effect, Finding, Fix, Options, PlainLoop, Program, Rule

_LONG = 12  # lines of a loop, which are rather left as they are than indented
_FEW = 3  # statements


class EvalWithoutNoGrad(Rule):
    group = "memory"
    triggers = (".eval()", ".train(False)", ".data", ".item()", ".numpy()", "argmax", "save_image")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """The first loop stands for a function that only evaluates, and for those that only such loops call."""
        found: set[ast.AST] = set()
        evaluations = [] if program.is_test else [*api.evaluations(program)]
        all_places = {each for pair in evaluations for each in pair}
        for node, place in evaluations:
            inside = {each for each in found if node in program.ancestors(each)}
            sites = program.call_sites(node) if isinstance(node, ast.FunctionDef) else ()
            is_part = bool(sites) and all((all_places - {node}) & {*program.ancestors(each)} for each in sites)
            if inside or is_part or found & {place, node, *program.ancestors(node)}:
                continue
            found |= {place, node}
            fixes, blocked = api.tried(_fix, program, place)
            batch = "each batch" if isinstance(node, ast.For) else "each call" if place is node else "each iteration"
            message = f"the model is evaluated with gradients: {batch} builds a graph that nobody differentiates"
            kind = "loop" if isinstance(place, LOOPS) else "function" if isinstance(place, ast.FunctionDef) else "call"
            yield self.finding(api.head_span(program, node), message, kind=kind, fixes=fixes, blocked=blocked)


def _fix(program: Program, place: ast.stmt) -> Fix:
    if not isinstance(place, ast.FunctionDef | ast.For | ast.While):
        quiet, safety, title = api.told_quiet(program, place)
        return Fix(f"put the call under `with torch.no_grad():`{title}", safety, api.rewrite(program, quiet))
    if trains := program.effects(place, Effect.DIFFERENTIATES):
        test = next((each.test for each in program.ancestors(trains[0]) if isinstance(each, ast.If)), None)
        kept = "..." if test is None else program.segment(test.values[0] if isinstance(test, ast.BoolOp) else test)
        raise Blocked(f"it trains, too: write `with torch.set_grad_enabled({kept}):` around this loop", trains[0])
    if isinstance(place, ast.FunctionDef):
        change, safety, title = api.all_quiet(program, place)
        return Fix(f"put `@torch.no_grad()` on `{place.name}`{title}", safety, api.rewrite(program, change))
    few = _few(program, place)
    change, safety, title = api.all_quiet(program, place, few)
    if any(isinstance(each, ast.Yield | ast.YieldFrom | ast.Await) for each in api.own_nodes(place)):
        raise Blocked("code that gets control inside the loop would compute without gradients, too")
    what = "what the model computes" if few else "the loop"
    return Fix(f"put {what} under `with torch.no_grad():`{title}", safety, api.rewrite(program, change))


def _few(program: Program, loop: PlainLoop) -> list[ast.stmt]:
    """The few statements that record gradients in a long loop, the models' calls; empty where it had better be whole.

    What is computed of their results records none by then.
    """
    runs = program.effects(loop, Effect.RUNS_MODULE)
    if not runs or (loop.end_lineno or 0) - loop.lineno < _LONG or not set(runs).issubset(api.own_nodes(loop)):
        return []  # in a function that others may call, too
    found = {program.statement_of(run) for run in runs}
    block = program.block_of(program.statement_of(runs[0]))
    if not found.issubset(block) or loop in found:
        return []
    indices = sorted(block.index(each) for each in found)
    few = [*block[indices[0] : indices[-1] + 1]]
    return few if len(few) <= _FEW and all(isinstance(each, ast.Assign | ast.Expr) for each in few) else []

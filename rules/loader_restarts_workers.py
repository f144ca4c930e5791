"""A loader's workers are started anew in every epoch.

## What it does

Reports loaders that surely have workers and say nothing of `persistent_workers`, where this file walks them again and
again: in a loop inside of another one, or in a function that is called in a loop, outside of which they were made. Left
alone are loaders that are made anew each time, those that others walk, and tests.

## Why it is slow

When a loop over the loader ends, its workers end, and the next loop starts others: processes, imports where they are
spawned, a copy of the dataset, and then the first batches, for which the device waits. In short epochs, and in
validation after few steps, that takes longer than the batches.

## Example

```python
loader = DataLoader(dataset, batch_size=64, num_workers=4)
for epoch in range(90):
    for images, labels in loader:
        ...
```

## Use instead

```python
loader = DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True)
```

## Fix safety

`behaviour`: from the second epoch on, workers draw other random numbers, and the order of a shuffling loader is another
one. Workers that stay keep their memory. There is no fix where the program changes the dataset between epochs, or
may, which they would not see, and where the number of workers isn't written out or held by a variable. It is advice,
for it depends on how long an epoch takes.

## Measured

One H100 with 16 cores, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): six epochs over 2,048 rows with 4 workers:
1007 ms to 316 ms (3.18x).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Finding, Fix, Loop, Options, Program, Rule, Safety, Severity, State

_SAFE = frozenset({"__len__", "__getitem__", "index", "count", "keys", "values", "items", "get"})


class LoaderRestartsWorkers(Rule):
    """Once a loader, at its call."""

    group = "data"
    severity = Severity.ADVICE
    triggers = ("Loader",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield each loader whose workers are started in every iteration of a loop around."""
        for loader in () if program.is_test else api.loaders(program):
            is_started = loader.workers.state is State.ON and loader.persistent.state is State.ABSENT
            epochs = _epochs(program, loader.call, api.walks(program, loader)) if is_started else []
            if not epochs or not loader.certain:
                continue
            fixes, blocked = api.tried(_fix, program, loader, epochs)
            message = f"its workers are started again in every iteration of the loop in line {epochs[0].lineno}"
            span = program.span(loader.call)
            yield self.finding(span, message, kind="epochs", fixes=fixes, blocked=blocked)


def _epochs(program: Program, made: ast.Call, walks: list[ast.For]) -> list[Loop]:
    """The loops that walk what was made outside of them once in each iteration."""
    makers = {made, *program.ancestors(made)}
    makers |= {around for each in api.loops_around(program, made) for around in (each, *program.ancestors(each))}
    around = [each for walk in walks for each in api.loops_around(program, walk) if each is not walk]
    return [each for each in dict.fromkeys(around) if each not in makers]


def _fix(program: Program, loader: api.LoaderCall, epochs: list[Loop]) -> Fix:
    """The keyword; raises Blocked."""
    workers = loader.workers.value
    dataset = loader.argument("dataset")
    for epoch in epochs:
        for node in ast.walk(epoch):
            if _may_change(program, node, api.path_of(dataset) if dataset is not None else ""):
                raise Blocked("the workers would not see what is changed between epochs", node)
    if workers is None or not api.takes_keywords(loader.call):
        raise Blocked("the call's own keywords don't tell how many workers there are")
    is_sure = loader.workers.certain and isinstance(workers, ast.Constant)
    if not is_sure and not all(_is_cheap(program, each) for each in ast.walk(workers)):
        raise Blocked("the number of workers would be computed twice")
    value = api.expression("True") if is_sure else api.expression("{workers} > 0", workers=workers)
    change = api.rewrite(program, api.AddKeywords(loader.call, (("persistent_workers", value),)))
    return Fix(f"add persistent_workers={ast.unparse(value)}", Safety.BEHAVIOUR, change)


def _is_cheap(program: Program, node: ast.AST) -> bool:
    """Is it a name, a number, or `int(...)` of one?"""
    if isinstance(node, ast.Call):
        return program.qualified(node.func) == "builtins.int"
    return isinstance(node, ast.Name | ast.Attribute | ast.Constant | ast.expr_context)


def _may_change(program: Program, node: ast.AST, dataset: str) -> bool:
    """Does it write to an attribute of the dataset, or call a method of it?"""
    if not isinstance(node, ast.Attribute):
        return False
    owner, is_called = api.path_of(node.value), isinstance(program.parent(node), ast.Call)
    is_dataset = bool(owner) and (owner == dataset or owner.rpartition(".")[2] == "dataset")
    return is_dataset and (isinstance(node.ctx, ast.Store) or (is_called and node.attr not in _SAFE))

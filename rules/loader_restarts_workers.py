"""A loader's workers are started again in every epoch.

## What it does

Reports loaders that surely have workers and say nothing of `persistent_workers`, where they are walked again and again:
in a loop inside of another one, in a function that is called in a loop, or by `iter` or `yield from` in a loop; where a
loop hands a loader that was made outside of it to a function of another file; or where another file so walks what a
function of this one returns. If nothing in sight walks a loader, it counts if it is made for training: it shuffles, or
drops what is left at the end, or its name says so, or it is made for validation beside such a one. Loaders of DGL and
PyG count, and other classes that are called `DataLoader` and are given `num_workers`. Left alone are loaders that are
made anew each time, whose dataset the loop changes, whose sampler draws a number of samples of its own or is told the
number of epochs, and tests.

## Why it is slow

When a loop over the loader ends, its workers end, and the next loop starts others: processes, imports where they are
spawned, a copy of the dataset, and the first batches, for which the device waits. In short epochs, and in validation
after few steps, that takes longer than the batches.

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
one. Workers that stay keep their memory. There is no fix where the program, or functions of other files, may change the
dataset between epochs, which they would not see, where the number of workers isn't written out or held by a variable,
and for classes of other files, which may not take the keyword. It is advice: it depends on how long an epoch takes.

## Measured

One H100 with 16 cores, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): six epochs over 2,048 rows with 4 workers:
1007 ms to 316 ms (3.18x).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Finding, Fix, Options, Program, Restarts, Rule, Safety, Severity, State

_LIBRARIES = frozenset({"torch", "torch_geometric", "dgl"})
_SAFE = frozenset({"__len__", "__getitem__", "index", "count", "keys", "values", "items", "get"})


class LoaderRestartsWorkers(Rule):
    group = "data"
    severity = Severity.ADVICE
    triggers = ("Loader", "num_workers")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        loaders = () if program.is_test else (*api.loaders(program), *api.derived_loaders(program))
        for loader in loaders:
            is_started = loader.workers.state is State.ON and loader.persistent.state is State.ABSENT
            found = api.restarts(program, loader) if is_started else None
            is_told = loader.certain or loader.workers.value is not None  # of workers, whatever the class is
            if not found or _is_changed(program, found) or not (is_told or found.loops):
                continue
            fixes, blocked = api.tried(_fix, program, loader, found)
            line = found.loops[0].lineno if found.loops else 0
            when = f"iteration of the loop in line {line}" if line else "epoch"
            message = f"the loader starts its workers again in every {when}: `persistent_workers=True` keeps them"
            span = program.span(loader.call)
            yield self.finding(span, message, kind="epochs", fixes=fixes, blocked=blocked)


def _fix(program: Program, loader: api.LoaderCall, found: Restarts) -> Fix:
    workers = loader.workers.value
    dataset = loader.argument("dataset")
    if not found.loops:
        raise Blocked("what walks it, in other files, may change the dataset, which workers that stay would not see")
    if found.handed:
        called = program.segment(found.handed[0].func)
        raise Blocked(f"`{called}` may change the dataset, which workers that stay would not see", found.handed[0])
    for epoch in found.loops:
        for node in ast.walk(epoch):
            if _may_change(program, node, api.path_of(dataset) if dataset is not None else "", given=True):
                raise Blocked("the workers would not see what is changed between epochs", node)
    made = program.qualified(loader.call.func)
    if not loader.certain or (made and made.partition(".")[0] not in _LIBRARIES):
        raise Blocked(f"`{program.segment(loader.call.func)}`, a class of its own, may not take the keyword")
    if workers is None or not api.takes_keywords(loader.call):
        raise Blocked("the call's own keywords don't tell how many workers there are")
    is_sure = loader.workers.certain and isinstance(workers, ast.Constant)
    if not is_sure and not all(_is_cheap(program, each) for each in ast.walk(workers)):
        raise Blocked("the number of workers would be computed twice")
    value = api.expression("True") if is_sure else api.expression("{workers} > 0", workers=workers)
    change = api.rewrite(program, api.AddKeywords(loader.call, (("persistent_workers", value),)))
    title = f"add persistent_workers={ast.unparse(value)} (workers keep their memory, and draw other random numbers)"
    return Fix(title, Safety.BEHAVIOUR, change)


def _is_changed(program: Program, found: Restarts) -> bool:
    """Does an epoch change the dataset by way of the loader? Workers that stay would not see it."""
    return any(_may_change(program, node, "") for epoch in found.loops for node in ast.walk(epoch))


def _is_cheap(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return program.qualified(node.func) == "builtins.int"
    return isinstance(node, ast.Name | ast.Attribute | ast.Constant | ast.expr_context)


def _may_change(program: Program, node: ast.AST, dataset: str, *, given: bool = False) -> bool:
    """Does it write to an attribute of the dataset, or call a method of it; or, if asked, give one to a call?"""
    if not isinstance(node, ast.Attribute):
        return False
    owner, call = api.path_of(node.value), program.parent(node)
    is_called = isinstance(call, ast.Call) and (given or call.func is node)
    is_dataset = bool(owner) and (owner == dataset or owner.endswith(".dataset"))
    return is_dataset and (isinstance(node.ctx, ast.Store) or (is_called and node.attr not in _SAFE))

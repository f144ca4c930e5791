"""The host waits for the copy of each batch, although the batch lies in pinned memory.

## What it does

Reports `.to(device)` and `.cuda()` without `non_blocking=True` of a batch, its parts and views, out of a loader with
`pin_memory`. A loader of another file counts as pinned where all that hand it over, or make it, pin it, or another part
of the batch is copied with the keyword. Left alone are batches that are converted first, to a tensor that is not
pinned, single batches outside of loops, loaders that a framework prepares, and programs for Apple's GPUs.

## Why it is slow

A copy from pinned memory could run beside the host's work, which queues the next operations meanwhile. Without the
keyword the host waits until all of it has arrived.

## Example

```python
loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
for images, labels in loader:
    output = model(images.to(device))
```

## Use instead

```python
for images, labels in loader:
    output = model(images.to(device, non_blocking=True))
```

## Fix safety

`exact`: the device runs the copy before what is queued behind it, and torch keeps the pinned memory until then. There
is no fix where the batch may be written to on the host afterwards, where a `collate_fn`, or a loader that is not
torch's own, makes it, for the `.to` of other classes may not take the keyword, or where the loop comes by way of
another file.

## Measured

One H100, torch 2.11.0, 2026-11-23: 20 training steps on batches of 16 MB: 414 ms to 402 ms (1.05x, within the noise of
that host; `tests/gpu/measure.py`); the training of pytorch/examples' `mnist`: 1.07x (1.01 to 1.14, in noise of 8 %).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Batch, Blocked, Finding, Fix, Move, Options, Program, Rule, Safety

_LEFT_ALONE = re.compile(r"\.prepare\(|\bmps\b")
_OWN = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})


class BlockingCopy(Rule):
    group = "sync"
    needs_gpu = True
    triggers = (".to(", ".cuda(")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        if program.is_test or not (_says_so(program) or _is_given_pinned(program)):
            return
        if _LEFT_ALONE.search(program.text):
            return
        moves = [move for call in program.of_type(ast.Call) if (move := api.move(program, call)) is not None]
        asynchronous = {walk for move in moves if _is_asynchronous(move) for walk in _walks(program, move)}
        for move in filter(_waits, moves):
            call, batch = move.call, api.batch(program, move.tensor)
            is_pinned = batch is not None and batch.is_pinned
            walks = _walks(program, move)
            is_repeated = not walks.isdisjoint(program.ancestors(call)) or api.runs_often(program, call)
            if not is_repeated or not (is_pinned or asynchronous & walks):
                continue
            fixes, blocked = api.tried(_fix, program, move, batch)
            message = "the host waits until the batch is copied, though it lies in pinned memory"
            span, by = api.call_span(program, call), program.hot_by(call)
            yield self.finding(span, message, kind="batch", fixes=fixes, blocked=blocked, hot_by=by)


def _says_so(program: Program) -> bool:
    return "pin_memory" in program.text or "non_blocking" in program.text


def _is_given_pinned(program: Program) -> bool:
    kinds: tuple[type[ast.AST], ...] = (ast.Name, ast.Attribute) if program.is_given_pinned else ()
    return any(program.value(each).pinned for kind in kinds for each in program.of_type(kind))


def _waits(move: Move) -> bool:
    is_plain = not move.casts and move.like is None
    return is_plain and not any(each.arg in ("non_blocking", None) for each in move.call.keywords)


def _is_asynchronous(move: Move) -> bool:
    said = (each.value for each in move.call.keywords if each.arg == "non_blocking")
    return any(getattr(each, "value", False) is True for each in said)


def _walks(program: Program, move: Move) -> set[ast.AST]:
    """The loops over batches that hand out what is copied, or what that is a part of."""
    root = api.root_of(move.tensor)
    found = api.origins(program, root) if isinstance(root, ast.Name) else []
    return {each for each in found if isinstance(each, ast.For)}


def _is_given(program: Program, node: ast.AST, wholes: tuple[ast.expr, ...]) -> bool:
    flow, given = api.flow(program), api.arguments_of(node) if isinstance(node, ast.Call) else []
    roots = [root for each in given if isinstance(root := api.root_of(each), ast.Name)]
    own = {each for whole in wholes if isinstance(whole, ast.Name) for each in flow.definitions(whole)}
    return any(own & flow.definitions(each) for each in roots)


def _written_elsewhere(program: Program, wholes: tuple[ast.expr, ...]) -> Iterator[ast.AST]:
    origins = {each for whole in wholes for each in api.origins(program, whole)}
    kept = set[str]()
    for node in program.of_type(ast.Assign):
        attributes = {each.attr for part in node.targets for each in ast.walk(part) if isinstance(each, ast.Attribute)}
        root = api.root_of(node.value)
        if attributes and isinstance(root, ast.Name) and not origins.isdisjoint(api.origins(program, root)):
            kept |= attributes
    for each in program.of_type(ast.Attribute) if kept else ():
        if each.attr in kept and isinstance(each.ctx, ast.Load):
            yield from (write.node for write in api.written_after(program, each, each.value) if write.is_in_sight)


def _fix(program: Program, move: Move, batch: Batch | None) -> Fix:
    if batch is None or batch.is_foreign:
        raise Blocked("the loader isn't in sight: its batches may be of a class of their own")
    for loader in batch.loaders:
        if program.qualified(loader.call.func) not in _OWN:
            raise Blocked("the loader isn't torch's own: its batches may be of a class of their own", loader.call)
        if (makes := loader.argument("collate_fn")) is not None:
            raise Blocked("the `.to` of what `collate_fn` makes may not take the keyword", makes)
        size = loader.argument("batch_size")
        if isinstance(size, ast.Constant) and size.value is None:
            raise Blocked("without batches, items are what the dataset makes of them", loader.call)
    for each in (move.tensor, *batch.wholes):
        for write in api.written_after(program, each, move.call):
            if write.is_in_sight or _is_given(program, write.node, batch.wholes):
                raise Blocked("the batch may be written to on the host while it is copied", write.node)
    for node in _written_elsewhere(program, batch.wholes):
        raise Blocked("the batch is kept in an attribute, and may be written to by that while it is copied", node)
    if not api.takes_keywords(move.call) or not move.is_certain or len(move.call.args) > 1:
        raise Blocked("the call's arguments leave no room for a keyword")
    keyword = ("non_blocking", api.expression("True"))
    return Fix("add non_blocking=True", Safety.EXACT, api.rewrite(program, api.AddKeywords(move.call, (keyword,))))

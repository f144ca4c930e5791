"""A loader prepares its batches in the training process, or in memory that is not pinned.

## What it does

Reports every `torch.utils.data.DataLoader` (and those of `torch_geometric`, and subclasses without a constructor of
their own) for which `num_workers` is absent or 0, or `pin_memory` absent or False, and says which: *num_workers*,
*pin_memory* or *num_workers,pin_memory*. Arguments are followed through positions, `**` dictionaries (also those
updated under a condition), variables, module constants, parameters and `functools.partial`.

A value that the user of the program chooses is not missing: an option of the command line, or a parameter, that is 0
by default gives advice, and only where the option `advice` of this rule asks for it.

A program which names no device is taken to train on the CPU where it can be seen to train or to read the loader itself;
such loaders are left alone, and so are those called with `**` arguments of which nothing is known, datasets whose
tensors lie on the GPU already, tests, and other classes called DataLoader. Workers are not wanted where an
`IterableDataset` is read: each would yield all of it.

## Why it is slow

With `num_workers=0` reading, decoding, augmenting and collating happen between two steps, while the GPU waits. From
memory that is not pinned a copy to the GPU goes through a staging buffer and makes the host wait.

## Example

```python
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
```

## Use instead

```python
train_loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=4, pin_memory=True)
```

## Fix safety

`exact` for `pin_memory` alone, and for workers where this file shows that neither the dataset, nor its transforms,
nor `collate_fn` draw random numbers, and that the dataset's constructor makes all that items are made of: the batches
are the same, in the same order. Of the libraries that read pictures, sound and tables, and of torchvision's transforms,
it is known what they do.

`behaviour` where

- they may draw, as workers draw from streams of their own;
- a shuffling sampler may draw its order at another moment, with workers when the iterator is made, without them when
  the first batch is read: where the file has `iter`, `zip` or the like, or the sampler a generator. A plain `for` does
  both at once, and a loader that leaves the file is taken to be walked so there;
- batches may lie on the device, as nothing here shows: code of another file makes items, or they are cut out of a
  parameter, and no workers are there yet that would have failed. Where this file may move them, under a condition or
  from outside, neither keyword is added;
- nothing shows that workers read the same: a dataset is given data, a model or a stream; others have in hand what it
  reads; the file changes a setting of torch; reading prints, writes files or asks for its process or the environment;
  or `worker_init_fn` does more than seed.

Workers are not added (and the reason is given) where they would fail or read something else: lambdas and local
functions or classes, which cannot be pickled; a dataset that uses the GPU, keeps an open file, or may change as it is
read; a number that comes from a variable; whatever `__getitem__` or `collate_fn` leave behind in their own object, in
what that holds, or in the module. Nor where reading an item does no work that they could take over, as of a
`TensorDataset`, a list, or a class that only indexes what it holds: passing a batch between processes costs more, and
their lack is no finding. Nor is it where each use of the loader is `next(iter(loader))`, which takes one batch of the
several that workers would prepare. Neither keyword is added to a DataLoader that is imported by way of another module
of the project, whose constructor may differ, nor where items are returned uncollated (`batch_size=None`, or a
`collate_fn` that passes them on): what a loop writes to them in place may be written to the dataset; nor is one
switched on beside which a comment stands, as it may say why it is off. If workers would be started while the module is
being imported, the same fix puts the main guard in.

The option `workers` of this rule says how many to ask for. The default of 4 is a start that few machines cannot bear,
for each process on a GPU; more may be faster, and for small data in memory none may be. Where `perflint run
--tune-loader` has measured what a loader needs, that is written instead, `prefetch_factor` included, and nothing where
no workers are worth it.

## Measured

One H200 with 16 cores, torch 2.11.0, 2026-11-21 (`tests/gpu/measure.py`): an epoch over 2,048 JPEG pictures of 256 by
256, decoded in `__getitem__`, for a small convolutional network, batches of 64: 2455 ms with the default loader,
1107 ms with what the fix adds, 4 workers and pinned memory (2.17x), starting the workers included.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import ClassVar

from perflint import api
from perflint.api import (
    MEASURED,
    CodeChange,
    Finding,
    Fix,
    Guarding,
    Kind,
    LoaderCall,
    Option,
    Options,
    Program,
    Rule,
    Safety,
    Setting,
    Severity,
    Source,
    State,
)

_OPTIONS = ("num_workers", "pin_memory")
_AHEAD = 2  # batches that each worker keeps ready unless it is told otherwise
_OWN_ITEMS = "its items are returned as they are, and what is written to them in place would no longer be kept"


class DataloaderDefaults(Rule):
    group = "data"
    triggers: ClassVar[tuple[str, ...]] = ("Loader", "num_workers")
    at_run_time = "loaders"
    options: ClassVar[Mapping[str, Option]] = {
        "workers": Option(4, "how many worker processes a fix asks for", least=1),
        MEASURED: Option("", "workers that runs with --tune-loader have found enough, by the text of the call"),
        "advice": Option(False, "also report what is off by the choice of the program's user"),
    }

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for loader in () if program.is_test else api.loaders(program):
            measured = api.measured_workers(str(options[MEASURED]), loader)
            workers, ahead = measured or (int(options["workers"]), _AHEAD)
            settings = dict(zip(_OPTIONS, (loader.workers, loader.pinned), strict=True))
            if State.UNKNOWN in (loader.workers.state, loader.pinned.state) or _stays_on_host(program, loader):
                continue
            source = api.dataset(program, loader)
            if source.on_device:
                continue
            needs_none = (source.is_in_memory and not measured) or api.is_only_peeked(program, loader)
            if source.is_iterable or not workers or needs_none:
                del settings["num_workers"]
            if source.uses_device or _batches_stay_on_host(program, loader):
                del settings["pin_memory"]
            missing = [name for name, setting in settings.items() if setting.is_missing]
            chosen = [name for name, setting in settings.items() if setting.state is State.CHOICE]
            if missing or (chosen and options["advice"]):
                yield self._finding(program, loader, source, missing, chosen, (workers, ahead))

    def _finding(
        self,
        program: Program,
        loader: LoaderCall,
        source: Source,
        missing: list[str],
        chosen: list[str],
        wanted: tuple[int, int],
    ) -> Finding:
        if not missing:
            return self.finding(
                program.span(loader.call),
                f"{' and '.join(chosen)} off unless the program is told otherwise",
                kind=",".join(chosen),
                blocked="it is the user's choice",
                severity=Severity.ADVICE,
            )
        in_process = loader.workers.state is not State.ON  # workers hand out copies
        if in_process and api.hands_out_own_items(program, loader):
            fix, reason = None, _OWN_ITEMS
        else:
            fix, reason = _fix(program, loader, source, missing, wanted)
        return self.finding(
            program.span(loader.call),
            _message(missing, reason if fix else ""),
            kind=",".join(missing),
            fixes=(fix,) if fix else (),
            blocked="" if fix else reason,
        )


def _message(missing: list[str], reason: str) -> str:
    parts = {
        "num_workers": "batches are prepared in the training process, while the device waits (num_workers is 0)",
        "pin_memory": "batches aren't in pinned memory, so copies to the device wait (no pin_memory)",
    }
    text = "; ".join(parts[name] for name in missing)
    return f"{text}; no workers are added: {reason}" if reason else text


def _stays_on_host(program: Program, loader: LoaderCall) -> bool:
    """Does the program never speak of a device, and train or read this loader itself?"""
    if program.is_of_host or program.is_tried_out(loader.call):
        return True
    if not program.is_host_only:
        return False
    read = {program.value(loop.iter).node for loop in program.of_type(ast.For)}
    return ".backward(" in program.text or loader.call in read


def _batches_stay_on_host(program: Program, loader: LoaderCall) -> bool:
    """Is this loader read where it is built, its batches only given to own methods and torch?"""
    loops = [loop for loop in program.of_type(ast.For) if program.value(loop.iter).node is loader.call]
    around = program.function_of(loader.call)
    if around is None or not loops or any(program.function_of(loop) is not around for loop in loops):
        return False
    if any(program.value(each).kind is Kind.LOADER for each in api.returned_values(around)):
        return False
    if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in api.own_nodes(around)):
        return False
    calls = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return all(_is_host_call(program, call) for call in calls)


def _is_host_call(program: Program, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda"):
        return False
    value = program.value(call.func)
    if value.kind is Kind.LIBRARY:
        return value.name.startswith(("builtins.", "numpy.", "torch.", "tqdm.")) and "cuda" not in value.name
    return value.kind is Kind.METHOD and value.owner is not None and value.owner.kind in (Kind.TENSOR, Kind.NUMPY)


# -- the fix


def _fix(
    program: Program, loader: LoaderCall, source: Source, missing: list[str], wanted: tuple[int, int]
) -> tuple[Fix | None, str]:
    """The fix for as much of `missing` as can be had, and what stands in the way of the rest.

    `wanted` are workers, and the batches that each keeps ready.
    """
    workers, ahead = wanted
    settings = {"num_workers": loader.workers, "pin_memory": loader.pinned}
    reasons = {name: reason for name in missing if (reason := _obstacle(program, loader, settings[name]))}
    if source.moved and "pin_memory" in missing:
        reasons["pin_memory"] = source.moved
    guarding = Guarding()
    if "num_workers" in missing and "num_workers" not in reasons:
        reason, guarding = _workers_obstacle(program, loader, source)
        if reason:
            reasons["num_workers"] = reason
    values = {name: str(workers) if name == "num_workers" else "True" for name in missing if name not in reasons}
    given = {keyword.arg for keyword in loader.call.keywords}
    if "num_workers" in values and ahead != _AHEAD and given.isdisjoint({"prefetch_factor", None}):
        values["prefetch_factor"] = str(ahead)
    operations = _operations(loader, settings, values) if values else ()
    reason = "; ".join(dict.fromkeys(reasons.values()))
    if not operations:
        return None, reason or "the arguments of the call leave no room for keywords"
    if "num_workers" in values:
        operations += guarding.operations
    proviso = _proviso(program, loader, source, with_workers="num_workers" in values)
    safety = Safety.BEHAVIOUR if proviso else Safety.EXACT
    title = "add " + ", ".join(f"{name}={value}" for name, value in values.items())
    if guarding.operations and "num_workers" in values:
        title += " and a main guard"
    return Fix(f"{title} ({proviso})" if proviso else title, safety, api.rewrite(program, *operations)), reason


def _proviso(program: Program, loader: LoaderCall, source: Source, *, with_workers: bool) -> str:
    """Why batches may not be what they are without workers, or not even be read."""
    if source.if_moved and loader.workers.state is not State.ON:  # workers would have failed already
        return f"it fails if {source.if_moved}"
    if not with_workers:
        return ""
    if source.unproved:
        return source.unproved
    if source.may_draw:
        return "workers may draw other random numbers"
    return api.order_changed(program, loader)


def _obstacle(program: Program, loader: LoaderCall, setting: Setting) -> str:
    if not loader.certain and setting.value is None:
        return "the class comes by way of another file, or has a constructor, which may change what it is given"
    if setting.state is State.OFF and not isinstance(setting.value, ast.Constant):
        where = f"`{program.segment(setting.value)}`" if setting.value is not None else "the arguments after `**`"
        return f"it comes from {where}: change it there"
    end = program.span(setting.value)[1] if setting.value is not None else 0
    if end and api.comments(program, end, end + len(program.text[end:].partition("\n")[0])):
        return "a comment beside it may say why it is off"
    return ""


def _workers_obstacle(program: Program, loader: LoaderCall, source: Source) -> tuple[str, Guarding]:
    if source.obstacle:
        return source.obstacle, Guarding()
    if api.is_notebook(program):
        dataset = loader.argument("dataset")
        of_cell = (
            dataset is not None
            and program.value(dataset).node is not None
            and program.value(dataset).kind is Kind.DATASET
        )
        return ("spawned workers cannot unpickle a dataset that a notebook defines" if of_cell else ""), Guarding()
    before = api.first_process_start(program)
    start = api.first_process_start(program, loader)
    if start is None or (before is not None and before.top is start.top):
        return "", Guarding()
    guarding = api.add_guard(program, start.top)
    blocked = guarding.blocked
    return (f"they would need a main guard, which has no fix: {blocked}" if blocked else ""), guarding


def _operations(
    loader: LoaderCall, settings: Mapping[str, Setting], values: Mapping[str, str]
) -> tuple[CodeChange, ...]:
    given = {name: setting.value for name, setting in settings.items() if name in values and setting.value}
    replaced = [api.Replace(value, api.expression(values[name])) for name, value in given.items()]
    fresh = tuple((name, api.expression(value)) for name, value in values.items() if name not in given)
    if fresh and not api.takes_keywords(loader.call):
        return ()
    return (*replaced, *([api.AddKeywords(loader.call, fresh)] if fresh else []))

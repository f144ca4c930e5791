"""Tunes a run's loaders: times them as the program runs, finds how few workers hide them, and keeps that."""

from __future__ import annotations

import datetime
import functools
import math
import os
import statistics
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch
from torch.utils.data import DataLoader

from perflint.engine import count
from perflint.project.figures import LoaderFigure, keep
from perflint.runtime.loader import Decision, batch_size, cores
from perflint.shim.hooks import Undo, replace
from perflint.shim.plan import Plan

_STEPS = 20  # that are measured
_FEWEST = 6  # that do, if an epoch has no more
_ENOUGH_S = 10.0
_WARM_UP = 2  # steps that are not counted
_PREFETCH = 2
_MOST_PREFETCH = 8
_NEAR = 1.05  # what is slower by less than this is as fast
_TRIAL_S = 5.0
_ROUNDS = 6  # batches that each worker reads in a trial

Tell = Callable[[str, int, str], None]  # path and line of a loader, and what to report of it


class Tuning:
    def __init__(self, plan: Plan, tell: Tell) -> None:
        self._plan, self._tell = plan, tell
        self._tuners: weakref.WeakKeyDictionary[Any, Tuner] = weakref.WeakKeyDictionary()
        self._of_place: dict[tuple[str, int, int], Tuner] = {}  # by the dataset, too: a place may make several loaders
        self._found: dict[tuple[str, int], LoaderFigure] = {}

    def watch(self, kind: Any) -> Undo:
        original = kind.__iter__

        @functools.wraps(original)
        def iterate(loader: Any) -> Any:
            batches = original(loader)
            tuner = self._tuners.get(loader)
            return tuner.timed(batches) if tuner else batches

        return replace(kind, "__iter__", iterate)

    def begin(self, loader: Any, path: str, line: int, given: Mapping[str, Any], decision: Decision) -> bool:
        place = (path, line, id(given["dataset"]))
        is_first = place not in self._of_place
        if is_first:
            kept = {name: value for name, value in given.items() if name != "self"}  # not the loader: it has the tuner
            self._of_place[place] = Tuner(decision.sample, partial(self._decide, path, line, kept, decision))
        self._tuners[loader] = self._of_place[place]
        return is_first

    def _decide(self, path: str, line: int, given: Mapping[str, Any], decision: Decision, times: Times) -> None:
        try:
            figure = self._measured(path, line, given, decision, times)
        except Exception as error:  # the program is in the middle of its loop
            self._tell(path, line, f"not tuned: {error!r}")
            return
        known = self._found.get((path, line))
        if known is None or known.workers < figure.workers:
            self._found[path, line] = figure
            self._tell(path, line, f"{described(figure)}; {self._kept(figure)}")

    def _measured(
        self, path: str, line: int, given: Mapping[str, Any], decision: Decision, times: Times
    ) -> LoaderFigure:
        size = batch_size(given)
        most = decision.arguments["num_workers"]
        choice = choose(times, most, partial(seconds_per_batch, given["dataset"], given, size))
        known = self._plan.loader_at(path, line)
        return LoaderFigure(
            path=os.path.relpath(os.path.realpath(path), self._plan.root),
            call=known.call if known else "",
            workers=choice.workers,
            prefetch=choice.prefetch,
            batch_size=size,
            sample_ms=_milliseconds(times.sample),
            batch_ms=_milliseconds(times.batch),
            step_ms=_milliseconds(times.step),
            ready_ms=_milliseconds(choice.ready),
            cores=cores(),
            date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        )

    def _kept(self, figure: LoaderFigure) -> str:
        if not figure.call:
            return "not kept: `perflint fix` would not change this one"
        if os.environ.get("RANK", "0") != "0":
            return "the first rank's are kept"
        try:
            keep(self._plan.root, figure)
        except OSError as error:
            return f"not kept: {error}"
        return "kept for later runs and for `perflint fix`"


def described(figure: LoaderFigure) -> str:
    workers = count(figure.workers, "worker")
    ahead = f" with {figure.prefetch} batches each" if figure.workers and figure.prefetch != 2 else ""
    ready = f", and with {workers} one every {figure.ready_ms:.3g} ms" if figure.workers else ""
    return (
        f"{workers}{ahead}: a sample takes {figure.sample_ms:.3g} ms, a batch of {figure.batch_size} "
        f"{figure.batch_ms:.3g} ms{ready}; a step takes {figure.step_ms:.3g} ms"
    )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 2)


@dataclass(frozen=True)
class Times:
    """Seconds of a sample and a batch read in the program's own process, of the slowest batch, and of a step."""

    sample: float
    batch: float
    slowest: float
    step: float


@dataclass(frozen=True)
class Choice:
    """Workers, batches that each keeps ready, and the seconds between batches then."""

    workers: int
    prefetch: int
    ready: float


def choose(times: Times, most: int, ready: Callable[[int], float]) -> Choice:
    """The fewest workers, at most `most`, that deliver as fast as steps take; else the fewest near the best.

    `ready` measures the seconds between batches. No workers where they gain nothing.
    """
    alone = Choice(0, _PREFETCH, times.batch)
    if times.batch + times.step < times.step * _NEAR:
        return alone
    seen: dict[int, float] = {}
    count = max(min(math.ceil(times.batch / max(times.step, 1e-6)), most), 1)
    while count <= most:
        seen[count] = ready(count)
        if seen[count] <= times.step * _NEAR:
            break
        count = min(count + max(count // 2, 1), most) if count < most else most + 1
    if not seen:
        return alone
    least = max(min(seen.values()), times.step)
    workers = min(count for count, seconds in seen.items() if seconds <= least * _NEAR)
    if max(seen[workers], times.step) * _NEAR >= times.batch + times.step:
        return alone
    return Choice(workers, _prefetch(times, workers), seen[workers])


def _prefetch(times: Times, workers: int) -> int:
    ready = math.ceil(times.slowest / (workers * max(times.step, 1e-6)))
    return min(max(ready, _PREFETCH), _MOST_PREFETCH)


def seconds_per_batch(dataset: Any, given: Mapping[str, Any], batch_size: int, workers: int) -> float:
    """Measure how fast `workers` read batches, with the loader arguments `given`.

    Draws no random numbers of the program's, and leaves no process behind.
    """
    batches = workers * _ROUNDS
    indices = islice(cycle(range(len(dataset))), batches * batch_size)
    kept = {name: given[name] for name in ("collate_fn", "multiprocessing_context") if name in given}
    loader = DataLoader(
        dataset, batch_size, sampler=list(indices), num_workers=workers, generator=torch.Generator(), timeout=60, **kept
    )
    times = []
    start = time.perf_counter()
    for _ in loader:
        times.append(time.perf_counter())
        if times[-1] - start > _TRIAL_S and len(times) > 2 * workers:
            break
    first = workers - 1  # from here on all workers have begun
    return (times[-1] - times[first]) / max(len(times) - 1 - first, 1)


@dataclass
class Tuner:
    """Times a loader's batches and steps as the program runs, then calls `decided` with these."""

    sample: float
    decided: Callable[[Times], None]
    batches: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    is_done: bool = False

    def timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        return batches if self.is_done else _Timed(batches, self)

    def add(self, batch: float, step: float) -> None:
        self.batches.append(batch)
        self.steps.append(step)
        if len(self.steps) >= _STEPS or sum(self.batches) + sum(self.steps) >= _ENOUGH_S:
            self.finish(_WARM_UP + 1)

    def finish(self, least: int = _FEWEST) -> None:
        if self.is_done or len(self.steps) < least:
            return
        self.is_done = True
        batches, steps = self.batches[_WARM_UP:], self.steps[_WARM_UP:]
        self.decided(Times(self.sample, statistics.fmean(batches), max(batches), statistics.median(steps)))


class _Timed:
    def __init__(self, batches: Iterator[Any], tuner: Tuner) -> None:
        self._batches, self._tuner = batches, tuner
        self._given = 0.0

    def __iter__(self) -> _Timed:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        if self._tuner.is_done:
            return next(self._batches)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()  # else a step would seem to end before the device has done it
        asked = time.perf_counter()
        try:
            batch = next(self._batches)
        except StopIteration:
            self._tuner.finish()
            raise
        if self._given:
            self._tuner.add(time.perf_counter() - asked, asked - self._given)
        self._given = time.perf_counter()
        return batch

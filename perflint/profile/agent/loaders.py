"""Notes how long a program waits for its loaders, what its optimizers take, and where both were made."""

from __future__ import annotations

import functools
import os
import statistics
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from perflint.profile.agent.lines import Lines, Users
from perflint.profile.record import Fetches, Owned, save_worker, worker_files
from perflint.shim.hooks import after

_MOST_WORKERS = 32  # that are looked at
_TRACED, _TIMED = 2, 10  # the number of the batch that a worker fetches by line, and of the last one that is timed
_MOST_NOTED = 100_000

Place = tuple[str, int]


class Owners:
    """Notes in `fetches` and `optimizers` when the objects of this process were at work, while it is `noting`."""

    def __init__(self, users: Users) -> None:
        self.noting = False
        self.fetches: list[Owned] = []
        self.optimizers: list[Owned] = []
        self._users, self._process = users, os.getpid()
        self._made: weakref.WeakKeyDictionary[Any, Place] = weakref.WeakKeyDictionary()
        self._begun: dict[int, int] = {}
        self._fetching = threading.local()

    def watch(self) -> None:
        """Note from now on where loaders and optimizers are made."""
        from torch.optim.optimizer import (
            Optimizer,
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )
        from torch.utils.data import DataLoader
        from torch.utils.data.dataloader import _BaseDataLoaderIter as iterator

        for kind in (DataLoader, Optimizer):
            kind.__init__ = after(kind.__init__, self._note_place)  # type: ignore[method-assign]
        iterator.__init__ = after(iterator.__init__, self._note_loader)  # type: ignore[method-assign]
        iterator.__next__ = self._timed(iterator.__next__)  # type: ignore[method-assign]
        register_optimizer_step_pre_hook(self._begin)
        register_optimizer_step_post_hook(self._end)

    def _note_place(self, _: None, made: Any, *__: Any, **___: Any) -> None:
        self._made[made] = self._users.place(sys._getframe(1))

    def _note_loader(self, _: None, iterator: Any, loader: Any, *__: Any, **___: Any) -> None:
        self._made[iterator] = self._made.get(loader, ("", 0))

    def _timed(self, fetch: Any) -> Any:
        @functools.wraps(fetch)
        def timed(iterator: Any) -> Any:
            if not self.noting or os.getpid() != self._process or getattr(self._fetching, "now", False):
                return fetch(iterator)
            begin = time.time_ns()
            self._fetching.now = True
            try:
                return fetch(iterator)
            finally:
                self._fetching.now = False
                if len(self.fetches) < _MOST_NOTED:
                    self.fetches.append(Owned(begin, time.time_ns(), *self._made.get(iterator, ("", 0))))

        return timed

    def _begin(self, optimizer: Any, *_: Any) -> None:
        if self.noting:
            self._begun[id(optimizer)] = time.time_ns()

    def _end(self, optimizer: Any, *_: Any) -> None:
        begin = self._begun.pop(id(optimizer), 0)
        if begin and self.noting and len(self.optimizers) < _MOST_NOTED:
            self.optimizers.append(Owned(begin, time.time_ns(), *self._made.get(optimizer, ("", 0))))


class Workers:
    """Measures in each worker of a loader how long its batches take, one of them by line."""

    def __init__(self, users: Users, run: Path) -> None:
        self._users, self._run = users, run
        self._batches, self._process = 0, 0
        self._seconds: list[float] = []
        self._lines: Lines | None = None

    def watch(self) -> None:
        """Measure from now on, in this process if it is a worker, and in those that are forked."""
        from torch.utils.data import get_worker_info
        from torch.utils.data._utils import fetch

        for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            kind.fetch = self._measured(kind.fetch, get_worker_info)  # type: ignore[method-assign]

    def _measured(self, fetch: Any, worker: Any) -> Any:
        @functools.wraps(fetch)
        def measured(fetcher: Any, indices: Any) -> Any:
            if self._batches >= _TIMED or worker() is None:
                return fetch(fetcher, indices)
            return self._fetched(lambda: fetch(fetcher, indices))

        return measured

    def _fetched(self, fetch: Any) -> Any:
        if self._process != os.getpid():  # the first batch of this worker
            self._process, self._batches = os.getpid(), 0
            if len(worker_files(self._run)) >= _MOST_WORKERS:
                self._batches = _TIMED
        self._batches += 1
        begin = time.perf_counter()
        lines = Lines(self._users) if self._batches == _TRACED else None
        if lines and lines.start(None):
            self._lines = lines
        try:
            return fetch()
        finally:
            if lines:
                lines.stop()
            else:
                self._seconds.append(time.perf_counter() - begin)
            if self._batches in (_TRACED, _TIMED):
                self._save()

    def _save(self) -> None:
        lines = self._lines
        by_node: dict[int, float] = {}
        if lines:
            for node, begin, end in zip(lines.at, lines.times, lines.times[1:], strict=False):
                by_node[node] = by_node.get(node, 0.0) + (end - begin) / 1e9
        usual = statistics.median(self._seconds) if self._seconds else 0.0
        total = sum(by_node.values())
        scale = usual / total if total else 0.0
        with suppress(OSError):  # the run is over
            scaled = {node: seconds * scale for node, seconds in by_node.items()}
            save_worker(self._run, self._process, Fetches(self._seconds, lines.nodes if lines else [], scaled))

"""Runs a function on many tasks in worker processes: none outlives its parent, a lost one loses one task."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import Generic, TypeVar

from perflint.project import collect_seldom

Task = TypeVar("Task")
Result = TypeVar("Result")

_AHEAD = 2  # tasks that a worker holds, so that it need not wait for its next


def work(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int
) -> Generator[tuple[int, Result | None], None, None]:
    """Yield the number of each task and its result as they come; None where its worker died over it.

    Tasks begin in the order given. `function` must not raise. Closing the iterator ends the workers.
    """
    crew = _Crew(function, tasks, min(jobs, len(tasks)))
    try:
        crew.hire(crew.size)
        yield from crew.results()
    finally:
        crew.dismiss()


class _Worker:
    def __init__(self, context: BaseContext, function: Callable[[Task], Result], crew: int) -> None:
        self.connection, theirs = context.Pipe()
        self.held: deque[int] = deque()
        self.process = context.Process(  # type: ignore[attr-defined]  # typeshed knows it for the concrete contexts
            target=_serve, args=(theirs, self.connection, function, crew), daemon=True
        )
        try:
            self.process.start()
        finally:
            theirs.close()


class _Crew(Generic[Task, Result]):
    def __init__(self, function: Callable[[Task], Result], tasks: Sequence[Task], size: int) -> None:
        self._function = function
        self.size = size
        self._tasks = tasks
        self._waiting = deque(range(len(tasks)))
        self._workers: dict[Connection, _Worker] = {}

    def hire(self, count: int) -> None:
        with suppress(OSError), _interrupts_held():
            for _ in range(count):
                worker = _Worker(_context(), self._function, self.size)
                self._workers[worker.connection] = worker
                self._feed(worker)

    def results(self) -> Iterator[tuple[int, Result | None]]:
        while any(worker.held for worker in self._workers.values()):
            for connection in wait(list(self._workers)):
                worker = self._workers[connection]  # type: ignore[index]
                try:
                    result = worker.connection.recv()
                except (EOFError, OSError):
                    yield from self._bury(worker)
                else:
                    yield worker.held.popleft(), result
                    self._feed(worker)
        for number in self._waiting:  # where no worker could be started
            yield number, self._function(self._tasks[number])

    def dismiss(self) -> None:
        for worker in self._workers.values():
            worker.connection.close()
            worker.process.kill()
        for worker in self._workers.values():
            worker.process.join()

    def _feed(self, worker: _Worker) -> None:
        with suppress(OSError):  # it died: what it holds comes back when that is noticed
            while self._waiting and len(worker.held) < _AHEAD:
                worker.held.append(self._waiting.popleft())
                worker.connection.send(self._tasks[worker.held[-1]])

    def _bury(self, worker: _Worker) -> Iterator[tuple[int, None]]:
        del self._workers[worker.connection]
        worker.connection.close()
        worker.process.join()
        if worker.held:
            yield worker.held.popleft(), None
        self._waiting.extendleft(reversed(worker.held))
        if self._waiting:
            self.hire(1)


def _context() -> BaseContext:
    """Forking is quickest, and safe where there are no other threads and no frameworks of macOS."""
    forks = sys.platform.startswith("linux") and threading.active_count() == 1
    return multiprocessing.get_context("fork" if forks else "spawn")


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C from a worker that is not ready to ignore it; here it is delivered afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, parents: Connection, function: Callable[[Task], Result], crew: int) -> None:
    parents.close()  # else this process would keep its own pipe open and never see the parent die
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent, interrupted as well, ends its workers
    gc.freeze()
    collect_seldom(crew)
    with suppress(EOFError, OSError):
        while True:
            connection.send(function(connection.recv()))

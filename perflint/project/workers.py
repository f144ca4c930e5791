"""Runs a function on many tasks in worker processes: none outlives its parent, a lost one loses one task."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from queue import SimpleQueue
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
    with closing(Crew(function, jobs)) as crew:
        yield from crew.work(tasks, range(len(tasks)))


class _Worker:
    """A process, the tasks that it holds, and those kept for it, by their numbers."""

    def __init__(self, context: BaseContext, function: Callable[[Task], Result], crew: int) -> None:
        self.connection, theirs = context.Pipe()
        self.held: deque[int] = deque()
        self.own: deque[int] = deque()
        self.process = context.Process(  # type: ignore[attr-defined]  # typeshed knows it for the concrete contexts
            target=_serve, args=(theirs, self.connection, function, crew), daemon=True
        )
        try:
            self.process.start()
        finally:
            theirs.close()


class Crew(Generic[Task, Result]):
    """At most so many workers, which stay for several rounds of work until they are dismissed by `close`."""

    def __init__(self, function: Callable[[Task], Result], size: int) -> None:
        self._function = function
        self._size = size
        self._tasks: Sequence[Task] = ()
        self._names: Sequence[Hashable] = ()
        self._waiting: deque[int] = deque()
        self._workers: dict[Connection, _Worker] = {}
        self._homes: dict[Hashable, _Worker] = {}

    def work(self, tasks: Sequence[Task], names: Sequence[Hashable]) -> Iterator[tuple[int, Result | None]]:
        """A round of work, as the function `work` does it; each of the `names` tells what a task is about.

        Tasks about what a worker knows of an earlier round are done by that one, unless the others have nothing to do.
        """
        self._tasks, self._names = tasks, names
        for number, name in enumerate(names):
            home = self._homes.get(name)
            (self._waiting if home is None else home.own).append(number)
        for worker in self._workers.values():
            self._feed(worker)
        self.hire(min(self._size, len(tasks)) - len(self._workers))
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
        while self._waiting:  # where no worker could be started
            number = self._waiting.popleft()
            yield number, self._function(tasks[number])

    def close(self) -> None:
        for worker in self._workers.values():
            worker.connection.close()
            worker.process.kill()
        for worker in self._workers.values():
            worker.process.join()
        self._workers.clear()

    def hire(self, count: int) -> None:
        with suppress(OSError), _interrupts_held():
            for _ in range(count):
                worker = _Worker(_context(), self._function, self._size)
                self._workers[worker.connection] = worker
                self._feed(worker)

    def _feed(self, worker: _Worker) -> None:
        with suppress(OSError):  # it died: what it holds comes back when that is noticed
            while len(worker.held) < _AHEAD and (queue := self._queue_for(worker)):
                number = queue.popleft()
                worker.held.append(number)
                self._homes[self._names[number]] = worker
                worker.connection.send(self._tasks[number])

    def _queue_for(self, worker: _Worker) -> deque[int]:
        """Where the next task of `worker` is: its own, one that nobody knows yet, or one of whoever has the most."""
        return worker.own or self._waiting or max((each.own for each in self._workers.values()), key=len)

    def _bury(self, worker: _Worker) -> Iterator[tuple[int, None]]:
        del self._workers[worker.connection]
        worker.connection.close()
        worker.process.join()
        self._homes = {name: home for name, home in self._homes.items() if home is not worker}
        if worker.held:
            yield worker.held.popleft(), None
        self._waiting.extendleft(reversed((*worker.held, *worker.own)))
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
    tasks: SimpleQueue[tuple[Task] | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    with suppress(OSError):
        while (held := tasks.get()) is not None:
            connection.send(function(*held))


def _receive(connection: Connection, tasks: SimpleQueue[tuple[Task] | None]) -> None:
    """Take tasks in as they come, then None: where both ends only wrote, each would wait for the other to read."""
    try:
        with suppress(EOFError, OSError):
            while True:
                tasks.put((connection.recv(),))
    finally:
        tasks.put(None)  # also where a task can't be read: the worker ends, and its parent notices

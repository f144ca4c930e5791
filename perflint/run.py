"""Checks many files: on all cores where there are many, and not at all where the cache knows the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perflint.cache import FOLDER, Cache, Keys, keys_for
from perflint.catalogue import selected_rules
from perflint.checker import Checked, Checker, Task
from perflint.disk import Unreadable, read_bytes
from perflint.exclude import layer
from perflint.files import Discovery
from perflint.fingerprint import source_digest
from perflint.links import HotCall
from perflint.payload import decode, decode_links, encode
from perflint.project import calls_into
from perflint.results import FileResult, Problem, RunResult
from perflint.rule import Rule

if TYPE_CHECKING:
    from perflint.config import Settings

Progress = Callable[[int, int], None]

_ROUNDS = 3  # of following calls from file to file
_BYTES_PER_WORKER = 64_000  # less is checked before another process has started
_LOST = Problem("was not checked: the process that checked it was killed, as happens when memory runs out")


@dataclass(frozen=True)
class _Seen:
    """A task, the size of its file in bytes, and the key of its result in the cache, if there is one."""

    task: Task
    size: int
    key: bytes | None


def check_files(discovery: Discovery, settings: Settings, *, progress: Progress | None = None) -> RunResult:
    """The results of the files that were discovered; of folders that could not be read, the problem.

    A file that cannot be checked, also by a fault of ours, does not keep the others from it. `progress` is called with
    the numbers of files that are done and of all.
    """
    started = time.perf_counter()
    checker, tasks = _plan(discovery.files, settings)
    run = _Run(checker, Cache(settings.cache_dir or settings.root / FOLDER) if settings.cache else None, settings.jobs)
    payloads = run.payloads(tasks, progress)
    called: dict[str, tuple[HotCall, ...]] = {}
    for _ in range(_ROUNDS if len(tasks) > 1 else 0):
        news = calls_into({path: decode_links(payload) for path, payload in payloads.items()})
        changed = [path for path, calls in news.items() if calls != called.get(path)]
        if not changed:
            break
        called |= news
        payloads |= run.payloads([replace(task, called=called[task.path]) for task in tasks if task.path in changed])
    files = [_decoded(path, payload) for path, payload in payloads.items()]
    files += [FileResult(str(path), problem=Problem(reason)) for path, reason in discovery.unreadable]
    seconds = time.perf_counter() - started
    return RunResult(tuple(sorted(files, key=lambda file: file.path)), seconds, called)


@dataclass(frozen=True)
class _Run:
    """What checks the files of a run, what remembers their results, and how many processes it may use."""

    checker: Checker
    cache: Cache | None
    jobs: int | None

    def payloads(self, tasks: Sequence[Task], progress: Progress | None = None) -> dict[str, str]:
        """The encoded results of `tasks` by path."""
        seen = [_look(self.checker, task) for task in tasks]
        known = self.cache.load([each.key for each in seen if each.key]) if self.cache else {}
        payloads = {each.task.path: known[each.key] for each in seen if each.key in known}
        todo = [each for each in seen if each.task.path not in payloads]
        fresh: dict[bytes, str] = {}
        with closing(_check_all(self.checker, todo, self.jobs)) as results:
            for task, checked in results:
                payloads[task.path] = checked.payload
                if checked.key:
                    fresh[checked.key] = checked.payload
                if progress:
                    progress(len(payloads), len(tasks))
        if self.cache:
            self.cache.store(fresh)
        return payloads


def _plan(files: Sequence[Path], settings: Settings) -> tuple[Checker, list[Task]]:
    """Who checks, and each file with the number of the rules that the settings leave on for it."""
    selected = selected_rules(settings.selection)
    numbers: dict[tuple[Rule, ...], int] = {}
    patterns = [(layer([pattern], settings.root.resolve(), ""), off) for pattern, off in settings.per_file_ignores]
    tasks = []
    for file in files:
        rules = selected
        if patterns:
            path = file.resolve()
            off = {selector for pattern, selectors in patterns if pattern.covers(path) for selector in selectors}
            rules = tuple(rule for rule in selected if off.isdisjoint(("all", rule.group, rule.name)))
        tasks.append(Task(str(file), numbers.setdefault(rules, len(numbers))))
    keys: tuple[Keys, ...] = ()
    if settings.cache:
        source = source_digest(selected)
        keys = tuple(keys_for(rules, settings.rules, source) for rules in numbers)
    return Checker(tuple(numbers), settings.rules, keys), tasks


def _look(checker: Checker, task: Task) -> _Seen:
    try:
        if not checker.keys:
            return _Seen(task, Path(task.path).stat().st_size, None)
        data = read_bytes(Path(task.path))
    except (Unreadable, OSError):
        return _Seen(task, 0, None)  # whoever checks it says why
    return _Seen(task, len(data), checker.key(task, data))


def _check_all(
    checker: Checker, todo: Sequence[_Seen], jobs: int | None
) -> Generator[tuple[Task, Checked], None, None]:
    """The results as they come: the largest files first, so that no core is left alone with one at the end."""
    tasks = [each.task for each in sorted(todo, key=lambda each: -each.size)]
    useful = min(jobs or len(todo), len(todo), sum(each.size for each in todo) // _BYTES_PER_WORKER)
    if useful < 2:
        yield from ((task, checker.check(task)) for task in tasks)
        return
    from perflint.workers import available_cores, work  # here: a commit hook's few files do without

    jobs = min(jobs or available_cores(), useful)
    with closing(work(checker.check, tasks, jobs)) as results:
        for number, checked in results:
            task = tasks[number]
            yield task, checked or Checked(encode(FileResult(task.path, problem=_LOST)))


def _decoded(path: str, payload: str) -> FileResult:
    return decode(path, payload) if payload else FileResult(path)

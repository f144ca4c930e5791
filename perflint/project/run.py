"""Checks many files: in parallel where there are many, from the cache where it knows the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perflint.analysis.links import ALONE, Context, Links
from perflint.documents.disk import Unreadable, read_bytes
from perflint.documents.places import Problem
from perflint.engine.results import FileResult, RunResult
from perflint.engine.rule import Rule
from perflint.project.cache import Cache, Keys, in_context, key_of_all, keys_for
from perflint.project.cache_folder import FOLDER
from perflint.project.checker import Checked, Checker, Task
from perflint.project.files import Discovery
from perflint.project.fingerprint import source_digest
from perflint.project.payload import decode, decode_contexts, decode_links, encode, encode_contexts
from perflint.project.seen import ByFile, seen_in, with_seen
from perflint.project.selection import RulesByFile
from perflint.project.ties import contexts_of

if TYPE_CHECKING:
    from perflint.project.settings import Settings

Progress = Callable[[int, int], None]

_ROUNDS = 5  # of the fixpoint over the summaries and contexts of files
_BYTES_PER_WORKER = 64_000  # less is checked before another process has started
_LOST = Problem("was not checked: the process that checked it was killed, as happens when memory runs out")


Contexts = dict[str, Context]


@dataclass(frozen=True)
class _Seen:
    """A task, the size of its file in bytes, and the key of its result in the cache, if there is one."""

    task: Task
    size: int
    key: bytes | None

    def in_context(self, context: Context) -> _Seen:
        """The same file, which stood alone so far, in its `context`."""
        task = replace(self.task, context=context)
        return replace(self, task=task, key=in_context(self.key, task.surroundings) if self.key else None)


def check_files(
    discovery: Discovery, settings: Settings, *, edits: bool = False, progress: Progress | None = None
) -> RunResult:
    """The results of the files that were discovered; of folders that could not be read, the problem.

    A file that cannot be checked, also by a fault of ours, does not keep the others from it. Fixes have their `edits`
    if these are asked for. `progress` is called with the numbers of files that are done and of all.
    """
    started = time.perf_counter()
    checker, tasks = _plan(discovery.files, settings, edits)
    cache = Cache(settings.cache_dir or settings.root / FOLDER) if settings.cache else None
    run = _Run(checker, cache, settings.jobs, seen_in(settings.root.resolve()))
    checked, contexts = run.check_all(tasks, progress)
    files = [_decoded(path, each.payload) for path, each in checked.items()]
    files += [FileResult(str(path), problem=Problem(reason)) for path, reason in discovery.unreadable]
    seconds = time.perf_counter() - started
    return RunResult(tuple(sorted(files, key=lambda file: file.path)), seconds, contexts)


@dataclass(frozen=True)
class _Run:
    """What checks the files of a run, what remembers their results, and how many processes it may use.

    `seen` is what runs of the program have shown of its files.
    """

    checker: Checker
    cache: Cache | None
    jobs: int | None
    seen: ByFile

    def check_all(self, tasks: Sequence[Task], progress: Progress | None) -> tuple[dict[str, Checked], Contexts]:
        """The results and the contexts by path.

        Contexts depend on the results of all files, so they are cached for the files together.
        """
        seen = {task.path: _look(self.checker, task) for task in tasks}
        keys = {path: each.key for path, each in seen.items() if each.key}
        whole = key_of_all(keys) if 1 < len(tasks) == len(keys) else None
        if whole and self.cache and (known := self.cache.load([whole])):
            contexts = with_seen(decode_contexts(known[whole]), seen, self.seen)
            tasks_in_context = [each.in_context(contexts.get(path, ALONE)) for path, each in seen.items()]
            return self._check(tasks_in_context, progress), contexts
        checked, contexts = self._follow_links(seen, progress)
        as_seen = all(
            each.key == seen[path].in_context(contexts.get(path, ALONE)).key for path, each in checked.items()
        )
        if whole and self.cache and as_seen:
            told = {path: replace(context, seen=()) for path, context in contexts.items()}
            self.cache.store({whole: encode_contexts({path: each for path, each in told.items() if each})})
        return checked, contexts

    def _follow_links(self, seen: dict[str, _Seen], progress: Progress | None) -> tuple[dict[str, Checked], Contexts]:
        """Check each file by itself; then again, until a fixpoint, those whose context has changed."""
        contexts = with_seen({}, seen, self.seen)
        checked = self._check([each.in_context(contexts.get(path, ALONE)) for path, each in seen.items()], progress)
        links: dict[str, Links] = {}
        changed = list(seen)
        for _ in range(_ROUNDS if len(seen) > 1 else 0):
            links |= {path: decode_links(checked[path].payload) for path in changed}
            news = with_seen(contexts_of(links), seen, self.seen)
            changed = [path for path in {**contexts, **news} if news.get(path, ALONE) != contexts.get(path, ALONE)]
            if not changed:
                break
            contexts = news
            checked |= self._check([seen[path].in_context(contexts.get(path, ALONE)) for path in changed])
        return checked, contexts

    def _check(self, seen: Sequence[_Seen], progress: Progress | None = None) -> dict[str, Checked]:
        """The results by path: those that are remembered, and the others made."""
        known = self.cache.load([each.key for each in seen if each.key]) if self.cache else {}
        done = {each.task.path: Checked(known[each.key], each.key) for each in seen if each.key in known}
        todo = [each for each in seen if each.task.path not in done]
        try:
            with closing(_check_each(self.checker, todo, self.jobs)) as results:
                for task, checked in results:
                    done[task.path] = checked
                    if progress:
                        progress(len(done), len(seen))
        finally:  # also of a run that is stopped
            if self.cache:
                fresh = (done[each.task.path] for each in todo if each.task.path in done)
                self.cache.store({checked.key: checked.payload for checked in fresh if checked.key})
        return done


def _plan(files: Sequence[Path], settings: Settings, edits: bool) -> tuple[Checker, list[Task]]:
    """Who checks, and each file with the number of the rules that the settings leave on for it."""
    rules_of = RulesByFile(settings)
    numbers: dict[tuple[Rule, ...], int] = {}
    tasks = [Task(str(file), numbers.setdefault(rules_of.at(file), len(numbers))) for file in files]
    keys: tuple[Keys, ...] = ()
    if settings.cache:
        source = source_digest(rules_of.selected)
        keys = tuple(keys_for(rules, settings.rules, source, edits=edits) for rules in numbers)
    return Checker(tuple(numbers), settings.rules, keys, edits), tasks


def _look(checker: Checker, task: Task) -> _Seen:
    try:
        if not checker.keys:
            return _Seen(task, Path(task.path).stat().st_size, None)
        data = read_bytes(Path(task.path))
    except (Unreadable, OSError):
        return _Seen(task, 0, None)  # whoever checks it says why
    return _Seen(task, len(data), checker.key(task, data))


def _check_each(
    checker: Checker, todo: Sequence[_Seen], jobs: int | None
) -> Generator[tuple[Task, Checked], None, None]:
    """The results as they come: the largest files first, so that no core is left alone with one at the end."""
    tasks = [each.task for each in sorted(todo, key=lambda each: -each.size)]
    useful = min(jobs or len(todo), len(todo), sum(each.size for each in todo) // _BYTES_PER_WORKER)
    if useful < 2:
        yield from ((task, checker.check(task)) for task in tasks)
        return
    from perflint.project.cores import available_cores
    from perflint.project.workers import work  # here: a commit hook's few files do without

    jobs = min(jobs or available_cores(), useful)
    with closing(work(checker.check, tasks, jobs)) as results:
        for number, checked in results:
            task = tasks[number]
            yield task, checked or Checked(encode(FileResult(task.path, problem=_LOST)))


def _decoded(path: str, payload: str) -> FileResult:
    return decode(path, payload) if payload else FileResult(path)

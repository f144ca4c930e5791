"""Checks many files: in parallel where there are many, from the cache where it knows the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from perflint.analysis.links import ALONE, Context
from perflint.documents.disk import Problem, Unreadable, read_bytes
from perflint.engine.results import FileResult, RunResult
from perflint.engine.rule import Options, Rule
from perflint.project import CACHE, available_cores
from perflint.project.cache import (
    Cache,
    Keys,
    decode,
    decode_links,
    decode_outline,
    encode,
    encode_outline,
    in_context,
    keys_for,
    source_digest,
    source_folders,
)
from perflint.project.figures import ByFile, seen_in, with_seen
from perflint.project.files import Discovery, RulesByFile
from perflint.project.ties import Surroundings, contexts_of

if TYPE_CHECKING:
    from perflint.project.settings import Settings


@dataclass(frozen=True)
class Task:
    """A file to check, by the rules of this number; `context` is what other files tell of it.

    `held` is what stands for its content on disk, if anything does.
    """

    path: str
    rules: int
    context: Context = ALONE
    held: bytes | None = None

    @property
    def surroundings(self) -> str:
        return repr(self.context) if self.context != ALONE else ""

    def read(self) -> bytes:
        return read_bytes(Path(self.path)) if self.held is None else self.held


@dataclass(frozen=True)
class Checked:
    payload: str
    key: bytes | None = None


class _Work(Protocol):
    def key(self, task: Task, data: bytes) -> bytes | None:
        """The key of the result for a file that holds `data`; None where nothing is remembered."""

    def __call__(self, task: Task) -> Checked: ...


@dataclass(frozen=True)
class Linker:
    """Works out the links of a file that is not checked itself; if `in_outline`, an outline of them with its words."""

    keys: Keys | None
    in_outline: bool = False

    def key(self, task: Task, data: bytes) -> bytes | None:
        if self.keys is None:
            return None
        return in_context(self.keys.key(task.path, data), "outline" if self.in_outline else task.surroundings)

    def __call__(self, task: Task) -> Checked:
        from perflint.documents.document import decode
        from perflint.engine.check import links_in

        try:
            data = task.read()
            document = decode(task.path, data)
        except Unreadable:
            return Checked("")
        result, links = links_in(document, task.context, outline=self.in_outline)
        payload = encode_outline(result, links, document.text) if self.in_outline else encode(result, links)
        return Checked(payload, None if result.problem else self.key(task, data))


@dataclass(frozen=True)
class Checker:
    """All that checking a file takes: the sets of rules of the run, and, unless it has no cache, the keys of each.

    `edits`: the results have the edits of fixes.
    """

    rules: tuple[tuple[Rule, ...], ...]
    options: Mapping[str, Options]
    keys: tuple[Keys, ...] = ()
    edits: bool = False

    def key(self, task: Task, data: bytes) -> bytes | None:
        if not self.keys:
            return None
        return in_context(self.keys[task.rules].key(task.path, data), task.surroundings)

    def __call__(self, task: Task) -> Checked:
        from perflint.engine.check import check_bytes  # here, because a run whose files are all known does without

        try:
            data = task.read()
        except Unreadable as error:
            return Checked(encode(FileResult(task.path, problem=error.problem)))
        rules = self.rules[task.rules]
        result, links = check_bytes(task.path, data, rules, self.options, task.context, edits=self.edits)
        # What a file could not be checked for may be memory, or a defect of ours that is gone the next time.
        return Checked(encode(result, links), None if result.problem else self.key(task, data))


Progress = Callable[[int, int], None]

_ROUNDS = 30  # more than the chains of files that tell each other something are long
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
        task = replace(self.task, context=context)
        return replace(self, task=task, key=in_context(self.key, task.surroundings) if self.key else None)


def check_files(
    discovery: Discovery,
    settings: Settings,
    *,
    edits: bool = False,
    progress: Progress | None = None,
    held: Mapping[Path, bytes] = MappingProxyType({}),
) -> RunResult:
    """The results of the files that were discovered; of folders that could not be read, the problem.

    A file that cannot be checked, also by a fault of ours, does not keep the others from it; such a fault in a file
    around them is told, too. Fixes have their `edits` if these are asked for. `progress` is called with the numbers of
    files that are done and of all. What is `held` stands for the content of these files on disk.
    """
    started = time.perf_counter()
    checker, linker, tasks = _plan(discovery, settings, edits, held)
    around = {discovery.name(path): Task(str(path), 0) for path in discovery.around}
    cache = Cache(settings.cache_dir or settings.root / CACHE) if settings.cache else None
    run = _Run(checker, linker, cache, settings.jobs, seen_in(settings.root.resolve()))
    checked, contexts, failed = run.check_all(tasks, around, progress)
    files = [_decoded(tasks[name].path, each.payload) for name, each in checked.items()]
    files += failed
    files += [FileResult(str(path), problem=Problem(reason)) for path, reason in discovery.unreadable]
    by_path = {tasks[name].path: context for name, context in contexts.items()}
    seconds = time.perf_counter() - started
    return RunResult(tuple(sorted(files, key=lambda file: file.path)), seconds, by_path)


@dataclass(frozen=True)
class _Run:
    """What checks the files of a run, what links those around them, what remembers, and how many processes may work.

    `seen` is what runs of the program have shown of its files.
    """

    checker: Checker
    linker: Linker
    cache: Cache | None
    jobs: int | None
    seen: ByFile

    def check_all(
        self, tasks: Mapping[str, Task], around: Mapping[str, Task], progress: Progress | None
    ) -> tuple[dict[str, Checked], Contexts, list[FileResult]]:
        """The results and contexts by name, and the files `around` at which we failed.

        Each file is checked by itself, then again, until a fixpoint, where its context has changed.
        """
        seen = {name: _look(self.checker, task) for name, task in tasks.items()}
        beside = {name: _look(self.linker, task) for name, task in around.items()}
        paths = _paths({**seen, **beside})
        contexts = with_seen({}, paths, self.seen)
        checked = self._do(
            self.checker, {name: each.in_context(contexts.get(name, ALONE)) for name, each in seen.items()}, progress
        )
        links = {name: decode_links(each.payload) for name, each in checked.items()}
        linked = self._outlined(beside)
        failed = _failed(linked, paths)
        surroundings = Surroundings({name: decode_outline(each.payload) for name, each in linked.items()}, seen)
        for _ in range(_ROUNDS if len(seen) + len(beside) > 1 else 0):
            while beside and (new := surroundings.telling(links) - {*links}):
                linked = self._linked(new, beside, contexts)
                failed |= _failed(linked, paths)
                links |= {name: decode_links(each.payload) for name, each in linked.items()}
            now = with_seen(contexts_of({**surroundings.links, **links}), paths, self.seen)
            changed = [name for name in links if now.get(name, ALONE) != contexts.get(name, ALONE)]
            if not changed:
                break
            contexts = now
            again = {name: seen[name].in_context(contexts.get(name, ALONE)) for name in changed if name in seen}
            rechecked = self._do(self.checker, again)
            linked = self._linked([name for name in changed if name in beside], beside, contexts)
            checked |= rechecked
            failed |= _failed(linked, paths)
            news = {name: decode_links(each.payload) for name, each in (*rechecked.items(), *linked.items())}
            if all(links[name] == each for name, each in news.items()):
                break
            links |= news
        return checked, {name: contexts[name] for name in seen if name in contexts}, [*failed.values()]

    def _outlined(self, beside: Mapping[str, _Seen]) -> dict[str, Checked]:
        outliner = replace(self.linker, in_outline=True)
        sketched = {
            name: replace(each, key=in_context(each.key, "outline") if each.key else None)
            for name, each in sorted(beside.items())
        }
        return self._do(outliner, sketched)

    def _linked(self, names: Iterable[str], beside: Mapping[str, _Seen], contexts: Contexts) -> dict[str, Checked]:
        seen = {name: beside[name].in_context(contexts.get(name, ALONE)) for name in sorted(names)}
        return self._do(self.linker, seen)

    def _do(self, work: _Work, seen: Mapping[str, _Seen], progress: Progress | None = None) -> dict[str, Checked]:
        """The results of `work` by name: those that are remembered, and the others made."""
        known = self.cache.load([each.key for each in seen.values() if each.key]) if self.cache else {}
        done = {name: Checked(known[each.key], each.key) for name, each in seen.items() if each.key in known}
        todo = {name: each for name, each in seen.items() if name not in done}
        try:
            with closing(_do_each(work, todo, self.jobs)) as results:
                for name, checked in results:
                    done[name] = checked
                    if progress:
                        progress(len(done), len(seen))
        finally:  # also of a run that is stopped
            if self.cache:
                fresh = (done[name] for name in todo if name in done)
                self.cache.store({checked.key: checked.payload for checked in fresh if checked.key})
        return {name: done[name] for name in seen}


def _plan(
    discovery: Discovery, settings: Settings, edits: bool, held: Mapping[Path, bytes]
) -> tuple[Checker, Linker, dict[str, Task]]:
    """Who checks, who links, and each file by name with the number of the rules that the settings leave on for it."""
    rules_of = RulesByFile(settings)
    numbers: dict[tuple[Rule, ...], int] = {}
    tasks = {
        discovery.name(file): Task(str(file), numbers.setdefault(rules_of.at(file), len(numbers)), held=held.get(file))
        for file in discovery.files
    }
    keys: tuple[Keys, ...] = ()
    if settings.cache:
        source = _own_source(frozenset(source_folders(rules_of.selected)))
        keys = tuple(keys_for(rules, settings.rules, source, edits=edits) for rules in numbers)
    linker = Linker(keys_for((), {}, source) if settings.cache else None)
    return Checker(tuple(numbers), settings.rules, keys, edits), linker, tasks


@cache
def _own_source(folders: frozenset[str]) -> bytes:
    """The digest of the code that this process runs: not of what becomes of its files in the meantime."""
    return source_digest(folders)


def _paths(seen: Mapping[str, _Seen]) -> dict[str, str]:
    return {name: each.task.path for name, each in seen.items()}


def _look(work: Checker | Linker, task: Task) -> _Seen:
    try:
        if not work.keys:
            return _Seen(task, Path(task.path).stat().st_size if task.held is None else len(task.held), None)
        data = task.read()
    except (Unreadable, OSError):
        return _Seen(task, 0, None)  # whoever checks it says why
    return _Seen(task, len(data), work.key(task, data))


def _do_each(work: _Work, todo: Mapping[str, _Seen], jobs: int | None) -> Generator[tuple[str, Checked], None, None]:
    """The results as they come: the largest files first, so that no core is left alone with one at the end."""
    names = sorted(todo, key=lambda name: -todo[name].size)
    tasks = [todo[name].task for name in names]
    useful = min(jobs or len(todo), len(todo), sum(each.size for each in todo.values()) // _BYTES_PER_WORKER)
    if useful < 2:
        yield from ((name, work(task)) for name, task in zip(names, tasks, strict=True))
        return
    import perflint.engine.check  # noqa: F401  # which forked workers share rather than import it each
    from perflint.project import workers  # here: a commit hook's few files do without

    with closing(workers.work(work, tasks, min(jobs or available_cores(), useful))) as results:
        for number, checked in results:
            yield names[number], checked or Checked(encode(FileResult(tasks[number].path, problem=_LOST)))


def _failed(linked: Mapping[str, Checked], paths: Mapping[str, str]) -> dict[str, FileResult]:
    results = {name: _decoded(paths[name], each.payload) for name, each in linked.items()}
    return {name: result for name, result in results.items() if result.problem}


def _decoded(path: str, payload: str) -> FileResult:
    return decode(path, payload) if payload else FileResult(path)

"""Checks many files: in parallel where there are many, from the cache where it knows the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

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
    from perflint.analysis.program import Program
    from perflint.project.settings import Settings
    from perflint.project.workers import Crew


_MOST_PARSED = 3_000_000  # characters, whose syntax takes some 90 MB


class Parsed:
    """Parses programs, each once for as long as not too much was parsed since.

    It keeps what the text tells, not what was made of it: the last program that it gave is not to be used any more
    when it is asked for the next.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Program] = {}
        self._size = 0
        self._last: Program | None = None

    def __call__(self, text: str, context: Context) -> Program:
        from perflint.analysis.program import Program  # here, because a run whose files are all known does without

        self._put_away()
        known = self._kept.pop(text, None)
        if known is None:
            self._last = Program(text, context)
        else:
            self._size -= len(text)
            self._last = known.in_context(context)
        return self._last

    def __reduce__(self) -> tuple[type[Parsed], tuple[()]]:
        """What goes to other processes: these keep what they parse themselves."""
        return Parsed, ()

    def _put_away(self) -> None:
        last, self._last = self._last, None
        if last is None:
            return
        self._kept[last.text] = last.in_context(ALONE)
        self._size += len(last.text)
        last.release()
        while self._size > _MOST_PARSED:
            self._size -= len(oldest := next(iter(self._kept)))
            del self._kept[oldest]


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


class Work(IntEnum):
    """What is done with a file: the number of who does it in `_Works`."""

    CHECK = 0
    LINK = 1
    OUTLINE = 2


@dataclass(frozen=True)
class Linker:
    """Works out the links of a file that is not checked itself; if `in_outline`, an outline of them with its words."""

    does: ClassVar[Work] = Work.LINK
    keys: Keys | None
    parsed: Parsed
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
        result, links = links_in(document, task.context, outline=self.in_outline, parse=self.parsed)
        payload = encode_outline(result, links, document.text) if self.in_outline else encode(result, links)
        return Checked(payload, None if result.problem else self.key(task, data))


@dataclass(frozen=True)
class Checker:
    """All that checking a file takes: the sets of rules of the run, and, unless it has no cache, the keys of each.

    `edits`: the results have the edits of fixes.
    """

    does: ClassVar[Work] = Work.CHECK
    rules: tuple[tuple[Rule, ...], ...]
    options: Mapping[str, Options]
    keys: tuple[Keys, ...] = ()
    edits: bool = False
    parsed: Parsed = field(default_factory=Parsed)

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
        rules, told = self.rules[task.rules], (self.options, task.context)
        result, links = check_bytes(task.path, data, rules, *told, edits=self.edits, parse=self.parsed)
        # What a file could not be checked for may be memory, or a defect of ours that is gone the next time.
        return Checked(encode(result, links), None if result.problem else self.key(task, data))


@dataclass(frozen=True)
class _Works:
    """Does each task, as many processes may."""

    of_each: tuple[Checker | Linker, ...]

    def __call__(self, job: tuple[Work, Task]) -> Checked:
        work, task = job
        return self.of_each[work](task)


Progress = Callable[[int, int], None]

_ROUNDS = 30  # more than the chains of files that tell each other something are long
_BYTES_PER_WORKER = 64_000  # less is checked before another process has started
_LOST = Problem("was not checked: the process that checked it was killed, as happens when memory runs out")


Contexts = dict[str, Context]


@dataclass(frozen=True)
class _Seen:
    """A task, who does it, the size of its file in bytes, and the key of its result in the cache, if there is one."""

    task: Task
    work: Work
    size: int
    key: bytes | None

    def in_context(self, context: Context) -> _Seen:
        task = replace(self.task, context=context)
        return replace(self, task=task, key=in_context(self.key, task.surroundings) if self.key else None)

    @property
    def in_outline(self) -> _Seen:
        return replace(self, work=Work.OUTLINE, key=in_context(self.key, "outline") if self.key else None)


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
    works = _Works((checker, linker, replace(linker, in_outline=True)))
    with closing(_Run(works, cache, settings.jobs, seen_in(settings.root.resolve()))) as run:
        checked, contexts, failed = run.check_all(tasks, around, progress)
    files = [_decoded(tasks[name].path, each.payload) for name, each in checked.items()]
    files += failed
    files += [FileResult(str(path), problem=Problem(reason)) for path, reason in discovery.unreadable]
    by_path = {tasks[name].path: context for name, context in contexts.items()}
    seconds = time.perf_counter() - started
    return RunResult(tuple(sorted(files, key=lambda file: file.path)), seconds, by_path)


class _Run:
    """What works on the files of a run, what remembers, and how many processes may work.

    `seen` is what runs of the program have shown of its files.
    """

    def __init__(self, works: _Works, cache: Cache | None, jobs: int | None, seen: ByFile) -> None:
        self._works, self._cache, self._jobs, self._seen = works, cache, jobs, seen
        self._crew: Crew[tuple[Work, Task], Checked] | None = None

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()

    def check_all(
        self, tasks: Mapping[str, Task], around: Mapping[str, Task], progress: Progress | None
    ) -> tuple[dict[str, Checked], Contexts, list[FileResult]]:
        """The results and contexts by name, and the files `around` at which we failed.

        Each file is checked by itself, then again, until a fixpoint, where its context has changed.
        """
        checker, linker = self._works.of_each[:2]
        seen = {name: _look(checker, task) for name, task in tasks.items()}
        beside = {name: _look(linker, task) for name, task in around.items()}
        paths = {name: each.task.path for name, each in (*seen.items(), *beside.items())}
        contexts = with_seen({}, paths, self._seen)
        alone = {name: each.in_context(contexts.get(name, ALONE)) for name, each in seen.items()}
        done = self._do({**alone, **{name: each.in_outline for name, each in sorted(beside.items())}}, progress)
        checked, outlined = ({name: done[name] for name in names} for names in (seen, beside))
        links = {name: decode_links(each.payload) for name, each in checked.items()}
        failed = _failed(outlined, paths)
        surroundings = Surroundings({name: decode_outline(each.payload) for name, each in outlined.items()}, seen)
        for _ in range(_ROUNDS if len(seen) + len(beside) > 1 else 0):
            while beside and (new := surroundings.telling(links) - {*links}):
                linked = self._do({name: beside[name].in_context(contexts.get(name, ALONE)) for name in sorted(new)})
                failed |= _failed(linked, paths)
                links |= {name: decode_links(each.payload) for name, each in linked.items()}
            now = with_seen(contexts_of({**surroundings.links, **links}), paths, self._seen)
            changed = [name for name in links if now.get(name, ALONE) != contexts.get(name, ALONE)]
            if not changed:
                break
            contexts = now
            again = self._do({n: (seen.get(n) or beside[n]).in_context(contexts.get(n, ALONE)) for n in changed})
            checked |= {name: each for name, each in again.items() if name in seen}
            failed |= _failed({name: each for name, each in again.items() if name in beside}, paths)
            news = {name: decode_links(each.payload) for name, each in again.items()}
            if all(links[name] == each for name, each in news.items()):
                break
            links |= news
        return checked, {name: contexts[name] for name in seen if name in contexts}, [*failed.values()]

    def _do(self, seen: Mapping[str, _Seen], progress: Progress | None = None) -> dict[str, Checked]:
        """The results by name: those that are remembered, and the others made. Of what is checked, `progress` tells."""
        known = self._cache.load([each.key for each in seen.values() if each.key]) if self._cache else {}
        done = {name: Checked(known[each.key], each.key) for name, each in seen.items() if each.key in known}
        todo = {name: each for name, each in seen.items() if name not in done}
        told = sum(each.work is Work.CHECK for each in seen.values())
        count = sum(seen[name].work is Work.CHECK for name in done)
        try:
            for name, checked in self._do_each(todo):
                done[name] = checked
                count += seen[name].work is Work.CHECK
                if progress and seen[name].work is Work.CHECK:
                    progress(count, told)
        finally:  # also of a run that is stopped
            if self._cache:
                fresh = (done[name] for name in todo if name in done)
                self._cache.store({checked.key: checked.payload for checked in fresh if checked.key})
        return {name: done[name] for name in seen}

    def _do_each(self, todo: Mapping[str, _Seen]) -> Iterator[tuple[str, Checked]]:
        """The results as they come: the largest files first, so that no core is left alone with one at the end."""
        names = sorted(todo, key=lambda name: -todo[name].size)
        jobs = [(todo[name].work, todo[name].task) for name in names]
        useful = min(self._jobs or len(todo), len(todo), sum(each.size for each in todo.values()) // _BYTES_PER_WORKER)
        if self._crew is None and useful < 2:
            yield from ((name, self._works(job)) for name, job in zip(names, jobs, strict=True))
            return
        if self._crew is None:
            import perflint.engine.check  # noqa: F401  # which forked workers share rather than import it each
            from perflint.project.workers import Crew  # here: a commit hook's few files do without

            self._crew = Crew(self._works, min(self._jobs or available_cores(), useful))
        for number, checked in self._crew.work(jobs, names):
            lost = FileResult(jobs[number][1].path, problem=_LOST)
            yield names[number], checked or Checked(encode(lost))


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
    checker = Checker(tuple(numbers), settings.rules, keys, edits)
    return checker, Linker(keys_for((), {}, source) if settings.cache else None, checker.parsed), tasks


@cache
def _own_source(folders: frozenset[str]) -> bytes:
    """The digest of the code that this process runs: not of what becomes of its files in the meantime."""
    return source_digest(folders)


def _look(work: Checker | Linker, task: Task) -> _Seen:
    try:
        if not work.keys:
            size = Path(task.path).stat().st_size if task.held is None else len(task.held)
            return _Seen(task, work.does, size, None)
        data = task.read()
    except (Unreadable, OSError):
        return _Seen(task, work.does, 0, None)  # whoever checks it says why
    return _Seen(task, work.does, len(data), work.key(task, data))


def _failed(linked: Mapping[str, Checked], paths: Mapping[str, str]) -> dict[str, FileResult]:
    results = {name: _decoded(paths[name], each.payload) for name, each in linked.items()}
    return {name: result for name, result in results.items() if result.problem}


def _decoded(path: str, payload: str) -> FileResult:
    return decode(path, payload) if payload else FileResult(path)

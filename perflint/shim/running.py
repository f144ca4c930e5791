"""One run of a program: the folder of its records, its start in this process, the summary at its end.

The folder survives a run that is killed. Each process locks it, which also keeps cleaners of temporary files away.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from perflint.documents.lines import at_line
from perflint.engine import UserError, count
from perflint.shim import hooks, launch
from perflint.shim.hooks import FIXES, Tallied, change, graphed, tallied, tallies
from perflint.shim.plan import COMPILE, UNREADABLE, KnownLoader, Plan, Program, load, save
from perflint.shim.session import FIRST, OFF, Shim, environment, first_name, made, plan_of
from perflint.shim.settings import COMPILING, KNOWN, SETTINGS

_MOST_NAMED = 4


def summary(plan: Plan, run: Path) -> Iterator[str]:
    fixes, loaders, settings = tallies(run, FIXES), list(made(run)), tallied(run, SETTINGS)
    number = sum(bool(each.arguments) for each in loaders) + sum(bool(each.times) for each in settings)
    unloaded, lines = 0, []
    for path, file in plan.files.items():
        if not _times(fixes, path, 0):
            unloaded += len(file.changes)
            continue
        for offset, fix in enumerate(file.changes, 1):
            times = _times(fixes, path, offset)
            number += bool(times)
            lines.append(f"  {_at(path, fix.line, plan)} {fix.rule}: {fix.title} ({_shown(times)})")
    names = {each.process for each in fixes}
    where = f" in {len(names)} processes" if len(names) > 1 else ""
    yield f"perflint: {count(number, 'fix', 'fixes')} took effect{where}"
    yield from (line if number == 1 else f"{line}, in {number} places" for line, number in Counter(lines).items())
    if unloaded:
        rest = count(unloaded, "fix", "fixes")
        yield f"  not applied: {rest} in files that were not loaded, or were changed meanwhile"
    for graph in graphed(run):
        replays = count(graph.times, "time")
        yield f"  graphs of {graph.name}: replayed {replays}" + ("" if graph.times else f": {graph.remark}")
    for loader in loaders:
        added = ", ".join(f"{name}={value}" for name, value in loader.arguments.items())
        rest = f"no workers: {loader.reason}" if loader.reason else ""
        said = "; ".join(filter(None, [added, rest, loader.note]))
        yield f"  {_at(loader.path, loader.line, plan)} loader: {said}"
    for setting in settings:
        effect = count(setting.times, "time") if setting.times else f"never took effect: {setting.remark}"
        if setting.name in KNOWN:
            yield f"  {setting.name}: {KNOWN[setting.name].title} ({effect})"
        else:
            yield f"  {setting.name}: {setting.remark} ({count(setting.times, 'call')})"
    if {*COMPILING} & {*plan.settings} and all(each.name in KNOWN for each in settings):
        yield "  compile: never took effect: no module was called often enough"
    for left in plan.left:
        if left.rule == COMPILE:
            yield f"  {_at(left.path, left.line, plan)} compile: never took effect: {left.reason}"


def _at(path: str, line: int, plan: Plan) -> str:
    return at_line(path, line, os.path.relpath(path, plan.start))


def _times(fixes: Sequence[Tallied], path: str, number: int) -> dict[str, int]:
    times: dict[str, int] = {}
    for each in fixes:
        if each.name == change(path, number):
            times[each.process] = times.get(each.process, 0) + each.times
    return times


def _shown(times: Mapping[str, int]) -> str:
    if not times:
        return "never took effect"
    total = count(sum(times.values()), "time")
    if [*times] == ["main"]:
        return total
    if len(times) > _MOST_NAMED:
        return f"{total} in {len(times)} processes"
    return f"{total}: {', '.join(f'{number:,} in {name}' for name, number in times.items())}"


def preview(plan: Plan) -> Iterator[str]:
    for path, file in plan.files.items():
        for each in file.changes:
            yield f"{at_line(path, each.line)} {each.rule}: {each.title} ({each.safety})"
    if plan.watches:
        yield f"{', '.join(plan.watches)}: decided on as they are made"
    for name in plan.settings:
        yield f"{name}: {KNOWN[name].title} ({KNOWN[name].safety})"
    for path, loaders in plan.loaders.items():
        for loader in loaders:
            yield f"{at_line(path, loader.line)} loader: {_expected(loader, plan.unsafe)}"
    for left in plan.left:
        rule = f" {left.rule}" if left.rule else ""
        yield f"{at_line(left.path, left.line)}{rule}: left: {left.reason}"


def _expected(loader: KnownLoader, unsafe: bool) -> str:
    workers = f"; no workers: {loader.doubt}" if loader.doubt else ""
    if unsafe:
        return f"tried out{workers.replace('no workers', 'for its text alone, no workers')}"
    return (f"{' and '.join(loader.proven)}, if its samples allow it" if loader.proven else "left") + workers


_PREFIX = "perflint-run-"
_KEEP_S = 7 * 86_400


class RunFolder:
    """A folder for this process and its children, or shared by the ranks of a host."""

    def __init__(self, path: Path, lock: int | None, shared: bool) -> None:
        self.path, self._lock, self._shared = path, lock, shared

    def leave(self) -> None:
        if not self._shared or (self._lock is not None and _locks(self._lock, alone=True)):
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)


def enter() -> RunFolder:
    """A new folder; where a launcher started several ranks on this host, the one that they share."""
    if os.name == "nt":
        return RunFolder(Path(tempfile.mkdtemp(prefix=_PREFIX)), None, shared=False)
    if not _is_rank():
        return _again(Path(tempfile.mkdtemp(prefix=_PREFIX)))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    path = Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getuid()}-{os.getppid()}-{attempt}"
    lock = None
    while lock is None:
        lock = _joined(path)
    return RunFolder(path, lock, shared=True)


def _again(path: Path) -> RunFolder:
    """The folder at `path`, made by this process, or before it became another program."""
    lock = os.open(path, os.O_RDONLY)
    _locks(lock, alone=False)
    return RunFolder(path, lock, shared=_is_rank())


def _is_rank() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def latest(root: Path) -> tuple[Path, Plan] | None:
    found = []
    for path in _folders():
        with suppress(*UNREADABLE):
            plan = load(plan_of(path))
            if plan.root == os.path.realpath(root):
                found.append((path.stat().st_mtime_ns, path, plan))
    return max(found)[1:] if found else None


def sweep() -> None:
    for path in _folders():
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY)
            if path.stat().st_mtime < time.time() - _KEEP_S and _locks(lock, alone=True):
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _folders() -> Iterator[Path]:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if path.lstat().st_uid == os.getuid():
                yield path


def _joined(path: Path) -> int | None:
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    if os.fstat(lock).st_uid != os.getuid():
        raise PermissionError(f"{path} is somebody else's")
    if _locks(lock, alone=True):
        for file in path.iterdir():  # of processes that were killed
            file.unlink(missing_ok=True)
    _locks(lock, alone=False)
    with suppress(OSError):
        if os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    os.close(lock)
    return None


def _locks(lock: int, *, alone: bool) -> bool:
    try:
        import fcntl  # here: there is none on Windows

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
    except (OSError, ImportError):  # others hold it, or there are no locks in this place
        return False
    return True


class Run(NamedTuple):
    """A run begun by this process: its patches, its folder, and environment variables with their values `before`."""

    shim: Shim
    folder: RunFolder
    joining: Mapping[str, str]
    before: Mapping[str, str | None]

    def lines(self) -> list[str]:
        return list(summary(self.shim.plan, self.folder.path))

    def end(self) -> None:
        self.shim.uninstall()
        for name, value in self.before.items():
            if os.environ.get(name) == self.joining[name]:
                os.environ.pop(name)
                os.environ.update({} if value is None else {name: value})
        self.folder.leave()


def begin(plan: Plan, *, tells: bool = True) -> Run:
    plan = plan._replace(start=str(Path.cwd()), tells=tells)
    folder = enter()
    try:
        save(plan, plan_of(folder.path))
        shim = Shim(plan, folder.path, first_name())
        shim.install()
    except BaseException:
        folder.leave()
        raise
    joining = {**environment(folder.path), FIRST: str(os.getpid())}
    before = {name: os.environ.get(name) for name in joining}
    os.environ.update(joining)
    return Run(shim, folder, joining, before)


def launcher(program: Program, find: Callable[[], Plan]) -> Callable[[], None]:
    run = None if os.environ.get(OFF) == "1" else _begun(program, find)
    if program.is_module:
        return partial(launch.run_module, program.name, program.arguments)
    return partial(launch.run_script, program.name, program.arguments, run.shim if run else None)


def go_on(shim: Shim, folder: Path) -> None:
    _tell_at_end(Run(shim, _again(folder), {}, {}))


def _begun(program: Program, find: Callable[[], Plan]) -> Run | None:
    try:
        run = begin(find(), tells=not program.quiet)
    except UserError:
        raise
    except Exception as error:
        hooks.warn(f"runs {program.name} unpatched, by a fault of its own: {error!r}")
        return None
    _tell_at_end(run)
    return run


def _tell_at_end(run: Run) -> None:
    end, leave = functools.cache(partial(_end, run, os.getpid())), os._exit

    @functools.wraps(leave)
    def leave_with_summary(status: int) -> NoReturn:
        with suppress(Exception):
            end()
        leave(status)

    atexit.register(end)
    os._exit = leave_with_summary


def _end(run: Run, process: int) -> None:
    if os.getpid() != process:
        return  # a child that was forked
    try:
        lines = run.lines() if run.shim.plan.tells and os.environ.get("LOCAL_RANK", "0") == "0" else []
        with suppress(OSError, ValueError):  # standard error is closed
            if lines and sys.stderr is not None:
                print(*lines, sep="\n", file=sys.stderr, flush=True)
    except Exception as error:
        hooks.warn(f"can't say what took effect: {error!r}")
    finally:
        run.end()

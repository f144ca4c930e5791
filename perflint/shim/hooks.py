"""Hooks and counters of a run inside the user's process.

Import hooks and reversible monkey patches; counters in memory-mapped files, which survive their processes.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import struct
import sys
import threading
import time
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from importlib.abc import Loader

Code = Callable[[str, bytes], "CodeType | None"]  # the code to run for a path and what the file holds
AfterImport = Callable[[ModuleType], None]
Undo = Callable[[], None]
Watch = Callable[[ModuleType], Undo]
_warned: list[str] = []


class PatchedLoader(SourceFileLoader):
    """Loads a file from its patched code, or unpatched where there is none."""

    def __init__(self, fullname: str, path: str, code: Code) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self._code(path, self.get_data(path)) or super().get_code(fullname)


class _Watched:
    def __init__(self, loader: Loader, notify: AfterImport) -> None:
        self._loader, self._notify = loader, notify

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._notify(module)


class Finder:
    """Shows `swap` each spec that the finders after it in `sys.meta_path` find.

    `watched` holds callbacks for loaded modules, by name.
    """

    def __init__(self, swap: Callable[[ModuleSpec], None], watched: Mapping[str, AfterImport]) -> None:
        self._swap, self.watched = swap, watched

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else ()
        specs = (finder.find_spec(fullname, path, target) for finder in behind if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None:
            return None
        if fullname in self.watched and hasattr(spec.loader, "exec_module"):  # frozen ones, too, as runpy is
            spec.loader = _Watched(spec.loader, self.watched[fullname])  # type: ignore[assignment,arg-type]
        self._swap(spec)
        return spec


def warn(message: str) -> None:
    """Report perflint's first own failure in this process; the user's program goes on."""
    if _warned:
        return
    _warned.append(message)
    try:
        warnings.warn(f"perflint {message}", RuntimeWarning, stacklevel=3)
    except RuntimeWarning:  # the program turns warnings into errors
        with suppress(OSError, ValueError, AttributeError):  # standard error is closed
            sys.stderr.write(f"RuntimeWarning: perflint {message}\n")


def before(function: Callable[..., Any], call: Callable[..., object]) -> Callable[..., Any]:
    """`function`, whose arguments are passed to `call` first."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        call(*args, **kwargs)
        return function(*args, **kwargs)

    return wrapped


def after(function: Callable[..., Any], call: Callable[..., object]) -> Callable[..., Any]:
    """`function`, whose result and arguments are passed to `call` afterwards."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        call(result, *args, **kwargs)
        return result

    return wrapped


def outermost(function: Callable[..., Any], hooked: Callable[..., Any]) -> Callable[..., Any]:
    """`hooked`, a `function` with hooks, which itself calls `function` alone.

    Inside a mode, torch calls a method of tensors by its name once more.
    """
    inside = threading.local()

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if vars(inside).get("is_so"):
            return function(*args, **kwargs)
        inside.is_so = True
        try:
            return hooked(*args, **kwargs)
        finally:
            inside.is_so = False

    return wrapped


def replace(owner: Any, name: str, new: object) -> Undo:
    """Replace an attribute; the undo leaves it alone if somebody else has replaced it since."""
    original = getattr(owner, name)
    setattr(owner, name, new)

    def undo() -> None:
        if vars(owner).get(name) is new:
            setattr(owner, name, original)

    return undo


def undo_all(changes: Iterable[Undo]) -> Undo:
    each_of = list(changes)

    def undo() -> None:
        for each in each_of:
            each()

    return undo


def allow_in_graphs(functions: Iterable[Callable[..., None]], config: Any) -> Undo:
    """Have torch.compile call these functions of numbers and tensors behind a graph, with no break of it.

    Of what it inlines, it leaves them out.
    """
    others = set(getattr(config, "reorderable_logging_functions", ()))
    config.reorderable_logging_functions = {*others, *functions}
    return lambda: setattr(config, "reorderable_logging_functions", others)


def allow_counters_in_exports(hits: Iterable[Callable[[int], None]], trace: ModuleType) -> Undo:
    config = getattr(trace, "DEFAULT_EXPORT_DYNAMO_CONFIG", None)
    functions: set[object] = getattr(config, "reorderable_logging_functions", set())
    functions.update(hits)
    return lambda: functions.difference_update(hits)


def patch_files_run(patches: Callable[[str], bool], code: Code, runpy: Any) -> Undo:
    """Patch files that `runpy` runs, as spawned processes run the main script."""
    original = runpy._get_code_from_file

    @functools.wraps(original)
    def patched(*args: str) -> object:
        found = original(*args)  # (run_name, path) gives (code, path) up to Python 3.11; then (path) gives the code
        path = args[-1]
        with suppress(OSError):
            ours = code(path, Path(path).read_bytes()) if patches(path) else None
            if ours is not None:
                return (ours, *found[1:]) if isinstance(found, tuple) else ours
        return found

    return replace(runpy, "_get_code_from_file", patched)


def patch_files_located(swap: Callable[[Any], None], util: Any) -> Undo:
    """Show `swap` the specs of modules loaded by their file, which no finder finds."""

    def located(spec: Any, *_: Any, **named: Any) -> None:
        if spec is not None and named.get("loader") is None:
            swap(spec)

    return replace(util, "spec_from_file_location", after(util.spec_from_file_location, located))


CALL = "__perflint_call__"  # the global decorator by which the verifier is told of calls
CUT, DUE = "__perflint_cut__", "__perflint_due__"  # global functions around what it shortens: iterables and tests
GRAPHS = "perflint.runtime.records"  # the module whose records count replays
FIXES, _GRAPH = "fixes", "graph"
_BYTES = struct.calcsize("Q")


class Tally:
    """A counter of some `kind` under a `name`, with a remark, shared by forked processes.

    `process` is this one's name, if not its pid.
    """

    def __init__(self, run: Path, kind: str, name: str, process: str = "") -> None:
        self._path = run / f"{process or os.getpid()}.{time.time_ns():020}.{kind}"  # pids are reused
        self._name = name
        self._count = _mapped(self._path)
        self.remark("")

    def add(self) -> None:
        self._count[0] += 1

    def remark(self, text: str) -> None:
        with suppress(OSError), self._path.open("r+b") as file:
            file.seek(_BYTES)
            file.write(json.dumps([self._name, text]).encode("ascii"))
            file.truncate()


def counter(run: Path, path: str, process: str = "") -> Callable[[int], None]:
    """A function that counts by the numbers of a file's changes, 0 for its loading; a plain one, for torch.compile.

    Forked processes count for themselves.
    """
    tallies: dict[int, Tally] = {}
    names = [process]

    def hit(number: int) -> None:
        tally = tallies.get(number)
        if tally is None:
            tally = tallies[number] = Tally(run, FIXES, change(path, number), names[0])
        tally.add()

    def start_anew() -> None:
        tallies.clear()
        names[0] = ""

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=start_anew)
    return hit


def change(path: str, number: int) -> str:
    return f"{number} {path}"


def _mapped(path: Path) -> MutableSequence[int]:
    zero = bytes(_BYTES)
    try:
        with path.open("x+b") as file:
            file.write(zero)  # a sparse file would kill the process on a full disk
            file.flush()
            return memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")  # type: ignore[return-value]
    except OSError:
        return array("Q", zero)


class Tallied(NamedTuple):
    """What was counted under a name, a remark, and the process by name or pid, "" for all."""

    name: str
    times: int
    remark: str
    process: str = ""


def tallies(run: Path, kind: str) -> list[Tallied]:
    """A run's tallies of a `kind`, by process and age, named processes first."""
    found = []
    for file in run.glob(f"*.{kind}"):
        process, content = file.name.partition(".")[0], file.read_bytes()
        with suppress(ValueError):  # of a process that was killed as it started
            name, remark = json.loads(content[_BYTES:])
            times = int.from_bytes(content[:_BYTES], sys.byteorder)
            found.append(((process.isdigit(), len(process), file.name), Tallied(name, times, remark, process)))
    return [tally for _, tally in sorted(found)]


def tallied(run: Path, kind: str) -> list[Tallied]:
    found: dict[str, Tallied] = {}
    for name, times, remark, _ in tallies(run, kind):
        known = found.get(name, Tallied(name, 0, ""))
        found[name] = Tallied(name, known.times + times, known.remark or remark)
    return list(found.values())


def count_graphs(run: Path, module: Any) -> Undo:
    def tally(records: Any) -> Tally:
        if not hasattr(records, "tally"):
            records.tally = Tally(run, _GRAPH, records._name)
        return records.tally  # type: ignore[no-any-return]

    kind = module.Records
    patched = {
        "__init__": after(kind.__init__, lambda _, each, *args, **kwargs: tally(each)),
        "replayed": after(kind.replayed, lambda _, each: tally(each).add()),
        "refuse": before(kind.refuse, lambda each, mode, reason: tally(each).remark(reason)),
    }
    return undo_all([replace(kind, name, new) for name, new in patched.items()])


def graphed(run: Path) -> Iterator[Tallied]:
    torch = sys.modules.get("torch")
    seldom = "it was not called often enough" if not torch or torch.cuda.is_available() else "there is no device"
    return (each._replace(remark=each.remark or seldom) for each in tallied(run, _GRAPH))

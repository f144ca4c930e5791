"""The shim of one process: patched imports, counters, completed loaders, the environment of its children."""

from __future__ import annotations

import builtins
import functools
import json
import marshal
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from perflint.documents import digest
from perflint.shim import hooks
from perflint.shim.hooks import Tally, Undo, Watch, tallied
from perflint.shim.plan import KnownLoader, PatchedFile, Plan, read, write

if TYPE_CHECKING:
    from perflint.runtime.loader import Decision
    from perflint.shim.tuned import Tuning

RUN, OFF = "PERFLINT_RUN", "PERFLINT_DISABLE"
ALSO = "PERFLINT_ALSO"  # names a module whose `join` is called in each process that joins
FIRST = "PERFLINT_FIRST"  # the pid of the process that began the run, and keeps it through exec
SITE = str(Path(__file__).with_name("site"))


class Shim:
    """The patches of `plan` in this process, with counters in the folder `run` under its `name`, if any."""

    def __init__(self, plan: Plan, run: Path, name: str = "") -> None:
        self.plan = plan
        self._store = Path(plan.store or run)
        self._hits = {path: hooks.counter(run, path, name) for path in plan.files}
        self._names = frozenset(map(os.path.basename, plan.files))
        self._undo: list[Undo] = []
        self._has_ended = False  # later patches by others may hold on to ours, which then do nothing
        watched: dict[str, Watch] = {
            "runpy": partial(hooks.patch_files_run, self.patches, self.code),
            "importlib.util": partial(hooks.patch_files_located, self.swap),
            hooks.GRAPHS: partial(hooks.count_graphs, run),
            "torch._dynamo.config": partial(hooks.allow_in_graphs, self._hits.values()),
            "torch.export._trace": partial(hooks.allow_counters_in_exports, self._hits.values()),
        }
        if LOADERS in plan.watches:
            watched[_MODULE] = Loaders(plan, run).watch
        if plan.settings:
            from perflint.shim import settings  # here: few runs have any

            watched[settings.MODULE] = partial(settings.watch, run, plan.settings)
        self._watched = {module: partial(self._watch, watch) for module, watch in watched.items()}
        self._finder = hooks.Finder(self.swap, self._watched)

    def install(self) -> None:
        for path, hit in self._hits.items():
            setattr(builtins, self.plan.files[path].counter, hit)
        sys.meta_path.insert(0, self._finder)
        for name, watch in self._watched.items():
            if name in sys.modules:
                watch(sys.modules[name])

    def uninstall(self) -> None:
        self._has_ended = True
        with suppress(ValueError):
            sys.meta_path.remove(self._finder)
        while self._undo:
            self._undo.pop()()

    def patches(self, path: str) -> bool:
        if self._has_ended or os.path.basename(path) not in self._names:  # noqa: PTH119  # of each module imported
            return False
        return path in self.plan.files or os.path.realpath(path) in self.plan.files

    def code(self, path: str, data: bytes) -> CodeType | None:
        """The patched code of the file at `path` that holds `data`; None where it is left alone, or patching fails."""
        real = os.path.realpath(path)
        file = self.plan.files.get(real)
        if file is None or file.source != digest(data):
            return None
        try:
            patched = _compiled(file, path, self._store)
        except Exception as error:
            hooks.warn(f"leaves {path} unpatched: {error!r}")
            return None
        self._hits[real](0)
        return patched

    def swap(self, spec: ModuleSpec) -> None:
        """Have a module loaded from its patched code, unless another import hook loads it."""
        if type(spec.loader) is SourceFileLoader and spec.origin is not None and self.patches(spec.origin):
            spec.loader = hooks.PatchedLoader(spec.loader.name, spec.loader.path, self.code)

    def _watch(self, watch: Watch, module: ModuleType) -> None:
        try:
            self._undo.append(watch(module))
        except Exception as error:
            hooks.warn(f"leaves {module.__name__} as it is: {error!r}")


def _compiled(file: PatchedFile, path: str, store: Path) -> CodeType:
    kind = f"{path}\0{sys.flags.optimize}".encode("utf-8", "surrogatepass") + MAGIC_NUMBER
    cached = store / f"{file.digest}-{blake2b(kind, digest_size=8).hexdigest()}.code"
    with suppress(OSError, ValueError, EOFError, TypeError):
        known = marshal.loads(read(cached))
        if isinstance(known, CodeType):
            return known
    from perflint.shim.compiling import compiled  # here: few processes compile anything

    code = compiled(file, path)
    with suppress(OSError):
        write(cached, marshal.dumps(code))
    return code


def plan_of(run: Path) -> Path:
    return run / "plan"


def environment(run: Path) -> dict[str, str]:
    paths = [SITE, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {RUN: str(run), "PYTHONPATH": os.pathsep.join(paths)}


def first_name() -> str:
    return f"rank {os.environ.get('RANK', '0')}" if "TORCHELASTIC_RUN_ID" in os.environ else "main"


_MODULE = "torch.utils.data.dataloader"
LOADERS = "loaders"  # what rules name that have them watched
_ADDED = "_added_in_process"  # the attribute of a loader with the names of the arguments that were added, and the pid
_PENDING = "not tuned: it was read too seldom"


class Made(NamedTuple):
    """A loader made at a line of a file: the arguments added, why workers were not, and a note."""

    path: str
    line: int
    arguments: Mapping[str, Any]
    reason: str
    note: str = ""

    @property
    def is_pending(self) -> bool:
        return self.note == _PENDING


class Loaders:
    """A process's loaders in the files of `plan`; decisions are written to the folder `run`."""

    def __init__(self, plan: Plan, run: Path) -> None:
        self._plan, self._run = plan, run
        self._reported: set[str] = set()
        self._has_ended = False
        self._tuning: Tuning | None = None

    def watch(self, module: ModuleType) -> Undo:
        from inspect import signature  # here: torch has it, and a process without torch need not

        if self._plan.tunes:
            from perflint.shim.tuned import Tuning  # here: few runs tune, and it needs torch

            self._tuning = Tuning(self._plan, lambda path, line, note: self._report(Made(path, line, {}, "", note)))
        kind = module.DataLoader
        original, defaults = kind.__init__, signature(kind).parameters

        @functools.wraps(original)
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            if type(loader) is not kind or self._has_ended:  # later patches by others may hold on to this one
                original(loader, *args, **kwargs)
                return
            added = self._added(original, _maker(sys._getframe(1), loader), (loader, *args), kwargs)
            original(loader, *args, **kwargs, **added)
            if added:
                setattr(loader, _ADDED, (os.getpid(), tuple(added)))  # on the loader, which may move to a child

        def take_back(loader: Any) -> None:
            """In another process, remove what was added: daemons may have no workers, forks may not pin memory."""
            process, added = getattr(loader, _ADDED, (0, ()))
            if added and process != os.getpid():
                delattr(loader, _ADDED)
                for name in added:
                    setattr(loader, name, defaults[name].default)

        undo = [
            hooks.replace(kind, "__init__", init),
            hooks.replace(kind, "__iter__", hooks.before(kind.__iter__, take_back)),
        ]
        if self._tuning:
            undo.append(self._tuning.watch(kind))
        return hooks.undo_all([lambda: setattr(self, "_has_ended", True), *undo])

    def _added(
        self, original: Callable[..., None], frame: FrameType, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        from inspect import signature

        path, line = frame.f_code.co_filename, frame.f_lineno
        known = self._plan.loader_at(path, line)
        if known is None:
            return {}
        try:
            given = signature(original).bind(*args, **kwargs).arguments
            if "num_workers" in given and "pin_memory" in given:
                return {}
            return _as_without_workers(self._arguments(path, known, args[0], given), given)
        except TypeError:
            return {}  # torch says what is wrong with the arguments
        except Exception as error:
            hooks.warn(f"leaves the loader at {path}:{line} alone: {error!r}")
            return {}

    def _arguments(self, path: str, known: KnownLoader, loader: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
        decision = self._decided(known, given)
        if self._tuning and "num_workers" in decision.arguments:
            if self._tuning.begin(loader, path, known.line, given, decision):
                self._report(Made(path, known.line, {}, "", _PENDING))
            return {name: value for name, value in decision.arguments.items() if name != "num_workers"}
        if decision.arguments or decision.reason:
            self._report(Made(path, known.line, dict(decision.arguments), decision.reason))
        return decision.arguments

    def _decided(self, known: KnownLoader, given: Mapping[str, Any]) -> Decision:
        from perflint.runtime.loader import as_measured, decide

        unsafe = self._plan.unsafe
        decision = decide(given["dataset"], given, unsafe=unsafe, proven=known.proven, doubt=known.doubt)
        if known.measured is None or self._plan.tunes:
            return decision
        return as_measured(decision, given, *known.measured, on=known.cores)

    def _report(self, made: Made) -> None:
        line = json.dumps(made)
        if line not in self._reported:
            self._reported.add(line)
            Tally(self._run, LOADERS, line)


def _maker(frame: FrameType, loader: Any) -> FrameType:
    """The frame that makes a loader: wrapped constructors, as Lightning's, hold it already."""
    while frame.f_back is not None and any(each is loader for each in frame.f_locals.values()):
        frame = frame.f_back
    return frame


def _as_without_workers(added: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is `added`, and what keeps errors and start methods as without workers."""
    if "num_workers" not in added:
        return added
    from perflint.runtime.loader import raise_as_they_are, start_method

    rest = {"worker_init_fn": raise_as_they_are, "multiprocessing_context": start_method(given)}
    return {**added, **{name: value for name, value in rest.items() if name not in given}}


def made(run: Path) -> Iterator[Made]:
    loaders = [Made(*json.loads(each.name)) for each in tallied(run, LOADERS)]
    tuned = {(each.path, each.line) for each in loaders if each.note and not each.is_pending}
    return (each for each in loaders if not each.is_pending or (each.path, each.line) not in tuned)

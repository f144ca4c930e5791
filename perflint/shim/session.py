"""Joins this process to a run: patched imports, counters, and an environment that brings its children along."""

from __future__ import annotations

import builtins
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, ModuleType

from perflint.shim import code, loaders
from perflint.shim.counters import HIT, Counters
from perflint.shim.hook import AfterImport, Finder
from perflint.shim.loaders import Loaders
from perflint.shim.plan import Plan, digest, load

PLAN, RUN, OFF = "PERFLINT_PLAN", "PERFLINT_RUN", "PERFLINT_DISABLE"
SITE = str(Path(__file__).with_name("site"))


class Shim:
    """The patches of `plan` in this process; its counters go to the folder `run`."""

    def __init__(self, plan: Plan, run: Path) -> None:
        self.plan = plan
        self._slots = plan.slots
        self._counters = Counters(run, plan.counters)
        self._watched: dict[str, AfterImport] = {
            "runpy": self._watch_mains,
            "torch._dynamo.config": self._watch_compiler,
        }
        self._undo: list[Callable[[], None]] = []
        if "loaders" in plan.watches:
            watch = Loaders(plan, run)
            self._watched[loaders.MODULE] = watch.watch
            self._undo.append(watch.unwatch)
        self._finder = Finder(self.patches, self.code, self._watched)

    def install(self) -> None:
        """Patch what is imported from now on."""
        setattr(builtins, HIT, self._counters.hit)
        sys.meta_path.insert(0, self._finder)
        for name, watch in self._watched.items():
            if name in sys.modules:
                watch(sys.modules[name])

    def uninstall(self) -> None:
        """Patch nothing more; what is patched already stays so, and what others have changed since is theirs."""
        with suppress(ValueError):
            sys.meta_path.remove(self._finder)
        while self._undo:
            self._undo.pop()()

    def patches(self, path: str) -> bool:
        """Whether the file at `path` is one to be patched."""
        return path in self.plan.files or os.path.realpath(path) in self.plan.files

    def code(self, path: str, data: bytes) -> CodeType | None:
        """The patched code of the file at `path` that holds `data`: None where it is left alone, or we fail."""
        real = os.path.realpath(path)
        file = self.plan.files.get(real)
        if file is None or file.source != digest(data):
            return None
        first = self._slots[real]
        try:
            compiled = code.code_of(file, path, first, Path(self.plan.store))
        except Exception as error:
            warnings.warn(f"perflint leaves {path} unpatched: {error!r}", RuntimeWarning, stacklevel=2)
            return None
        self._counters.hit(first)
        return compiled

    def _watch_compiler(self, config: ModuleType) -> None:
        """Let torch.compile take the counters for what is called beside a graph, and need not end it."""
        others = set(getattr(config, "reorderable_logging_functions", ()))
        config.reorderable_logging_functions = {*others, self._counters.hit}  # type: ignore[attr-defined]
        self._undo.append(lambda: setattr(config, "reorderable_logging_functions", others))

    def _watch_mains(self, runpy: ModuleType) -> None:
        """Let processes that are spawned run the patched program again: they read it by `runpy`, without an import."""
        original = getattr(runpy, "_get_code_from_file", None)
        if original is None:
            return

        def patched(*args: str) -> object:
            found = original(*args)  # (run_name, path) gives (code, path) up to Python 3.11; then (path) gives the code
            path = args[-1]
            with suppress(OSError):
                code = self.code(path, Path(path).read_bytes()) if self.patches(path) else None
                if code is not None:
                    return (code, *found[1:]) if isinstance(found, tuple) else code
            return found

        def undo() -> None:
            if runpy._get_code_from_file is patched:
                runpy._get_code_from_file = original  # type: ignore[attr-defined]

        runpy._get_code_from_file = patched  # type: ignore[attr-defined]
        self._undo.append(undo)


def environment(plan: Path, run: Path) -> dict[str, str]:
    """What the children of a process need in their environment to join the run."""
    paths = [SITE, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {PLAN: str(plan), RUN: str(run), "PYTHONPATH": os.pathsep.join(paths)}


def join() -> None:
    """Join the run that the environment names; a process that can't does without, and says so once."""
    plan, run = os.environ.get(PLAN), os.environ.get(RUN)
    if not plan or not run or os.environ.get(OFF) == "1":
        return
    try:
        Shim(load(Path(plan)), Path(run)).install()
    except Exception as error:
        warnings.warn(f"perflint leaves this process unpatched: {error!r}", RuntimeWarning, stacklevel=2)

"""The shim of one process of a run: patched imports, counters, and the environment for its children."""

from __future__ import annotations

import builtins
import marshal
import os
import sys
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType, ModuleType

from perflint.documents import digest
from perflint.shim import counts, hooks, loaders
from perflint.shim.hooks import Undo, Watch
from perflint.shim.plan import PatchedFile, Plan, read, write

RUN, OFF = "PERFLINT_RUN", "PERFLINT_DISABLE"
ALSO = "PERFLINT_ALSO"  # names a module whose `join` is called in each process that joins
FIRST = "PERFLINT_FIRST"  # the pid of the process that began the run, and keeps it through exec
SITE = str(Path(__file__).with_name("site"))


class Shim:
    """The patches of `plan` in this process, whose counters go to the folder `run`, by its `name` if it has one."""

    def __init__(self, plan: Plan, run: Path, name: str = "") -> None:
        self.plan = plan
        self._store = Path(plan.store or run)
        self._hits = {path: counts.counter(run, path, name) for path in plan.files}
        self._names = frozenset(map(os.path.basename, plan.files))
        self._undo: list[Undo] = []
        self._has_ended = False  # later patches by others may hold on to ours, which then do nothing
        watched: dict[str, Watch] = {
            "runpy": partial(hooks.patch_files_run, self.patches, self.code),
            "importlib.util": partial(hooks.patch_files_located, self.swap),
            counts.GRAPHS: partial(counts.count_graphs, run),
            "torch._dynamo.config": partial(hooks.allow_counters_in_graphs, self._hits.values()),
            "torch.export._trace": partial(hooks.allow_counters_in_exports, self._hits.values()),
        }
        if loaders.LOADERS in plan.watches:
            watched[loaders.MODULE] = loaders.Loaders(plan, run).watch
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
        """Have the module of `spec` loaded from its patched code, unless another import hook loads it."""
        if type(spec.loader) is SourceFileLoader and spec.origin is not None and self.patches(spec.origin):
            spec.loader = hooks.PatchedLoader(spec.loader.name, spec.loader.path, self.code)

    def _watch(self, watch: Watch, module: ModuleType) -> None:
        try:
            self._undo.append(watch(module))
        except Exception as error:
            hooks.warn(f"leaves {module.__name__} as it is: {error!r}")


def _compiled(file: PatchedFile, path: str, store: Path) -> CodeType:
    """The code of `file`, cached in the folder `store`; raises what compiling raises."""
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

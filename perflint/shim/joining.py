"""Joins this process to the run that its environment names, and runs its script patched.

Python reads the script of a process without an import. But it first asks the path hooks whether the script is an
archive with a `__main__` inside: a script that is to be patched answers as if it were.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType

from perflint.shim import hooks, launch
from perflint.shim.plan import load
from perflint.shim.session import ALSO, FIRST, OFF, RUN, Shim, first_name, plan_of

_START = "__import__('perflint.shim.joining').shim.joining.start()"
_shims: list[Shim] = []


def join() -> None:
    """Join the run that the environment names; if that fails, warn and go on unpatched."""
    run = os.environ.get(RUN)
    if not run or os.environ.get(OFF) == "1" or not os.path.isdir(run):  # noqa: PTH112
        return  # a run whose folder is gone is over
    is_first = os.environ.get(FIRST) == str(os.getpid())
    try:
        shim = Shim(load(plan_of(Path(run))), Path(run), first_name() if is_first else "")
        shim.install()
        if os.path.isfile(sys.argv[0]) and shim.patches(sys.argv[0]):  # noqa: PTH113  # the empty path is no file
            _shims.append(shim)
            sys.path_hooks.insert(0, _Main)
        if is_first:
            from perflint.shim.running import go_on

            go_on(shim, Path(run))
        if also := os.environ.get(ALSO):
            import_module(also).join()
    except Exception as error:
        hooks.warn(f"leaves this process unpatched: {error!r}")


def start() -> None:
    if getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    launch.run_script(sys.argv[0], sys.argv[1:], _shims.pop())


class _Main:
    """Finds a `__main__` at the path of the script, and nothing elsewhere."""

    def __init__(self, path: str) -> None:
        if os.path.realpath(path) != os.path.realpath(sys.argv[0]):
            raise ImportError(path)
        sys.path_hooks.remove(_Main)
        self._path = path

    def find_spec(self, fullname: str, target: object = None) -> ModuleSpec | None:
        if fullname != "__main__":
            return None
        sys.path_importer_cache.pop(self._path, None)
        return ModuleSpec(fullname, self, origin=self._path)  # type: ignore[arg-type]

    def get_code(self, fullname: str) -> CodeType:
        return compile(_START, self._path, "exec")

"""Runs the script of a child process patched, though Python reads it without an import.

Before Python runs a script, it asks the path hooks whether that is an archive with a `__main__` inside: here a script
that is to be patched answers as if it were.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from types import CodeType
from typing import TYPE_CHECKING

from perflint.shim import launch

if TYPE_CHECKING:
    from perflint.shim.session import Shim

_START = "__import__('perflint.shim.mains').shim.mains.start()"
_shims: list[Shim] = []


def take(shim: Shim) -> None:
    """Have `shim` patch the script of this process, if it is one of its files."""
    if os.path.isfile(sys.argv[0]) and shim.patches(sys.argv[0]):  # noqa: PTH113  # the empty path is no file
        _shims.append(shim)
        sys.path_hooks.insert(0, _Main)


def start() -> None:
    """Run the script in place of the archive that Python takes it for."""
    if getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the archive's
    launch.run_script(sys.argv[0], sys.argv[1:], _shims.pop())


class _Main:
    """What there is at the path of the script, and nowhere else: a `__main__`."""

    def __init__(self, path: str) -> None:
        if os.path.realpath(path) != os.path.realpath(sys.argv[0]):
            raise ImportError(path)
        sys.path_hooks.remove(_Main)
        self._path = path

    def find_spec(self, fullname: str, target: object = None) -> ModuleSpec | None:
        """The spec of the script as `__main__`."""
        if fullname != "__main__":
            return None
        sys.path_importer_cache.pop(self._path, None)
        return ModuleSpec(fullname, self, origin=self._path)  # type: ignore[arg-type]

    def get_code(self, fullname: str) -> CodeType:
        """What Python runs instead of an archive's `__main__`."""
        return compile(_START, self._path, "exec")

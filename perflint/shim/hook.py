"""The import hook: loads the user's patched files, and leaves all other imports alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader

Code = Callable[[str, bytes], "CodeType | None"]
AfterImport = Callable[[ModuleType], None]


class PatchedLoader(SourceFileLoader):
    """Loads a file of the user's from its patched code, or from its own where that is not to be had."""

    def __init__(self, fullname: str, path: str, code: Code) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType | None:
        """The patched code; what Python would compile itself where there is none."""
        path = self.get_filename(fullname)
        return self._code(path, self.get_data(path)) or super().get_code(fullname)


class _Watched:
    """Loads a library's module by its own `loader`, and notifies when it is there."""

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
    """Asks the finders behind it, and swaps the loader of what is ours; loaders of other import hooks are kept.

    `swap` is shown what was found; `watched` holds what to call once a module has been loaded.
    """

    def __init__(self, swap: Callable[[ModuleSpec], None], watched: Mapping[str, AfterImport]) -> None:
        self._swap, self._watched = swap, watched

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that Python would find, with another loader where there is something to do."""
        spec = self._found(fullname, path, target)
        if spec is None:
            return None
        if fullname in self._watched and hasattr(spec.loader, "exec_module"):  # frozen ones, too, as runpy is
            spec.loader = _Watched(spec.loader, self._watched[fullname])  # type: ignore[assignment,arg-type]
        self._swap(spec)
        return spec

    def _found(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else ()
        specs = (finder.find_spec(fullname, path, target) for finder in behind if hasattr(finder, "find_spec"))
        return next((spec for spec in specs if spec is not None), None)

"""Runs a program as Python would have: its name, arguments, paths, exit code and tracebacks."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from perflint.errors import UserError
from perflint.shim.session import Shim

if TYPE_CHECKING:
    from _typeshed.importlib import PathEntryFinderProtocol

_OURS = str(Path(__file__).parents[1])


def run_script(path: str, arguments: Sequence[str], shim: Shim | None) -> None:
    """Run what is at `path` as `python path arguments`: a file, or a folder or archive with a `__main__` in it.

    Raises UserError where that is missing.
    """
    sys.argv[:] = [path, *arguments]
    full = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118  # a Path would lose a slash at the end
    if finder := _finder(full):
        _run_inside(full, finder, shim)
        return
    data = Path(path).read_bytes()
    _set_path(str(Path(path).resolve().parent))
    main = _main(full, SourceFileLoader("__main__", full), None)
    _execute(main, lambda: (shim and shim.code(full, data)) or compile(data, full, "exec", dont_inherit=True))


def _finder(path: str) -> PathEntryFinderProtocol | None:
    """What finds modules inside of `path`, if that is a folder or an archive: as Python itself asks."""
    for hook in sys.path_hooks:
        with suppress(ImportError):
            return hook(path)
    return None


def _run_inside(path: str, finder: PathEntryFinderProtocol, shim: Shim | None) -> None:
    spec = finder.find_spec("__main__")
    if spec is None or spec.origin is None:
        raise UserError(f"{path}: there is no __main__ to run in it")
    if shim:
        shim.swap(spec)
    sys.path[: not getattr(sys.flags, "safe_path", False)] = [path]
    loader: Any = spec.loader
    _execute(_main(spec.origin, loader, spec), lambda: loader.get_code("__main__"))


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module, or a package's `__main__`, as `python -m name arguments`; raises UserError if there is none."""
    sys.argv[:] = ["-m", *arguments]
    _set_path(str(Path.cwd()))
    spec = _spec(name)
    loader = spec.loader
    if spec.origin is None or loader is None or not hasattr(loader, "get_code"):
        raise UserError(f"{name} can't be run as a module")
    sys.argv[0] = spec.origin
    main = _main(spec.origin, loader, spec)
    _execute(main, lambda: loader.get_code(spec.name))


def _spec(name: str) -> ModuleSpec:
    spec = None
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if not name.startswith(error.name or "\0"):
            raise
    if spec is None:
        raise UserError(f"there is no module {name} to run")
    return spec


def _main(file: str, loader: object, spec: ModuleSpec | None) -> ModuleType:
    main = ModuleType("__main__")
    package = spec.parent if spec else None
    vars(main).update(__builtins__=sys.modules["builtins"], __file__=file, __loader__=loader)
    vars(main).update(__spec__=spec, __package__=package, __cached__=spec.cached if spec else None)
    vars(main).update({} if sys.version_info >= (3, 14) else {"__annotations__": {}})
    sys.modules["__main__"] = main
    return main


def _set_path(folder: str) -> None:
    """Put the program's own folder where Python has put the launcher's."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _execute(main: ModuleType, code: Callable[[], CodeType | None]) -> None:
    try:
        exec(code() or "", vars(main))
    except SystemExit:
        raise
    except BaseException as error:
        error = error.with_traceback(_theirs(error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        sys.excepthook = _silent  # Python's own end follows: the exit code, or the signal
        raise


def _theirs(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's own frames on."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_OURS):
        traceback = traceback.tb_next
    return traceback


def _silent(*_: object) -> None:
    pass

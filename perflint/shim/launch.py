"""Runs a program as Python would: its name, arguments, paths, exit code and tracebacks.

A notebook runs as in a kernel: in a main module without a file, with what IPython defines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from perflint.documents import NOTEBOOK
from perflint.documents.lines import at_line
from perflint.engine import UserError
from perflint.shim.session import Shim

if TYPE_CHECKING:
    from _typeshed.importlib import PathEntryFinderProtocol

    from perflint.documents.document import Document

_SHIM = str(Path(__file__).parent)
_OURS = str(Path(__file__).parents[1])
_KEPT = {"__main__", "__mp_main__", "perflint"}
_MOST = 4


def run_script(path: str, arguments: Sequence[str], shim: Shim | None) -> None:
    """Run `python path arguments`: a file, a notebook's Python, or a folder or archive with a `__main__`.

    Raises UserError where that is missing.
    """
    sys.argv[:] = [path, *arguments]
    folder = "" if os.path.isabs(path) else os.getcwd()  # noqa: PTH109, PTH117  # which may be gone
    full = os.path.join(folder, path)  # noqa: PTH118  # a Path would lose a slash at the end
    if finder := _finder(full):
        _run_inside(full, finder, shim)
        return
    text: bytes | str = (data := Path(path).read_bytes())
    _set_path(str(Path(path).resolve().parent))
    main = _main(full, SourceFileLoader("__main__", full), None)
    if path.lower().endswith(NOTEBOOK):
        text = _prepared(full, data, main, tells=shim is None or shim.plan.tells)
    _execute(main, lambda: (shim and shim.code(full, data)) or compile(text, full, "exec", dont_inherit=True))


def _finder(path: str) -> PathEntryFinderProtocol | None:
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
    _leave_names_to(path)
    loader: Any = spec.loader
    _execute(_main(spec.origin, loader, spec), lambda: loader.get_code("__main__"))


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Raises UserError where there is no such module."""
    import runpy  # here: a script needs none of it

    sys.argv[:] = ["-m", *arguments]
    with suppress(FileNotFoundError):  # a working folder that is gone
        _set_path(str(Path.cwd()))
    _, spec, code = runpy._get_module_details(name, UserError)  # type: ignore[attr-defined]
    sys.argv[0] = spec.origin
    _execute(_main(spec.origin, spec.loader, spec), lambda: code)


def _main(file: str, loader: object, spec: ModuleSpec | None) -> ModuleType:
    main = ModuleType("__main__")
    package = spec.parent if spec else None
    vars(main).update(__builtins__=sys.modules["builtins"], __file__=file, __loader__=loader)
    vars(main).update(__spec__=spec, __package__=package, __cached__=spec.cached if spec else None)
    vars(main).update({} if sys.version_info >= (3, 14) else {"__annotations__": {}})
    sys.modules["__main__"] = main
    return main


def _set_path(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder
        _leave_names_to(folder)


def _leave_names_to(folder: str) -> None:
    """Have the program import its own modules where ours have the same names."""
    names = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - _KEPT
    theirs = {name for name in names if _is_in(folder, name)}
    for name in [each for each in sys.modules if each.partition(".")[0] in theirs]:
        del sys.modules[name]


def _is_in(folder: str, name: str) -> bool:
    spec, loaded = PathFinder.find_spec(name, [folder]), getattr(sys.modules.get(name), "__spec__", None)
    return bool(spec and spec.origin and loaded and loaded.origin and spec.origin != loaded.origin)


def _execute(main: ModuleType, code: Callable[[], CodeType | None]) -> None:
    try:
        exec(code() or "", vars(main))
    except BaseException as error:
        sys.excepthook = _hook(sys.excepthook, error)
        raise


def _hook(theirs: Callable[..., object], error: BaseException) -> Callable[..., object]:
    shown = _without_ours(error.__traceback__)  # here: what lies below this is not the program's either

    def hook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        sys.excepthook = theirs
        if value is error:
            sys.last_traceback = traceback = shown
            value = value.with_traceback(shown)
        theirs(kind, value, traceback)

    return hook


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and _file(traceback).startswith(_OURS):
        traceback = traceback.tb_next
    each = traceback
    while each is not None:
        while each.tb_next is not None and _file(each.tb_next).startswith(_SHIM):
            each.tb_next = each.tb_next.tb_next
        each = each.tb_next
    return traceback


def _file(traceback: TracebackType) -> str:
    return traceback.tb_frame.f_code.co_filename


def _prepared(path: str, data: bytes, main: ModuleType, *, tells: bool) -> str:
    import linecache

    document = _program(path, data)
    if tells and (lacks := _note(document)):
        print(f"perflint: {lacks}", file=sys.stderr, flush=True)
    del main.__file__, main.__cached__  # so that no other process imports it: it could not
    main.__loader__ = None
    vars(main).update(display=partial(print, sep="\n"), get_ipython=lambda: None)
    linecache.cache[path] = len(document.text), None, document.text.splitlines(keepends=True), path
    sys.excepthook = _telling_cells(sys.excepthook, path)
    return document.text


def left_out(path: str) -> str:
    """What is left out of the notebook at `path`, in words; empty if nothing. Raises UserError."""
    return _note(_program(path, Path(path).read_bytes()))


def _program(path: str, data: bytes) -> Document:
    from perflint.documents.disk import Unreadable  # here: few programs are notebooks
    from perflint.documents.document import decode

    try:
        document = decode(path, data)
    except Unreadable as error:
        raise UserError(f"{path}: {error.problem.message}") from error
    if document.skipped:
        raise UserError(f"{path}: {document.skipped}")
    return document


def _note(document: Document) -> str:
    lines = [*document.notebook.left_out] if document.notebook else []
    lines += [f"what is no Python: {document.problem.message}"] if document.problem else []
    more = [f"{len(lines) - _MOST} more"] if len(lines) > _MOST else []
    return f"{os.path.relpath(document.path)} runs without {'; '.join([*lines[:_MOST], *more])}" if lines else ""


def _telling_cells(theirs: Callable[..., object], path: str) -> Callable[..., object]:
    import traceback

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        (traceback.print_exception if theirs is sys.__excepthook__ else theirs)(kind, value, trace)  # from linecache
        lines = dict.fromkeys(line for frame, line in traceback.walk_tb(trace) if frame.f_code.co_filename == path)
        if lines:
            print(f"perflint: {', '.join(f'line {line} is {at_line(path, line)}' for line in lines)}", file=sys.stderr)

    return hook

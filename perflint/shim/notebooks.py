"""Runs the program in a notebook as a kernel would: in a main module without a file, and with what IPython defines."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType

from perflint.documents.disk import Unreadable
from perflint.documents.document import Document, decode
from perflint.documents.lines import at_line
from perflint.engine import UserError

_MOST = 4  # lines that are left out are named


def prepared(path: str, data: bytes, main: ModuleType, *, tells: bool) -> str:
    """The program in the notebook at `path`, for which `main` is made ready; raises UserError where there is none."""
    document = _program(path, data)
    if tells and (lacks := _note(document)):
        print(f"perflint: {lacks}", file=sys.stderr, flush=True)
    del main.__file__, main.__cached__  # so that no other process imports it: it could not
    main.__loader__ = None
    vars(main).update(display=partial(print, sep="\n"), get_ipython=lambda: None)
    linecache.cache[path] = len(document.text), None, document.text.splitlines(keepends=True), path
    sys.excepthook = _hook(sys.excepthook, path)
    return document.text


def left_out(path: str) -> str:
    """What the program lacks of the cells of the notebook at `path`, in words; empty if nothing. Raises UserError."""
    return _note(_program(path, Path(path).read_bytes()))


def _program(path: str, data: bytes) -> Document:
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


def _hook(theirs: Callable[..., object], path: str) -> Callable[..., object]:
    """An excepthook that also says which cells the lines of a traceback are in: it counts those of the program."""

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        (traceback.print_exception if theirs is sys.__excepthook__ else theirs)(kind, value, trace)  # from linecache
        lines = dict.fromkeys(line for frame, line in traceback.walk_tb(trace) if frame.f_code.co_filename == path)
        if lines:
            print(f"perflint: {', '.join(f'line {line} is {at_line(path, line)}' for line in lines)}", file=sys.stderr)

    return hook

"""The terminal: whether it wants color, how wide it is, text that it can't show, and the progress bar."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perflint.engine import UserError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_REST = 10  # times as long as looking for changes takes, until it is done again
_PATIENCE = 1.0  # seconds before a progress bar is worth the space


def wants_color(choice: str, *, err: bool = False) -> bool:
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        (sys.stderr if err else sys.stdout).isatty() and os.environ.get("TERM") != "dumb"
    )


def width() -> int | None:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show(text: str, *, err: bool = False) -> None:
    """Write `text` for a human; characters that the stream's encoding lacks are escaped."""
    stream = sys.stderr if err else sys.stdout
    encoding = stream.encoding or "utf-8"
    with _writing():
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False, err=err, color=True)


def show_markdown(text: str, color: bool) -> None:
    if not color:
        show(text)
        return
    import io

    from rich.console import Console
    from rich.markdown import Markdown

    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, width=min(width() or 100, 100))
    console.print(Markdown(text, hyperlinks=False))
    show(buffer.getvalue())


def emit(data: bytes) -> None:
    """Write `data` for a program, to the byte."""
    with _writing():
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


@contextmanager
def _writing() -> Iterator[None]:
    """Turn a failure to write into a UserError, unless the reader has closed the pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  # what is still in the buffer has nowhere to go
        raise UserError(f"the output can't be written: {error.strerror}") from None


def changes(find: Callable[[], Sequence[Path]], every: float = 0.5) -> Iterator[None]:
    return _changes(find, _stamps(find()), every)


def _changes(find: Callable[[], Sequence[Path]], before: Mapping[Path, int], every: float) -> Iterator[None]:
    seconds = 0.0
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(max(every, _REST * seconds))
            now, began = dict[Path, int](), time.monotonic()
            with suppress(UserError, OSError):  # there is nothing left to check, which whoever checks it says
                now = _stamps(find())
            seconds = time.monotonic() - began
            if now != before:
                before = now
                click.clear()
                yield


def _stamps(paths: Sequence[Path]) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in paths}


def write_file(path: Path, text: str) -> None:
    try:
        path.write_bytes(text.encode())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


@contextmanager
def progress(enabled: bool) -> Iterator[Callable[[int, int], None] | None]:
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    appears = time.monotonic() + _PATIENCE
    with ExitStack() as stack:

        @cache
        def bar() -> tuple[Progress, TaskID]:
            from rich.console import Console
            from rich.progress import Progress

            shown = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
            return shown, shown.add_task("Checking")

        def advance(done: int, total: int) -> None:
            if time.monotonic() >= appears:
                shown, task = bar()
                shown.update(task, completed=done, total=total)

        yield advance

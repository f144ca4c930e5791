"""One run of a program: starts it in this process, and prints the summary when it ends."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from perflint.engine.errors import UserError
from perflint.shim import hooks, launch, run_folder, summary
from perflint.shim.plan import Plan, save
from perflint.shim.run_folder import RunFolder
from perflint.shim.session import FIRST, OFF, Shim, environment, first_name, plan_of


class Program(NamedTuple):
    """A script or module to run, its arguments, and whether to keep quiet about it."""

    name: str
    arguments: tuple[str, ...]
    is_module: bool
    quiet: bool

    @property
    def folder(self) -> Path:
        """Where the program is."""
        return Path.cwd() if self.is_module else folder_of(self.name)


def launched(arguments: Sequence[str]) -> tuple[str, ...]:
    """The scripts and modules that a program may be told to run by its arguments, as launchers are."""
    pairs = zip(("", *arguments), arguments, strict=False)
    return tuple(word for before, word in pairs if word.endswith(".py") or before == "-m")


def folder_of(path: str) -> Path:
    """The folder that `path` is, or is in."""
    real = Path(os.path.realpath(path))
    return real if real.is_dir() else real.parent


class Run(NamedTuple):
    """A run that this process has begun: its patches, its folder, and how the environment was changed.

    `before` holds the values of the variables of `joining` before these were set.
    """

    shim: Shim
    folder: RunFolder
    joining: Mapping[str, str]
    before: Mapping[str, str | None]

    def lines(self) -> list[str]:
        """The summary so far."""
        return list(summary.summary(self.shim.plan, self.folder.path))

    def end(self) -> None:
        """Stop patching, here and in processes that are started from now on."""
        self.shim.uninstall()
        for name, value in self.before.items():
            if os.environ.get(name) == self.joining[name]:
                os.environ.pop(name)
                os.environ.update({} if value is None else {name: value})
        self.folder.leave()


def begin(plan: Plan, *, tells: bool = True) -> Run:
    """Begin a run by `plan`: patch this process's imports, and those of its children."""
    plan = plan._replace(start=str(Path.cwd()), tells=tells)
    folder = run_folder.enter()
    try:
        save(plan, plan_of(folder.path))
        shim = Shim(plan, folder.path, first_name())
        shim.install()
    except BaseException:
        folder.leave()
        raise
    joining = {**environment(folder.path), FIRST: str(os.getpid())}
    before = {name: os.environ.get(name) for name in joining}
    os.environ.update(joining)
    return Run(shim, folder, joining, before)


def launcher(program: Program, find: Callable[[], Plan]) -> Callable[[], None]:
    """A function that runs the program in this process, patched by the plan that `find` returns.

    Raises UserError for a user's mistake. The summary is printed as the process ends.
    """
    run = None if os.environ.get(OFF) == "1" else _begun(program, find)
    if program.is_module:
        return partial(launch.run_module, program.name, program.arguments)
    return partial(launch.run_script, program.name, program.arguments, run.shim if run else None)


def go_on(shim: Shim, folder: Path) -> None:
    """Resume the run that this process began before it called exec."""
    _tell_at_end(Run(shim, run_folder.again(folder), {}, {}))


def _begun(program: Program, find: Callable[[], Plan]) -> Run | None:
    try:
        run = begin(find(), tells=not program.quiet)
    except UserError:
        raise
    except Exception as error:
        hooks.warn(f"runs {program.name} unpatched, by a fault of its own: {error!r}")
        return None
    _tell_at_end(run)
    return run


def _tell_at_end(run: Run) -> None:
    """Print the summary when this process ends, also by `os._exit`."""
    end, leave = functools.cache(partial(_end, run, os.getpid())), os._exit

    @functools.wraps(leave)
    def leave_with_summary(status: int) -> NoReturn:
        with suppress(Exception):
            end()
        leave(status)

    atexit.register(end)
    os._exit = leave_with_summary


def _end(run: Run, process: int) -> None:
    if os.getpid() != process:
        return  # a child that was forked
    try:
        lines = run.lines() if run.shim.plan.tells and os.environ.get("LOCAL_RANK", "0") == "0" else []
        with suppress(OSError, ValueError):  # standard error is closed
            if lines and sys.stderr is not None:
                print(*lines, sep="\n", file=sys.stderr, flush=True)
    except Exception as error:
        hooks.warn(f"can't say what took effect: {error!r}")
    finally:
        run.end()

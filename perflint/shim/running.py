"""One run of a program: its plan, this process as the first to join it, and the summary at its end."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from perflint.errors import UserError
from perflint.shim import fault, launch, summary
from perflint.shim.counters import MAIN, read
from perflint.shim.graphs import graphed
from perflint.shim.loaders import made
from perflint.shim.plan import Plan
from perflint.shim.session import OFF, Shim, environment

Find = Callable[[Path], "tuple[Path, Plan]"]  # of the folder of a run: where its plan is, and what it says


class Program(NamedTuple):
    """A script or module to run, its arguments, and whether to keep quiet about it."""

    name: str
    arguments: tuple[str, ...]
    is_module: bool
    quiet: bool

    @property
    def folder(self) -> Path:
        """Where the program is."""
        return Path.cwd() if self.is_module else Path(os.path.realpath(self.name)).parent


class Run(NamedTuple):
    """A run that this process began in the folder `start`.

    Its patches, the folder of its counts, and the environment as it was before.
    """

    shim: Shim
    start: Path
    folder: Path
    joining: Mapping[str, str]
    before: Mapping[str, str | None]

    def lines(self) -> list[str]:
        """The summary so far."""
        processes = list(read(self.folder, self.shim.plan.counters))
        loaders = list(made(self.folder))
        return list(summary.summary(self.shim.plan, processes, loaders, graphed(self.folder), self.start))

    def end(self) -> None:
        """Patch nothing more, here and in processes that are started from now on."""
        self.shim.uninstall()
        for name, value in self.before.items():
            if os.environ.get(name) == self.joining[name]:
                os.environ.pop(name)
                os.environ.update({} if value is None else {name: value})
        shutil.rmtree(self.folder, ignore_errors=True)


def begin(find: Find) -> Run:
    """Begin a run by the plan that `find` gives: patch this process's imports, and those of its children."""
    start = Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="perflint-"))
    try:
        path, plan = find(folder)
        shim = Shim(plan, folder, MAIN)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    joining = environment(path, folder)
    before = {name: os.environ.get(name) for name in joining}
    os.environ.update(joining)
    shim.install()
    return Run(shim, start, folder, joining, before)


def launcher(program: Program, find: Find) -> Callable[[], None]:
    """What runs the program in this process: patched by the plan that `find` gives, if that can be had.

    Raises UserError for a user's mistake. The summary is printed as the process ends.
    """
    run = None if os.environ.get(OFF) == "1" else _begun(program, find)
    if program.is_module:
        return partial(launch.run_module, program.name, program.arguments)
    return partial(launch.run_script, program.name, program.arguments, run.shim if run else None)


def _begun(program: Program, find: Find) -> Run | None:
    try:
        run = begin(find)
    except UserError:
        raise
    except Exception as error:
        fault.tell(f"runs {program.name} unpatched, by a fault of its own: {error!r}")
        return None
    is_first = os.environ.get("LOCAL_RANK", "0") == "0"
    atexit.register(_end, run, os.getpid(), is_first and not program.quiet)
    return run


def _end(run: Run, process: int, tells: bool) -> None:
    if os.getpid() != process:
        return  # a child that was forked
    if tells and sys.stderr is not None:
        with suppress(OSError, ValueError):  # nobody listens any more
            print(*run.lines(), sep="\n", file=sys.stderr, flush=True)
    run.end()

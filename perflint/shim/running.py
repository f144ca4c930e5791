"""One run of a program: its project, its plan, this process as the first to join it, and the summary at its end."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perflint import options
from perflint.config import Settings, load
from perflint.errors import UserError
from perflint.shim import launch, plan, summary
from perflint.shim.counters import read
from perflint.shim.loaders import made
from perflint.shim.session import OFF, Shim, environment

_MARKS = ("perflint.toml", "pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg")


@dataclass(frozen=True)
class Request:
    """A script or module to run, its arguments, whether to keep quiet about it, and the options that were typed."""

    name: str
    arguments: tuple[str, ...]
    is_module: bool
    quiet: bool
    typed: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """Where the program is."""
        return Path.cwd() if self.is_module else Path(os.path.realpath(self.name)).parent

    def settings(self) -> Settings:
        """The settings for the program; raises UserError."""
        source: dict[str, Any] = {"isolated": self.typed["isolated"], "config_path": self.typed["config"]}
        return load(self.folder, **source, overrides=options.overrides(self.typed)).settings


def preview(request: Request) -> Iterator[str]:
    """The lines that say what a run would change, and what it would leave and why."""
    from perflint.shim.planning import plan_for

    with tempfile.TemporaryDirectory(prefix="perflint-") as folder:
        yield from summary.preview(plan.load(plan_for(project_of(request.folder), request.settings(), Path(folder))))


def launcher(request: Request, tell: Callable[[str], None]) -> Callable[[], None]:
    """What runs the program, in this process and patched if that can be had; raises UserError for a user's mistake.

    `tell` is called with each line of the summary, as the process ends.
    """
    if not request.is_module and not Path(request.name).is_file():
        raise UserError(f"{request.name}: there is no such file to run")
    run = None if os.environ.get(OFF) == "1" else _begun(request, tell)
    if request.is_module:
        return partial(launch.run_module, request.name, request.arguments)
    return partial(launch.run_script, request.name, request.arguments, run.shim if run else None)


@dataclass(frozen=True)
class Run:
    """A run that this process began: its patches, the folder of its counts, and the environment as it was before."""

    shim: Shim
    folder: Path
    joining: Mapping[str, str]
    before: Mapping[str, str | None]

    def lines(self) -> list[str]:
        """The summary so far."""
        return list(
            summary.summary(self.shim.plan, read(self.folder, self.shim.plan.counters), list(made(self.folder)))
        )

    def end(self) -> None:
        """Patch nothing more, here and in processes that are started from now on."""
        self.shim.uninstall()
        for name, value in self.before.items():
            if os.environ.get(name) == self.joining[name]:
                os.environ.pop(name)
                os.environ.update({} if value is None else {name: value})
        shutil.rmtree(self.folder, ignore_errors=True)


def begin(root: Path, settings: Settings) -> Run:
    """Begin a run of the project at `root`: patch this process's imports, and those of its children."""
    from perflint.shim.planning import plan_for

    folder = Path(tempfile.mkdtemp(prefix="perflint-"))
    path = plan_for(root, settings, folder)
    shim = Shim(plan.load(path), folder)
    joining = environment(path, folder)
    before = {name: os.environ.get(name) for name in joining}
    os.environ.update(joining)
    shim.install()
    return Run(shim, folder, joining, before)


def project_of(folder: Path) -> Path:
    """The nearest folder, upwards from `folder`, that a project's own files mark; `folder` itself where none does."""
    marked = (each for each in (folder, *folder.parents) if any((each / name).exists() for name in _MARKS))
    return next(marked, folder)


def _begun(request: Request, tell: Callable[[str], None]) -> Run | None:
    try:
        run = begin(project_of(request.folder), request.settings())
    except UserError:
        raise
    except Exception as error:
        warnings.warn(f"perflint runs {request.name} unpatched, by a fault of its own: {error!r}", RuntimeWarning, 2)
        return None
    is_first = os.environ.get("LOCAL_RANK", "0") == "0"
    atexit.register(_end, run, os.getpid(), tell if is_first and not request.quiet else None)
    return run


def _end(run: Run, process: int, tell: Callable[[str], None] | None) -> None:
    if os.getpid() != process:
        return  # a child that was forked
    if tell is not None:
        for line in run.lines():
            tell(line)
    run.end()

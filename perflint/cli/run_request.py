"""The arguments of the command `run`: which program, with which settings, and how it ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflint.cli import options
from perflint.engine.errors import UserError
from perflint.project.config import load
from perflint.project.settings import Settings
from perflint.shim import receipts, run_folder, summary
from perflint.shim.plan import Plan, project_of
from perflint.shim.plan import load as load_plan
from perflint.shim.planning import Project, plan_for
from perflint.shim.receipts import Planned
from perflint.shim.running import Program, folder_of, launcher, summary_lines
from perflint.shim.session import plan_of


@dataclass(frozen=True)
class Request:
    """A program to run, and the options that were typed."""

    program: Program
    typed: Mapping[str, Any]

    def settings(self) -> Settings:
        """The settings for the program; raises UserError."""
        source: dict[str, Any] = {"isolated": self.typed["isolated"], "config_path": self.typed["config"]}
        return load(self.program.folder, **source, overrides=options.overrides(self.typed)).settings

    def plan(self) -> Planned:
        """The plan for the program; raises UserError."""
        start = self.program.folder
        given = (self.typed[name] for name in ("config", "tune_loader", "compile"))
        return plan_for(Project(start, project_of(start), self.settings(), *given))

    def preview(self) -> Iterator[str]:
        """The lines that say what a run would change, and what it would leave and why."""
        return summary.preview(self.plan().plan)

    def launcher(self) -> Callable[[], None]:
        """What runs the program; raises UserError for a user's mistake."""
        if not self.program.is_module and not Path(self.program.name).exists():
            raise UserError(f"{self.program.name}: there is no such file to run")
        return launcher(self.program, self._find)

    def _find(self) -> Plan:
        planned = self.plan()
        run_folder.sweep()
        words = _typed(sys.argv, self.program)
        if words and planned.holds:
            receipts.keep(words, self.program, planned)
        return planned.plan


def last_lines(name: str) -> Iterator[str]:
    """The summary of the latest run in the project of the program `name`, or of the working directory, that is left.

    Raises UserError where there is none.
    """
    root = project_of(folder_of(name or os.curdir))
    folder = run_folder.latest(root)
    if folder is None:
        raise UserError(f"{root}: no run goes on there, and none was ended from outside")
    about = run_folder.about(folder)
    return summary_lines(load_plan(plan_of(folder)), folder, about)


def _typed(argv: Sequence[str], program: Program) -> tuple[str, ...]:
    """The words of the command line that asked for the program, up to its name; none if it was asked for otherwise."""
    end = len(argv) - len(program.arguments)
    named = tuple(argv[max(end - 1, 0) :]) == (program.name, *program.arguments)
    return tuple(argv[2:end]) if named and argv[1:2] == ["run"] else ()

"""What the command `run` asks for: a program's plan, its start, and how the last run ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perflint.cli.session import configured
from perflint.engine import UserError
from perflint.project.closure import of_program
from perflint.project.root import project_of
from perflint.shim import receipts, running
from perflint.shim.plan import COMPILE, Plan
from perflint.shim.planning import Project, plan_for
from perflint.shim.receipts import Planned
from perflint.shim.running import Program, folder_of


def preview(program: Program, typed: Mapping[str, Any]) -> Iterator[str]:
    """The lines that say what a run would change, and what it would leave and why; raises UserError."""
    _check(program)
    return running.preview(_tuned(program, typed) if typed["tuned"] else _planned(program, typed).plan)


def launcher(program: Program, typed: Mapping[str, Any]) -> Callable[[], None]:
    """What runs the program, with the options that were typed; raises UserError for a user's mistake."""
    _check(program)

    def find() -> Plan:
        if typed["tuned"]:
            return _tuned(program, typed)
        planned = _planned(program, typed)
        running.sweep()
        end = len(sys.argv) - len(program.arguments)  # of the words that asked for the program, up to its name
        is_named = sys.argv[max(end - 1, 0) :] == [program.name, *program.arguments]
        if is_named and sys.argv[1:2] == ["run"] and planned.holds:
            receipts.keep(sys.argv[2:end], program, planned)
        return planned.plan

    return running.launcher(program, find)


def last_lines(name: str) -> Iterator[str]:
    """The summary of the latest run in the project of the program `name`, or of the working directory, that is left.

    Raises UserError where there is none.
    """
    root = project_of(folder_of(name or os.curdir))
    found = running.latest(root)
    if found is None:
        raise UserError(f"{root}: no run goes on there, and none was ended from outside")
    return running.summary(found[1], found[0])


def _check(program: Program) -> None:
    if not program.is_module and not Path(program.name).exists():
        raise UserError(f"{program.name}: there is no such file to run")


def _tuned(program: Program, typed: Mapping[str, Any]) -> Plan:
    from perflint.tune.kept import plan_of  # here: few runs are tuned

    return plan_of(_project(program, typed), program.name)


def _planned(program: Program, typed: Mapping[str, Any]) -> Planned:
    return plan_for(_project(program, typed))


def _project(program: Program, typed: Mapping[str, Any]) -> Project:
    start = program.folder
    root = project_of(start)
    config, tunes, whole = typed["config"], typed["tune_loader"], (COMPILE,) if typed["compile"] else ()
    launched = running.launched(program.arguments)
    closure = of_program(program.name, launched, is_module=program.is_module, folder=Path.cwd(), top=root)
    return Project(start, root, configured(start, typed).settings, config, tunes, whole, closure)

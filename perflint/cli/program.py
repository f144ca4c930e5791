"""Finds the program that a command is to run by its name."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from perflint.engine.errors import UserError
from perflint.verify.messages import Kind, Program

_LAUNCHER = ("torchrun", "torch.distributed.run")  # a command, and the module that it is


def named(name: str, arguments: tuple[str, ...], kind: Kind) -> Program:
    """The program of that name, to be started in the working directory; raises UserError where there is none."""
    if (kind, name) == (Kind.SCRIPT, _LAUNCHER[0]):
        kind, name = Kind.MODULE, _LAUNCHER[1]
    program = Program(kind, name, arguments, Path.cwd())
    _check(program)
    return program


def _check(program: Program) -> None:
    """Raise UserError where there is no such program."""
    if program.kind is Kind.SCRIPT:
        if not Path(program.name).exists():
            raise UserError(f"{program.name}: there is no such file to run")
        return
    if program.kind is Kind.CALL and ":" not in program.name:
        raise UserError(f"{program.name}: name a function as PACKAGE.MODULE:FUNCTION")
    module = program.name.partition(":")[0]
    outermost = module.partition(".")[0]  # finding what lies inside would import it
    if PathFinder.find_spec(outermost, [os.curdir, *sys.path]) is None:
        raise UserError(f"No module named {module}")


def start_of(program: Program) -> Path:
    """The folder whose project the program is part of: that of a script, else the one where it is started."""
    return Path(os.path.realpath(program.name)).parent if program.kind is Kind.SCRIPT else Path.cwd()

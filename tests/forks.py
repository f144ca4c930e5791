"""Runs the programs of tests as forks of one process that has imported torch and perflint; used as subprocess."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess
from typing import Any

from perflint.engine.catalogue import all_rules
from perflint.verify import forks

# What commands import, which would take each of them a quarter of a second; nothing of `verify`, some of whose modules
# note the time or draw random numbers as they are imported.
_COMMANDS = ("cli.commands", "cli.programs", "cli.session", "engine.fix", "shim.planning", "shim.running")
_IMPORTED = (*(f"perflint.{name}" for name in _COMMANDS), *dict.fromkeys(type(rule).__module__ for rule in all_rules()))

__all__ = ["DEVNULL", "PIPE", "Popen", "run"]


class Popen(forks.Popen):
    """A fork whose own forks come from the process that it comes from."""

    def __init__(self, *given: Any, env: Mapping[str, str] | None = None, **named: Any) -> None:
        environment = {**(os.environ if env is None else env)}
        environment[forks.SERVER] = forks.address(os.environ, _IMPORTED)
        super().__init__(*given, env=environment, libraries=_IMPORTED, **named)


def run(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> CompletedProcess[str]:
    """Run a program to its end, and give its exit code and what it has printed, as text."""
    with Popen(command, cwd=cwd, env=env, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return CompletedProcess(process.args, process.returncode, output, errors)

"""Runs programs by Python alone and by `perflint run`, for tests that compare what they do."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from subprocess import CompletedProcess

from tests import forks

PROGRAMS = Path(__file__).parents[2] / "fixtures" / "run"
_HERE = str(Path(__file__).parents[2])


def python(folder: Path, *arguments: str, **environment: str) -> CompletedProcess[str]:
    """Run Python with `arguments` in `folder`, as a program of this checkout."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PERFLINT_")}
    variables |= {"PYTHONPATH": _HERE, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, *arguments]
    return forks.run(command, cwd=folder, env=variables, timeout=300)


def patched(folder: Path, *arguments: str, **environment: str) -> CompletedProcess[str]:
    """Run `perflint run` with `arguments` in `folder`."""
    return python(folder, "-m", "perflint", "run", *arguments, **environment)


def project(folder: Path, *names: str) -> Path:
    """A project in `folder` that holds these programs."""
    (folder / "pyproject.toml").touch()
    for name in names:
        shutil.copy(PROGRAMS / name, folder)
    return folder

"""Types are strict, lint and format are clean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("ruff", "check", "."), id="lint"),
        pytest.param(("ruff", "format", "--check", "."), id="format"),
        pytest.param(("mypy",), id="types", marks=pytest.mark.first),
    ],
)
def test_the_source_is_clean(command: tuple[str, ...]) -> None:
    result = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr

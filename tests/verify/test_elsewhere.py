"""Where there are no POSIX modules, `verify` alone is missed: all else reads verdicts there, and runs programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perflint.project.stored import FOLDER, VERDICTS
from perflint.verify import verdicts
from tests.verify.verdicts import verdict

POSIX = ("fcntl", "resource", "termios", "perflint.verify.running", "perflint.verify.processes")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("check", "--select", "item-in-loop"),
        ("fix", "--select", "item-in-loop"),
        ("fix", "--apply", "--verified"),
        ("run", "train.py"),
        ("verify", "--help"),
    ],
)
def test_commands_need_no_posix_modules_and_leave_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, arguments: tuple[str, ...]
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    environment = {**os.environ, "TMPDIR": str(temporary)}
    (tmp_path / "perflint.toml").touch()
    (tmp_path / "train.py").write_text("print('trained')\n", encoding="utf-8")
    (tmp_path / FOLDER).mkdir()
    verdicts.add(tmp_path / FOLDER / VERDICTS, verdict())
    hide = f"import sys; sys.modules.update(dict.fromkeys({POSIX})); sys.argv[1:] = {list(arguments)}"
    source = f"{hide}; from perflint.__main__ import main; main()"
    command = [sys.executable, "-c", source]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "by a fault of its own" not in result.stderr
    assert not list(temporary.iterdir())

"""The hooks work in a project that uses pre-commit: the real thing, which installs perflint from a repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGED = ("perflint", "rules", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml")
STALE = "import torch\n\nx = 1  # perflint: ignore[unused-ignroe, item-in-loop] the reason is gone\n"


def _commit_all(repository: Path) -> None:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false")
    for command in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-q", "-m", "All")):
        subprocess.run(["git", *command], cwd=repository, check=True)


def _repository_of_perflint(folder: Path) -> Path:
    """A repository of the working tree, whether or not that is one itself."""
    folder.mkdir()
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    _commit_all(folder)
    return folder


def test_the_hooks_report_and_fix_what_is_committed_but_for_what_is_excluded(tmp_path: Path) -> None:
    perflint = _repository_of_perflint(tmp_path / "perflint")
    project = tmp_path / "project"
    (project / "old").mkdir(parents=True)
    for name in ("train.py", "old/train.py"):
        (project / name).write_text(STALE)
    (project / "notes.md").write_text("slow\n")
    (project / "pyproject.toml").write_text("[tool.perflint]\nexclude = ['old']\n")
    _commit_all(project)
    result = subprocess.run(
        [sys.executable, "-m", "pre_commit", "try-repo", str(perflint), "--all-files", "--color", "never"],
        cwd=project,
        env={**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    output = result.stdout + result.stderr
    assert result.returncode == 1, output
    check, _, fix = output.partition("perflint fix")
    assert "hook id: perflint-check\n- exit code: 1" in check
    assert "train.py:3:" in check
    assert "old" not in check.partition("perflint check")[2]
    assert "- files were modified by this hook" in fix
    assert "Fixed 1 finding in 1 file" in fix
    assert (project / "train.py").read_text() == STALE.replace(", item-in-loop", "")
    assert (project / "old/train.py").read_text() == STALE

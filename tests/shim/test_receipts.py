"""A program that was run before starts without planning, but never by a plan that something has made stale."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from perflint.shim.plan import Basis, Look, Tree
from tests.shim.runs import patched, project, python

_HERE = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose script has been run."""
    project(tmp_path)
    (tmp_path / "main.py").write_text("import sys\n\nimport package.module\n\nprint(sys.argv)\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text("X = 1\n")
    (tmp_path / ".gitignore").write_text("ignored/\n")
    for _ in range(2):  # the first may come too soon after the files were written for its plan to be kept
        patched(tmp_path, "main.py")
    return tmp_path


def is_planned(folder: Path, *words: str, **environment: str) -> bool:
    """Whether a run with `words` reads the command line and the settings, and plans."""
    run = python(folder, "-X", "importtime", "-m", "perflint", "run", *words, **environment)
    assert run.returncode == 0, run.stderr
    return " perflint.shim.planning\n" in run.stderr


def test_a_second_run_needs_no_planning_whatever_the_arguments(folder: Path) -> None:
    assert not is_planned(folder, "main.py")
    assert not is_planned(folder, "main.py", "--epochs", "3")
    assert patched(folder, "main.py", "--", "-q").stdout == "['main.py', '--', '-q']\n"


def test_what_a_program_leaves_behind_does_not_matter(folder: Path) -> None:
    (folder / "runs" / "today").mkdir(parents=True)
    (folder / "runs" / "today" / "events.bin").write_bytes(b"1")
    (folder / "losses.txt").write_text("1")
    (folder / "another.py").write_text("X = 1\n")  # which it doesn't import
    assert not is_planned(folder, "main.py")


def _edit_in_place(file: Path) -> None:
    """Change the content, but neither the size nor the time of the last change."""
    before = file.stat()
    file.write_text("X = 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _swap(file: Path, folder: Path) -> None:
    """Make a package of a module."""
    folder.mkdir()
    file.rename(folder / "__init__.py")


def _write(*parts: str, text: str = "X = 1\n") -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        folder.joinpath(*parts).parent.mkdir(exist_ok=True)
        folder.joinpath(*parts).write_text(text)

    return write


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file is touched": lambda folder: (folder / "package" / "module.py").touch(),
    "a file is edited, and its time set back": lambda folder: _edit_in_place(folder / "package" / "module.py"),
    "a file is renamed": lambda folder: _swap(folder / "package" / "module.py", folder / "package" / "module"),
    "a file is added that is imported instead": _write("package", "module", "__init__.py"),
    "a package is made of a folder": _write("package", "__init__.py"),
    "a configuration is added": _write("perflint.toml", text="unsafe = true\n"),
    "a configuration is changed": _write("pyproject.toml", text="[tool.perflint]\nunsafe = true\n"),
    "an ignore file is changed": _write(".gitignore", text="package/\n"),
    "an ignore file is added": _write("package", ".gitignore", text="*\n"),
    "a repository is made": _write(".git", text="gitdir: elsewhere\n"),
    "the plan is lost": lambda folder: next((folder / ".perflint_cache" / "run").glob("words-*")).unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_is_made_again_when(folder: Path, change: str) -> None:
    CHANGES[change](folder)
    assert is_planned(folder, "main.py")


def test_a_run_plans_again_for_another_program_that_it_launches(folder: Path) -> None:
    (folder / "launch.py").write_text("import runpy, sys\n\nrunpy.run_path(sys.argv[1])\n")
    (folder / "other.py").write_text("X = 1\n")
    assert is_planned(folder, "launch.py", "main.py")
    assert not is_planned(folder, "launch.py", "main.py", "--epochs", "3")
    assert is_planned(folder, "launch.py", "other.py")


def test_a_run_that_is_asked_for_otherwise_is_planned_by_itself(folder: Path) -> None:
    assert is_planned(folder, "--unsafe", "main.py")
    assert is_planned(folder, "-m", "main")
    assert is_planned(folder / "package", "../main.py")
    assert not is_planned(folder, "--unsafe", "main.py")
    assert not is_planned(folder, "-m", "main")


def test_a_run_plans_again_when_rules_may_have_been_installed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    library = tmp_path_factory.mktemp("library")
    paths = os.pathsep.join([str(_HERE), str(library)])
    assert is_planned(folder, "main.py", PYTHONPATH=paths)
    assert not is_planned(folder, "main.py", PYTHONPATH=paths)
    (library / "pack-1.dist-info").mkdir()
    (library / "pack-1.dist-info" / "entry_points.txt").write_text("[other]\n")
    assert is_planned(folder, "main.py", PYTHONPATH=paths)


def test_a_run_plans_again_when_perflint_itself_has_changed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("copy")
    for name in ("perflint", "rules"):
        shutil.copytree(_HERE / name, copy / name)
    assert is_planned(folder, "main.py", PYTHONPATH=str(copy))
    assert not is_planned(folder, "main.py", PYTHONPATH=str(copy))
    (copy / "rules" / "decode_loop.py").touch()
    assert is_planned(folder, "main.py", PYTHONPATH=str(copy))


def test_a_file_asked_for_as_the_configuration_counts_as_well(folder: Path) -> None:
    (folder / "other.toml").write_text("unsafe = false\n")
    words = ("--config", "other.toml", "main.py")
    assert is_planned(folder, *words)
    assert not is_planned(folder, *words)
    (folder / "other.toml").write_text("unsafe = true\n")
    assert is_planned(folder, *words)


def test_what_was_changed_only_just_now_may_change_again_unseen(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    look = Basis((Tree(str(tmp_path), (".py",), frozenset()),), (), ()).look()
    changed = max(look.stamps[0][1:])
    assert not Look(look.digest, look.stamps, changed + 1_000_000).is_settled
    assert Look(look.digest, look.stamps, changed + 3_000_000_000).is_settled

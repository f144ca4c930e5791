"""Which files a run takes, which it leaves out, and what it says about those."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perflint.engine import UserError
from perflint.project import files, project_around
from perflint.project.files import discover, in_project
from perflint.project.settings import Settings


def write(root: Path, *names: str, text: str = "") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(root: Path, *paths: str, **settings: object) -> list[str]:
    arguments = [root / path for path in paths] or [root]
    paths_found = discover(arguments, Settings(root=root, **settings)).files  # type: ignore[arg-type]
    return [path.relative_to(root).as_posix() for path in paths_found]


def test_python_files_and_notebooks_are_found_in_order(tmp_path: Path) -> None:
    write(tmp_path, "b.py", "a/z.ipynb", "a/b/c.py", "readme.md", "a/data.json", "stub.pyi")
    assert found(tmp_path) == ["a/b/c.py", "a/z.ipynb", "b.py"]


def test_paths_are_shown_as_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "src/a.py")
    monkeypatch.chdir(tmp_path)
    settings = Settings(root=tmp_path)
    assert discover([Path()], settings).files == (Path("src/a.py"),)
    assert discover([], settings).files == (Path("src/a.py"),)
    assert discover([Path("../") / tmp_path.name / "src"], settings).files == (Path("..", tmp_path.name, "src/a.py"),)
    assert discover([tmp_path], settings).files == (tmp_path / "src/a.py",)


@pytest.mark.parametrize("folder", ["build", "dist", ".venv", "__pycache__", "node_modules", "x/site-packages", ".tox"])
def test_generated_and_installed_code_is_left_out(tmp_path: Path, folder: str) -> None:
    write(tmp_path, "a.py", f"{folder}/b.py")
    assert found(tmp_path) == ["a.py"]


def test_an_environment_is_known_by_its_mark_and_not_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, "env/atari.py", "my-env/pyvenv.cfg", "my-env/lib/a.py")
    assert found(tmp_path) == ["env/atari.py"]
    assert found(tmp_path, "my-env") == ["my-env/lib/a.py"]


def test_a_checkout_inside_an_excluded_folder_is_checked(tmp_path: Path) -> None:
    write(tmp_path, "build/venv/project/train.py", "build/venv/project/build/lib.py")
    project = tmp_path / "build" / "venv" / "project"
    assert found(project) == ["train.py"]
    write(tmp_path, ".gitignore", text="build/\n/build/venv/project\n")
    (tmp_path / ".git").mkdir()
    assert found(project) == ["train.py"]


def test_a_named_file_is_taken_although_it_is_excluded_unless_forced(tmp_path: Path) -> None:
    write(tmp_path, "build/a.py", "b.py", "script")
    assert found(tmp_path, "build/a.py", "script") == ["build/a.py", "script"]
    assert found(tmp_path, "build/a.py", "b.py", force_exclude=True) == ["b.py"]


def test_a_hook_whose_files_are_all_forced_out_has_nothing_to_do(tmp_path: Path) -> None:
    write(tmp_path, "build/a.py")
    discovery = discover([tmp_path / "build" / "a.py"], Settings(root=tmp_path, force_exclude=True))
    assert discovery.files == ()
    assert [reason for _, reason in discovery.skipped] == ["excluded by the setting exclude"]


def test_forced_exclusion_reads_the_ignore_file_beside_the_file(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b/c.py")
    write(tmp_path / "b", ".gitignore", text="c.py\n")
    assert found(tmp_path, "a.py", "b/c.py", force_exclude=True) == ["a.py"]


def test_a_folder_of_many_projects_is_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "train.py", "model.py", "one/a.py", "two/setup.py", "two/a.py")
    named = discover([tmp_path / "train.py"], Settings(root=tmp_path))

    def around() -> list[str]:
        return [each.name for each in in_project(named, tmp_path, Settings(root=tmp_path)).around]

    assert len(around()) == 4
    monkeypatch.setattr(files, "_MOST", 3)
    assert around() == ["model.py"]
    (tmp_path / "pyproject.toml").touch()
    assert len(around()) == 4


def test_a_file_of_a_project_belongs_to_that_wherever_it_is_checked_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "one/setup.py", "one/src/a.py", "two/b.py")
    monkeypatch.chdir(tmp_path)
    assert project_around(tmp_path / "one" / "src") == tmp_path / "one"
    assert project_around(tmp_path / "two") == tmp_path
    (tmp_path / ".git").mkdir()
    assert project_around(tmp_path / "one" / "src") == tmp_path


def test_ignore_files_hold_below_their_folder_and_the_deeper_one_wins(tmp_path: Path) -> None:
    write(tmp_path, "gen.py", "a/gen.py", "a/b/gen.py", "a/other.py", "c/other.py")
    write(tmp_path, ".gitignore", text="gen.py\n/c/\n# a comment\n")
    write(tmp_path, "a/b/.gitignore", text="!gen.py\n")
    assert found(tmp_path) == ["a/b/gen.py", "a/other.py"]
    assert found(tmp_path, respect_gitignore=False) == ["a/b/gen.py", "a/gen.py", "a/other.py", "c/other.py", "gen.py"]


def test_the_ignore_file_at_the_top_of_the_repository_holds_for_a_folder_in_it(tmp_path: Path) -> None:
    write(tmp_path, "src/kept.py", "src/gen/a.py", "src/one/b_pb2.py", ".git/config")
    write(tmp_path, ".gitignore", text="src/gen\n*_pb2.py\n")
    assert found(tmp_path, "src") == ["src/kept.py"]


def test_an_ignore_file_above_the_repository_does_not_hold(tmp_path: Path) -> None:
    write(tmp_path, ".gitignore", text="*.py\n")
    write(tmp_path, "repository/.git/config", "repository/a.py")
    assert found(tmp_path / "repository") == ["a.py"]
    assert found(tmp_path) == ["repository/a.py"]


def test_patterns_and_negations_agree_with_git(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "keep/a.py", "drop/a.py", "x/y/z.py", "x/z.py", "odd[1].py", "sp ace.py", "#hash.py")
    write(tmp_path, ".gitignore", text="a.py\n!keep/a.py\nx/**/z.py\nodd\\[1\\].py\nsp ace.py\n\\#hash.py\n")
    write(tmp_path, "drop/.gitignore", text="*\n!.gitignore\n")
    write(tmp_path, "more/one.py", "more/two.py", "b.py")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".git" / "info" / "exclude").write_text("more/t*\n")
    command = ["git", "-C", str(tmp_path), "ls-files", "-o", "--exclude-standard", "--", "*.py"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    assert found(tmp_path) == sorted(listed)


def test_a_work_tree_reads_the_private_ignore_file_of_its_repository(tmp_path: Path) -> None:
    write(tmp_path, "main/.git/info/exclude", text="secret.py\n")
    write(tmp_path, "main/.git/worktrees/w/commondir", text="../..\n")
    write(tmp_path, "tree/.git", text=f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    write(tmp_path, "tree/secret.py", "tree/a.py")
    assert found(tmp_path / "tree") == ["a.py"]


def test_a_line_that_is_no_pattern_does_not_spoil_the_ignore_file(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.py")
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\n!\n/\nb.py\n")
    assert found(tmp_path) == ["a.py"]


def test_patterns_of_the_settings_are_relative_to_their_root(tmp_path: Path) -> None:
    write(tmp_path, "src/gen/a.py", "src/b.py", "other/gen/c.py", "d.txt", "e.py")
    assert found(tmp_path, "src", "other", extend_exclude=("src/gen",)) == ["other/gen/c.py", "src/b.py"]
    assert found(tmp_path, "src/gen", extend_exclude=("src/gen",)) == ["src/gen/a.py"]
    assert found(tmp_path, include=("*.txt", "src/**/*.py"), exclude=()) == ["d.txt", "src/b.py", "src/gen/a.py"]


def test_a_setting_that_is_no_pattern_is_the_users_mistake(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    with pytest.raises(UserError, match="exclude"):
        found(tmp_path, extend_exclude=("!",))


def test_a_file_named_twice_is_taken_once(tmp_path: Path) -> None:
    write(tmp_path, "a/b.py")
    assert found(tmp_path, "a", "a/b.py", "a/../a", "") == ["a/b.py"]


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege there")
def test_links_neither_loop_nor_double_a_file(tmp_path: Path) -> None:
    write(tmp_path, "a/b.py")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "c.py").symlink_to(tmp_path / "a" / "b.py")
    (tmp_path / "self.py").symlink_to(tmp_path / "self.py")
    discovery = discover([tmp_path], Settings(root=tmp_path))
    assert len(discovery.files) == 1
    reasons = {path.name: reason for path, reason in discovery.skipped}
    assert reasons == {"loop": "a symbolic link to a folder", "self.py": "not a regular file"}
    assert found(tmp_path, "c.py") == ["c.py"]


@pytest.mark.parametrize("name", ["missing.py", "missing/", "link.py", "loop.py"])
def test_a_missing_path_is_the_users_mistake(tmp_path: Path, name: str) -> None:
    write(tmp_path, "a.py")
    (tmp_path / "link.py").symlink_to("nowhere.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    with pytest.raises(UserError, match=name.rstrip("/")):
        found(tmp_path, "a.py", name)


def test_a_run_that_finds_nothing_is_never_clean(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no Python files or notebooks"):
        found(tmp_path)
    write(tmp_path, "build/a.py")
    with pytest.raises(UserError, match=r"left out: .*build, excluded by the setting exclude"):
        found(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "closed/b.py")
    (tmp_path / "closed").chmod(0)
    try:
        discovery = discover([tmp_path], Settings(root=tmp_path))
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert discovery.files == (tmp_path / "a.py",)
    assert [(path.name, "Permission denied" in reason) for path, reason in discovery.unreadable] == [("closed", True)]


def test_a_folder_that_goes_away_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.py", "gone/b.py")
    scandir = os.scandir

    def failing(path: str) -> object:
        if path.endswith("gone"):
            raise FileNotFoundError(2, "No such file or directory")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    discovery = discover([tmp_path], Settings(root=tmp_path))
    assert [path.name for path in discovery.files] == ["a.py"]
    assert [(path.name, reason) for path, reason in discovery.unreadable] == [
        ("gone", "cannot read this folder: No such file or directory")
    ]

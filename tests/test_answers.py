"""An answer of `check` is given again as it was, for as long as all that it depends on is unchanged."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import perflint
from perflint.__main__ import main
from perflint.cli import answers
from perflint.project import CACHE, stored

PROGRAM = "import torch\nfrom other import step\n\nfor batch in torch.load('x'):\n    step(batch.cuda()).item()\n"
SETTLED = 0.06  # seconds after which a change alters a stamp


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "other.py").write_text("def step(x):\n    return x\n")
    (tmp_path / "pyproject.toml").write_text("[tool.perflint]\n")
    monkeypatch.chdir(tmp_path)
    ask(monkeypatch, ".")
    time.sleep(SETTLED)
    return tmp_path


def ask(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["perflint", "check", *words])


def checked() -> object:
    """The exit code of a check."""
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_what_was_answered_is_answered_again(project: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert answers.answer() is None
    code = checked()
    said = capsysbinary.readouterr().out
    assert answers.answer() == code
    again = capsysbinary.readouterr().out
    assert said.splitlines()[:-2] == again.splitlines()[:-2]
    assert b"2 files in 0." in again


CHANGES: dict[str, Callable[[Path], object]] = {
    "the file": lambda project: (project / "program.py").write_text(PROGRAM.replace("x", "y")),
    "another file": lambda project: (project / "other.py").write_text("def step(x):\n    return x + 1\n"),
    "a file more": lambda project: (project / "more.py").touch(),
    "a file less": lambda project: (project / "other.py").unlink(),
    "settings": lambda project: (project / "pyproject.toml").write_text("[tool.perflint]\nignore = ['sync']\n"),
    "nearer settings": lambda project: (project / "perflint.toml").touch(),
    "what git ignores": lambda project: (project / ".gitignore").touch(),
    "what was measured": lambda project: stored.made(project).joinpath(stored.PROFILES).touch(),
    "damage": lambda project: next((project / CACHE / "answers").iterdir()).write_bytes(b"x" * 40),
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_answered_after_a_change_of(project: Path, change: str) -> None:
    checked()
    assert answers.answer() is not None
    CHANGES[change](project)
    assert answers.answer() is None


def test_another_question_or_python_has_another_answer(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked()
    for words in ((".", "-q"), ("program.py",), (".", "--select", "all")):
        ask(monkeypatch, *words)
        assert answers.answer() is None
    ask(monkeypatch, ".")
    assert answers.answer() is not None
    monkeypatch.setattr(sys, "version", "4")
    assert answers.answer() is None


def test_the_sources_of_perflint_count(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(answers, "keep", lambda question, *_, **__: seen.append(question))
    checked()
    assert str(Path(perflint.__file__).with_name("api.py")) in seen[0].look.paths


@pytest.mark.parametrize("words", [(".", "--no-cache"), (".", "-o", "report.txt"), ("broken.py",)])
def test_not_kept(project: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    (project / "broken.py").write_text("(")
    time.sleep(SETTLED)
    ask(monkeypatch, *words)
    checked()
    assert answers.answer() is None


def test_a_file_that_has_just_changed_is_looked_at_again(project: Path) -> None:
    later = time.time() + 60  # however long the check takes
    os.utime(project / "other.py", (later, later))
    checked()
    assert answers.answer() is None

"""The baseline: what it hides, what it survives, and how it is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perflint.documents.disk import Position, Problem
from perflint.engine import UserError, baseline
from perflint.engine.results import Diagnostic, FileResult, RunResult
from perflint.engine.rule import Severity


def _file(path: str, *fingerprints: str, rule: str = "slow", line: int = 1) -> FileResult:
    place = Position(None, 0, line, 1)
    return FileResult(
        path,
        tuple(
            Diagnostic(path, rule, "loop", Severity.WARNING, "slow", place, place, (), "", ("x",), line, fingerprint)
            for fingerprint in fingerprints
        ),
    )


def _run(*files: FileResult) -> RunResult:
    return RunResult(files, 0.1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _difference(accepted: RunResult, result: RunResult, rules: tuple[str, ...] = ("slow",)) -> baseline.Difference:
    baseline.write(Path("base.json"), accepted)
    return baseline.subtract(result, baseline.read(Path("base.json")), rules)


def _left(difference: baseline.Difference) -> list[tuple[str, str]]:
    return [(diagnostic.path, diagnostic.fingerprint) for diagnostic in difference.result.diagnostics]


def test_accepted_findings_are_hidden_and_new_ones_are_not() -> None:
    difference = _difference(_run(_file("a.py", "1")), _run(_file("a.py", "1", "2"), _file("b.py", "1")))
    assert _left(difference) == [("a.py", "2"), ("b.py", "1")]
    assert (difference.hidden, difference.gone) == (1, 0)


def test_moved_lines_stay_hidden() -> None:
    assert _left(_difference(_run(_file("a.py", "1")), _run(_file("a.py", "1", line=90)))) == []


def test_a_finding_of_another_rule_in_the_same_code_is_new() -> None:
    assert _left(_difference(_run(_file("a.py", "1")), _run(_file("a.py", "1", rule="other")))) == [("a.py", "1")]


def test_equal_findings_are_hidden_as_often_as_they_were_accepted() -> None:
    difference = _difference(_run(_file("a.py", "1", "1")), _run(_file("a.py", "1", "1", "1")))
    assert (len(_left(difference)), difference.hidden) == (1, 2)


def test_accepted_findings_that_are_gone_are_counted() -> None:
    assert _difference(_run(_file("a.py", "1", "1", "2")), _run(_file("a.py", "1"))).gone == 2


def test_what_was_not_checked_is_not_called_gone() -> None:
    accepted = _run(_file("a.py", "1"), _file("b.py", "1"), _file("deleted.py", "1"))
    broken = FileResult("b.py", problem=Problem("is not Python 3"))
    assert _difference(accepted, _run(broken), ()).gone == 0
    assert _difference(accepted, _run(broken)).gone == 1
    assert _difference(accepted, _run(FileResult("a.py"))).gone == 2


def test_problems_stay() -> None:
    broken = FileResult("b.py", problem=Problem("is not Python 3"))
    assert _difference(_run(_file("a.py", "1")), _run(broken)).result.problems == (broken,)


def test_paths_are_those_from_the_baseline_so_that_its_folder_can_move(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = folder / "before" / "src"
    before.mkdir(parents=True)
    baseline.write(folder / "before" / "base.json", _run(_file("before/src/a.py", "1")))
    assert '"path": "src/a.py"' in (folder / "before" / "base.json").read_text()
    (folder / "before").rename(folder / "after")
    monkeypatch.chdir(folder / "after" / "src")
    accepted = baseline.read(Path("../base.json"))
    for path in ("a.py", "./a.py", str(folder / "after" / "src" / "a.py")):
        assert not baseline.subtract(_run(_file(path, "1")), accepted, ("slow",)).result.diagnostics


def test_the_file_is_sorted_with_a_line_for_each_entry() -> None:
    assert baseline.write(Path("base.json"), _run(_file("b.py", "2", "1", "1"), _file("a.py", "9"))) == 4
    lines = Path("base.json").read_text().splitlines()
    assert lines[:3] == [
        "{",
        '  "version": 1,',
        '  "findings": [',
    ]
    assert [json.loads(line.rstrip(",")) for line in lines[3:-2]] == [
        {"path": "a.py", "rule": "slow", "fingerprint": "9", "count": 1},
        {"path": "b.py", "rule": "slow", "fingerprint": "1", "count": 2},
        {"path": "b.py", "rule": "slow", "fingerprint": "2", "count": 1},
    ]


def test_a_clean_run_makes_an_empty_baseline() -> None:
    difference = _difference(_run(), _run(_file("a.py", "1")))
    assert (_left(difference), difference.hidden, difference.gone) == ([("a.py", "1")], 0, 0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"{}",
        b'{"version": 2, "findings": []}',
        b'{"version": 1}',
        b'{"version": 1, "findings": {}, "x',
        b'{"version": 1, "findings": 3}',
        b'{"version": 1, "findings": ["a"]}',
        b'{"version": 1, "findings": [{"path": "a", "rule": "b", "fingerprint": "c"}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_baseline_is_one_clear_line(content: bytes) -> None:
    Path("base.json").write_bytes(content)
    with pytest.raises(UserError, match=r"^base\.json is [^\n]*--write-baseline[^\n]*$"):
        baseline.read(Path("base.json"))


def test_a_missing_baseline_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"^cannot read the baseline none\.json: No such file"):
        baseline.read(Path("none.json"))


def test_a_baseline_that_cannot_be_written_is_the_users_mistake_and_leaves_nothing(folder: Path) -> None:
    Path("base.json").mkdir()
    with pytest.raises(UserError, match=r"^cannot write the baseline base\.json: "):
        baseline.write(Path("base.json"), _run())
    with pytest.raises(UserError, match=r"^cannot write the baseline none/base\.json: No such file or directory$"):
        baseline.write(Path("none/base.json"), _run())
    assert sorted(path.name for path in folder.iterdir()) == ["a.py", "b.py", "base.json"]


def test_paths_of_any_name_are_kept() -> None:
    for path in ("漢.py", "x\udcff.py", 'q"\n.py'):
        assert _left(_difference(_run(_file(path, "1")), _run(_file(path, "1")))) == []

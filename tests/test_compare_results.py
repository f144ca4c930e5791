"""The record of what rules and fixes make of files, and the comparison of two records."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from perflint.engine.rule import Rule
from tests.bench.compare_results import (
    GROUPS,
    Record,
    RecordedFinding,
    RecordedFix,
    differences,
    load,
    main,
    record_file,
)
from tests.fixture_cases import FIXTURES
from tests.stub_rules import CRASH, ENDLESS, EVAL

FIX = RecordedFix("Mend it", "exact", "-old\n+new\n")
FINDING = RecordedFinding("rule", "kind", 3, 1, "warning", "is slow", "", (FIX,))
RECORD = Record("a.py", "1234", (FINDING,), FIX.patch, FIX.patch)


def with_finding(finding: RecordedFinding) -> Record:
    return replace(RECORD, findings=(finding,))


def with_fix(fix: RecordedFix) -> Record:
    return with_finding(replace(FINDING, fixes=(fix,)))


def test_a_record_tells_of_every_file_its_findings_and_what_their_fixes_change(tmp_path: Path) -> None:
    folder, out = tmp_path / "code", tmp_path / "out.jsonl"
    (folder / "sub").mkdir(parents=True)
    shutil.copy(FIXTURES / "dataloader_defaults" / "orders_before.py", folder / "sub" / "orders.py")
    (folder / "broken.py").write_text("def (:\n")
    (folder / "plain.py").write_text("x = 1\n")
    assert main(["record", str(folder), str(out), "--jobs", "1"]) == 0
    records = load(out)
    assert set(records) == {"broken.py", "plain.py", "sub/orders.py"}
    assert records["broken.py"].skipped.startswith("is not valid Python")
    assert not records["plain.py"].findings
    orders = records["sub/orders.py"]
    assert {"dataloader-defaults"} == {finding.rule for finding in orders.findings}
    marked = (folder / "sub" / "orders.py").read_text().splitlines()
    assert all("# expect: dataloader-defaults" in marked[finding.line - 1] for finding in orders.findings)
    assert orders.safe.startswith("@@ ")
    assert orders.unsafe != orders.safe
    assert all(fix.patch for finding in orders.findings for fix in finding.fixes)
    assert not orders.faults


@pytest.mark.parametrize(
    ("rule", "text", "fault"),
    [
        (CRASH, "import torch\ncrash = True\n", "internal error in the rule crash, which is a bug: ZeroDivisionError"),
        (ENDLESS, "import torch\nendless = True\n", "takes longer than 0.05 s"),
        (EVAL, "import torch\neval(x)\n", "DefectError: the fixes of eval do not come to an end"),
    ],
)
def test_a_defect_of_a_rule_is_recorded(
    rule: Rule, text: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.bench.compare_results.all_rules", lambda: (rule,))
    monkeypatch.setattr(type(EVAL), "replacement", "x or ")
    (tmp_path / "a.py").write_text(text)
    record = record_file(tmp_path / "a.py", tmp_path, 0.05 if rule is ENDLESS else 60)
    assert len(record.faults) == 1
    assert fault in record.faults[0]


@pytest.mark.parametrize(
    ("new", "groups"),
    [
        (RECORD, ()),
        (replace(RECORD, seconds=3.0), ()),
        (replace(RECORD, source="5678", findings=()), ("source differs",)),
        (replace(RECORD, source="", findings=(), skipped="is not valid Python"), ("skipped",)),
        (replace(RECORD, faults=("does not compile",)), ("fault new",)),
        (replace(RECORD, findings=()), ("finding lost",)),
        (replace(RECORD, findings=(FINDING, replace(FINDING, line=4))), ("finding new",)),
        (replace(RECORD, findings=(replace(FINDING, line=4),)), ("finding lost", "finding new")),
        (with_finding(replace(FINDING, kind="other")), ("kind changed",)),
        (with_finding(replace(FINDING, rule="other-rule", message="is slower")), ("kind changed",)),
        (with_finding(replace(FINDING, column=5)), ("column changed",)),
        (with_finding(replace(FINDING, severity="advice")), ("severity changed",)),
        (with_finding(replace(FINDING, message="is slower")), ("message changed",)),
        (with_finding(replace(FINDING, blocked="x is unknown")), ("blocked changed",)),
        (with_finding(replace(FINDING, fixes=(), blocked="x is unknown")), ("fix lost",)),
        (with_finding(replace(FINDING, fixes=(FIX, replace(FIX, title="Or so", patch="+")))), ("fix new",)),
        (with_fix(replace(FIX, patch="-old\n+newer\n")), ("fix differs",)),
        (with_fix(replace(FIX, title="Mend it so")), ("title changed",)),
        (with_fix(replace(FIX, safety="behaviour")), ("safety changed",)),
        (replace(RECORD, unsafe="-old\n+newer\n"), ("result differs",)),
    ],
)
def test_each_way_to_differ_has_its_group(new: Record, groups: tuple[str, ...]) -> None:
    assert tuple(GROUPS[each.group] for each in differences(RECORD, new)) == groups


def test_the_comparison_is_grouped_and_shows_what_was_and_what_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, old, new = tmp_path / "code", tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    folder.mkdir()
    shutil.copy(FIXTURES / "dataloader_defaults" / "orders_before.py", folder / "orders.py")
    assert main(["record", str(folder), str(old)]) == 0
    assert main(["diff", str(old), str(old)]) == 0
    line = next(iter(load(old).values())).findings[0].line
    new.write_text(old.read_text().replace("dataloader-defaults", "loaders", 1))
    capsys.readouterr()
    assert main(["diff", str(old), str(new), "--limit", "1", "--patches"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(f"== kind changed: 1 {{'dataloader-defaults': 1}}\norders.py:{line} dataloader-defaults\n")
    assert "    was: dataloader-defaults (" in shown
    assert "    now: loaders (" in shown
    assert main(["diff", str(old), str(new), "--only", "fix lost"]) == 1
    assert "was:" not in capsys.readouterr().out

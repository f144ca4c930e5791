"""The format full: what it says of a finding, and that no text of the user's breaks it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from perflint.documents.disk import Problem
from perflint.engine.results import Diagnostic, FileResult, RunResult
from perflint.engine.rule import Safety, Severity
from perflint.report import render
from perflint.report.text import Style

if TYPE_CHECKING:
    from tests.report.conftest import Diagnose


def _run(*diagnostics: Diagnostic) -> RunResult:
    return RunResult((FileResult(diagnostics[0].path, diagnostics),), 0.25)


def _full(diagnostic: Diagnostic, style: Style | None = None) -> list[str]:
    return render("full", _run(diagnostic), style or Style()).splitlines()


def _code_and_marks(lines: list[str]) -> tuple[str, str]:
    """The underlined line of the frame and the line under it, without their gutters."""
    at = next(index for index, line in enumerate(lines) if re.fullmatch(r" +\| +\^+.*|\s*\| \^+.*", line))
    return lines[at - 1].partition("| ")[2], lines[at].partition("| ")[2]


def test_a_finding_is_shown_with_its_frame_its_fixes_and_where_to_read_on(diagnose: Diagnose) -> None:
    lines = _full(diagnose(fixes=((Safety.EXACT, "loss.detach()"), (Safety.BEHAVIOUR, "0"))))
    assert lines == [
        "warning[item-in-loop]: the host waits for the device in every step",
        " --> train.py:4:14",
        "  |",
        "3 | for x in loader:",
        "4 |     total += loss.item()",
        "  |              ^^^^^^^^^^^",
        "5 |     y = x",
        "  |",
        "  = fix: write loss.detach() (exact: the same results)",
        "  = or: write 0 (behaviour: results may differ; needs --unsafe)",
        "  = see: perflint explain item-in-loop",
        "",
        "1 finding in 1 of 1 file in 0.25 s.",
        "1 can be fixed with `perflint fix --apply`.",
    ]


def test_blank_lines_are_shown_between_code_only(diagnose: Diagnose) -> None:
    lines = _full(diagnose("a\n\nloss.item()\n\n\nb\n"))
    assert [line for line in lines if "|" in line][1:-1] == [
        "1 | a",
        "2 |",
        "3 | loss.item()",
        "  | ^^^^^^^^^^^",
    ]


def test_what_blocks_a_fix_is_said(diagnose: Diagnose) -> None:
    assert "  = not fixed: its value is printed" in _full(diagnose(blocked="its value is printed"))
    assert any("not fixed: perflint has no fix" in line for line in _full(diagnose()))


def test_a_finding_in_a_notebook_names_its_cell(diagnose: Diagnose) -> None:
    assert " --> a.ipynb:cell 2:4:14" in _full(diagnose(path="a.ipynb", cell=2))


def test_one_defect_in_many_places_is_one_entry_with_a_count(diagnose: Diagnose) -> None:
    many = [diagnose(path=f"{name}.py", message=f"`{name}` waits for the device") for name in "abcdefgh"]
    run = RunResult(tuple(FileResult(each.path, (each,)) for each in many), 0.5)
    text = render("full", run, Style())
    assert text.count("waits for the device") == 1
    assert "also: 7 other places (--verbose shows each): b.py:4:14, c.py:4:14" in text
    assert "f.py:4:14, ..." in text
    assert "8 findings in 8 of 8 files" in text
    assert render("full", run, Style(verbose=True)).count("waits for the device") == 8


def test_a_few_places_and_other_obstacles_are_shown_each(diagnose: Diagnose) -> None:
    few = [diagnose(path=f"{number}.py", blocked=f"it is {word}") for number, word in enumerate(["printed"] * 3)]
    others = [diagnose(path="x.py", blocked="it is kept"), diagnose(path="y.py", rule="sync-in-loop")]
    run = RunResult(tuple(FileResult(each.path, (each,)) for each in (*few, *others)), 0.5)
    assert render("full", run, Style()).count(" --> ") == 5


def test_what_breaks_comes_before_what_costs_and_launches_before_memory(diagnose: Diagnose) -> None:
    rules = ["cat-in-loop", "decode-loop", "item-in-loop"]
    found = [diagnose(path=f"{rule}.py", rule=rule) for rule in rules]
    found.append(diagnose(path="z.py", rule="missing-main-guard", severity=Severity.ERROR))
    text = render("full", RunResult(tuple(FileResult(each.path, (each,)) for each in found), 0.5), Style())
    order = re.findall(r"\[([a-z-]+)\]:", text)
    assert order == ["missing-main-guard", "decode-loop", "item-in-loop", "cat-in-loop"]


def test_sentences_are_folded_at_the_width_of_the_terminal_and_lose_no_word(diagnose: Diagnose) -> None:
    found = diagnose(blocked="line 12: the value decides what runs next: test it every few steps, or use torch.where")
    narrow = render("full", _run(found), Style(width=50))
    assert max(map(len, narrow.splitlines())) <= 50
    assert narrow.split() == render("full", _run(found), Style()).split()
    assert "  = not fixed: line 12: the value decides what\n    runs next: test it every few steps" in narrow


def test_every_file_that_could_not_be_checked_is_named(run: RunResult) -> None:
    text = render("full", run, Style())
    assert "error: is not Python 3: invalid syntax\n --> broken.py:7\n" in text
    assert "error: is not valid UTF-8\n --> wide.py\n" in text
    assert "2 files could not be checked" in text


def test_the_summary_counts_files_findings_and_fixes(run: RunResult) -> None:
    text = render("full", run, Style())
    assert "3 findings in 2 of 3 files in 0.50 s.\n" in text
    assert "1 can be fixed with `perflint fix --apply`, 1 more with `--unsafe`.\n" in text


def test_quiet_leaves_out_the_summary_and_verbose_says_what_was_skipped(run: RunResult) -> None:
    assert "findings in" not in render("full", run, Style(quiet=True))
    assert "a notebook in R" not in render("full", run, Style())
    assert "nb/r.ipynb: a notebook in R\n" in render("full", run, Style(verbose=True))


def test_nothing_checked_is_not_called_clean() -> None:
    assert render("full", RunResult((), 0.0), Style()) == "No file was checked.\n"
    assert "No findings" not in render(
        "full", RunResult((FileResult("a.py", problem=Problem("is a folder")),), 0.0), Style()
    )
    assert render("full", RunResult((FileResult("a.py"),), 0.0), Style()) == "No findings in 1 file in 0.00 s.\n"


def test_notes_end_the_summary() -> None:
    text = render("full", RunResult((FileResult("a.py"),), 0.0), Style(notes=("3 findings are in the baseline.",)))
    assert text.endswith("\n3 findings are in the baseline.\n")


@pytest.mark.parametrize(
    "line",
    [
        "\t\tx = loss.item()",
        "a\tb\t = loss.item()",
        "標準 = '漢字', loss.item()",
        "s = 'é👍', loss.item()",
        "s = '\x1b[31m\x07', loss.item()",
        "s = '\u202e\u200b\ud800', loss.item()",
    ],
)
def test_the_underline_stands_under_the_finding(diagnose: Diagnose, line: str) -> None:
    code, marks = _code_and_marks(_full(diagnose(f"{line} + 1\n")))
    before, found, _ = code.partition("loss.item()")
    assert found
    assert marks == " " * cell_len(before) + "^" * len(found)


def test_a_tab_inside_the_finding_is_underlined_at_its_full_width(diagnose: Diagnose) -> None:
    code, marks = _code_and_marks(_full(diagnose("\tf(a,\tb)\n", "f(a,\tb)")))
    assert (code, marks) == ("    f(a,    b)", "    ^^^^^^^^^^")


def test_control_characters_never_reach_the_terminal(diagnose: Diagnose) -> None:
    evil = "\x1b[2J\r\x07\x9b\u202e\u2028\ud800"
    diagnostic = diagnose(f"x = '''{evil}''', y\n", "y", path=f"{evil}.py", message=evil, fixes=((Safety.EXACT, evil),))
    file = FileResult(f"{evil}.py", (diagnostic,), Problem(evil), evil)
    for name in ("full", "concise"):
        text = render(name, RunResult((file,), 0.1), Style(verbose=True, notes=(evil,)))
        assert all(character.isprintable() or character == "\n" for character in text)
        assert text.encode("utf-8")


def test_a_long_span_is_underlined_on_its_first_line_only(diagnose: Diagnose) -> None:
    body = "while x:\n" + "    a()\n" * 8
    lines = _full(diagnose(body, body.rstrip("\n")))
    assert [line for line in lines if "^" in line] == ["   | ^^^^^^^^ to line 9"]


def test_a_short_span_is_underlined_on_each_line(diagnose: Diagnose) -> None:
    lines = _full(diagnose("x = f(\n    a,\n)\n", "f(\n    a,\n)"))
    assert [line for line in lines if "^" in line] == ["  |     ^^", "  |     ^^", "  | ^"]


def test_an_empty_span_is_still_marked(diagnose: Diagnose) -> None:
    assert _code_and_marks(_full(diagnose("x = 1\n", "")))[1] == "^"


@pytest.mark.parametrize("filler", ["abcdefghij", "漢字"])
@pytest.mark.parametrize("before", [0, 1, 7, 100])
@pytest.mark.parametrize("after", [0, 1, 100])
def test_long_lines_are_cropped_around_the_finding(diagnose: Diagnose, filler: str, before: int, after: int) -> None:
    text = f"{filler * before} loss.item() {filler * after}\n"
    lines = _full(diagnose(text), Style(width=60))
    code, marks = _code_and_marks(lines)
    head, found, _ = code.partition("loss.item()")
    assert found
    assert marks == " " * cell_len(head) + "^" * len(found)
    assert max(cell_len(line) for line in lines if "|" in line) <= 60


def test_color_only_adds_escapes(diagnose: Diagnose) -> None:
    diagnostic = diagnose(fixes=((Safety.ROUNDING, "0"),))
    for name in ("full", "concise"):
        colored = render(name, _run(diagnostic), Style(color=True))
        assert "\x1b[" in colored
        assert re.sub(r"\x1b\[[\d;]*m", "", colored) == render(name, _run(diagnostic), Style())

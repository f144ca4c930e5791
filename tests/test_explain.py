"""Explanations show a rule's page and all that goes with it; the table names every rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import ClassVar

import pytest
from click.testing import CliRunner, Result

from perflint import report as explain
from perflint.cli.commands import cli
from perflint.engine import catalogue
from perflint.engine.rule import GROUPS, Finding, Option, Options, Rule, Severity
from perflint.project.settings import unknown


class _Slow(Rule):
    page = "A | in the line that opens the page.\n\n## What it does\nFinds ☃.\n"
    group = "data"
    options: ClassVar = {"workers": Option(4, "How many processes.")}

    def check(self, program: object, options: Options) -> Iterator[Finding]:
        return iter(())


class _Perhaps(_Slow):
    page = "Perhaps slow.\n"
    group = "sync"
    severity = Severity.ADVICE
    options: ClassVar = {}


_Slow.name = "slow-example"
_Perhaps.name = "perhaps-example"


@pytest.fixture(autouse=True)
def two_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "all_rules", lambda: (_Perhaps(), _Slow()))


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_explain_shows_the_page_the_group_the_severity_and_the_options() -> None:
    result = _run("explain", "slow-example")
    assert result.exit_code == 0
    for part in ("# slow-example", "`data`", "`warning`", "Finds ☃.", "`workers` (default `4`): How many processes."):
        assert part in result.stdout


def test_a_rule_that_is_off_by_default_says_so() -> None:
    assert "off by default" in _run("explain", "perhaps-example").stdout
    assert "on by default" in _run("explain", "slow-example").stdout


def test_color_lays_the_page_out_for_a_terminal() -> None:
    result = CliRunner().invoke(cli, ["explain", "slow-example", "--color", "always"], color=True)
    assert "\x1b[" in result.stdout
    assert "## What it does" not in result.stdout
    assert "What it does" in result.stdout


def test_explain_without_a_rule_lists_the_rules_by_group_and_names_the_documents_of_its_words() -> None:
    text = _run("explain").stdout
    assert "- `slow-example`: A | in the line that opens the page." in text
    assert text.index("## sync") < text.index("perhaps-example") < text.index("## data") < text.index("slow-example")
    assert "`perflint docs checking`" in text and "`perflint docs fixing`" in text


def test_an_unknown_rule_is_one_line_with_a_suggestion() -> None:
    result = _run("explain", "slow-exampel")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "perflint: unknown rule 'slow-exampel'; did you mean slow-example?\n"
    assert "did you mean slow-example?" in _run("explain", "slow").stderr


def test_a_suggestion_begins_as_what_was_typed_whatever_its_case() -> None:
    known = ["heavy-getitem", "item-in-loop", "sync-in-loop"]
    assert unknown("rule", "item", known) == "unknown rule 'item'; did you mean item-in-loop?"
    assert unknown("rule", "SYNC_IN_LOOP", known) == "unknown rule 'SYNC_IN_LOOP'; did you mean sync-in-loop?"
    assert unknown("rule", "getitem", known) == "unknown rule 'getitem'; did you mean heavy-getitem?"


def test_a_group_is_explained_by_its_rules() -> None:
    text = _run("explain", "data").stdout
    assert "## data: the GPU waits for its input" in text and "slow-example" in text
    assert _run("explain").stdout.count("## ") > text.count("## ") == 1


def test_every_group_is_explained() -> None:
    assert set(explain.GROUPS) == set(GROUPS)


def test_rules_prints_an_aligned_table() -> None:
    header, *rows = _run("rules").stdout.splitlines()
    column = header.index("WHAT IT FINDS")
    assert [row[:column].split() for row in rows] == [
        ["perhaps-example", "sync", "advice"],
        ["slow-example", "data", "warning"],
    ]
    assert rows[1][column:] == "A | in the line that opens the page."


def test_long_lines_of_the_table_are_wrapped_below_their_column() -> None:
    lines = explain.as_text([_Slow()], 62).splitlines()
    assert max(map(len, lines)) <= 62
    assert lines[2].startswith(" " * lines[0].index("WHAT"))


def test_rules_in_markdown_keep_a_bar_inside_its_cell() -> None:
    lines = _run("rules", "--output-format", "markdown").stdout.splitlines()
    assert lines[1] == "| --- | --- | --- | --- |"
    assert lines[3] == "| `slow-example` | data | warning | A \\| in the line that opens the page. |"


def test_rules_in_json_hold_everything_a_program_may_ask_for() -> None:
    assert json.loads(_run("rules", "--output-format", "json").stdout)[1] == {
        "name": "slow-example",
        "group": "data",
        "severity": "warning",
        "default": True,
        "summary": "A | in the line that opens the page.",
        "options": {"workers": {"default": 4, "help": "How many processes."}},
    }

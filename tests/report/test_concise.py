"""The format concise, and the count for each rule."""

from __future__ import annotations

import json

from perflint.engine.results import FileResult, RunResult
from perflint.report import render, render_statistics
from perflint.report.text import Style


def test_each_finding_and_each_problem_is_one_line(run: RunResult) -> None:
    assert render("concise", run, Style()).splitlines() == [
        "broken.py:7: error: is not Python 3: invalid syntax",
        "nb/a b.ipynb:cell 3:4:14: item-in-loop the host waits for the device in every step; its fix needs --unsafe",
        "train.py:3:1: decode-loop the host waits for the device in every step; not fixed: a state is fed back",
        "train.py:4:14: item-in-loop [*] the host waits for the device in every step",
        "wide.py: error: is not valid UTF-8",
        "3 findings in 2 of 3 files in 0.50 s.",
        "1 can be fixed with `perflint fix --apply`, 1 more with `--unsafe`.",
        "2 files could not be checked, in whole or in part.",
    ]


def test_statistics_count_each_rule_and_what_is_fixable(run: RunResult) -> None:
    lines = render_statistics("full", run, Style()).splitlines()
    assert lines[:2] == ["2  item-in-loop  [*] 1 fixable", "1  decode-loop"]


def test_statistics_come_as_objects_too(run: RunResult) -> None:
    expected = [
        {"code": "item-in-loop", "count": 2, "fixable": 1},
        {"code": "decode-loop", "count": 1, "fixable": 0},
    ]
    assert json.loads(render_statistics("json", run, Style())) == expected
    assert [json.loads(line) for line in render_statistics("json-lines", run, Style()).splitlines()] == expected


def test_statistics_of_a_clean_run_are_its_summary() -> None:
    assert render_statistics("full", RunResult((FileResult("a.py"),), 0.0), Style()).startswith("No findings")

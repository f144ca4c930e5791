"""The file of verdicts: nothing is lost in it, and nothing is believed that doesn't belong there."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from perflint.engine import UserError
from perflint.verify.summary import sentence
from perflint.verify.verdict import Side, Verdict
from perflint.verify.verdicts import add, aside, read
from tests.verify.verdicts import verdict


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".perflint" / "verdicts.json"


@pytest.mark.parametrize(
    "made",
    [
        verdict(),
        verdict(fixes=()),
        verdict(failure="the patched program hangs"),
        verdict(after=Side(1.0, losses=(2.3, math.inf, -math.inf))),
        verdict(program="tr\udcffain.py <script> \u202e", excluded=("\x00\n",)),
    ],
    ids=["won", "unfixed", "failed", "infinite", "odd text"],
)
def test_a_verdict_is_read_as_it_was_written(made: Verdict, file: Path) -> None:
    add(file, made)
    assert read(file) == (made,)


def test_losses_that_are_no_numbers_stay_so(file: Path) -> None:
    add(file, verdict(after=Side(1.0, losses=(math.nan,))))
    assert math.isnan(read(file)[0].after.losses[0])


def test_the_file_is_strict_json_with_the_result_spelled_out(file: Path) -> None:
    made = verdict(after=Side(1.0, losses=(math.nan,)))
    add(file, made)
    content = json.loads(file.read_bytes(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert content["version"] == 1
    (written,) = content["verdicts"]
    assert written["result"]["sentence"] == sentence(made)
    assert written["result"]["outcome"] == "faster"
    assert made.speed is not None
    assert written["result"]["speed"]["ratio"] == made.speed.ratio
    assert len(written["samples"]["windows"]) == len(made.samples.windows)


def test_the_last_verdict_on_each_program_and_device_is_kept_the_newest_first(file: Path) -> None:
    first, other, elsewhere = verdict(), verdict(program="eval.py"), verdict(device="cpu")
    again = replace(first, date="2026-11-22T00:00:00+00:00")
    for each in (first, other, elsewhere, again):
        add(file, each)
    assert read(file) == (again, elsewhere, other)


def test_there_are_no_verdicts_where_there_is_no_file(file: Path) -> None:
    assert read(file) == ()


def test_fields_of_later_perflints_are_passed_over(file: Path) -> None:
    made = verdict()
    add(file, made)
    content = json.loads(file.read_text())
    content["verdicts"][0]["later"] = {"x": 1}
    file.write_text(json.dumps(content))
    assert read(file) == (made,)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "\xff", "[" * 100_000, '{"version": 1}'),
        *('{"version": 1, "verdicts": [{}]}', '{"version": 1, "verdicts": 3}', '{"version": 2}'),
    ],
)
def test_what_is_no_file_of_verdicts_is_refused_with_what_to_do_and_put_aside(text: str, file: Path) -> None:
    file.parent.mkdir()
    file.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=r"verdicts\.json: it [\w ,']*: delete it or verify again$"):
        read(file)
    add(file, verdict())
    assert read(file) == (verdict(),)
    assert aside(file).read_text(encoding="latin-1") == text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("warm_up", "x"), ("excluded", 3), ("own", {"grade": "x"})),
        ("samples", {"windows": [{"variant": "original", "round": 0, "number": 0, "seconds": 10**400, "steps": 1}]}),
        ("samples", {"windows": [{"variant": "original", "round": 0, "number": 0, "seconds": 0, "steps": 1}]}),
        ("samples", {"windows": [{"variant": "original", "round": 0, "number": 0, "seconds": "nan", "steps": 1}]}),
    ],
)
def test_a_value_that_can_not_be_is_refused(field: str, value: object, file: Path) -> None:
    add(file, verdict())
    content = json.loads(file.read_text())
    content["verdicts"][0][field] = value
    file.write_text(json.dumps(content))
    with pytest.raises(UserError):
        read(file)

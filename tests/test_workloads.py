"""The programs in fixtures/workloads print the same by hand and after `perflint fix`, which leaves good ones alone."""

from __future__ import annotations

import io
import multiprocessing
import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from perflint.engine.catalogue import Selection, selected_rules
from perflint.engine.check import check_text
from perflint.engine.fix import fix_text
from tests.fixture_cases import FIXTURES, default_options

torch = pytest.importorskip("torch")
pytest.importorskip("PIL")

WORKLOADS = FIXTURES / "workloads"
DEFECTS = {
    "attention": {"decode-loop"},
    "chatty": {"item-in-loop"},
    "context": {"repeat-not-broadcast"},
    "greedy": {"decode-loop", "sync-in-loop"},
    "images": {"dataloader-defaults"},
    "seq2seq": {"cat-in-loop", "decode-loop", "repeat-not-broadcast"},
    "unguarded": {"missing-main-guard"},
}
LEFT = {name: {"host-tensor"} for name in ("greedy", "seq2seq")}  # random numbers: the device would draw others
NOTHING_TO_GAIN = ("finetune", "reinforce")
ROUNDING = {"seq2seq": 1.01e-4}  # one in the last digit that is printed, where the fix adds in another order
RULES = selected_rules(Selection())  # those that are on by default
OPTIONS = {name: options for rule in RULES for name, options in default_options(rule).items()}
_NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.fixture(autouse=True)
def _on_the_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No GPU, and forked workers, without which a program that lacks the main guard does not run."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with started_by("fork"):
        yield


@contextmanager
def started_by(method: str) -> Iterator[None]:
    """Processes are started by `method` meanwhile."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(method, force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


def printed(path: Path, *arguments: str) -> list[str]:
    """The lines that the program prints when it is run as a script."""
    out, before = io.StringIO(), sys.argv
    sys.argv = [str(path), *arguments]
    try:
        with redirect_stdout(out):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = before
    return out.getvalue().splitlines()


def workload(name: str) -> Path:
    return WORKLOADS / f"{name}.py"


def by_hand(name: str) -> Path:
    return WORKLOADS / "by_hand" / f"{name}.py"


@cache
def original(name: str) -> list[str]:
    """What the workload prints, run once for all tests."""
    return printed(workload(name))


def fixed(name: str, folder: Path, unsafe: bool = True) -> Path:
    """A copy in `folder`, as `perflint fix --apply` leaves it."""
    path = folder / f"{name}.py"
    path.write_text(fix_text(text_of(workload(name)), RULES, OPTIONS, unsafe=unsafe).text, encoding="utf-8")
    return path


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def found(path: Path) -> set[str]:
    """The rules that report something."""
    return {finding.rule for finding in check_text(text_of(path), RULES, OPTIONS)}


def assert_prints_the_same(name: str, other: Path) -> None:
    lines, others = "\n".join(original(name)), "\n".join(printed(other))
    assert _NUMBER.sub("#", others) == _NUMBER.sub("#", lines)
    numbers, other_numbers = ([float(each) for each in _NUMBER.findall(text)] for text in (lines, others))
    assert other_numbers == pytest.approx(numbers, abs=ROUNDING.get(name, 0), rel=0)


def test_each_workload_with_a_defect_has_a_version_by_hand() -> None:
    assert {path.stem for path in WORKLOADS.glob("*.py")} == {*DEFECTS, *NOTHING_TO_GAIN}
    assert {path.stem for path in WORKLOADS.glob("by_hand/*.py")} == set(DEFECTS)


@pytest.mark.parametrize("path", sorted(WORKLOADS.rglob("*.py")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_workload_fits_a_page_and_says_how_to_run_it_at_real_size(path: Path) -> None:
    lines = text_of(path).splitlines()
    assert len(lines) < 110
    assert lines[1].startswith(f"python {path.relative_to(WORKLOADS)} --")


@pytest.mark.parametrize("name", DEFECTS)
def test_the_defects_of_a_workload_are_found_and_none_is_left_by_the_fix(name: str, tmp_path: Path) -> None:
    left = LEFT.get(name, set())
    assert found(workload(name)) == DEFECTS[name] | left
    assert found(fixed(name, tmp_path)) == left


@pytest.mark.parametrize("name", DEFECTS)
def test_a_workload_prints_the_same_as_its_version_by_hand(name: str) -> None:
    assert len(original(name)) > 1
    assert_prints_the_same(name, by_hand(name))


@pytest.mark.parametrize("name", DEFECTS)
def test_a_workload_prints_the_same_after_every_fix(name: str, tmp_path: Path) -> None:
    assert_prints_the_same(name, fixed(name, tmp_path))


@pytest.mark.parametrize("name", NOTHING_TO_GAIN)
def test_a_workload_with_nothing_to_gain_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not found(workload(name))
    assert text_of(fixed(name, tmp_path)) == text_of(workload(name))


@pytest.mark.parametrize("name", NOTHING_TO_GAIN)
def test_a_workload_with_nothing_to_gain_prints_the_same_each_time(name: str) -> None:
    assert len(original(name)) > 1
    assert_prints_the_same(name, workload(name))


def test_only_the_fix_lets_the_unguarded_program_run_with_spawned_workers(tmp_path: Path) -> None:
    small = ("--examples", "64", "--epochs", "1", "--workers", "1")
    expected = printed(workload("unguarded"), *small)
    with started_by("spawn"):
        assert printed(fixed("unguarded", tmp_path, unsafe=False), *small) == expected
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            printed(workload("unguarded"), *small)

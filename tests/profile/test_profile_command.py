"""The command `profile` runs programs as they are, and says where the time of their steps goes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest
import torch

from perflint.cli.sessions import rewound, why_not, within
from perflint.profile.join import _unload
from perflint.profile.record import LEAST, OPERATION_STEPS, Orders
from perflint.profile.result import Profile, read
from perflint.profile.running import Ran
from tests.shim.runs import python

QUICK = ("--steps", "3", "--warm-up", "3", "--stop")
PROGRAMS = Path(__file__).parents[2] / "fixtures" / "profile"


def profiled(folder: Path, name: str, *arguments: str, options: tuple[str, ...] = ()) -> CompletedProcess[str]:
    """What `perflint profile` says of a program, in a project of its own; it stalls for longer than a machine may."""
    text = (PROGRAMS / name).read_text()
    (folder / name).write_text(text.replace("time.sleep(0.02)", "time.sleep(0.1)"))
    (folder / "perflint.toml").touch()
    return python(folder, "-m", "perflint", "profile", *options, name, *arguments)


def kept(folder: Path) -> Profile:
    """The profile that is kept."""
    (profile,) = read(folder / ".perflint" / "profiles.json")
    return profile


def marked(name: str) -> int:
    """The number of the line that is marked in a program."""
    lines = (PROGRAMS / name).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if "# expect:" in line)


def test_a_stall_is_named_by_its_line_and_costs_what_was_planted(tmp_path: Path) -> None:
    result = profiled(tmp_path, "stall.py", options=QUICK)
    assert result.returncode == 0, result.stderr
    profile = kept(tmp_path)
    assert (profile.regime, profile.unit) == ("overhead", "optimizer steps")
    dearest = profile.lines[0]
    assert dearest.line == marked("stall.py")
    assert 97 < dearest.own_ms < profile.step_ms + 0.1  # of 100: within 3 points
    assert f"stall.py:{dearest.line}" in result.stdout
    assert len(result.stdout.splitlines()) <= 24 and all(len(line) <= 80 for line in result.stdout.splitlines())
    page = (tmp_path / ".perflint" / "profile.html").read_text()
    assert "time.sleep(0.1)" in page and "<script" not in page


def test_check_says_what_findings_cost_while_the_code_is_unchanged(tmp_path: Path) -> None:
    assert profiled(tmp_path, "slow_loader.py", "2", options=QUICK).returncode == 0
    profile = kept(tmp_path)
    assert profile.regime == "input"
    assert [each.line for each in profile.worker_lines][:1] == [marked("slow_loader.py")]
    assert profile.batch_ms >= 16
    check = ("-m", "perflint", "check", "--extend-select=all", "--no-cache", "slow_loader.py")
    said = python(tmp_path, *check).stdout
    assert "ms step (slow_loader.py, " in said
    assert said.index("[dataloader-defaults]") < said.index("[optimizer-not-fused]")  # which stands before it
    program = tmp_path / "slow_loader.py"
    program.write_text(program.read_text() + "# changed\n")
    assert "costs: " not in python(tmp_path, *check).stdout


@pytest.mark.skipif(torch.accelerator.is_available(), reason="memory is pinned")
def test_a_warning_names_the_place_that_it_names_without_a_profile(tmp_path: Path) -> None:
    warned = [
        [line for line in result.stderr.splitlines() if "UserWarning" in line]
        for result in (profiled(tmp_path, "pins.py", options=QUICK), python(tmp_path, "pins.py"))
    ]
    assert warned[0] == warned[1] != []


def test_a_program_that_only_asks_a_model_is_profiled_by_its_calls(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    options = ("--json", "--steps", "3", "--warm-up", "2", "--trace", str(trace))
    result = profiled(tmp_path, "answers.py", options=options)
    profile = json.loads(result.stdout)
    assert profile["unit"] == "calls" and sum(profile["shares"].values()) > 0.999
    assert [each["seen"] for each in profile["facts"] if each["name"] == "inputs"] == [
        ["float32 tensor of rank 2 on cpu"]
    ]
    assert "traceEvents" in json.loads(trace.read_text())


def test_what_can_not_be_profiled_is_told_with_what_was_seen(tmp_path: Path) -> None:
    nothing = profiled(tmp_path, "no_steps.py")
    assert (nothing.returncode, nothing.stdout) == (2, "3.0\n")
    assert "nothing to profile: the program took no step of an optimizer" in nothing.stderr


def test_a_program_with_few_steps_is_profiled_by_those_that_there_are(tmp_path: Path) -> None:
    result = profiled(tmp_path, "six_steps.py")
    assert result.returncode == 0, result.stderr
    assert "6 optimizer steps in all: 2 timed, 1 traced, after a warm-up of 1" in result.stdout
    assert kept(tmp_path).lines[0].line == marked("six_steps.py")


def test_a_program_with_hardly_any_step_and_one_that_was_stopped_do_not_run_again() -> None:
    orders = Orders(10, 10, 20)
    for code, steps, is_interrupted in ((0, 3, False), (1, 9, False), (0, 9, True)):
        ran = Ran(code, (), (), {"optimizer steps": steps}, is_interrupted)
        assert within(ran, orders) is None
        assert "optimizer steps: a profile needs 4 steps of a program that" in why_not(ran, orders)
    again = within(Ran(0, (), (), {"calls": 90, "backward passes": 9, "loader batches": 2}, False), orders)
    assert again is not None and again.unit == "backward passes"


def test_a_program_that_ends_amid_the_traced_steps_runs_again_if_that_shows_more_of_them() -> None:
    ran = [Ran(0, (), (), {"optimizer steps": number}, False) for number in (32, 38, 90)]
    more = [within(each, Orders(10, 10, 20)) for each in ran]
    assert more[0] is not None and more[0].steps == 7
    assert more[1:] == [None, None]


def test_a_program_that_runs_again_reads_the_same_file_again_but_not_the_same_pipe(tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("30")
    with (tmp_path / "input.txt").open() as file:
        assert file.read() == "30"
        assert rewound(file.fileno()) == "" and os.lseek(file.fileno(), 0, os.SEEK_CUR) == 0
    ends = os.pipe()
    assert "a pipe" in rewound(ends[0])
    for end in ends:
        os.close(end)


def test_few_steps_leave_room_for_as_many_parts_of_a_profile_as_there_can_be() -> None:
    orders = Orders(10, 10, 20)
    for number in range(LEAST, orders.needed + 1):
        fewer = orders.within("calls", number)
        assert fewer.needed <= number and min(fewer.warm_up, fewer.timed, fewer.steps) >= 1
        assert number < 8 or fewer.needed + OPERATION_STEPS < number or fewer.warm_up == 1


def test_of_a_program_that_fails_what_was_measured_is_told(tmp_path: Path) -> None:
    early = profiled(tmp_path, "fails.py")
    assert early.returncode == 2 and "the program ended with exit code 1, after" in early.stderr
    late = profiled(tmp_path, "fails.py", options=("--steps", "3", "--warm-up", "4"))
    assert late.returncode == 0 and "the program ended with exit code 1" in late.stdout


@pytest.mark.parametrize(("version", "kept"), [("12.4", None), ("12.6", "1"), (None, None)])
def test_cupti_is_unloaded_behind_a_profile_where_graphs_bear_that(
    version: str | None, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(cuda=version)))
    _unload()
    assert os.environ.get("TEARDOWN_CUPTI") == kept

"""Each moment of a step goes to one regime and one line: by events as a GPU leaves them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perflint.engine.results import RunResult
from perflint.profile.record import TIMED, Owned, mean, usual
from perflint.profile.roofline import Regime
from perflint.profile.running import line_costs, profile_of
from perflint.profile.summary import Report, summary
from perflint.report.text import Style
from tests.profile.records import FILE, Recorder, line_of


def test_where_nothing_but_lines_could_be_traced_nothing_is_said_of_what_they_wait_for() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    made = profile_of("train.py", [replace(program.done, is_blind=True)], [])
    assert made is not None
    report = Report(made, RunResult((), 0.0), {})
    assert report.sentence.startswith("Can't tell where the time goes")
    assert "overhead" not in summary(report, Style())


def test_work_counts_by_its_kind_and_idling_for_the_line_that_the_host_is_at() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    program.kernel(5, 10, 110, "gemm")
    program.kernel(6, 110, 210, "add")
    program.at(300, 20)  # for 700 of the 790 that are idle
    assert program.shares == {"overhead": 80, "compute": 10, "memory": 10}
    assert line_of(program.division, program.done, Regime.OVERHEAD) == 20
    assert line_of(program.division, program.done, Regime.COMPUTE) == 10


def test_a_kernel_counts_for_the_line_that_launched_it() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    program.kernel(5, 500, 900, "gemm")
    program.at(20, 11)
    assert line_of(program.division, program.done, Regime.COMPUTE) == 10


def test_kernels_of_a_graph_count_by_their_kinds_for_the_line_that_launched_it() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    program.graph(5, (10, 310, "gemm"), (310, 510, "add"))
    program.at(20, 11)
    assert program.shares == {"overhead": 50, "compute": 30, "memory": 20}
    for regime in (Regime.COMPUTE, Regime.MEMORY):
        assert line_of(program.division, program.done, regime) == 10
    made = profile_of("train.py", [program.done], [])
    assert made is not None and not made.notes


def test_kernels_that_are_missing_are_told_of() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    for begin in (10, 110, 210):
        program.kernel(begin - 5, begin, begin + 50)
    program.record.work = [span for number, span in enumerate(program.record.work) if number % 3]
    made = profile_of("train.py", [program.done], [])
    assert made is not None and made.notes == ("4 of 12 kernels are missing in the trace: work is underrated",)


@pytest.mark.parametrize("call", ["cudaStreamSynchronize", "cudaMemcpyAsync"])  # copies to pageable memory wait, too
def test_a_read_costs_no_more_than_the_host_waited(call: str) -> None:
    program = Recorder(1000)
    program.at(0, 10)
    program.kernel(5, 10, 210)
    program.at(20, 11)
    program.wait(110, 215, call)  # 100 of it for a busy device
    program.at(216, 12)
    assert program.shares == {"overhead": 70, "host reads": 10, "memory": 20}
    assert line_of(program.division, program.done, Regime.READS) == 11


def test_a_read_costs_no_more_than_the_device_idles() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    program.kernel(5, 10, 900)
    program.at(20, 11)
    program.wait(30, 905)
    assert program.shares == {"host reads": 11, "memory": 89}


def test_waits_for_a_loader_are_input_and_belong_to_where_it_was_made() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    program.fetch(0, 600, 3)
    program.kernel(610, 620, 820)
    assert program.shares == {"overhead": 20, "input": 60, "memory": 20}
    owners = {cell.owner for cell in program.division.cells if cell.regime is Regime.INPUT}
    assert owners == {(FILE, 3)}


def test_a_loader_costs_nothing_while_the_device_has_work() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    program.kernel(0, 1, 999)
    program.fetch(10, 900, 3)
    assert program.shares == {"memory": 100}


def test_pauses_between_kernels_that_were_launched_in_time_are_the_devices_own() -> None:
    program = Recorder(100)
    program.at(0, 10)
    for number in range(10):
        program.kernel(number - 20, 10 * number, 10 * number + 8)
    assert program.shares == {"memory": 98, "overhead": 2}


def test_collectives_count_where_nothing_else_runs() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    program.kernel(0, 0, 600, "gemm")
    program.kernel(1, 400, 1000, "nccl")
    assert program.shares == {"compute": 60, "communication": 40}


def test_tracing_slows_the_host_and_not_the_device() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    program.kernel(5, 10, 260)
    program.record.timed = [500_000 * number for number in range(5)]
    assert program.shares == {"overhead": 50, "memory": 50}
    assert program.division.slowdown == pytest.approx(2.0)


def test_shares_add_up_and_cells_to_the_timed_step() -> None:
    program = Recorder(1000)
    program.at(0, 10)
    program.fetch(100, 200, 3)
    program.kernel(210, 220, 400)
    program.wait(250, 410)
    division = program.division
    assert sum(division.shares.values()) == pytest.approx(1.0)
    assert sum(cell.seconds for cell in division.cells) == pytest.approx(0.001)


def test_the_end_of_an_epoch_is_left_out() -> None:
    program = Recorder(1000, steps=6)
    program.at(0, 10)
    program.kernel(5, 10, 510)
    program.record.marks[3:] = [mark + 50_000_000 for mark in program.record.marks[3:]]
    assert program.division.left_out == 1
    assert program.division.slowdown == pytest.approx(1.0)


def test_what_the_host_does_in_steps_that_are_left_out_does_not_count() -> None:
    program = Recorder(1000, steps=6)
    program.at(0, 10)
    program.record.marks[3:] = [mark + 50_000_000 for mark in program.record.marks[3:]]
    program.kernel(5, 10, 510)
    (line,) = line_costs(program.done, program.division)
    assert (round(line.host_ms, 3), round(line.launches, 3), round(line.device_ms, 3)) == (1.0, 1.0, 0.5)


def test_the_last_step_counts_where_the_host_was_ahead() -> None:
    assert mean(usual([*range(10), 120], [], TIMED)) == 12
    long = 10_000_000
    marks = [0, 1, 2, 3, long, long + 1, long + 2, long + 3]
    assert mean(usual(marks, [], TIMED)) == 1


def test_waits_for_batches_make_no_step_an_outlier() -> None:
    long = 10_000_000
    marks = [0, 1, 2, 3, long, long + 1, long + 2, long + 3]
    assert len(usual(marks, [Owned(3, long, FILE, 1)], TIMED)) == 7

"""How much is measured follows from a first look and the time there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perflint.verify.messages import BATCH, OPTIMIZER
from perflint.verify.protocol import Look, Passage, Protocol, Schedule


def look(*, step: float, steps: int = 200, whole: bool = False, start: float = 3.0) -> Look:
    passages = [Passage(kind, step / 2) for _ in range(steps) for kind in (BATCH, OPTIMIZER)]
    return Look(start, tuple(passages), whole)


def test_the_steps_of_an_optimizer_count_before_batches() -> None:
    seen = look(step=0.1, steps=10)
    assert seen.unit == OPTIMIZER
    assert seen.steps == pytest.approx([0.1] * 10)


def test_a_clock_that_misses_most_steps_is_enough_for_a_protocol() -> None:
    passages = (Passage(BATCH, 0.0), Passage(BATCH, 0.3), Passage(BATCH, 0.0))
    assert Schedule(Look(3.0, passages * 9, is_whole=False)).protocol(3, 600.0).window > 1
    assert Schedule(look(step=0.0)).protocol(3, 600.0).window > 1


def test_what_lies_between_bursts_of_steps_counts_and_one_stall_does_not() -> None:
    burst = [Passage(OPTIMIZER, 0.3), *(Passage(OPTIMIZER, 0.003) for _ in range(15))]
    assert Look(3.0, tuple(burst * 8), is_whole=False).usual == pytest.approx(0.02, rel=0.2)
    stalls = [*look(step=0.02).passages, Passage(OPTIMIZER, 2.0)]
    assert Look(3.0, tuple(stalls), is_whole=False).usual == pytest.approx(0.02)


def test_with_time_there_are_eight_rounds_of_ten_windows_long_enough_to_outweigh_stalls() -> None:
    protocol = Schedule(look(step=0.02)).protocol(3, 600.0)
    assert (protocol.rounds, protocol.pairs) == (8, 10)
    assert protocol.window * 0.02 >= 0.25


def test_processes_that_start_beside_each_other_leave_time_for_more_rounds() -> None:
    schedule = Schedule(look(step=0.02, start=5.0))
    assert schedule.protocol(4, 60.0).rounds == 3
    assert replace(schedule, beside=4).protocol(4, 60.0).rounds == 6


def test_windows_of_a_faster_program_have_more_steps_and_last_as_long() -> None:
    schedule = Schedule(look(step=0.02))
    assert [each.protocol(3, 0.0).window for each in (schedule, schedule.of_faster(10.0))] == [13, 125]
    assert schedule.of_faster(10.0).least(3) == pytest.approx(schedule.least(3), rel=0.1)


def test_a_program_that_starts_slowly_has_fewer_rounds_but_never_less_than_three() -> None:
    assert Schedule(look(step=0.02, start=25.0)).protocol(3, 600.0).rounds == 4
    assert Schedule(look(step=0.02, start=300.0)).protocol(3, 600.0).rounds == 3


def test_where_starts_take_most_of_the_time_they_are_not_timed_one_by_one() -> None:
    schedule = Schedule(look(step=0.02, start=8.0))
    assert [schedule.protocol(3, seconds).times_starts for seconds in (40.0, 400.0)] == [False, True]


def test_the_windows_of_a_short_program_fit_into_it() -> None:
    protocol = Schedule(look(step=0.02, steps=40, whole=True)).protocol(3, 600.0)
    assert protocol.warm_up + protocol.pairs * protocol.window <= 40
    assert protocol.pairs >= 3


def test_a_program_of_a_few_steps_is_timed_as_a_whole() -> None:
    assert Schedule(look(step=0.5, steps=3, whole=True)).protocol(3, 600.0).unit == ""


def test_windows_are_made_shorter_until_whole_runs_are_timed() -> None:
    protocol = Protocol(OPTIMIZER, warm_up=4, window=5, pairs=3, rounds=8, observed=4)
    quarter = protocol.shorter
    assert (quarter.unit, quarter.window, quarter.pairs) == (OPTIMIZER, 2, 3)
    whole = quarter.shorter.shorter
    assert (whole.unit, whole.warm_up, whole.window, whole.pairs, whole.observed) == ("", 0, 1, 1, 0)


def test_a_variant_has_ten_times_as_long_as_the_original_but_not_all_of_the_time_there_is() -> None:
    schedule = Schedule(look(step=0.02, start=10.0), {"warm_up": 50, "window": 10, "pairs": 5, "horizon": 20})
    assert schedule.protocol(3, 3600.0).patience == pytest.approx(10 * (10.0 + 100 * 0.02))
    assert Schedule(look(step=0.02)).protocol(3, 0.0).patience == 60.0


def test_the_least_that_a_race_takes_is_known_before() -> None:
    schedule = Schedule(look(step=0.02, start=10.0))
    shortest = schedule.protocol(4, 0.0)
    windows = 4 * 0.02 * 3 * shortest.window
    assert schedule.least(4) == pytest.approx(3 * (4 * (10.0 + 0.02 * shortest.warm_up) + windows))
    assert replace(schedule, beside=3).least(4) == pytest.approx(3 * (2 * (10.0 + 0.02 * shortest.warm_up) + windows))
    assert schedule.least(4, 1) == pytest.approx(schedule.least(4) * 2 / 3)
    assert Schedule(look(step=0.5, steps=3, whole=True)).least(4) == pytest.approx(3 * 4 * 4.5)

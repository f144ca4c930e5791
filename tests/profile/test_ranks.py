"""Of several ranks the one that the others wait for is profiled and named."""

from __future__ import annotations

from perflint.engine.results import RunResult
from perflint.profile.running import profile_of
from perflint.profile.summary import Report
from tests.profile.records import Recorder


def report(*waits: int) -> Report:
    """Of ranks that wait so many of 1000 microseconds for the others."""
    records = []
    for rank, wait in enumerate(waits):
        program = Recorder(1000)
        program.at(0, 10 + rank)
        program.kernel(1, 5, 5 + wait, "nccl")
        program.record.rank, program.record.ranks = rank, len(waits)
        records.append(program.done)
    profile = profile_of("train.py", records, [])
    assert profile is not None
    return Report(profile, RunResult((), 0.0), {})


def test_the_last_to_come_is_named_and_profiled() -> None:
    late = report(400, 10, 390)
    assert late.straggler == "rank 1 comes last: the others wait for it, up to 0.39 ms of a step"
    assert late.profile.lines[0].line == 11


def test_ranks_that_come_together_are_not_blamed() -> None:
    assert report(50, 60).straggler == "2 ranks, none of which the others wait for"


def test_of_one_rank_nothing_is_said() -> None:
    assert report(50).straggler == ""

"""A distributed program is one program: all its ranks are held up, timed, recorded and compared together."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from perflint.verify.compare import compare
from perflint.verify.messages import OPTIMIZER, Arrival, Kind, Platform, Program, Recording, Variant
from perflint.verify.processes import Guardian
from perflint.verify.running import slowest
from perflint.verify.runs import Course
from tests.verify.courses import PROGRAMS, changed, original

STEPS, PATIENCE = 4, 120.0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Records of the program, of the program again, and of one in which rank 1 alone does something else."""
    store = tmp_path_factory.mktemp("ranks")
    first = original(store)
    wrong = changed(store, "ranks.py", "batch = batch.to(device)", "batch = batch.to(device) * (1 + rank)")
    arguments = ("--nproc-per-node", "2", str(PROGRAMS / "ranks.py"), "100")
    jobs: list[tuple[Variant, Recording]] = [
        (variant, Recording(str(store / str(number)), (1, STEPS), ()))
        for number, variant in enumerate([first, first, wrong])
    ]
    with closing(Guardian()) as guardian:
        course = Course(Program(Kind.MODULE, "torch.distributed.run", arguments, PROGRAMS), guardian)
        runs = course.record(jobs, OPTIMIZER, STEPS, PATIENCE)
    assert [run.code for run in runs] == [None] * 3, runs
    return [run.folder for run in runs]


def test_every_rank_is_held_behind_the_same_step_and_recorded(recorded: list[Path]) -> None:
    for folder in recorded:
        for rank in (folder, folder / "rank 1"):
            assert sorted(path.name for path in rank.glob("*.pt")) == [f"{step}.pt" for step in range(1, STEPS + 1)]


def test_the_ranks_of_two_runs_are_compared_with_each_other(recorded: list[Path]) -> None:
    same = compare(recorded[0], recorded[1])
    assert same.is_bitwise
    assert same.steps == STEPS


def test_what_one_rank_does_otherwise_is_told_of_it(recorded: list[Path]) -> None:
    different = compare(recorded[0], recorded[2])
    first = [each.name for each in different.differences if each.step == 1]
    assert "loss 0 of rank 1" in first
    assert "loss 0" not in first  # by the second step it has the gradients of both


def test_the_slowest_rank_counts() -> None:
    first, second = (Platform(rank, 2, "CPU", {}) for rank in range(2))
    arrivals = [Arrival(8, OPTIMIZER, 1.0, 30, 10, 1, first), Arrival(8, OPTIMIZER, 2.0, 20, 40, 2, second)]
    assert slowest(arrivals) == Arrival(8, OPTIMIZER, 2.0, 30, 40, 3, second)

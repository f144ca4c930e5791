"""A program does not notice that it is recorded, nor that its state is put back: it computes, prints and ends alike."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from perflint.verify.verdict import Grade
from tests import forks
from tests.verify.courses import PROGRAMS, Bench, bench

SPAWNED = "spawned"  # whose runs import torch twice
SHAPES = sorted({path.stem for path in (PROGRAMS / "shapes").glob("*.py")} - {SPAWNED})
_STEPS = 14  # more than any of them takes, and restarts are behind the first and in the middle


@pytest.mark.parametrize("shape", SHAPES)
def test_a_program_of_any_shape_computes_prints_and_ends_as_it_does_by_itself(shape: str, tmp_path: Path) -> None:
    with bench(f"shapes/{shape}.py", tmp_path, steps=_STEPS) as whole:
        assert_it_does_as_by_itself(whole, shape, tmp_path)


def assert_it_does_as_by_itself(whole: Bench, shape: str, folder: Path) -> None:
    with forks.Popen([sys.executable, str(PROGRAMS / "shapes" / f"{shape}.py")], cwd=folder, stdout=PIPE) as alone:
        printed = alone.communicate()[0].decode("utf-8", "replace")
    for run in (whole.records.standard.run, whole.records.standard.again):
        assert run is not None
        assert (run.code, run.output) == (alone.returncode, printed), run.errors
    assert whole.records.own.grade is Grade.BITWISE, whole.records.own.evidence


def test_what_a_child_trains_is_not_taken_for_what_the_program_does(tmp_path: Path) -> None:
    with bench(f"shapes/{SPAWNED}.py", tmp_path, steps=_STEPS) as spawned:
        assert_it_does_as_by_itself(spawned, SPAWNED, tmp_path)
        assert {path.stem for path in spawned.records.standard.run.folder.glob("*.pt")} == {*map(str, range(1, 10))}
        wrong = spawned.likeness("model(torch.randn(4, 4))", "model(torch.randn(4, 4) + (seed != 1))")  # not the child
        assert wrong.grade is Grade.DIFFERENT, wrong.evidence
        assert wrong.evidence[0].startswith("at step 1 "), wrong.evidence

"""What two runs compute is compared from the same state, and double precision tells rounding from a wrong patch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from perflint.verify.compare import compare, losses, traits
from perflint.verify.judge import Standard, likeness
from perflint.verify.messages import OPTIMIZER, Recording, Variant
from perflint.verify.runs import Course, Recorded
from perflint.verify.verdict import Grade, Likeness
from tests.verify.courses import changed, course, original

STEPS = 6


def recorded(
    course: Course, variant: Variant, folder: Path, follow: Path | None = None, *, exact: bool = False
) -> Recorded:
    recording = Recording(str(folder), (1, 2, 3, 4, STEPS), (1, 3), str(follow) if follow else "", exact)
    return course.record([(variant, recording)], OPTIMIZER, STEPS, 60.0)[0]


@pytest.fixture(scope="module")
def standard(tmp_path_factory: pytest.TempPathFactory) -> Standard:
    """The original, recorded twice; its double precision run is in the folder `exact` beside it."""
    folder = tmp_path_factory.mktemp("standard")
    with course("train.py", "20") as races:
        run = recorded(races, original(folder), folder / "run")
        again = recorded(races, original(folder), folder / "again", run.folder)
        recorded(races, original(folder), folder / "exact", run.folder, exact=True)
    return Standard(run, again, (compare(run.folder, again.folder),))


def graded(standard: Standard, folder: Path, old: str, new: str) -> Likeness:
    with course("train.py", "20") as races:
        run = recorded(races, changed(folder, "train.py", old, new), folder / "changed", standard.run.folder)
    exact = standard.run.folder.with_name("exact")
    return likeness(standard, run, compare(standard.run.folder, run.folder, exact))


def test_two_runs_of_a_seeded_program_are_bitwise_equal(standard: Standard) -> None:
    assert standard.own[0].is_bitwise
    assert standard.own[0].values > 50
    assert len(losses(standard.run.folder)) == STEPS


def test_a_program_is_recorded_without_numpy_as_with_it(
    standard: Standard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError(name='numpy')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with course("train.py", "20") as races:
        run = recorded(races, original(tmp_path), tmp_path / "run")
    compared = compare(standard.run.folder, run.folder)
    assert (compared.is_bitwise, compared.values) == (True, standard.own[0].values)


def test_a_recorded_program_computes_repeatably_and_without_tf32_unless_it_asks_for_that(tmp_path: Path) -> None:
    tell = "print(torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.allow_tf32)"
    asked = f"{tell}; torch.backends.cudnn.allow_tf32 = True; {tell}"
    with course("train.py", "20") as races:
        told = changed(tmp_path, "train.py", "import torch\n", f"import torch\n\n{asked}\n")
        assert recorded(races, told, tmp_path / "run").output.startswith("True False\nTrue True\n")


@pytest.mark.parametrize(
    ("old", "new", "grade"),
    [(".square()", ".pow(2)", Grade.BITWISE), ("lr=0.1", "lr=0.100001", Grade.DIFFERENT)],
)
def test_a_change_is_graded_by_what_it_does(
    standard: Standard, tmp_path: Path, old: str, new: str, grade: Grade
) -> None:
    found = graded(standard, tmp_path, old, new)
    assert found.grade is grade, found.evidence


def test_a_wrong_change_is_found_where_it_begins(standard: Standard, tmp_path: Path) -> None:
    found = graded(standard, tmp_path, "torch.randn(16, 8)", "torch.randn(16, 8) if step < 3 else torch.zeros(16, 8)")
    assert found.grade is Grade.DIFFERENT
    assert found.evidence[0].startswith("at step 4 ")


@pytest.mark.parametrize(
    ("new", "grade"),
    [
        ("float(step))", Grade.BITWISE),
        ("step + 1e-6)", Grade.ROUNDING),
        ("float(step)) + 1e6 * (step == 3) * (torch.arange(512) % 16 > 0)", Grade.DIFFERENT),
        ("float(step)) - 9 * (step == 3)", Grade.DIFFERENT),
    ],
)
def test_large_results_are_compared_all_over_also_between_the_steps_of_which_all_is_kept(
    tmp_path: Path, new: str, grade: Grade
) -> None:
    with course("large.py", "20") as races:
        before, after = (
            recorded(races, changed(tmp_path, "large.py", "float(step))", text, ["seen"]), tmp_path / name)
            for name, text in (("before", "float(step))"), ("after", new))
        )
    found = likeness(Standard(before, before), after, compare(before.folder, after.folder))
    assert found.grade is grade, found.evidence
    assert traits(after.folder).keys() == {"the loss", "the size of gradients", "the output", "the size of outputs"}


def test_an_element_that_the_original_rounds_less_by_luck_is_held_against_the_others_of_its_kind(
    tmp_path: Path,
) -> None:
    sizes = torch.linspace(1, 2, 5000).double()
    one = torch.ones(1).double()
    exact = {"gradient 0.0": sizes, "gradient 0.1": one, "gradient 0.2": 1e-9 * sizes, "gradient 0.3": 1e-2 * one}
    runs = {"before": (2e-6, 0.0, 1.0, 0.0), "after": (-2e-6, 2e-6, -1.0, 1e-4), "reference": (0.0, 0.0, 0.0, 0.0)}
    for name, errors in runs.items():
        tensors = {key: exact[key] * (1 + error) for key, error in zip(exact, errors, strict=True)}
        tensors = tensors if name == "reference" else {key: each.float() for key, each in tensors.items()}
        content: dict[str, object] = {"values": {}, "batches": [], "samples": [], "reads": [], "logged": [], "step": 2}
        content |= {"tensors": tensors, "digests": {key: f"{key} {name}" for key in tensors}}
        (tmp_path / name).mkdir()
        torch.save(content, tmp_path / name / "2.pt")
    found = compare(tmp_path / "before", tmp_path / "after", tmp_path / "reference")
    size = sizes.square().mean().sqrt().item()
    for name, scale in (("gradient 0.1", 1.0), ("gradient 0.3", 1e-2)):
        small = next(each for each in found.differences if each.name == name)
        assert small.reference == pytest.approx(2e-6 * size / scale, rel=0.1) and found.restarted == {2}

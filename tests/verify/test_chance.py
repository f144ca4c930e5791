"""Programs that differ from themselves are graded by how much, and those with other random numbers over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from perflint.engine.rule import Safety
from perflint.verify import recordings
from perflint.verify.messages import BATCH
from perflint.verify.runs import Recorded
from perflint.verify.verdict import Grade, Likeness
from tests.verify.courses import Bench, bench, original

SEEDS = 5  # each is two processes
LIFTED = "nn.functional.dropout(x, 0.2)"
STEPWISE = "torch.stack([nn.functional.dropout(each, 0.2) for each in x.unbind(1)], 1)"


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench("noisy.py", tmp_path_factory.mktemp("noisy"), steps=11) as made:
        yield made


@pytest.fixture(scope="module")
def drops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with (
        pytest.MonkeyPatch.context() as patch,
        bench("drops.py", tmp_path_factory.mktemp("drops"), steps=14, unit=BATCH) as made,
    ):
        patch.setattr(recordings, "SEEDS", (SEEDS,))
        yield made


def test_a_program_that_differs_from_itself_is_known_by_how_much(noisy: Bench) -> None:
    assert noisy.records.own.grade is Grade.ALIKE
    assert noisy.records.own.evidence[0].startswith("two runs of the original differ: at step 1 ")
    assert len(noisy.records.standard.own) == 4


def test_what_is_within_the_noise_of_a_program_is_alike(noisy: Bench) -> None:
    found = noisy.likeness(".square().mean()", ".square().sum() / 64")
    assert found.grade is Grade.ALIKE, found.evidence
    assert "differ by no more than from run to run of the original" in found.evidence[0]


@pytest.mark.parametrize(("old", "new"), [("lr=0.1", "lr=0.11"), ("x[:, :4]", "x[:, 4:]")])
def test_what_is_beyond_the_noise_of_a_program_is_different(noisy: Bench, old: str, new: str) -> None:
    found = noisy.likeness(old, new)
    assert found.grade is Grade.DIFFERENT, found.evidence


def test_dropout_out_of_a_loop_is_alike_if_it_has_promised_no_more(drops: Bench) -> None:
    found = drops.likeness(STEPWISE, LIFTED, Safety.BEHAVIOUR)
    assert found.grade is Grade.ALIKE, found.evidence
    assert found.evidence[0].startswith(f"over {SEEDS} seeds the loss differs by ")


def test_another_share_of_dropout_is_not_alike(drops: Bench) -> None:
    found = drops.likeness(STEPWISE, LIFTED.replace("0.2", "0.4"), Safety.BEHAVIOUR)
    assert found.grade is Grade.DIFFERENT
    assert found.evidence[0].startswith(f"over {SEEDS} seeds the loss differs by ")
    assert found.evidence[0].endswith("which is no chance")


def test_other_random_numbers_are_different_for_whoever_has_promised_the_same(drops: Bench) -> None:
    assert drops.likeness(STEPWISE, LIFTED, Safety.ROUNDING).grade is Grade.DIFFERENT


def test_seeds_are_added_until_it_can_be_told(drops: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, asked = drops.records.standard.run, []

    def told(before: Sequence[Recorded], after: Sequence[Recorded], _: Recorded, **_how: bool) -> Likeness:
        asked.append((len(before), len(after)))
        return Likeness(Grade.ALIKE if len(after) == 4 else Grade.UNKNOWN)

    monkeypatch.setattr(recordings, "SEEDS", (2, 4, 8))
    monkeypatch.setattr(recordings, "over_seeds", told)
    monkeypatch.setattr(drops.records, "_record", lambda jobs, _: [run for _ in jobs])
    monkeypatch.setattr(drops.records, "_seeded", [run] * 3)
    assert drops.records._over_seeds(original(tmp_path), "its random numbers are others").grade is Grade.ALIKE
    assert asked == [(2, 2), (4, 4)]


def test_without_the_time_for_seeds_nothing_is_said(drops: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drops.records, "_seconds", 1.0)
    found = drops.likeness(STEPWISE, LIFTED, Safety.BEHAVIOUR)
    assert found.grade is Grade.UNKNOWN
    assert found.evidence[0].startswith("its random numbers are others, and 5 seeds would take about ")


def test_a_program_that_reads_other_data_each_time_is_known_as_such(tmp_path: Path) -> None:
    with bench("shuffled.py", tmp_path, steps=13) as shuffled:
        assert shuffled.records.own.grade is Grade.ALIKE
        assert "the batches differ" in shuffled.records.own.evidence[0]
        assert len(shuffled.records.standard.own) == 1  # it takes runs with several seeds to grade a variant of it

"""Generators that a program doesn't seed begin with the same numbers in each run, with others in each worker."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import bit_generator
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from perflint.verify.agent import determinism
from perflint.verify.verdict import Grade
from tests.verify.courses import bench

RANDBITS = vars(bit_generator)["randbits"]  # draws seeds from the system


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bit_generator, "randbits", RANDBITS)  # which is put back


class Fresh(Dataset[Tensor]):
    """Samples of a generator each that nobody seeds."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(np.random.default_rng().random())


def drawn(seed: int, *, other_samples: bool = False) -> list[float]:
    """What generators of all kinds draw that are made without a seed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bit_generator, "randbits", RANDBITS)
        determinism.seed_numpy(np, seed, other_samples=other_samples)
        return [
            np.random.default_rng().random(),
            np.random.default_rng(None).random(),
            np.random.Generator(np.random.PCG64(np.random.SeedSequence())).random(),  # as gymnasium makes them
            np.random.RandomState().random(),
        ]


def test_generators_without_a_seed_follow_from_that_of_the_run() -> None:
    assert drawn(0) == drawn(0)
    assert len({*drawn(0), *drawn(1), *drawn(0, other_samples=True)}) == 12


def test_the_seed_of_a_program_is_its_own() -> None:
    expected = np.random.default_rng(3).random()
    determinism.seed_numpy(np, 0, other_samples=False)
    assert np.random.default_rng(3).random() == np.random.default_rng(seed=3).random() == expected


def test_a_run_that_goes_on_from_where_another_was_makes_the_same_generators() -> None:
    determinism.seed_numpy(np, 0, other_samples=False)
    states = determinism.rng_states()
    first = np.random.default_rng().random()
    determinism.restore_rng(states)
    assert np.random.default_rng().random() == first


@pytest.mark.skipif(sys.platform == "win32", reason="workers are forked")
def test_workers_draw_other_numbers_than_each_other_but_the_same_in_each_run() -> None:
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bit_generator, "randbits", RANDBITS)
            determinism.seed_numpy(np, 0, other_samples=False)
            runs.append(
                [float(each) for each in DataLoader(Fresh(), None, num_workers=2, multiprocessing_context="fork")]
            )
    assert runs[0] == runs[1]
    assert len({*runs[0]}) == 4


def test_a_program_that_seeds_no_generator_of_numpy_computes_the_same_each_time(tmp_path: Path) -> None:
    with bench("unseeded.py", tmp_path, steps=4) as unseeded:
        assert unseeded.records.own.grade is Grade.BITWISE

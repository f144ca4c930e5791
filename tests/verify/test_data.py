"""Programs that read other data, too little or too often are told from those that read it with other random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from perflint.verify.agent.recorder import Read, Reads
from perflint.verify.seeds import misread, repeated

SIZE, SEEDS = 64, 3
LABELS = "over 3 seeds 12 of 192 samples are not what they are in the original"  # 1 in 16
Make = Callable[[], "DataLoader[tuple[Tensor, ...]]"]


def samples(*, flipped: bool = False) -> tuple[Tensor, Tensor]:
    inputs, labels = torch.randn(SIZE, 3), torch.randint(0, 2, (SIZE,))
    labels[:: 16 if flipped else SIZE + 1] ^= flipped
    return inputs, labels


class Noisy(Dataset[tuple[Tensor, ...]]):
    """Adds noise to each sample as it is read."""

    def __init__(self, *, flipped: bool = False) -> None:
        self._inputs, self._labels = samples(flipped=flipped)

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, place: int) -> tuple[Tensor, ...]:
        return self._inputs[place] + 0.1 * torch.randn(3), self._labels[place]


class Streamed(IterableDataset[Tensor]):
    """Yields each sample so many times."""

    def __init__(self, times: int) -> None:
        self._samples = samples()[0].repeat(times, 1)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._samples)


def plain(*, flipped: bool = False, batch_size: int = 8, **settings: Any) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*samples(flipped=flipped)), batch_size, **settings)


def noisy(*, flipped: bool = False, workers: int = 0) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(Noisy(flipped=flipped), batch_size=8, shuffle=True, num_workers=workers)


def streamed(times: int) -> DataLoader[Tensor]:
    return DataLoader(Streamed(times), batch_size=8)


FIRST = [*range(32), *range(32)]
SHUFFLED = partial(plain, shuffle=True)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Read]]:
    """Reads the first batches of two epochs of a loader, as a run with that seed does."""

    def first(make: Make, seed: int = 1, batches: int = 8, *, other_samples: bool = False) -> list[Read]:
        found: list[Read] = []
        with monkeypatch.context() as patch:
            for name in ("__init__", "_next_index", "__next__"):  # to be put back
                owner = torch.utils.data.dataloader._BaseDataLoaderIter
                patch.setattr(owner, name, getattr(owner, name))
            torch.manual_seed(seed)
            loader = make()
            Reads(found.append, other_samples=other_samples).watch()
            for _ in range(2):
                for _, _ in zip(range(batches), loader, strict=False):
                    pass
        return found

    return first


def told(read: Callable[..., list[Read]], before: Make, after: Make) -> list[str]:
    """What is said of the data of two programs."""
    old, new = ([read(make, seed) for seed in range(1, SEEDS + 1)] for make in (before, after))
    return list(misread(old, new, read(before, other_samples=True)))


WRONG: dict[str, tuple[Make, Make, str]] = {
    "no longer shuffled": (SHUFFLED, plain, "the order of its samples is the same over 3 seeds, and in the original"),
    "shuffled": (plain, SHUFFLED, "the order of its samples is not the original's"),
    "another order": (plain, partial(plain, sampler=range(SIZE - 1, -1, -1)), "the order of its samples is not the"),
    "the first 32 again and again": (
        SHUFFLED,
        partial(plain, sampler=FIRST),
        "what samples an epoch has is not the original's",
    ),
    "no last batch": (
        partial(SHUFFLED, batch_size=10),
        partial(SHUFFLED, batch_size=10, drop_last=True),
        "how many samples its batches have is not the original's",
    ),
    "1 in 16 labels flipped": (SHUFFLED, partial(SHUFFLED, flipped=True), LABELS),
    "1 in 16 labels flipped, in noise": (noisy, partial(noisy, flipped=True, workers=1), LABELS),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_other_data_is_told_from_the_same(read: Callable[..., list[Read]], wrong: str) -> None:
    before, after, words = WRONG[wrong]
    found = told(read, before, after)
    assert any(each.startswith(words) for each in found), found


@pytest.mark.parametrize(
    ("before", "after"),
    [(SHUFFLED, partial(SHUFFLED, num_workers=1)), (noisy, partial(noisy, workers=1)), (plain, plain)],
    ids=["workers", "workers with other random numbers", "the same"],
)
def test_the_same_data_is_taken_for_that(read: Callable[..., list[Read]], before: Make, after: Make) -> None:
    assert not told(read, before, after)


def test_samples_that_are_read_again_within_an_epoch_are_counted(read: Callable[..., list[Read]]) -> None:
    assert repeated(read(SHUFFLED)) == repeated(read(partial(streamed, 1))) == 0.5  # in the second epoch
    assert repeated(read(partial(plain, sampler=FIRST), batches=6)) == pytest.approx(2 / 3)
    assert repeated(read(partial(streamed, 2), batches=16)) == 0.75
    assert repeated([]) is None

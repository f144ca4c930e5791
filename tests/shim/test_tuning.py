"""Loaders are timed while a program goes through them, and get the fewest workers that hide them."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset

from perflint.project import figures, stored
from perflint.runtime import loader
from perflint.runtime.loader import Decision, as_measured
from perflint.shim.tuned import Choice, Times, Tuner, choose, seconds_per_batch
from tests.shim.runs import patched, project, python


class Slow(Dataset[torch.Tensor]):
    """Takes a while to read, and draws random numbers."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.rand(3)


def chosen(batch: float, step: float, ready: Mapping[int, float], most: int = 8, slowest: float = 0.0) -> Choice:
    return choose(Times(batch / 8, batch, slowest or batch, step), most, lambda workers: ready[workers])


def test_the_fewest_workers_that_keep_up_with_the_steps_are_chosen() -> None:
    assert chosen(0.08, 0.02, {4: 0.0205}) == Choice(4, 2, 0.0205)
    assert chosen(0.08, 0.02, {4: 0.03, 6: 0.02}) == Choice(6, 2, 0.02)


def test_where_none_keep_up_the_fewest_that_come_near_the_best_are_chosen() -> None:
    assert chosen(0.08, 0.001, {4: 0.03}, most=4) == Choice(4, 8, 0.03)
    assert chosen(0.06, 0.02, {3: 0.03, 4: 0.0295, 6: 0.0294, 8: 0.0293}).workers == 3


def test_no_workers_are_chosen_where_they_gain_nothing() -> None:
    assert chosen(0.001, 0.1, {}).workers == 0
    assert chosen(0.01, 0.02, {1: 0.09, 2: 0.08, 3: 0.07}, most=3).workers == 0


def test_a_batch_that_takes_long_now_and_then_is_read_ahead() -> None:
    assert chosen(0.02, 0.02, {1: 0.02}, slowest=0.1) == Choice(1, 5, 0.02)


def test_a_trial_takes_no_random_numbers_of_the_program_s_and_ends_its_workers() -> None:
    before = torch.get_rng_state()
    assert seconds_per_batch(Slow(), {"shuffle": True}, 4, 1) >= 3 * 0.002
    assert torch.equal(torch.get_rng_state(), before)
    assert not multiprocessing.active_children()


def test_a_tuner_decides_once_by_what_it_saw_after_the_first_steps() -> None:
    seen: list[Times] = []
    tuner = Tuner(0.001, seen.append)
    for number in range(20):
        tuner.add(*((0.5, 0.5) if number < 2 else (0.25, 0.125)))
    assert seen == [Times(0.001, 0.25, 0.25, 0.125)]
    assert tuner.is_done


def test_a_short_epoch_is_enough_but_not_a_few_steps() -> None:
    seen: list[Times] = []
    tuner = Tuner(0.001, seen.append)
    assert list(tuner.timed(iter(range(4)))) == list(range(4))
    assert not seen
    assert list(tuner.timed(iter(range(8)))) == list(range(8))
    assert len(seen) == 1


def test_what_was_measured_on_other_cores_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "available_cores", lambda: 4)
    found = Decision({"num_workers": 3})
    assert as_measured(found, {}, 2, 4, on=8) == found
    assert as_measured(found, {}, 2, 4, on=4) == Decision({"num_workers": 2, "prefetch_factor": 4})
    assert as_measured(found, {}, 0, 2, on=4).arguments == {}
    assert as_measured(Decision(reason="empty"), {}, 2, 2, on=4) == Decision(reason="empty")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose program was run to be tuned."""
    folder = project(tmp_path_factory.mktemp("tuned"), "tunes.py")
    if loader.cores() < 2:
        pytest.skip("there are no cores for workers")
    alone, run = python(folder, "tunes.py"), patched(folder, "--tune-loader", "tunes.py")
    assert (run.stdout, run.returncode) == (alone.stdout, alone.returncode), run.stderr
    told = r"tunes\.py:32 loader: 1 worker( with \d+ batches each)?: a sample takes "  # how many depends on the machine
    assert re.search(told, run.stderr)
    assert "tunes.py:37 loader: no workers: workers may draw other random numbers: --unsafe" in run.stderr
    return folder


def test_the_figures_are_kept(tuned: Path) -> None:
    (figure,) = figures.load(stored.nearest(tuned, stored.LOADERS))
    assert (figure.path, figure.call) == ("tunes.py", "DataLoader(Slow(), batch_size=4, shuffle=True)")
    assert (figure.workers, figure.batch_size) == (1, 4)
    assert figure.batch_ms > figure.sample_ms > 0
    assert figure.step_ms >= 10


def test_later_runs_and_fixes_have_what_was_measured(tuned: Path, tmp_path: Path) -> None:
    shutil.copytree(tuned, tmp_path, dirs_exist_ok=True)
    assert re.search(
        r"tunes\.py:32 loader: num_workers=1(, prefetch_factor=\d+)?\n", patched(tmp_path, "tunes.py").stderr
    )
    python(tmp_path, "-m", "perflint", "fix", "--apply", "tunes.py")
    assert re.search(r"shuffle=True,\s+num_workers=1, (\w+=\w+, )*pin_memory=True", (tmp_path / "tunes.py").read_text())

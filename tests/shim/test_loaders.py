"""Loaders get workers and pinned memory as they are made, where that changes nothing but the time."""

from __future__ import annotations

import csv
import io
import logging
import pickle
import random
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from perflint.runtime import loader
from perflint.runtime.loader import AsRaised, Decision, decide
from tests.shim.runs import patched, project, python

GENERATOR = random.Random(0)


class Slow(Dataset[torch.Tensor]):
    """Takes long enough to read for workers to pay; its subclasses do what workers would spoil."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.held: Any = None

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        end = time.perf_counter() + 1e-3
        while time.perf_counter() < end:
            self.work(index)
        return torch.full((8,), float(index))

    def work(self, index: int) -> None:
        """What a subclass does besides."""


class DrawsFromTorch(Slow):
    def work(self, index: int) -> None:
        torch.rand(1)


class DrawsFromNumpy(Slow):
    def work(self, index: int) -> None:
        np.random.rand()


class DrawsFromItsOwn(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.held = np.random.default_rng(0)


class DrawsFromItsModule(Slow):
    def work(self, index: int) -> None:
        GENERATOR.random()


class DrawsAsItsBase(DrawsFromItsModule):
    """Has no method of its own."""


class Counts(Slow):
    def work(self, index: int) -> None:
        self.seen.append(index)


class Fails(Slow):
    def work(self, index: int) -> None:
        raise KeyError(index)


class Prints(Slow):
    def __getitem__(self, index: int) -> torch.Tensor:
        print("reads", index)
        return super().__getitem__(index)


class Recorded(Slow):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index).requires_grad_()


class Streams(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "available_cores", lambda: 4)


def decided(dataset: object, unsafe: bool = False, **given: Any) -> Decision:
    return decide(dataset, {"dataset": dataset, "batch_size": 8, **given}, unsafe=unsafe)


def test_a_slow_dataset_gets_the_cores_that_the_process_leaves() -> None:
    assert decided(Slow()) == Decision({"num_workers": 3})


def test_cores_are_shared_between_the_ranks_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert decided(Slow()) == Decision({"num_workers": 1})


def test_what_the_user_chose_stays() -> None:
    assert decided(Slow(), num_workers=0, pin_memory=False) == Decision()


SPOILED = {
    "draws from torch": (DrawsFromTorch(), "drawn at random"),
    "draws from numpy": (DrawsFromNumpy(), "drawn at random"),
    "draws from its own": (DrawsFromItsOwn(), "from a generator of its own"),
    "draws from a global generator": (DrawsFromItsModule(), "from a generator of its own"),
    "draws as its base does": (DrawsAsItsBase(), "from a generator of its own"),
    "counts": (Counts(), "changes it"),
    "records gradients": (Recorded(), "record gradients"),
    "fails": (Fails(), "can't be tried out"),
    "streams": (Streams(), "iterable"),
    "is in memory": (TensorDataset(torch.rand(8, 2)), "less than workers would cost"),
    "is empty": ([], "empty"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_dataset_that_workers_would_spoil_is_left_alone(name: str) -> None:
    dataset, reason = SPOILED[name]
    decision = decided(dataset)
    assert reason in decision.reason
    assert "num_workers" not in decision.arguments


@pytest.mark.parametrize("dataset", [DrawsFromItsOwn(), DrawsFromItsModule(), DrawsAsItsBase()])
def test_workers_that_would_all_draw_the_same_are_not_even_tried_out(dataset: Slow) -> None:
    assert "num_workers" not in decided(dataset, unsafe=True).arguments


def _reads(file: io.StringIO) -> Callable[[], str]:
    return lambda: file.read(1)


class OfTheClass(Slow):
    file = io.StringIO("abc")


HELD: dict[str, tuple[Callable[[], object], str]] = {
    "a connection": (lambda: sqlite3.connect(":memory:"), "an open sqlite3.Connection"),
    "bytes as a file": (lambda: io.BytesIO(b"abc"), "an open _io.BytesIO"),
    "text as a file": (lambda: io.StringIO("abc"), "an open _io.StringIO"),
    "a method of one": (lambda: io.BytesIO(b"abc").read, "an open _io.BytesIO"),
    "one in a function": (lambda: _reads(io.StringIO("abc")), "an open _io.StringIO"),
    "one deep inside": (
        lambda: [{"a": SimpleNamespace(b=(SimpleNamespace(c=[io.BytesIO()]),))}],
        "an open _io.BytesIO",
    ),
    "one as an argument": (lambda: partial(print, file=io.StringIO()), "an open _io.StringIO"),
    "a generator": (lambda: (each for each in "abc"), "an iterator, a generator"),
    "an iterator": (lambda: {"lines": csv.reader(["a"])}, "an iterator, a _csv.reader"),
    "a model": (lambda: torch.nn.Sequential(torch.nn.Linear(2, 1)), "parameters"),
    "a model's method": (lambda: torch.nn.Linear(2, 1).forward, "parameters"),
    "an optimizer": (lambda: torch.optim.SGD([torch.zeros(1, requires_grad=True)]), "parameters"),
}


@pytest.mark.parametrize("name", HELD)
def test_a_dataset_that_holds_what_workers_cannot_share_is_not_even_read(name: str) -> None:
    make, reason = HELD[name]
    dataset = Counts()
    dataset.held = make()
    assert f"it holds {reason}" in decided(Subset(dataset, range(16))).reason
    assert not decided(dataset, num_workers=0).arguments
    assert not dataset.seen


def test_what_the_class_of_a_dataset_holds_counts_as_well() -> None:
    assert "it holds an open _io.StringIO" in decided(Subset(OfTheClass(), range(16))).reason


@pytest.mark.parametrize(
    "held", [logging.getLogger(__name__), sys.__stderr__, torch.nn.Sequential(torch.nn.ReLU()), {}]
)
def test_what_workers_can_share_does_not_matter(held: object) -> None:
    dataset = Slow()
    dataset.held = held
    assert decided(dataset) == Decision({"num_workers": 3})


def test_a_dataset_that_holds_itself_and_a_great_many_things_is_soon_looked_through() -> None:
    dataset = Slow()
    dataset.held = [dataset, *((str(number), {number}) for number in range(100_000))]
    assert decided(dataset) == Decision({"num_workers": 3})


def test_trying_out_leaves_random_numbers_as_they_were() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state(legacy=False)
    decided(DrawsFromTorch())
    decided(DrawsFromNumpy())
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_equal(np.random.get_state(legacy=False), before[1])


def test_what_samples_print_as_they_are_tried_out_is_not_heard(capsys: pytest.CaptureFixture[str]) -> None:
    assert decided(Prints()) == Decision({"num_workers": 3})
    assert not capsys.readouterr().out


def test_random_samples_are_for_those_who_ask() -> None:
    assert decided(DrawsFromTorch(), unsafe=True).arguments == {"num_workers": 3}


def test_what_the_text_does_not_prove_is_for_those_who_ask() -> None:
    assert decide(Slow(), {"batch_size": 8}, proven=(), doubt="why").reason == "why: --unsafe tries it out"
    assert decide(Slow(), {"batch_size": 8}, proven=(), unsafe=True).arguments == {"num_workers": 3}


def test_a_dataset_that_is_not_proven_is_not_read() -> None:
    dataset = Counts()
    assert decide(dataset, {"batch_size": 8}, proven=("pin_memory",)).reason
    assert decide(dataset, {"batch_size": 8, "num_workers": 2}, proven=("pin_memory",)) == Decision()
    assert not dataset.seen


def test_what_lies_in_memory_is_pinned_where_the_text_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    dataset = Subset(TensorDataset(torch.rand(8, 2)), range(4))
    assert decide(dataset, {"batch_size": 8}, proven=("pin_memory",)).arguments == {"pin_memory": True}
    assert not decide(dataset, {"batch_size": None}, proven=()).arguments


def test_what_spawned_workers_cannot_be_sent_is_left_alone() -> None:
    decision = decided(Slow(), multiprocessing_context="spawn", collate_fn=lambda batch: batch)
    assert "can't be sent" in decision.reason


def test_shared_memory_must_hold_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    small = type("Status", (), {"f_bavail": 1, "f_frsize": 1024})
    monkeypatch.setattr("os.statvfs", lambda path: small)
    assert "too little room" in decided(Slow()).reason


def test_a_program_gets_the_same_batches_in_the_same_order(tmp_path: Path) -> None:
    project(tmp_path, "loads.py")
    alone, run = python(tmp_path, "loads.py"), patched(tmp_path, "loads.py")
    assert run.stdout == alone.stdout
    assert "loads.py:24 loader: num_workers=" in run.stderr or "no cores" in run.stderr
    assert "loads.py:26 loader: no workers: each worker" in run.stderr
    assert "loads.py:28 loader: no workers: `zip(source, target)` may draw its order earlier" in run.stderr


WRAPPED = """\
from torch.utils.data import DataLoader

INIT = DataLoader.__init__


def wrapped(made, *args, **kwargs):
    INIT(made, *args, **kwargs)


DataLoader.__init__ = wrapped

"""


def test_a_loader_whose_constructor_the_program_wraps_is_completed_as_well(tmp_path: Path) -> None:
    project(tmp_path, "loads.py")
    script = tmp_path / "loads.py"
    head, main, tail = script.read_text().partition("def main(")
    script.write_text(f"{head}{WRAPPED}{main}{tail}")
    alone, run = python(tmp_path, "loads.py"), patched(tmp_path, "loads.py")
    assert run.stdout == alone.stdout
    assert f"loads.py:{24 + WRAPPED.count(chr(10))} loader: num_workers=" in run.stderr or "no cores" in run.stderr


def test_reading_and_choices_of_other_calls_leave_no_trace(tmp_path: Path) -> None:
    project(tmp_path, "reads.py")
    alone = python(tmp_path, "reads.py")
    assert patched(tmp_path, "reads.py").stdout == alone.stdout
    run = patched(tmp_path, "--unsafe", "reads.py", "--choose")
    assert run.stdout.splitlines()[-1] == python(tmp_path, "reads.py", "--choose").stdout.splitlines()[-1]
    assert not [line for line in run.stderr.splitlines() if line.rstrip().endswith("loader:")]


def test_each_loader_is_decided_on_by_itself_and_chooses_nothing_for_the_program(tmp_path: Path) -> None:
    project(tmp_path, "chooses.py")
    alone, run = python(tmp_path, "chooses.py"), patched(tmp_path, "--unsafe", "chooses.py")
    assert (run.stdout, run.returncode) == (alone.stdout, alone.returncode), run.stderr
    assert "chooses.py:29 loader: num_workers=" in run.stderr or "no cores" in run.stderr
    assert "chooses.py:23 loader: no workers: it has a worker_init_fn, which would be run" in run.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_that_is_gone_through_in_a_daemonic_process_does_without_workers(tmp_path: Path, method: str) -> None:
    project(tmp_path, "elsewhere.py")
    alone, run = python(tmp_path, "elsewhere.py", method), patched(tmp_path, "elsewhere.py", method)
    assert (run.stdout, run.returncode) == (alone.stdout, alone.returncode), run.stderr
    assert "elsewhere.py:27 loader: num_workers=" in run.stderr or "no cores" in run.stderr


def test_a_loader_that_the_user_has_excepted_is_left_alone(tmp_path: Path) -> None:
    project(tmp_path, "loads.py")
    script = tmp_path / "loads.py"
    script.write_text(script.read_text().replace("shuffle=True):", "shuffle=True):  # perflint: ignore"))
    run = patched(tmp_path, "--unsafe", "loads.py")
    assert "loads.py:24" not in run.stderr
    assert "loads.py:28" in run.stderr


def test_what_collating_makes_counts_as_well() -> None:
    weight = torch.nn.Parameter(torch.ones(8))
    decision = decided(Slow(), collate_fn=lambda samples: torch.stack(samples) * weight)
    assert "record gradients" in decision.reason


@pytest.mark.parametrize("arguments", [(), ("caught",)])
def test_errors_of_a_dataset_come_out_of_workers_as_they_were_raised(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    project(tmp_path, "raises.py")
    command = ("raises.py", *arguments)
    alone, run = python(tmp_path, *command), patched(tmp_path, "--unsafe", *command)
    assert (run.stdout, run.returncode) == (alone.stdout, alone.returncode)
    error, _, summary = run.stderr.partition("perflint: ")
    assert error.splitlines()[-1] == alone.stderr.splitlines()[-1] == "KeyError: 9"
    assert 'raises.py", line 22, in __getitem__' in error
    assert "raises.py:30 loader: num_workers=" in summary or "no cores" in summary


class TwoArguments(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} {second}")


@pytest.mark.parametrize("error", [KeyError(3), OSError(2, "gone", "name"), TwoArguments(1, 2)])
def test_an_error_that_is_another_one_when_it_is_sent_is_torch_s_to_tell(error: Exception) -> None:
    try:
        raise error
    except Exception:
        sent = pickle.loads(pickle.dumps(AsRaised(where="in a worker")))
    kind = RuntimeError if isinstance(error, TwoArguments) else type(error)
    with pytest.raises(kind) as raised:
        sent.reraise()
    assert ("Caught TwoArguments" in str(raised.value)) == isinstance(error, TwoArguments)
    assert isinstance(error, TwoArguments) or raised.value.args == error.args

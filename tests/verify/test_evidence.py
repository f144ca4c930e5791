"""What a program keeps and computes is compared, whatever kind it is; what it never changes counts for nothing."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from perflint.verify.agent.state import State, digest, sample, values_in
from perflint.verify.compare import Evidence, differing


def test_of_what_is_kept_only_what_changes_counts() -> None:
    evidence = Evidence()
    for _ in range(3):
        evidence.add("buffer 0.running_mean", digest(torch.zeros(4)))
        evidence.add("weight 0.frozen", "the same digest")
        evidence.add("output 0=None", torch.empty(0))
    assert evidence.values == 0
    for step in range(3):
        evidence.add("parameter 0.0", digest(torch.full((4,), float(step))))
        evidence.add("optimizer 0.0.step", f"digest {step}")
        evidence.add("output 0.mean", torch.ones(()))  # a result is one, also if it comes again
    assert evidence.values == 9


KINDS = [torch.bool, torch.int8, torch.bfloat16, torch.float32, torch.float64, torch.complex128]


@pytest.mark.parametrize("numbers", [3, 2**16 + 3, 2**21 + 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_digest_tells_a_change_of_any_kind_of_number_and_of_places(kind: torch.dtype, numbers: int) -> None:
    whole = torch.zeros(numbers + 2, dtype=kind)
    part = whole[1:-1]
    before = digest(part)
    assert digest(part.clone()) == before
    part[0] = 1
    first = digest(part)
    part[0], part[-1] = 0, 1
    assert len({before, first, digest(part), digest(whole)}) == 4


@pytest.mark.parametrize("kind", [torch.float64, torch.complex128])
def test_a_digest_tells_signs_and_small_whole_numbers_apart(kind: torch.dtype) -> None:
    values = torch.randn(2**17, dtype=kind)
    marks = {digest(values), digest(-values), digest(values.conj().roll(1)), digest(values.roll(1))}
    assert len(marks) == (4 if kind.is_complex else 3)  # a real number is its own conjugate
    for place in range(0, 2**17, 2**9):
        marks.add(digest(torch.zeros(2**17, dtype=kind).index_fill(0, torch.tensor(place), 1)))
    assert len(marks) >= 2**8 + 3


def test_a_digest_of_values_is_the_same_however_they_lie_in_memory() -> None:
    values = torch.randn(400, 300)
    assert digest(values) == digest(values.t().contiguous().t()) != digest(values.t().contiguous())


def test_a_sample_of_a_small_tensor_is_all_of_it_and_of_a_large_one_comes_from_all_over_it() -> None:
    small, large = torch.arange(2**16), torch.arange(2**20).reshape(2**10, 2**10)
    assert sample(small) is small
    assert 2**15 <= sample(large).numel() <= 2**16
    assert sample(large)[-1] >= 2**20 - 2**5
    assert len(set((sample(large) % 2**10).tolist())) == 2**10  # from every column


def test_parameters_without_values_of_their_own_are_passed_over() -> None:
    lazy, meta = torch.nn.LazyLinear(3), torch.nn.Linear(2, 2, device="meta")
    sparse = torch.nn.Module()
    sparse.register_buffer("rows", torch.eye(3).to_sparse())
    assert not State((), (lazy, meta, sparse)).tensors()
    assert State((), (torch.nn.Linear(2, 2),)).tensors().keys() == {"weight 0.weight", "weight 0.bias"}


def test_the_sign_of_imaginary_parts_is_a_difference() -> None:
    values = torch.tensor([1 + 2j, 3 - 1j])
    assert digest(values) != digest(values.conj())
    found = differing(1, "output 0", values, values.conj())
    assert found is not None and not found.is_close and found.error and found.error > 0.5


def test_sparse_gradients_are_compared() -> None:
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
    embedding(torch.tensor([1])).sum().backward()
    assert State([optimizer], [embedding]).tensors()["gradient 0.0"].tolist() == [[0, 0], [1, 1], [0, 0], [0, 0]]


def test_what_can_be_written_to_is_taken_over() -> None:
    module = torch.nn.Linear(1, 1)
    module.register_buffer("places", torch.arange(3).expand(2, 3))  # shares its memory
    state = State((), [module])
    state.restore({name: torch.zeros_like(tensor) for name, tensor in state.tensors().items()})
    assert module.weight.item() == module.bias.item() == 0
    assert module.get_buffer("places").tolist() == [[0, 1, 2]] * 2


def test_what_is_called_once_a_step_is_noted_in_each_step_between_two_marks(tmp_path: Path) -> None:
    code = """
import sys, torch
from perflint.verify.agent.recorder import Recorder
from perflint.verify.messages import Recording

recorder = Recorder(Recording(sys.argv[1], (), (), marks=(100,)))
recorder.watch(torch)
for _ in range(100):
    recorder.note_output(len, 1.0)
    recorder.passed()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=True)
    assert len(torch.load(tmp_path / "run" / "100.pt", weights_only=False)["values"]) == 100


def test_numbers_of_any_kind_and_size_are_values() -> None:
    found = dict(values_in({"row": [1, 2**100], "large": 10**400, "array": np.arange(2), "word": "no", "set": {2, 1}}))
    assert {name: value.tolist() for name, value in found.items()} == {
        ".row": [1.0, 2.0**100],
        ".large": math.inf,
        ".array": [0, 1],
        ".word='no'": [],
        ".set.0": 1.0,
        ".set.1": 2.0,
    }

"""What a program never changes is the same whatever it computes, and counts for nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from perflint.verify.agent.state import State
from perflint.verify.agent.tensors import fingerprint, values_in
from perflint.verify.compare.evidence import Evidence


def test_of_what_is_kept_only_what_changes_counts() -> None:
    evidence = Evidence()
    for _ in range(3):
        evidence.add("buffer 0.running_mean", torch.zeros(4))
        evidence.add("weight 0.frozen", "the same fingerprint")
        evidence.add("output 0=None", torch.empty(0))
    assert evidence.values == 0
    for step in range(3):
        evidence.add("parameter 0.0", torch.full((4,), float(step)))
        evidence.add("optimizer 0.0.step", f"digest {step}")
        evidence.add("output 0.mean", torch.ones(()))  # a result is one, also if it comes again
    assert evidence.values == 9


@pytest.mark.parametrize(
    "kind", [torch.bool, torch.int8, torch.bfloat16, torch.float32, torch.float64, torch.complex128]
)
def test_a_fingerprint_tells_a_change_of_any_kind_of_number(kind: torch.dtype) -> None:
    whole = torch.ones(8, dtype=kind)
    part = whole[1:4]
    before = fingerprint(part)
    assert fingerprint(part.clone()) == before
    part[2] = 0
    assert fingerprint(part) != before
    assert fingerprint(torch.empty(0, dtype=kind)) != fingerprint(whole[0])


def test_parameters_without_values_of_their_own_are_passed_over() -> None:
    lazy, meta = torch.nn.LazyLinear(3), torch.nn.Linear(2, 2, device="meta")
    sparse = torch.nn.Module()
    sparse.register_buffer("rows", torch.eye(3).to_sparse())
    assert not State((), (lazy, meta, sparse)).tensors()
    assert State((), (torch.nn.Linear(2, 2),)).tensors().keys() == {"weight 0.weight", "weight 0.bias"}


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

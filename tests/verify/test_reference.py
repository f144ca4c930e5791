"""Beside a program's own numbers it is known what they would be without rounding, or that this isn't known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from perflint.verify.agent.reference import Reference


@pytest.fixture(scope="module")
def doubled() -> Iterator[str]:
    """The name of an operation of a library that writes, which its schema doesn't tell, as those between ranks."""
    library: Any = torch.library.Library("perflint_tests", "DEF")  # type: ignore[no-untyped-call]
    library.define("doubled_(Tensor[] tensors) -> ()")
    library.impl("doubled_", lambda tensors: [each.copy_(2 * each) for each in tensors] and None, "CPU")
    yield "perflint_tests.doubled_.default"
    library._destroy()


@pytest.fixture(scope="module")
def single() -> Iterator[Any]:
    """An operation of torch's that has no double precision, as kernels of fused attention."""
    library: Any = torch.library.Library("aten", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("perflint_third_(Tensor(a!) self, Tensor other) -> Tensor(a!)")

    def third_(tensor: Tensor, other: Tensor) -> Tensor:
        if tensor.dtype is not torch.float32 or other.dtype is not torch.float32:
            raise RuntimeError("expected float32")
        return tensor.div_(3).add_(other)

    library.impl("perflint_third_", third_, "CPU")
    yield torch.ops.aten.perflint_third_
    library._destroy()


def test_an_operation_without_double_precision_is_repeated_on_what_its_shadows_round_to(single: Any) -> None:
    x, one = torch.ones(3), torch.ones(3)
    with Reference() as reference:
        y = x * 3
        y += 1e-9
        single(y, one)
        y += 1e-9
        assert not reference.gaps
        assert reference.value(y).tolist() == pytest.approx([2 + 1e-9] * 3, abs=1e-12)
    assert y.tolist() == [2.0] * 3


def test_a_fused_optimizer_counts_its_steps_as_it_does() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
    with Reference() as reference:
        for _ in range(3):
            (weight * weight).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
        exact = reference.value(weight.detach())
        assert not reference.gaps
        assert exact.tolist() == pytest.approx(weight.tolist(), rel=1e-5) and exact.tolist() != weight.tolist()


def test_each_operation_is_repeated_on_doubles() -> None:
    x = torch.full((3,), 1 / 3)
    with Reference() as reference:
        y = x * 3
        y += 1e-9
    assert not reference.gaps
    assert reference.value(y).dtype == torch.float64
    assert (reference.value(y) - x.double() * 3 - 1e-9).abs().max() < 1e-15


def test_a_compiled_function_that_allows_no_breaks_is_computed_eagerly_meanwhile() -> None:
    runs = []

    def backend(graph: Any, _: Any) -> Any:
        runs.append(graph)
        return graph.forward

    def third(x: Tensor) -> Tensor:
        return x / 3

    thirds: Any = torch.compile(third, backend=backend, fullgraph=True)
    with Reference() as reference:
        y = thirds(torch.ones(3))
        assert reference.value(y).tolist() == [1 / 3] * 3
    assert not runs and not reference.gaps
    assert torch.equal(thirds(torch.ones(3)), y)
    assert len(runs) == 1


def test_what_a_library_writes_is_a_gap(doubled: str) -> None:
    x = torch.ones(3)
    with Reference() as reference:
        y = x * 3
        torch.ops.perflint_tests.doubled_([y])
        assert reference.gaps == {doubled}
    assert y.tolist() == [6.0] * 3


def test_an_operation_of_a_library_that_has_no_floats_is_no_gap(doubled: str) -> None:
    numbers: Tensor = torch.ones(3, dtype=torch.int64)
    with Reference() as reference:
        torch.ops.perflint_tests.doubled_([numbers])
        with torch.autograd.profiler.record_function("fetch"):
            pass
    assert not reference.gaps, doubled

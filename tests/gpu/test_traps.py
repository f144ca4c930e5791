"""What is known to go wrong in graphs of whole steps doesn't: tests/traps.md has the list."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from torch.nn import functional as F

from perflint.runtime.step import GraphedStep, graphed_step
from tests.gpu.measure import equal
from tests.gpu.step_cases import Course, Wrap, batches, mlp
from tests.gpu.trap_cases import MAY_BE_EAGER, REFUSED, TRAPS, filled, products, refused


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before, checks = torch.are_deterministic_algorithms_enabled(), torch.distributions.Distribution._validate_args
    torch.use_deterministic_algorithms(True, warn_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.use_deterministic_algorithms(before)
    torch.distributions.Distribution.set_default_validate_args(checks)  # which torch.compile switches off


def compared(case: Callable[[Wrap], Course]) -> tuple[tuple[str, ...], int]:
    """Why a case's step stays eager, and its graphs; what it computes is bitwise the same, random numbers too."""
    steps: list[GraphedStep[..., Any]] = []

    def graphed(function: Callable[..., Any], *_: Any) -> GraphedStep[..., Any]:
        steps.append(graphed_step(function))
        return steps[-1]

    def course(wrap: Wrap) -> list[Any]:
        torch.manual_seed(3)
        seen = list(case(wrap))
        torch.cuda.synchronize()
        return [*seen, torch.cuda.get_rng_state()]

    found = course(graphed)
    reasons, graphs = steps[0].eager_because, steps[0].graphs
    steps[0].clear()
    expected = course(lambda function, *_: function)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert equal(one, other), f"at {number} of {len(found)}: {reasons} {graphs}"
    return reasons, graphs


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_changes_nothing(name: str) -> None:
    reasons, graphs = compared(TRAPS[name])
    assert bool(graphs) != bool(reasons), reasons
    assert graphs or name in MAY_BE_EAGER, reasons


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_replay_would_do_stays_eager(name: str) -> None:
    reasons, graphs = compared(lambda wrap: refused(wrap, name))
    assert reasons and not graphs


def test_a_failed_capture_leaves_memory_and_other_steps_alone() -> None:
    reserved = []
    for _ in range(4):
        assert compared(lambda wrap: refused(wrap, "synchronizing"))[0]
        torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] <= reserved[0]
    assert compared(TRAPS["streams"])[1]


def test_another_thread_may_pin_memory_while_a_step_is_captured() -> None:
    ends, errors = threading.Event(), list[Exception]()

    def pin() -> None:
        size = 2**12
        try:
            while not ends.is_set():
                torch.empty(size := size + 2**12, pin_memory=True)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=pin)
    thread.start()
    try:
        reasons, graphs = compared(TRAPS["streams"])
    finally:
        ends.set()
        thread.join()
    assert graphs and not reasons and not errors


def test_graphs_of_a_step_share_their_memory() -> None:
    model = mlp(0.0, 1024)

    @graphed_step
    def step(x: Any, y: Any) -> Any:
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    sizes = []
    for size in (4096, 2048, 1024):
        for x, y in batches(4, size):
            step(x, y)
        sizes.append(step.bytes)
    assert step.graphs == 3
    step.clear()
    assert max(sizes[2] - sizes[1], sizes[1] - sizes[0]) < sizes[0] / 4


def test_a_graph_computes_in_memory_of_its_own() -> None:
    """Neither a graph that is freed nor what frees cuBLAS's memory, as torch.compile does, takes it away."""
    (step, inputs), (other, of_other) = (products(lambda f, *_: graphed_step(f), width) for width in (64, 48))
    for _ in range(6):
        step(inputs())
        other(of_other())
    assert step.graphs == 2  # of both, whose code is one
    del other, of_other
    gc.collect()
    assert step.graphs == 1
    torch._C._cuda_clearCublasWorkspaces()
    with filled(2**28):
        for _ in range(3):
            step(inputs())
        torch.cuda.synchronize()
    step.clear()


PROGRAM = """
import math, sys, warnings
import torch
from torch import nn
from perflint.runtime.graphs import graphed_step

torch.manual_seed(0)
model, scale = nn.Linear(4, 3).cuda(), torch.ones(3, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.1)

@graphed_step
def step(x):
    optimizer.zero_grad()
    policy = torch.distributions.Normal(model(x), scale)
    loss = -policy.log_prob(x[:, :3]).mean()
    loss.backward()
    optimizer.step()
    return loss

for _ in range(10):
    step(torch.ones(64, 4, device="cuda"))
    with torch.profiler.profile():
        step(torch.ones(64, 4, device="cuda"))
assert step.graphs == 1, step.eager_because
step(torch.full((64, 4), float(sys.argv[1]), device="cuda"))
print("end")
"""


def ran(last: str, **environment: str) -> Any:
    command = [sys.executable, "-c", PROGRAM, last]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def test_the_arguments_of_the_last_step_are_checked_as_the_program_ends() -> None:
    invalid = ran("nan")
    assert invalid.stdout == "end\n" and "ValueError: perflint: in a step that was replayed" in invalid.stderr
    assert "ValueError" not in ran("1").stderr


def test_expandable_segments_and_profilers_go_with_graphs() -> None:
    run = ran("1", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert (run.returncode, run.stdout) == (0, "end\n"), run.stderr

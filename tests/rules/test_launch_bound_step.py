"""Steps that are outlined hold what a graph demands: a double that does as a replay would gives the same results."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.optim import optimizer as hooks  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_map_only  # noqa: E402

from perflint.analysis.memory import points_to  # noqa: E402
from perflint.engine.catalogue import rules_by_name  # noqa: E402
from perflint.engine.check import check_text  # noqa: E402
from perflint.engine.fix import fix_text  # noqa: E402
from perflint.runtime import graphs  # noqa: E402
from perflint.runtime.checks import Checks  # noqa: E402
from perflint.runtime.replay import flatten  # noqa: E402
from tests.fixture_cases import FIXTURES, load  # noqa: E402


class Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises where the host reads a tensor, but for what optimizers do on a CPU alone."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__.startswith("_local_scalar_dense") and not self.steps:
            raise AssertionError("the host reads a tensor in a step that is to be captured")
        return func(*args, **(kwargs or {}))


@contextmanager
def no_reads() -> Iterator[None]:
    """Raise at reads of the host meanwhile."""
    with Reads() as reads, Checks():
        handles = [
            hooks.register_optimizer_step_pre_hook(lambda *_: setattr(reads, "steps", 1)),
            hooks.register_optimizer_step_post_hook(lambda *_: setattr(reads, "steps", 0)),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class Double:
    """A graph's double on a CPU: a step reads copies of its arguments in memory of their own, and gives copies."""

    calls = 0

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._statics = function, dict[Any, list[Any]]()

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __call__(self, *args: Any) -> Any:
        Double.calls += 1
        structure, leaves = flatten(args)
        assert not any(each.requires_grad for each in leaves if isinstance(each, torch.Tensor))
        key = (structure, *(each.shape if isinstance(each, torch.Tensor) else each for each in leaves))
        if key not in self._statics:
            self._statics[key] = list(tree_map_only(torch.Tensor, torch.empty_like, args))
        for static, leaf in zip(flatten(self._statics[key])[1], leaves, strict=True):
            if isinstance(static, torch.Tensor):
                static.copy_(leaf)
        before, printed = random.getstate(), StringIO()
        with redirect_stdout(printed), no_reads():
            result = self._function(*self._statics[key])
        assert not printed.getvalue() and random.getstate() == before
        for static, leaf in zip(flatten(self._statics[key])[1], leaves, strict=True):
            assert not isinstance(static, torch.Tensor) or torch.equal(static, leaf), "it writes to its arguments"
        return tree_map_only(
            torch.Tensor, lambda each: each.detach().clone().requires_grad_(each.requires_grad), result
        )


class Differentiable(Double):
    """The double of a graph with a backward pass: it computes with copies, and gives copies."""

    def __call__(self, *args: Any) -> Any:
        Double.calls += 1
        copies = list(tree_map_only(torch.Tensor, torch.clone, args))
        versions = [each._version for each in flatten(copies)[1] if isinstance(each, torch.Tensor)]
        with no_reads():
            result = self._function(*copies)
        assert versions == [each._version for each in flatten(copies)[1] if isinstance(each, torch.Tensor)]
        return tree_map_only(torch.Tensor, torch.clone, result)


@pytest.mark.parametrize(
    "stem",
    [
        "launch_bound_step/steps",
        "launch_bound_step/reported",
        "launch_bound_step/settings",
        "launch_bound_step/collected",
        "launch_bound_step/partial",
        "launch_bound_step/kept",
        "launch_bound_step/output",
        "launch_bound_step/distributions",
        "launch_bound_step/acting",
        "decode_loop/graph_outlined",
        "decode_loop/graph_recorded",
    ],
)
def test_a_double_of_the_graph_gives_the_same_results(stem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    expected = load(FIXTURES / f"{stem}_before.py", "before").run()
    monkeypatch.setattr(graphs, "graphed_step", Double)
    monkeypatch.setattr(graphs, "cuda_graph", Differentiable)
    monkeypatch.setattr(Double, "calls", 0)
    torch.manual_seed(0)
    found = load(FIXTURES / f"{stem}_after_unsafe.py", "after").run()
    assert Double.calls > 20
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_reads_deferred_before_or_after_the_step_is_captured_make_one_program() -> None:
    rules = [rules_by_name()[name] for name in ("item-in-loop", "launch-bound-step")]
    before = (FIXTURES / "launch_bound_step/collected_before.py").read_text()
    together = fix_text(before, rules, {}, unsafe=True).text
    safe = fix_text(before, rules, {}).text
    assert "graphed_step" in together and "graphed_step" not in safe != before
    assert fix_text(safe, rules, {}, unsafe=True).text == together
    for first in rules:
        assert fix_text(fix_text(before, [first], {}, unsafe=True).text, rules, {}, unsafe=True).text == together


SCRIPT = """
import numpy as np
import torch
from torch import nn, optim

if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    agent = nn.Linear(4, 1).to(device)
    optimizer = optim.Adam(agent.parameters())
    obs, advantages = torch.randn(64, 4).to(device), torch.randn(64).to(device)
    for iteration in range(100):
        indices = np.arange(64)
        fractions = []{also}
        for start in range(0, 64, 16):
            chosen = indices[start : start + 16]
            ratio = agent(obs[chosen]).exp()
            with torch.no_grad():
                fractions += [(ratio - 1).abs().mean().item()]
            given = advantages[chosen]
            loss = (ratio * given).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(np.mean(fractions))
"""


@pytest.mark.parametrize(("also", "is_fixed"), [("", True), ("; kept = fractions", False)])
def test_a_list_of_one_name_may_be_filled_later_where_nothing_else_is_known(
    also: str, is_fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points_to, "_MOST_ROUNDS", 0)  # as where a script is too large for its aliases
    rule = rules_by_name()["launch-bound-step"]
    (finding,) = check_text(SCRIPT.format(also=also), [rule], {})
    assert bool(finding.fixes) is is_fixed


SHOWN = """
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Norm:
    def __init__(self, model):
        self.model = model

    def __str__(self):
        return "{:.4f}".format(sum(each.norm().item() for each in self.model.parameters()))


def train(loader):
    model, lines = nn.Linear(4, 1).to(device), []
    norm, optimizer = Norm(model), torch.optim.SGD(model.parameters(), lr=0.1)
    params = list(model.parameters())
    states = model.state_dict()
    for x in loader:
        optimizer.zero_grad()
        loss = model(x.to(device)).mean()
        loss.backward()
        {report}
        optimizer.step()
"""


@pytest.mark.parametrize(
    "report",
    [
        "lines.append(str(norm))",
        'lines.append("{}".format(norm))',
        "print(norm)",
        'lines.append(f"{params}")',
        'lines.append("{bias}".format(**states))',
        "lines.append(sum(each.norm().item() for each in params))",
    ],
)
def test_what_shows_weights_is_not_moved_behind_the_step_that_changes_them(report: str) -> None:
    after = fix_text(SHOWN.replace("{report}", report), [rules_by_name()["launch-bound-step"]], {}, unsafe=True).text
    calls = after[after.index("    for x in loader") :]
    assert "compute_gradients(" in calls and calls.index(report) < calls.index("optimizer.step()")

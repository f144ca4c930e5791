"""Steps that are outlined hold what a graph demands: a double that does as a replay would gives the same results."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from perflint.analysis.memory import points_to  # noqa: E402
from perflint.engine.catalogue import rules_by_name  # noqa: E402
from perflint.engine.check import check_text  # noqa: E402
from perflint.engine.fix import fix_text  # noqa: E402
from perflint.runtime import graphs  # noqa: E402
from tests.fixture_cases import FIXTURES, load  # noqa: E402
from tests.rules.graph_doubles import Differentiable, Double  # noqa: E402


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

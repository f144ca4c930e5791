"""A graph ends in a function of another file that detaches its first argument, and does nothing else with its graph."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perflint.analysis.links import ALONE, Context
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.engine.rule import Finding
from perflint.project.ties import contexts_of
from perflint.syntax.source import Safety

RULES = [rule for rule in all_rules() if rule.name == "dead-graph"]
AGENT = """import torch
from torch import nn
{imported}

class Agent:
    def __init__(self, device):
        self.actor = nn.Linear(4, 4).to(device)

    def act(self, x):
        return {call}

def train(env, x, optimizer):
    agent = Agent(torch.device("cuda"))
    for step in range(100000):
        x = env.step(agent.act(x))
        agent.actor(x.cuda()).sum().backward()
        optimizer.step()
"""
PLAIN = "from other import f"


@pytest.mark.parametrize(
    ("other", "imported", "call"),
    [
        ("def f(t):\n    return t.detach().cpu().numpy()", PLAIN, "f(self.actor(x))"),
        ("def f(t):\n    return t.cpu().data.numpy() if t.is_cuda else t.data.numpy()", PLAIN, "f(self.actor(x)[0])"),
        ("def f(t):\n    return t.data", "from other import *", "f(self.actor(x)).squeeze(0)"),
        ("def f(t, dim=0):\n    t = t.detach()\n    return t.argmax(dim)", "import other", "other.f(self.actor(x), 1)"),
    ],
)
def test_a_helper_that_detaches_throws_the_graph_away(other: str, imported: str, call: str) -> None:
    assert _is_found(other, imported, call)


@pytest.mark.parametrize(
    ("other", "call"),
    [
        ("def f(t):\n    return t, t.detach()", "f(self.actor(x))"),
        ("def f(t):\n    print(t)\n    return t.detach()", "f(self.actor(x))"),
        ("SEEN = []\ndef f(t):\n    SEEN.append(t)\n    return t.detach()", "f(self.actor(x))"),
        ("def f(t):\n    t.sum().backward()\n    return t.detach()", "f(self.actor(x))"),
        ("def f(t, u):\n    return t.detach() + u", "f(x, self.actor(x))"),
        ("def f(t, u):\n    return t.detach() + u", "f(u=self.actor(x), t=x)"),
        ("@unknown\ndef f(t):\n    return t.detach()", "f(self.actor(x))"),
        ("def f(t):\n    return t.cpu()", "f(self.actor(x))"),
        ("def f(t):\n    return t.detach()\nf = print", "f(self.actor(x))"),
    ],
)
def test_a_helper_that_does_more_with_the_graph_does_not(other: str, call: str) -> None:
    assert not _is_found(other, PLAIN, call)


@pytest.mark.parametrize(
    ("call", "is_fixed"),
    [
        ("f(self.actor(x), 1.5)", True),
        ("f(self.actor(x), u=-1).to(x.device)", True),
        ("f(self.actor(x), self.actor(x))", False),
        ("f(self.actor(x), u=self.actor(x))", False),
        ("f(self.actor(x), x)", False),
        ("f(self.actor(x), **x)", False),
        ("f(self.actor(x), 1.5).mul(x)", False),
        ("f(self.actor(x), 1.5).mul(other=x)", False),
    ],
)
def test_a_helper_goes_below_no_grad_where_its_other_arguments_have_no_graph(call: str, is_fixed: bool) -> None:
    found = _findings("def f(t, u):\n    return t.detach() + u", PLAIN, call)
    assert found and [bool(each.fixes) for each in found[:1]] == [is_fixed]


TASK = """import torch
from torch import nn

class Task(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def scores(self, x):
        return self.net(x)

    def train(self, loader, optimizer):
        for x, y in loader:
            scores = self.scores(x.cuda())
            print((scores.data.argmax(1) == y.cuda()).sum())
            self.net(x.cuda()).sum().backward()
            optimizer.step()
"""
_ADAPTED = "class A(Task):\n    def scores(self, x):\n        return torch.autograd.grad(self.net(x).sum(), [x])[0]\n"
_DOUBLED = "class D(Task):\n    def scores(self, x):\n        return 2 * x\n"
_UNKNOWN = "class U(Task):\n    def scores(self, x):\n        return self.other(x)\n"


@pytest.mark.parametrize(
    ("subclasses", "safeties"),
    [
        ("", [Safety.EXACT]),
        (_DOUBLED, [Safety.EXACT]),
        (_UNKNOWN, [Safety.BEHAVIOUR]),
        (_DOUBLED + _UNKNOWN, [Safety.BEHAVIOUR]),
        (_ADAPTED, []),
        (_ADAPTED + _DOUBLED, []),
    ],
)
def test_a_method_promises_no_more_than_those_of_subclasses_elsewhere(
    subclasses: str, safeties: Sequence[Safety]
) -> None:
    found = _linked({"task.py": TASK, "others.py": f"import torch\nfrom task import Task\n{subclasses}"})["task.py"]
    assert [fix.safety for each in found for fix in each.fixes] == safeties


def _is_found(other: str, imported: str, call: str) -> bool:
    """Has the agent's file a finding, beside that other one?"""
    return bool(_findings(other, imported, call))


def _findings(other: str, imported: str, call: str) -> Sequence[Finding]:
    """Those of the agent's file, beside that other one."""
    files = {"agent.py": AGENT.format(imported=imported, call=call), "other.py": f"import torch\n{other}\n"}
    return _linked(files)["agent.py"]


def _linked(files: dict[str, str]) -> dict[str, Sequence[Finding]]:
    """Those of each file, beside the others."""
    known: dict[str, Context] = {}
    for _ in range(5):
        found = {path: find(text, RULES, {}, known.get(path, ALONE)) for path, text in files.items()}
        known = contexts_of({path: each.links for path, each in found.items()})
    return {path: each.findings for path, each in found.items()}

"""Aliases and effects across files: what a function of another file does with its arguments is known, or blocks."""

from __future__ import annotations

import pytest

from perflint.analysis.links import ALONE, Context
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.project.ties import contexts_of

RULES = [rule for rule in all_rules() if rule.name == "repeat-not-broadcast"]
CALLER = """import torch
from torch import nn
import other
class M(nn.Module):
    def forward(self, x, t):
        s = x.unsqueeze(0).cuda()
        y = s.repeat(4, 1)
        {call}
        return y + t
"""
HARMLESS = [
    ("def f(v):\n    return v.sum()", "other.f(s)"),
    ("def f(v):\n    v = v + 1\n    v.zero_()", "other.f(s)"),
    ("def f(v):\n    return v.view(-1)", "z = other.f(s)"),
    ("def f(v):\n    return v.view(-1)", "z = t + 1; other.f(z).zero_()"),
    ("def f(a, *, b=None):\n    b.zero_()", "other.f(s, b=t)"),
    ("def g(v):\n    return v.sum()\ndef f(v):\n    return g(v)", "other.f(s)"),
    ("import more\ndef f(v):\n    return more.g(v)", "other.f(s)"),
]
HARMFUL = [
    ("def f(v):\n    v.zero_()", "other.f(s)"),
    ("def f(v):\n    v.view(-1)[0] = 1", "other.f(s)"),
    ("def f(v):\n    return v.view(-1)", "other.f(s).zero_()"),
    ("def f(v):\n    return [1, v]", "other.f(s)[1].zero_()"),
    ("def f(a, *, b=None):\n    b.zero_()", "other.f(t, b=s)"),
    ("def f(*a):\n    a[0].zero_()", "other.f(s)"),
    ("def f(**a):\n    a['k'].zero_()", "other.f(k=s)"),
    ("def f(a, b):\n    b.zero_()", "other.f(*[t, s])"),
    ("KEPT = []\ndef f(v):\n    KEPT.append(v)\ndef g():\n    KEPT[0].zero_()", "other.f(s); other.g()"),
    ("def f(v):\n    global HELD\n    HELD = v\ndef g():\n    HELD.zero_()", "other.f(s); other.g()"),
    ("def f(v):\n    return lambda: v.zero_()", "other.f(s)()"),
    ("def f(v):\n    yield v", "next(other.f(s)).zero_()"),
    ("def g(v):\n    v.zero_()\ndef f(v):\n    g(v)", "other.f(s)"),
    ("def f(v):\n    return v.sum()\nf = torch.relu_", "other.f(s)"),
    ("def wrap(g):\n    return torch.relu_\n@wrap\ndef f(v):\n    return v.sum()", "other.f(s)"),
    ("import more\ndef f(v):\n    return more.h(v)", "other.f(s)"),
    ("import unknown\ndef f(v):\n    return unknown.g(v)", "other.f(s)"),
]


def _is_fixed(other: str, call: str) -> bool:
    files = {
        "caller.py": CALLER.format(call=call),
        "other.py": f"import torch\n{other}\n",
        "more.py": "def g(v):\n    return v * 2\ndef h(v):\n    v.zero_()\n",
    }
    known: dict[str, Context] = {}
    for _ in range(5):
        found = {path: find(text, RULES, {}, known.get(path, ALONE)) for path, text in files.items()}
        known = contexts_of({path: each.links for path, each in found.items()})
    return any(finding.fixes for finding in found["caller.py"].findings)


@pytest.mark.parametrize(("other", "call"), HARMLESS)
def test_a_call_of_another_file_that_leaves_its_argument_alone_is_no_obstacle(other: str, call: str) -> None:
    assert _is_fixed(other, call)


@pytest.mark.parametrize(("other", "call"), HARMFUL)
def test_a_call_of_another_file_that_writes_keeps_or_returns_its_argument_is_seen(other: str, call: str) -> None:
    assert not _is_fixed(other, call)


def test_what_an_object_of_another_function_holds_may_be_written_to_by_its_name() -> None:
    made = "import torch\nclass Box:\n    def __init__(self):\n        self.x = torch.ones(4).cuda()\n"
    text = f"{made}def f(t):\n    o = Box()\n    y = o.x.unsqueeze(0).repeat(4, 1)\n    CALL\n    return y + t\n"
    assert find(text.replace("CALL", "t = t + 1"), RULES, {}).findings
    assert not find(text.replace("CALL", "o.x.zero_()"), RULES, {}).findings

"""A graph holds a call of another file's function or module where that does nothing but compute."""

from __future__ import annotations

import pytest

from perflint.analysis.links import ALONE, Context
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.project.ties import contexts_of

RULES = [rule for rule in all_rules() if rule.name == "decode-loop"]
SCAN = """import torch
from torch import nn
import other
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = other.Head()
    def forward(self, rewards: torch.Tensor):
        result, last = torch.zeros_like(rewards), 0.0
        for t in reversed(range(rewards.size(0))):
            last = {call} + 0.9 * last * rewards[t]
            result[t] = last
        return result
"""
HEAD = "class Head(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Linear(4, 4)\n"
DERIVED = HEAD.replace("nn.Module", "Base")
PRINTS = "    def __call__(self, x):\n        print()\n        return x"
COMPUTES = [
    ("def f(x, dim=-1):\n    y, _ = x.max(dim)\n    return (x - y.unsqueeze(dim)).exp()", "other.f(rewards[t])"),
    ("def f(x):\n    return g(x)\ndef g(x):\n    return torch.tanh(x)", "other.f(rewards[t])"),
    ("import more\ndef f(x):\n    return more.g(x)", "other.f(rewards[t])"),
    (f"{HEAD}    def forward(self, x):\n        return self.w(x)", "self.head(rewards[t])"),
]
DOES_MORE = [
    ("def f(x):\n    print(x)\n    return x", "other.f(rewards[t])"),
    ("def f(x):\n    return x.exp_()", "other.f(rewards[t])"),
    ("SEEN = []\ndef f(x):\n    SEEN.append(1)\n    return x", "other.f(rewards[t])"),
    ("def f(x):\n    global N\n    N = 1\n    return x", "other.f(rewards[t])"),
    ("def f(x):\n    return x\nf = print", "other.f(rewards[t])"),
    ("import functools\n@functools.lru_cache\ndef f(x):\n    return x", "other.f(rewards[t])"),
    ("def f(x):\n    return x if x.sum().item() else -x", "other.f(rewards[t])"),
    ("import more\ndef f(x):\n    return more.h(x)", "other.f(rewards[t])"),
    ("import unknown\ndef f(x):\n    return unknown.g(x)", "other.f(rewards[t])"),
    (f"{HEAD}    def forward(self, x):\n        self.n = 1\n        return self.w(x)", "self.head(rewards[t])"),
    (f"{HEAD}    def forward(self, x):\n        print()\n        return self.w(x)", "self.head(rewards[t])"),
    (f"{HEAD}    def forward(self, x):\n        return x\n{PRINTS}", "self.head(rewards[t])"),
    (f"class Head:\n    def forward(self, x):\n        return x\n{PRINTS}", "self.head(rewards[t])"),
    (f"from base import Base\n{DERIVED}    def forward(self, x):\n        return self.w(x)", "self.head(rewards[t])"),
    ("def Head():\n    return print", "self.head(rewards[t])"),
    ("class Head:\n    def __call__(self, x):\n        return x", "self.head(rewards[t])"),
]


NECK = HEAD.replace("Head", "Neck")
BOTH = (
    f"{HEAD}    def forward(self, x):\n        return self.w(x)\n"
    f"    def score(self, x):\n        return self.w(x).exp()\n"
    f"    def noted(self, x):\n        self.n = 1\n        return self.w(x)\n"
    f"{NECK}    def forward(self, x):\n        return self.w(x).tanh()\n"
    f"{NECK.replace('Neck', 'Tail')}    def forward(self, x):\n        print()\n        return self.w(x)\n"
)
BUILT = [  # what a module of the caller is, and how it is called
    ("self.head = other.Head()", "self.head.score(rewards[t])"),
    ("self.head = other.Head()", "self.head.forward(rewards[t])"),
    ("self.heads = nn.ModuleList([other.Head() for _ in range(2)])", "self.heads[0](rewards[t])"),
    ("self.heads = nn.ModuleList([other.Head(), nn.Linear(4, 4)])", "self.heads[1](rewards[t])"),
    ("self.head = other.Head() if wide else other.Neck()", "self.head(rewards[t])"),
]
BUILT_OTHERWISE = [
    ("self.head = other.Head()", "self.head.noted(rewards[t])"),
    ("self.head = other.Head()", "self.head.unknown(rewards[t])"),
    ("self.head = other.make(other.Head())", "self.head(rewards[t])"),
    ("self.head = other.Head() if wide else other.Tail()", "self.head(rewards[t])"),
    ("self.head = other.Head() if wide else given", "self.head(rewards[t])"),
    ("self.head = other.Neck()", "self.head.score(rewards[t])"),
    ("self.heads = nn.ModuleList([other.Head(), other.Tail()])", "self.heads[0](rewards[t])"),
    ("self.heads = nn.ModuleList([other.Head(), given])", "self.heads[0](rewards[t])"),
    ("self.heads = nn.ModuleList([other.Head()])\n        self.heads.append(given)", "self.heads[0](rewards[t])"),
    ("self.head = other.Head()\n    def swap(self, given):\n        self.head = given", "self.head.score(rewards[t])"),
    ("self.head = other.Head()\n        setattr(self, given, print)", "self.head.score(rewards[t])"),
]


def _is_found_fix(files: dict[str, str]) -> bool:
    """Has the loop of caller.py a fix, among these files?"""
    known: dict[str, Context] = {}
    for _ in range(5):
        found = {path: find(text, RULES, {}, known.get(path, ALONE)) for path, text in files.items()}
        known = contexts_of({path: each.links for path, each in found.items()})
    return any(finding.fixes for finding in found["caller.py"].findings)


def _is_captured(other: str, call: str) -> bool:
    files = {
        "caller.py": SCAN.format(call=call),
        "other.py": f"import torch\nfrom torch import nn\n{other}\n",
        "more.py": "import torch\ndef g(x):\n    return torch.tanh(x)\ndef h(x):\n    print(x)\n    return x\n",
    }
    return _is_found_fix(files)


@pytest.mark.parametrize(("other", "call"), COMPUTES)
def test_what_only_computes_is_no_obstacle(other: str, call: str) -> None:
    assert _is_captured(other, call)


@pytest.mark.parametrize(("other", "call"), DOES_MORE)
def test_what_may_do_more_is_one(other: str, call: str) -> None:
    assert not _is_captured(other, call)


def _is_captured_as_built(built: str, call: str) -> bool:
    caller = SCAN.replace("self.head = other.Head()", built).replace("(self):", "(self, wide=True, given=None):", 1)
    return _is_found_fix(
        {
            "caller.py": caller.format(call=call),
            "other.py": f"import torch\nfrom torch import nn\n{BOTH}def make(x):\n    return x\n",
        }
    )


@pytest.mark.parametrize(("built", "call"), BUILT)
def test_what_is_built_of_classes_elsewhere_that_only_compute_is_no_obstacle(built: str, call: str) -> None:
    assert _is_captured_as_built(built, call)


@pytest.mark.parametrize(("built", "call"), BUILT_OTHERWISE)
def test_what_may_be_built_otherwise_is_one(built: str, call: str) -> None:
    assert not _is_captured_as_built(built, call)


@pytest.mark.parametrize(
    ("handed", "is_found"),
    [
        ("other.Head()", True),
        ("caller.Own()", True),
        ("other.Tail()", False),
        ("unknown.Head()", False),
        ("other.make(other.Head())", False),
        ("other.Head()), caller.M(other.Neck()", False),
    ],
)
def test_what_another_file_builds_and_hands_over_is_no_obstacle_if_it_only_computes(
    handed: str, is_found: bool
) -> None:
    own = HEAD.replace("Head", "Own") + "    def forward(self, x):\n        return self.w(x)\n"
    caller = (
        SCAN.replace("class M", f"{own}class M").replace("(self):", "(self, head):").replace("other.Head()", "head")
    )
    caller = caller.replace("__init__(self, head):\n        super().__init__()\n        self.w", "__init__(self):\n"
                            "        super().__init__()\n        self.w")  # fmt: skip
    files = {
        "caller.py": caller.format(call="self.head(rewards[t])"),
        "other.py": f"import torch\nfrom torch import nn\n{BOTH}def make(x):\n    return x\n",
        "main.py": f"import torch, caller, other, unknown\nmodels = caller.M({handed})\n",
    }
    assert _is_found_fix(files) is is_found


@pytest.mark.parametrize(
    ("handed_on", "is_found"),
    [
        ("from package.tools import f", True),
        ("from package.tools import *", True),
        ("from .more import f", True),
        ("if given:\n    from .tools import f", True),
        ("from .tools import g as f", False),
        ("from elsewhere import f", False),
        ("def make():\n    from .tools import f", False),
    ],
)
def test_a_package_hands_on_what_it_imports(handed_on: str, is_found: bool) -> None:
    files = {
        "caller.py": SCAN.format(call="f(rewards[t])").replace("import other\n", "from package import f, other\n"),
        "package/__init__.py": f"{handed_on}\n",
        "package/tools.py": "def f(x):\n    return x.tanh()\ndef g(x):\n    print(x)\n    return x\n",
        "package/more.py": "from .tools import f\n",
    }
    assert _is_found_fix(files) is is_found

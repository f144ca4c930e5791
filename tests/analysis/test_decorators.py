"""Decorators of other files that only keep, call and return a function leave it to be captured; all others block."""

from __future__ import annotations

import pytest

from perflint.analysis.links import ALONE, Context
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.project.ties import contexts_of

RULES = [rule for rule in all_rules() if rule.name == "decode-loop"]
CALLER = """import torch
from package import deco
@{used}
def scan(rewards: torch.Tensor):
    result, last = torch.zeros_like(rewards), 0.0
    for t in reversed(range(rewards.size(0))):
        last = rewards[t] + 0.9 * last * rewards[t]
        result[t] = last
    return result
"""
WRAPPER = "def deco(f):\n    @functools.wraps(f)\n    def inner(*args, **kwargs):\n        {does}\n    return inner"
OF_SIZE = "def deco(size):\n    def decorator(f):\n        {does}\n    return decorator"
KEEPS = [
    (WRAPPER.format(does="return f(*args, **kwargs)"), "deco"),
    (WRAPPER.format(does="print(f.__name__); return f(*args, **kwargs)"), "deco"),
    ("def deco(f):\n    return f", "deco"),
    (OF_SIZE.format(does="return lambda *args: f(*args)"), "deco(3)"),
    (OF_SIZE.format(does="g = None\n        g = f if g is None else g\n        return g"), "deco(3)"),
    ("def deco(f):\n    names = inspect.signature(f).parameters\n    return lambda *a: f(*a) if names else 0", "deco"),
]
MORE = [
    ("def deco(f):\n    return torch.jit.script(f)", "deco"),
    ("deco = torch.compile", "deco"),
    ("def deco(f):\n    return f\ndeco = torch.compile", "deco"),
    ("if torch.cuda.is_available():\n    def deco(f):\n        return f\nelse:\n    deco = torch.compile", "deco"),
    ("def deco(f):\n    return lambda *a: f(*a) if f.__code__.co_argcount else 0", "deco"),
    ("def deco(f):\n    text = inspect.getsource(f)\n    return lambda *a: f(*a) if text else 0", "deco"),
    ("KEPT = []\ndef deco(f):\n    KEPT.append(f)\n    return f", "deco"),
    ("KEPT = {}\ndef deco(f):\n    KEPT[f.__name__] = f\n    return f", "deco"),
    ("def deco(f):\n    g = f\n    return torch.compile(g)", "deco"),
    ("def deco(f):\n    g = f or print\n    g.kind = 3\n    return g", "deco"),
    ("def deco(f):\n    def inner(*a, g=f):\n        return g(*a)\n    return inner", "deco"),
    ("def deco(f):\n    yield f", "deco"),
    ("@torch.compile\ndef deco(f):\n    return f", "deco"),
    (WRAPPER.format(does="return f(*args, **kwargs)"), "deco(3)"),
    (OF_SIZE.format(does="return torch.compile(f)"), "deco(3)"),
    ("class deco:\n    def __init__(self, f):\n        self.f = f", "deco"),
]


def is_captured(package: dict[str, str], used: str) -> bool:
    return is_found_fix({"caller.py": CALLER.format(used=used), **package})


def is_found_fix(files: dict[str, str]) -> bool:
    """Has the loop of caller.py a fix, among these files?"""
    known: dict[str, Context] = {}
    for _ in range(5):
        found = {path: find(text, RULES, {}, known.get(path, ALONE)) for path, text in files.items()}
        known = contexts_of({path: each.links for path, each in found.items()})
    return any(finding.fixes for finding in found["caller.py"].findings)


def package(text: str) -> dict[str, str]:
    head = "import functools, inspect, torch\n"
    return {"package/__init__.py": "from .tools import deco\n", "package/tools.py": f"{head}{text}\n"}


@pytest.mark.parametrize(("text", "used"), KEEPS)
def test_a_decorator_that_only_calls_a_function_is_no_obstacle(text: str, used: str) -> None:
    assert is_captured(package(text), used)


@pytest.mark.parametrize(("text", "used"), MORE)
def test_a_decorator_that_may_do_more_is_one(text: str, used: str) -> None:
    assert not is_captured(package(text), used)


@pytest.mark.parametrize(
    ("handed_on", "is_found"),
    [
        ("from package.tools import deco", True),
        ("from package.tools import *", True),
        ("from .more import deco", True),
        ("if given:\n    from .tools import deco", True),
        ("from .tools import other as deco", False),
        ("from elsewhere import deco", False),
        ("def make():\n    from .tools import deco", False),
    ],
)
def test_a_package_hands_on_what_it_imports(handed_on: str, is_found: bool) -> None:
    files = package("def deco(f):\n    return f\ndef other(f):\n    return torch.compile(f)")
    files["package/more.py"] = "from .tools import deco\n"
    files["package/__init__.py"] = f"{handed_on}\n"
    assert is_captured(files, "deco") is is_found


def test_a_decorator_that_nobody_knows_is_an_obstacle() -> None:
    assert not is_captured({}, "deco")

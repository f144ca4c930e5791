"""Two modules are alike if the same code makes both, one is a copy of the other, or has its states."""

from __future__ import annotations

import ast

import pytest

from perflint.analysis.parameter_loops import alike
from perflint.analysis.program import Program

HEAD = "import copy\nfrom torch import nn\n\ndef mlp(width):\n    return nn.Sequential(nn.Linear(4, width))\n\n"


def _alike(code: str) -> bool:
    program = Program(f"{HEAD}{code}\n")
    (call,) = (each for each in program.of_type(ast.Call) if program.segment(each.func) == "zip")
    return alike(program, call.args[0], call.args[1])


@pytest.mark.parametrize(
    "code",
    [
        "a = nn.Linear(4, 4).cuda()\nb = copy.deepcopy(a).eval()\nzip(a, b)",
        "a, b = nn.Linear(4, 4), nn.Linear(4, 4)\nzip(a, b)",
        "n = 3\na = mlp(n)\nb = mlp(n)\nzip(a, b)",
        "a = load(1)\nb = load(2)\nb.load_state_dict(a.state_dict())\nzip(a, b)",
        "def f(x, y):\n    zip(x, y)\na = mlp(3)\nf(a, copy.deepcopy(a))\nf(mlp(2), mlp(2))",
    ],
)
def test_modules_of_one_making_are_alike(code: str) -> None:
    assert _alike(code)


@pytest.mark.parametrize(
    "code",
    [
        "a, b = nn.Linear(4, 4), nn.Linear(4, 5)\nzip(a, b)",
        "n = 3\na = mlp(n)\nn = 4\nb = mlp(n)\nzip(a, b)",
        "a = load(1)\nb = load(2)\nzip(a, b)",
        "a = mlp(3)\nb = copy.deepcopy(a)\nb.head = nn.Linear(2, 2)\nzip(a, b)",
        "a = load(1)\nb = load(2)\nb.load_state_dict(a.state_dict(), strict=False)\nzip(a, b)",
        "a = mlp(3) if big else mlp(2)\nb = mlp(3) if big else mlp(2)\nzip(a, b)",
        "def f(x, y):\n    zip(x, y)\nf(mlp(2), mlp(2))\nf(mlp(2), mlp(3))",
        "def f(x, y):\n    zip(x, y)",
    ],
)
def test_what_may_differ_is_not_taken_for_alike(code: str) -> None:
    assert not _alike(code)

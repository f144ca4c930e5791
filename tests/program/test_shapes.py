"""How many axes a tensor has is told by what surely runs: unpacked sizes, and the calls that made it."""

from __future__ import annotations

import ast

import pytest

from perflint.analysis.program import Program
from perflint.analysis.values.shapes import Shapes


def rank_at_probe(body: str) -> int | None:
    """How many axes what is passed to `probe` has, in a function of `x` with this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    program = Program(f"import torch\n\ndef run(x: torch.Tensor):\n{lines}")
    probe = next(call for call in program.of_type(ast.Call) if getattr(call.func, "id", "") == "probe")
    return program.get(Shapes).shape(probe.args[0]).rank


@pytest.mark.parametrize(
    ("body", "rank"),
    [
        ("b, t = x.shape\nprobe(x)", 2),
        ("b, t, d = x.size()\nif b:\n    probe(x)", 3),
        ("probe(x)\nb, t, d = x.shape", 3),
        ("y = x * 2\nprobe(y)\nb, t, d = y.shape", 3),
        ("y = x.float()\nb, t, d = y.shape\nprobe(y)", 3),
        ("if x.dim() == 2:\n    b, t = x.shape\n    probe(x)", 2),
        ("if x.dim() == 2:\n    b, t = x.shape\nelse:\n    b, t, d = x.shape\nprobe(x)", None),
        ("for each in range(x.dim() - 2):\n    b, t, d = x.shape\nprobe(x)", None),
        ("if x.dim() == 2:\n    probe(x)\n    return x\nb, t, d = x.shape", 2),
        ("if x.dim() == 2:\n    return probe(x)\nb, t, d = x.shape", 2),
        ("if x is not None and x.dim() == 2:\n    probe(x)", 2),
        ("if x.dim() == 2 or x.dim() == 3:\n    probe(x)", None),
        ("if x.dim() == 2:\n    pass\nelse:\n    probe(x)", None),
        ("if x.dim() == 2:\n    x = given()\n    probe(x)", None),
        ("if x.dim() == 2:\n    x = x.unsqueeze(0)\nprobe(x)", None),
        ("if x.dim() == 2:\n    x.unsqueeze_(0)\n    probe(x)", None),
        ("if x.dim() == 2:\n    y = x\n    y.squeeze_()\n    probe(x)", None),
        ("b, t = x.shape\nx.resize_(b)\nprobe(x)", None),
        ("b, t = x.shape\nx.data = given()\nprobe(x)", None),
        ("if not x.dim() == 2:\n    probe(x)", None),
        ("y = given()\nif x.dim() == 2:\n    probe(y)", None),
        ("while x.dim() == 2:\n    x = given()\nprobe(x)", None),
        ("b, t = x.shape\nx = x.unsqueeze(0)\nprobe(x)", 3),
        ("b, *rest = x.shape\nprobe(x)", None),
        ("probe(torch.randint(0, 7, (3, 6)))", 2),
        ("probe(torch.randint(7, size=(3, 6, 2)))", 3),
        ("probe(torch.randint(0, 7, tuple(x.shape)))", None),
        ("b, t = x.shape\nprobe(torch.zeros(x.shape))", 2),
        ("b, t = x.shape\nprobe(torch.full(x.size(), 1.0))", 2),
        ("b, t = x.shape\nprobe(x.new_full(x.shape, 1.0))", 2),
        ("b, t, d = x.shape\nprobe(x.view(b, -1).reshape(x.shape))", 3),
        ("b, t = x.shape\nprobe(torch.ones(b + 1))", 1),
        ("probe(torch.zeros(x.size(0)))", 1),
        ("probe(torch.zeros(x.shape))", None),
        ("probe(torch.empty(x.shape[1:]))", None),
        ("size = x.shape\nprobe(torch.rand(size))", None),
        ("size = (3, 4)\nprobe(torch.rand(size))", None),
        ("probe(torch.ones((3,) + x.shape))", None),
        ("n = given()\nprobe(torch.ones(n + 2 * n))", 1),
        ("in_shape = given()\nprobe(torch.ones(in_shape))", None),
        ("n = given()\nprobe(torch.ones(3, 4).view(n))", None),
        ("y = torch.ones(3)\nprobe(y)", 1),
        ("y = torch.ones(3)\ny.unsqueeze_(1)\nprobe(y)", None),
        ("def made(y):\n    y.unsqueeze_(1)\n    return y\ny = made(torch.ones(3))\nprobe(y)", None),
        ("y = torch.ones(3)\ny.data = given()\nprobe(y)", None),
        ("y = torch.ones(3)\nz = given().unsqueeze_(1)\ny.detach_()\nprobe(y)", 1),
    ],
)
def test_sizes_tell_the_number_of_axes_only_where_they_are_surely_unpacked(body: str, rank: int | None) -> None:
    assert rank_at_probe(body) == rank

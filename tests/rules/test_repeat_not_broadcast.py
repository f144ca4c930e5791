"""Copies become views with the same results and gradients, whatever their form, shapes and readers."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from perflint.engine.catalogue import rules_by_name
from perflint.engine.check import check_text
from perflint.engine.fix import fix_text
from perflint.engine.rule import Finding, Safety

RULE = rules_by_name()["repeat-not-broadcast"]
torch = pytest.importorskip("torch")


def findings(text: str) -> tuple[Finding, ...]:
    return check_text(text, [RULE], {RULE.name: {}})


def fixed(text: str) -> str:
    return fix_text(text, [RULE], {RULE.name: {}}).text


SOURCES = {  # how `x` of three axes is made to have an axis of size 1 or none, and the axis in question
    "x[:, :1]": 1,
    "x.unsqueeze(1)": 1,
    "x.mean(1, keepdim=True)": 1,
    "x[..., None]": -1,
    "x.sum(dim=-1, keepdim=True)": -1,
    "x[None]": 0,
    "x.unsqueeze(-2)": -2,
}
READERS = {  # of `r`, and `z` of the same shape
    "broadcast": [
        "z - r",
        "z * r",
        "torch.addcmul(z, z, r)",
        "torch.where(z > 0, z, r)",
        "z.mul(r)",
        "torch.maximum(z, r)",
    ],
    "expand": [
        "torch.cat([r, z], dim=0)",
        "torch.cat((z, r), -1)",
        "torch.stack([r, z])",
        "torch.tanh(r)",
        "r[:, None] * 2",
    ],
    "in place": ["z.clone().add_(r)", "z.clone().masked_fill_(r > 0, 1.0)"],
}


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, list[int]]:
    """A program with one copy, and the shape of x."""
    shape = draw(st.lists(st.integers(1, 5), min_size=3, max_size=3))
    source, axis = draw(st.sampled_from(sorted(SOURCES.items())))
    rank = 3 if source in ("x[:, :1]", "x.mean(1, keepdim=True)", "x.sum(dim=-1, keepdim=True)") else 4
    count = draw(st.sampled_from(["2", "n", "n + 1", "len(sizes)", "sizes[0]"]))
    form = draw(st.sampled_from(["repeat", "repeat list", "interleave", "torch.repeat_interleave", "cat"]))
    counts = ["1"] * rank
    counts[axis] = count
    listed = ", ".join(counts)
    copy = {
        "repeat": f"s.repeat({listed})",
        "repeat list": f"s.repeat([{listed}])",
        "interleave": f"s.repeat_interleave({count}, dim={axis})",
        "torch.repeat_interleave": f"torch.repeat_interleave(s, {count}, dim={axis})",
        "cat": f"torch.cat([s] * ({count}), dim={axis})",
    }[form]
    reader = draw(st.sampled_from([reader for group in READERS.values() for reader in group]))
    return PROGRAM.format(source=source, copy=copy, reader=reader), shape


PROGRAM = """
import torch

def f(x, seed):
    a, b, c = x.shape
    n, sizes = 3, [2, 4]
    s = {source}
    r = {copy}
    z = seed(r.shape).to("cpu")
    return {reader}
"""


@given(programs())
def test_a_generated_copy_is_found_and_its_view_computes_the_same(case: tuple[str, list[int]]) -> None:
    text, shape = case
    found = findings(text)
    assert len(found) == 1
    after = fixed(text)
    assert (after != text) == bool(found[0].fixes)
    assert fixed(after) == after
    exact = not found[0].fixes or found[0].fixes[0].safety is Safety.EXACT
    expected, actual = outcome(text, shape), outcome(after, shape)
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-6}
    for one, other in zip(expected, actual, strict=True):
        torch.testing.assert_close(other, one, **tolerance)


def outcome(text: str, shape: list[int]) -> tuple[Any, ...]:
    """What the program gives for an x of this shape, and the gradients of all that goes in."""
    namespace: dict[str, Any] = {}
    exec(compile(text, "program", "exec"), namespace)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, requires_grad=True)
    inputs = [x]

    def seed(size: Any) -> Any:
        inputs.append(torch.randn(size, generator=generator, requires_grad=True))
        return inputs[-1]

    out = namespace["f"](x, seed)
    (out * torch.randn(out.shape, generator=generator)).sum().backward()
    return out.detach(), *(each.grad for each in inputs if each.grad is not None)


def in_forward(body: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n    def forward(self, x, y, n):\n{lines}"


@pytest.mark.parametrize("count", ["0", "-1", "1"])
def test_counts_that_repeat_nothing_are_left_alone(count: str) -> None:
    assert findings(in_forward(f"return y + x.unsqueeze(1).repeat(1, {count}, 1)")) == ()


@pytest.mark.parametrize(
    "reader",
    [
        "r.view(-1)",
        "r.reshape(-1)",
        "r.flatten()",
        "r.contiguous()",
        "self.linear(r)",
        "unknown(r)",
        "r",
        "[r]",
        "r.add_(1)",
        "y.copy_(r) if r else y",
    ],
)
def test_a_reader_that_writes_reshapes_or_is_out_of_sight_silences_the_rule(reader: str) -> None:
    assert findings(in_forward(f"r = x.unsqueeze(1).repeat(1, n, 1)\nz = y + r\nreturn z, {reader}")) == ()


def test_one_branch_that_writes_is_enough_to_silence_the_rule() -> None:
    assert findings(in_forward("r = x.unsqueeze(1).repeat(1, n, 1)\nif n > 2:\n    r[0] = 1\nreturn y + r")) == ()


def test_another_value_of_the_same_name_says_nothing_about_the_copy() -> None:
    assert (
        len(
            findings(in_forward("r = x.unsqueeze(1).repeat(1, n, 1)\nz = y + r\nr = y.clone()\nr[0] = 1\nreturn z + r"))
        )
        == 1
    )


def test_a_name_that_a_closure_reads_is_out_of_sight() -> None:
    assert findings(in_forward("r = x.unsqueeze(1).repeat(1, n, 1)\nf = lambda: r.zero_()\nreturn y + r")) == ()


def test_a_function_that_is_called_behind_a_write_reads_the_copy_there() -> None:
    inner = "x = torch.ones(4, 8)\nr = x.unsqueeze(1).repeat(1, n, 1)\nread = lambda: y + r\nx.add_(1)\nreturn read()"
    assert findings(in_forward(inner)) == ()
    helper = "import torch\n\ndef read(r, y):\n    return y + r\n\n"
    caller = "def f(y, n):\n    x = torch.ones(4, 1)\n    r = x.repeat(1, n)\n    x.add_(1)\n    return read(r, y)\n"
    assert findings(helper + caller) == ()
    assert len(findings(helper + caller.replace("    x.add_(1)\n", ""))) == 1


LOOP = """
import torch

def predict(model, source, steps):
    pose = torch.eye(3, device=source.device).unsqueeze(0).repeat(source.size(0), 1, 1)
    for _ in range(steps):
        {body}
    return {result}
"""


def test_what_a_loop_replaces_is_another_value_behind_it() -> None:
    (found,) = findings(LOOP.format(body="pose = torch.matmul(model(source), pose)", result="pose + 1"))
    assert len(found.fixes) == 1


@pytest.mark.parametrize(
    "body",
    [
        "if model(source):\n            pose = torch.matmul(model(source), pose)",
        "if model(source):\n            break\n        pose = torch.matmul(model(source), pose)",
        "pose.add_(1)\n        pose = torch.matmul(model(source), pose)",
    ],
)
def test_what_a_loop_may_leave_or_write_to_is_read_behind_it(body: str) -> None:
    assert findings(LOOP.format(body=body, result="pose")) == ()


MEMORY = """
import torch
from torch import nn


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.ones(4))

    def update(self, momentum):
        {body}

    def forward(self, features):
        y = self.x.unsqueeze(0).repeat(features.size(0), 1)
        self.update(0.5)
        return torch.cat([features, y], 1)
"""


@pytest.mark.parametrize(
    "body", ["self.x.mul_(momentum)", "self.x[0] = momentum", "x = self.x[:2]\n        x *= momentum"]
)
def test_a_method_that_writes_to_the_source_is_a_write_where_it_is_called(body: str) -> None:
    assert findings(MEMORY.format(body=body)) == ()


@pytest.mark.parametrize("body", ["return self.x * momentum", "self.x = self.x * momentum", "self.y.mul_(momentum)"])
def test_a_method_that_reads_or_replaces_the_source_leaves_the_copy_as_it_is(body: str) -> None:
    assert len(findings(MEMORY.format(body=body))) == 1


def test_the_next_iteration_of_a_loop_reads_too() -> None:
    body = "r = y\nfor _ in range(n):\n    r.add_(1)\n    r = x.unsqueeze(1).repeat(1, n, 1)\nreturn y + r"
    assert findings(in_forward(body)) == ()


def test_a_count_is_still_evaluated_once_and_where_it_was() -> None:
    assert fixed(in_forward("x = x * x.size(1)\nreturn y + x.unsqueeze(1).repeat(1, self.draw(), 1)")).endswith(
        "x.unsqueeze(1).expand(-1, self.draw(), -1)\n"
    )


def test_an_axis_that_the_source_lacks_keeps_its_count_of_one() -> None:
    text = in_forward("position = torch.arange(8).unsqueeze(1)\nreturn y + position.repeat(1, 1, n)")
    assert "position.expand(1, -1, n)" in fixed(text)


@pytest.mark.parametrize(
    ("body", "safety"),
    [
        ("return y + x.unsqueeze(1).repeat(1, n, 1)", Safety.BEHAVIOUR),
        ("y.mul_(x.unsqueeze(1).repeat(1, 8, 1))\nreturn y", Safety.BEHAVIOUR),
        ("return y[0] * (1 - x).unsqueeze(-1).repeat(1, 1, n)", Safety.BEHAVIOUR),
        ("return y + x.unsqueeze(1).repeat(1, n, 1) + x.size(1)", Safety.EXACT),
        ("return y + x.unsqueeze(1).repeat(1, n, 1) + x.sum(dim=1)", Safety.EXACT),
        ("y = y.view(4, n, 8)\nreturn y + x.unsqueeze(1).repeat(1, n, 1)", Safety.BEHAVIOUR),
        ("y = y.view(4, 8, n)\nreturn y + x.unsqueeze(-1).repeat(1, 1, n)", Safety.BEHAVIOUR),
        ("if y.dim() > 2:\n    n = x.size(1)\nreturn y + x.unsqueeze(1).repeat(1, n, 1)", Safety.BEHAVIOUR),
    ],
)
def test_a_count_of_one_needs_an_axis_that_is_shown_to_exist(body: str, safety: Safety) -> None:
    (finding,) = findings(in_forward(body))
    assert [fix.safety for fix in finding.fixes] == [safety]


def test_code_that_runs_once_is_left_alone() -> None:
    once = "import torch\nmask = torch.ones(3, 1).repeat(1, 4)\nprint(mask * 2)\n"
    setup = "import torch\nclass A:\n    def __init__(self, y):\n        self.z = torch.ones(3, 1).repeat(1, 4) * y\n"
    assert findings(once) == () and findings(setup) == ()

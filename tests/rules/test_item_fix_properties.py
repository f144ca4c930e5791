"""Whatever a generated loop adds up, the fixed program computes bitwise the same, types included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflint.engine.catalogue import rules_by_name
from perflint.engine.fix import fix_text
from perflint.engine.rule import Safety

torch = pytest.importorskip("torch")

RULES = [rules_by_name()[name] for name in ("item-in-loop", "sync-in-loop")]

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train(model, loader, optimizer, epochs, report):
    bonus = 0.5
"""
STEP = """
x, y = x.to(device), y.to(device)
out = model(x)
loss = F.mse_loss(out, y)
hits = (out > y).sum()
optimizer.zero_grad()
loss.backward()
optimizer.step()
""".strip().splitlines()

READS = st.sampled_from(
    [
        "loss.item()",
        "float(loss)",
        "loss.detach().cpu().item()",
        "(loss + 1).item()",
        "hits.item()",
        "int(hits)",
        "float(hits)",
        "-loss.item()",
        "float(int(loss * 3))",
        "(out > y).any().item()",
        "-(out > y).any().item()",
        "(out > y).byte().max().item()",
        "out.argmax().item()",
    ]
)
SCALES = st.sampled_from(["", " * x.size(0)", " * 0.5", " * len(x)", " + bonus", " - 1"])
NAMES = st.sampled_from(["a", "b", "c"])


@st.composite
def additions(draw: Any) -> list[str]:
    """One statement of the loop, perhaps below a condition."""
    name = draw(NAMES)
    read = draw(READS) + draw(SCALES)
    form = draw(
        st.sampled_from(
            [f"{name} += {read}", f"{name} = {name} + {read}", f"{name} -= {read}", f"items.append({draw(READS)})"]
        )
    )
    if draw(st.booleans()):
        return [form]
    return [f"if {draw(st.sampled_from(['len(x) > 2', 'step % 2 == 0', 'step > 1']))}:", f"    {form}"]


@st.composite
def uses(draw: Any) -> list[str]:
    """Something else that the loop does with a sum."""
    name = draw(NAMES)
    lines: list[str] = draw(
        st.sampled_from(
            [
                ["if step % 2 == 1:", f"    report.append({name} / 2)"],
                ["if step % 3 == 2:", f"    report.append(f'{{{name}}}')", f"    {name} = 0"],
                ["if step % 2 == 1:", f"    {name} = 0.0"],
                [f"report.append({name} + 1)"],
                [f"{name} += 1"],
                [f"{name} *= 2"],
                ["if step == 3:", "    break"],
                ["if step == 2:", f"    return {name}, items"],
                ["if step == 2:", "    continue"],
                ["report.append(len(items))"],
                ["loss.data.zero_()"],
                [f"d = {name}"],
                ["pass"],
            ]
        )
    )
    return lines


@st.composite
def programs(draw: Any) -> str:
    """A training loop inside an epoch loop, sums that start here or there, and what is done with them."""
    starts = {name: draw(st.sampled_from(["0", "0.0", "1.5"])) for name in "abc"}
    outside = [f"{name} = {start}" for name, start in starts.items()] + ["items = []", "d = None"]
    inside = draw(
        st.lists(st.sampled_from(["a = 0", "b = 0.0", "items = []", "report.append(b)"]), max_size=2, unique=True)
    )
    body = [*STEP]
    for part in draw(st.lists(st.one_of(additions(), additions(), uses()), min_size=1, max_size=5)):
        body += part
    behind = draw(
        st.lists(
            st.sampled_from(["a /= 3", "report.append(a)", "report.append(c)", "report.append(items[:])"]), max_size=2
        )
    )
    lines = [*outside, "for epoch in range(epochs):"]
    block = [*inside, "for step, (x, y) in enumerate(loader):", *("    " + line for line in body), *behind]
    lines += ["    " + line for line in block] + ["return a, b, c, items"]
    return HEAD + "\n".join("    " + line for line in lines) + "\n"


def outcome(text: str, batches: int, epochs: int) -> str:
    """What a run gives and reports, written so that types and every bit of the numbers show."""
    torch.manual_seed(0)
    loader = [(torch.randn(2 + index % 3, 4), torch.randn(2 + index % 3, 4)) for index in range(batches)]
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    namespace: dict[str, Any] = {}
    exec(compile(text, "<generated>", "exec"), namespace)
    report: list[object] = []
    return repr((namespace["train"](model, loader, optimizer, epochs, report), report))


@given(programs())
def test_a_fixed_loop_gives_the_same_numbers_of_the_same_types(text: str) -> None:
    result = fix_text(text, RULES, {rule.name: {} for rule in RULES})
    assert all(item.fix.safety is Safety.EXACT for item in result.applied)
    if result.text != text:
        for batches, epochs in ((0, 1), (1, 1), (5, 2), (5, 0)):
            assert outcome(result.text, batches, epochs) == outcome(text, batches, epochs), result.text


def test_generated_loops_are_fixed_often_enough_to_mean_something() -> None:
    text = (
        HEAD
        + "    a = 0.0\n    for x, y in loader:\n"
        + "".join(f"        {line}\n" for line in [*STEP, "a += loss.item()"])
        + "    return a\n"
    )
    assert "loss.detach().double()" in fix_text(text, RULES, {rule.name: {} for rule in RULES}).text

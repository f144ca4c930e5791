"""Loops over parameters and the calls on lists that stand for them compute the same."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from perflint.transforms.averages import lerp_of
from tests.fixture_cases import Case, cases, load

RUN = [case for case in cases("before") if case.path.parent.name == "param_loop" and "\ndef run(" in case.text]


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.path.stem)
def test_an_unsafe_fix_computes_the_same_but_for_rounding(case: Case, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    fixed = tmp_path / "fixed.py"
    fixed.write_text(case.fixed(True).text, encoding="utf-8")
    assert "_foreach_" in fixed.read_text(encoding="utf-8")
    before, after = load(case.path, "before").run(), load(fixed, "after").run()
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-6)


def _lerp(code: str) -> Any:
    def is_tensor(node: ast.expr) -> bool:
        return (isinstance(node, ast.Name) and node.id in "pt") or getattr(node, "attr", "") in ("data", "grad")

    found = lerp_of(ast.parse(code).body, is_tensor)
    return found and (ast.unparse(found.target), ast.unparse(found.end), ast.unparse(found.weight))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("t.copy_(tau * p + (1 - tau) * t)", ("t", "p", "tau")),
        ("t.copy_((1.0 - tau) * t + tau * p)", ("t", "p", "tau")),
        ("t.data.copy_(t.data * rho + p.data * (1 - rho))", ("t.data", "p.data", "1 - rho")),
        ("t.mul_(1 - tau).add_(tau * p)", ("t", "p", "tau")),
        ("t.mul_(1 - tau)\nt.add_(p, alpha=tau)", ("t", "p", "tau")),
        ("t.mul_(decay).add_(p, alpha=1 - decay)", ("t", "p", "1 - decay")),
        ("t *= decay\nt += (1 - decay) * p", ("t", "p", "1 - decay")),
        ("t.mul_(0.995).add_(0.005, p)", ("t", "p", "0.005")),
        ("t += tau * (p - t)", ("t", "p", "tau")),
        ("t -= tau * (t - p)", ("t", "p", "tau")),
        ("t.add_(p - t, alpha=tau)", ("t", "p", "tau")),
        ("t.copy_(t + tau * (p - t))", ("t", "p", "tau")),
        ("t.lerp_(p, 1 - decay)", ("t", "p", "1 - decay")),
        ("t.lerp_(p, weight=tau)", ("t", "p", "tau")),
        ("t.copy_(t.mul(tau).add(p.mul(1 - tau)))", ("t", "p", "1 - tau")),
    ],
)
def test_a_step_towards_a_tensor_is_recognised_however_it_is_spelled(code: str, expected: tuple[str, ...]) -> None:
    assert _lerp(code) == expected


@pytest.mark.parametrize(
    "code",
    [
        "t.copy_(tau * p + (1 - rho) * t)",  # no average
        "t.mul_(0.9).add_(p, alpha=0.2)",
        "t.add_(tau * p)",
        "t.copy_(tau * p)",
        "t.copy_(tau * p * t + (1 - tau) * t)",  # no product of tensors
        "t.copy_(0.9 * t + 0.1 * p + 10 * (t * t - t) - (p * p - p))",  # which no few whole numbers tell apart
        "t.copy_(tau * p + (1 - tau) * t.grad)",  # another tensor takes its place
        "t.add_(tau * p).add_(-tau * t)",  # reads what it has changed
        "t.mul_(1 - tau).clamp_(0, 1).add_(tau * p)",
        "t.copy_(tau * p + (1 - tau) * t, non_blocking=True)",
        "x = tau * p + (1 - tau) * t\nt.copy_(x)",  # which the caller puts in
        "print(t)",
    ],
)
def test_anything_else_is_no_step_towards_a_tensor(code: str) -> None:
    assert _lerp(code) is None

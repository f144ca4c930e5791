"""Loops that look like maps over their steps, and are not quite: they are refused, or computed right."""

from __future__ import annotations

from functools import cache

import pytest

from tests.rules.lift_call_traps import CALL_TRAPS
from tests.rules.lift_layout_traps import LAYOUT_TRAPS
from tests.rules.lift_traps import IMPORTS, TRAPS
from tests.rules.test_lifted_loops import at_once, flat, outcome

torch = pytest.importorskip("torch")
lifted = cache(at_once)
PROGRAMS = {**TRAPS, **CALL_TRAPS, **LAYOUT_TRAPS}


@pytest.mark.parametrize("trap", PROGRAMS)
def test_a_trap_changes_no_result(trap: str) -> None:
    text = IMPORTS + PROGRAMS[trap]
    after = lifted(text)
    if after == text:
        return
    torch.manual_seed(0)
    expected = flat(outcome(text))
    torch.manual_seed(0)
    actual = flat(outcome(after))
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12, equal_nan=True)


def test_many_of_them_are_lifted_all_the_same() -> None:
    texts = [IMPORTS + text for text in PROGRAMS.values()]
    assert sum(lifted(text) != text for text in texts) >= 15


def test_a_function_is_written_as_the_program_calls_it_where_torch_has_no_name() -> None:
    text = """from torch import Tensor, stack, tanh
def run(x: Tensor):
    outs = []
    for t in range(x.size(1)):
        outs.append(tanh(x[:, t]))
    return stack(outs, 1)
"""
    assert "outs.extend(tanh(x).unbind(1))" in at_once(text)

"""Code that a string shows beside its value stays as it is."""

from __future__ import annotations

import ast

import pytest

from perflint.engine.catalogue import rules_by_name
from perflint.engine.fix import fix_text

PROGRAM = """\
import torch


def train(loader, model, optimizer):
    total = 0.0
    for number, x in enumerate(loader):
        x = x.to("cuda")
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        STATEMENT
    print(f"{SHOWN}")
"""


def fixed(statement: str, shown: str = "number") -> str:
    text = PROGRAM.replace("STATEMENT", statement).replace("SHOWN", shown)
    return fix_text(text, [rules_by_name()["item-in-loop"]], {}, unsafe=True).text


@pytest.mark.parametrize(
    "shown", ["loss.sum().item()=", "loss.sum().item() + 1 =", "round(model(x).sum().item(), 3)=:>9"]
)
def test_a_print_that_shows_what_it_computes_is_not_deferred(shown: str) -> None:
    assert f'        print(f"{{{shown}}}")\n' in fixed(f'print(f"{{{shown}}}")')


def test_a_print_of_the_same_without_its_code_is_deferred() -> None:
    assert "later(lambda" in fixed('print(f"{loss.sum().item()}")')


def test_a_sum_that_a_string_shows_in_a_longer_expression_is_shown_alike() -> None:
    text = fixed("total += loss.item()", "total / 3=")
    ast.parse(text)
    assert '    print(f"{total / 3=}")\n' in text

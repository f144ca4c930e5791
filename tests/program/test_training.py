"""Every call that computes gradients trains, however it is written."""

from __future__ import annotations

import ast

import pytest

from perflint.analysis.autograd.effects import trains
from perflint.analysis.program import Program

_PROGRAM = """
import torch
from torch.autograd import backward

def step(self, model, batches, scaler, accelerator, fabric, optimizer):
    for batch in batches:
        loss = model(batch).mean()
        CALL
"""


@pytest.mark.parametrize(
    "call",
    [
        "loss.backward()",
        "torch.autograd.backward(loss)",
        "backward(loss)",
        "scaler.scale(loss).backward()",
        "accelerator.backward(loss)",
        "fabric.backward(loss)",
        "self.manual_backward(loss)",
    ],
)
def test_a_call_that_computes_gradients_trains(call: str) -> None:
    assert _trains(call)


@pytest.mark.parametrize("call", ["print(loss)", "torch.backward(loss)", "model.forward(loss)"])
def test_other_calls_do_not(call: str) -> None:
    assert not _trains(call)


def _trains(call: str) -> bool:
    program = Program(_PROGRAM.replace("CALL", call))
    statement = next(each for each in program.of_type(ast.Expr) if ast.unparse(each) == call)
    assert isinstance(statement.value, ast.Call)
    return trains(program, statement.value)

"""Why a loop whose steps ask a test can't be computed at once, and what to do about it, is said in the finding."""

from __future__ import annotations

import pytest

from perflint.catalogue import rules_by_name
from perflint.check import check_text
from tests.fixture_cases import default_options

RULE = rules_by_name()["decode-loop"]
DECODER = """
import random

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.rnn = nn.GRU(3, 4, batch_first=True)
        self.head = nn.Linear(4, 7)

    def forward(self, targets: torch.Tensor, ratio: float):
        hidden, token, logits = None, targets[:, 0], []
        for t in range(1, targets.size(1)):
            out, hidden = self.rnn(self.embedding(token).unsqueeze(1), hidden)
            scores = self.head(out.squeeze(1))
            logits.append(scores)
            {choice}
        return torch.stack(logits, dim=1)
"""
DRAWN = "is drawn anew in each step; drawn once a sequence, in front of the loop"


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (
            "token = targets[:, t] if random.random() < ratio else scores.argmax(-1)",
            f"line 21: `random.random() < ratio` {DRAWN}",
        ),
        (
            "forced = random.random() < ratio; token = targets[:, t] if forced else scores.argmax(-1)",
            f"line 21: `forced` {DRAWN}",
        ),
        (
            "token = targets[:, t] if torch.rand(1) < ratio else scores.argmax(-1)",
            f"line 21: `torch.rand(1) < ratio` {DRAWN}",
        ),
        (
            "token = targets[:, t] if scores.max() < ratio else scores.argmax(-1)",
            "line 21: `scores.max() < ratio` may have another answer in each step",
        ),
    ],
)
def test_a_test_that_each_step_decides_is_named(choice: str, reason: str) -> None:
    (finding,) = check_text(DECODER.format(choice=choice), [RULE], default_options(RULE))
    assert reason in finding.blocked


WALK = """import torch
def walk(x: torch.Tensor, stride: int):
    steps = []
    for t in {walked}:
        steps.append(torch.tanh(x[:, t]))
    return torch.stack(steps, dim=1)
"""


@pytest.mark.parametrize(
    ("walked", "reason"),
    [
        ("range(0, x.size(1), stride)", "line 4: the loop goes by more than one step at a time"),
        ("range(x.size(1) - 1, -1, -1)", "line 4: the loop goes backwards"),
        ("reversed(range(x.size(1)))", "line 4: the loop goes backwards"),
    ],
)
def test_a_loop_that_does_not_go_step_by_step_is_told_so(walked: str, reason: str) -> None:
    (finding,) = check_text(WALK.format(walked=walked), [RULE], default_options(RULE))
    assert reason in finding.blocked

"""No fix is written where a name that its new code uses means something else."""

from __future__ import annotations

import pytest

from perflint.engine.catalogue import rules_by_name
from perflint.engine.fix import fix_text
from tests.fixture_cases import default_options

LOSSES = """
import torch
import torch.nn.functional as F
{above}

def losses(logits: torch.Tensor, targets: torch.Tensor{parameter}):
    {inside}
    loss = 0
    for t in range(targets.size(1)):
        loss = loss + F.cross_entropy(logits[:, t], targets[:, t])
    return loss
"""
ZIPPED = """
from collections import deque
import torch
{above}

class Policy:
    def __init__(self):
        self.log_probs, self.rewards = [], []


policy = Policy()


def act(chance: torch.Tensor):
    policy.log_probs.append(torch.log(chance))
    policy.rewards.append(float(chance))


def finish({parameter}):
    {inside}
    value, losses, returns = 0, [], deque()
    for reward in policy.rewards[::-1]:
        value = reward + 0.9 * value
        returns.appendleft(value)
    returns = torch.tensor(returns)
    for log_prob, value in zip(policy.log_probs, returns):
        losses.append(-log_prob * value)
    return torch.cat(losses).sum()
"""
FREE = {"above": "", "parameter": "", "inside": "pass"}


def is_lifted(text: str, **parts: str) -> bool:
    rule = rules_by_name()["decode-loop"]
    result = fix_text(text.format(**{**FREE, **parts}), [rule], default_options(rule), unsafe=True)
    return "torch.vmap" in result.text


@pytest.mark.parametrize("parts", [{}, {"above": "import numpy as np"}, {"inside": "F_ = len = 3"}])
def test_names_that_the_new_code_does_not_use_may_be_given_to_anything(parts: dict[str, str]) -> None:
    assert is_lifted(LOSSES, **parts)


@pytest.mark.parametrize(
    "parts",
    [
        {"parameter": ", torch=None"},
        {"inside": "torch = targets"},
        {"above": "torch = torch.jit"},
        {"inside": "for torch in (): pass"},
        {"inside": "global torch"},
    ],
)
def test_another_torch_is_not_called(parts: dict[str, str]) -> None:
    assert not is_lifted(LOSSES, **parts)


def test_an_import_inside_is_the_same_torch() -> None:
    assert is_lifted(LOSSES, inside="import torch")


@pytest.mark.parametrize(
    "parts",
    [
        {"parameter": "len"},
        {"inside": "len = 3"},
        {"above": "len = 3"},
        {"above": "def len(x): return 3"},
        {"above": "from lengths import len"},
        {"above": "def f():\n    global len\n    len = 3"},
    ],
)
def test_another_function_of_the_name_of_a_builtin_is_not_called(parts: dict[str, str]) -> None:
    assert is_lifted(ZIPPED)
    assert not is_lifted(ZIPPED, **parts)

"""Why a loop whose steps ask a test can't be computed at once, and what to do about it, is said in the finding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perflint.engine.catalogue import rules_by_name
from perflint.engine.check import check_text
from perflint.engine.fix import fix_text
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
DRAWN = "is drawn anew in each step; drawn once a sequence, before the loop"


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
        print(t)  # else a graph would hold it
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


INTERCEPTED = """import torch
from torch import nn
class Walk(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
    def {name}(self, *names):
        return super().{name}(*names)
    def forward(self, x: torch.Tensor):
        h, states = torch.zeros(x.size(0), 4), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            states.append(h)
        return torch.stack(states, dim=1)
"""


@pytest.mark.parametrize("name", ["__getattr__", "__setattr__", "__getattribute__"])
def test_a_class_that_says_itself_what_its_attributes_are_is_left_alone(name: str) -> None:
    (finding,) = check_text(INTERCEPTED.format(name=name), [RULE], default_options(RULE))
    assert all(fix.requires for fix in finding.fixes)  # at most a graph
    (other,) = check_text(INTERCEPTED.format(name="extra"), [RULE], default_options(RULE))
    assert not all(fix.requires for fix in other.fixes)


FORCED = """import torch
from torch import nn
class Walk(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 4, batch_first=True)
    def forward(self, x: torch.Tensor):
        h, value, outs = torch.zeros(1, x.size(0), 4), x[:, 0], []
        for t in range(1, x.size(1)):
            out, h = self.rnn(value.unsqueeze(1), h)
            outs.append(out)
            value = x[:, t]
        return torch.cat(outs, dim=1), h
"""


def test_a_sequence_that_is_too_short_for_a_step_is_no_step_of_a_lifted_loop() -> None:
    result = fix_text(FORCED, [RULE], default_options(RULE), unread=True)
    assert "for t in" not in result.text
    space: dict[str, Any] = {}
    exec(result.text, space)
    model = space["Walk"]()
    assert model(torch.rand(2, 5, 3))[0].shape == (2, 4, 4)
    with pytest.raises(RuntimeError):  # as stacking nothing does in the loop
        model(torch.rand(2, 1, 3))


CELL = """import torch
from torch import nn
class Walk(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(6, 5)
    def forward(self, x: torch.Tensor, width: int):
        h, c, states = torch.zeros(x.size(0), width), torch.zeros(x.size(0), width), []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            states.append(h)
        return torch.stack(states, dim=1)
"""


@pytest.mark.parametrize(("features", "width"), [(5, 5), (7, 5), (6, 4), (6, 6)])
def test_sizes_that_the_cell_does_not_take_are_no_sizes_of_a_lifted_loop(features: int, width: int) -> None:
    result = fix_text(CELL, [RULE], default_options(RULE), unread=True)
    assert "for t in" not in result.text
    space: dict[str, Any] = {}
    exec(result.text, space)
    walk = space["Walk"]()
    assert walk(torch.zeros(3, 7, 6), 5).shape == (3, 7, 5)
    with pytest.raises(RuntimeError):
        walk(torch.zeros(3, 7, features), width)


REINFORCE = """
import torch


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.log_probs = []
        self.rewards = []

    def forward(self, x):
        return torch.softmax(self.layer(x), dim=-1)


def act(state, policy, device):
    chances = torch.distributions.Categorical(policy(torch.from_numpy(state).float().unsqueeze(0).to(device)))
    action = chances.sample()
    policy.log_probs.append(chances.log_prob(action))
    return action.item()


def finish(policy, optimizer, device):
    value, returns, losses = 0, [], []
    for reward in policy.rewards[::-1]:
        value = reward + 0.9 * value
        returns.insert(0, value)
    returns = torch.tensor(returns{told})
    for log_prob, reward in zip(policy.log_probs, returns):
        losses.append(-log_prob * reward)
    optimizer.zero_grad()
    torch.cat(losses).sum().backward()
    optimizer.step()
    del policy.log_probs[:]


def main(env, args):
    policy = Policy().to(args.device)
    optimizer = torch.optim.Adam(policy.parameters())
    for episode in range(100):
        state = env.reset()
        for t in range(10):
            state, reward, done, _ = env.step(act(state, policy, args.device))
            policy.rewards.append(reward)
        finish(policy, optimizer, args.device)
"""


@pytest.mark.parametrize("told", ["", ", device=device"])
def test_numbers_of_the_host_go_to_the_device_of_the_steps(told: str) -> None:
    result = fix_text(REINFORCE.format(told=told), [RULE], default_options(RULE), unsafe=True)
    assert "torch.vmap(lambda log_prob, reward: -log_prob * reward)" in result.text
    assert ("returns[: len(policy.log_probs)].to(log_probs.device)" in result.text) is not bool(told)


def test_numbers_of_the_host_stay_where_it_is_unknown_which_device_the_steps_are_on() -> None:
    text = REINFORCE.replace("losses.append(-log_prob * reward)", "losses.append(-log_prob * (reward - value))")
    text = text.replace(
        "for log_prob, reward in zip(policy.log_probs,",
        "for log_prob, value, reward in zip(policy.log_probs, policy.values,",
    )
    text = text.replace("self.rewards = []", "self.rewards = []\n        self.values = []")
    text = text.replace(
        "    action = chances.sample()", "    policy.values.append(policy(state).sum())\n    action = chances.sample()"
    )
    (finding,) = check_text(text.format(told=""), [RULE], default_options(RULE))
    assert not any("at once" in fix.title for fix in finding.fixes)
    (finding,) = check_text(text.format(told=", device=device"), [RULE], default_options(RULE))
    assert any("at once" in fix.title for fix in finding.fixes)


SHIFTED = """import torch
def sums(x: torch.Tensor):
    steps, width = x.shape
    before = x[0]
    total = torch.zeros(width)
    {again}for t in range(1, steps):
    {again_}    total += before * 2
    {again_}    before = x[t]
    return total
"""


@pytest.mark.parametrize(("again", "is_slice"), [("", True), ("for again in range(2):\n        ", False)])
def test_the_step_before_is_read_from_the_sequence_where_it_is_that_of_each_round(again: str, is_slice: bool) -> None:
    text = SHIFTED.format(again=again, again_="    " if again else "")
    result = fix_text(text, [RULE], default_options(RULE), unread=True)
    assert ("x[: steps - 1]" in result.text, "torch.cat" in result.text) == (is_slice, not is_slice)
    spaces: list[dict[str, Any]] = [{}, {}]
    for program, space in zip((text, result.text), spaces, strict=True):
        exec(program, space)
    x = torch.rand(5, 3)
    torch.testing.assert_close(*(space["sums"](x) for space in spaces))


HOSTED = """import torch
class Sums(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor):
        total = 0
        for t, step in enumerate(x.split(1, dim=0)):
            other = y[t : t + 1]
            other = other * step
            total = total + other
        return total
print(Sums()(torch.rand(3, 3, 2, 1), torch.rand(3)))
"""


def test_what_is_named_for_its_device_is_made_before_it_is_read() -> None:
    text = fix_text(HOSTED, [RULE], default_options(RULE), unread=True).text
    assert "torch.vmap" in text
    exec(text, {})

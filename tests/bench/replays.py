"""Times what a replayed call of a graphed step costs the host, by part, without a device: its graph does nothing.

    python -m tests.bench.replays [--profile]

The steps are those of a soft actor-critic as they are often written: globals, closures, settings in a dataclass, an
actor, two critics with two targets, and three optimizers. Tensors of the host pass for ones of a device.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perflint.runtime.graphs import graphed_step
from perflint.runtime.replay import flatten
from perflint.runtime.step import GraphedStep
from perflint.runtime.walk import Arguments
from tests.runtime.device_double import a_device

WIDTH, BATCH, OBSERVED, ACTED = 256, 4, 17, 6  # few, as the host copies what a device would
CALLS, REPEATS = 100, 40
LOG_STD_MAX = 2
LOG_STD_MIN = -5


@dataclass
class Settings:
    """As a command line gives them."""

    name: str = "sac"
    gamma: float = 0.99
    tau: float = 0.005
    autotune: bool = True


class Critic(nn.Module):
    """The value of an action."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(OBSERVED + ACTED, WIDTH)
        self.fc2 = nn.Linear(WIDTH, WIDTH)
        self.fc3 = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        """Of observations and actions."""
        x = torch.cat([x, a], 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)  # type: ignore[no-any-return]


class Actor(nn.Module):
    """The distribution of actions."""

    scale: Tensor
    bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(OBSERVED, WIDTH)
        self.fc2 = nn.Linear(WIDTH, WIDTH)
        self.fc_mean = nn.Linear(WIDTH, ACTED)
        self.fc_logstd = nn.Linear(WIDTH, ACTED)
        self.register_buffer("scale", torch.ones(ACTED))
        self.register_buffer("bias", torch.zeros(ACTED))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the deviation."""
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        log_std = torch.tanh(self.fc_logstd(x))
        return self.fc_mean(x), LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)

    def get_action(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """An action, its logarithmic probability, and the mean."""
        mean, log_std = self(x)
        normal = torch.distributions.Normal(mean, log_std.exp(), validate_args=False)
        x_t = torch.zeros_like(mean) + mean + normal.scale
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t) - torch.log(self.scale * (1 - y_t.pow(2)) + 1e-6)
        return y_t * self.scale + self.bias, log_prob.sum(1, keepdim=True), torch.tanh(mean) * self.scale + self.bias


def steps() -> dict[str, tuple[GraphedStep[..., Any], tuple[Any, ...]]]:
    """Graphed steps with arguments, by name."""
    args, actor = Settings(), Actor()
    qf1, qf2, qf1_target, qf2_target = (Critic() for _ in range(4))
    q_optimizer = torch.optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=1e-3)
    actor_optimizer = torch.optim.Adam(list(actor.parameters()), lr=3e-4)
    target_entropy, log_alpha = -float(ACTED), torch.zeros(1, requires_grad=True)
    a_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)

    @graphed_step
    def q_step(alpha: Tensor, nexts: Tensor, rewards: Tensor, dones: Tensor, seen: Tensor, actions: Tensor) -> Any:
        with torch.no_grad():
            next_actions, next_log_pi, _ = actor.get_action(nexts)
            least = torch.min(qf1_target(nexts, next_actions), qf2_target(nexts, next_actions)) - alpha * next_log_pi
            wanted = rewards.flatten() + (1 - dones.flatten()) * args.gamma * least.view(-1)
        qf1_values, qf2_values = qf1(seen, actions).view(-1), qf2(seen, actions).view(-1)
        qf1_loss, qf2_loss = F.mse_loss(qf1_values, wanted), F.mse_loss(qf2_values, wanted)
        qf_loss = qf1_loss + qf2_loss
        q_optimizer.zero_grad()
        qf_loss.backward()
        q_optimizer.step()
        return qf1_values, qf2_values, qf1_loss, qf2_loss, qf_loss

    @graphed_step
    def actor_step(alpha: Tensor, seen: Tensor) -> Any:
        pi, log_pi, _ = actor.get_action(seen)
        loss = (alpha * log_pi - torch.min(qf1(seen, pi), qf2(seen, pi))).mean()
        actor_optimizer.zero_grad()
        loss.backward()
        actor_optimizer.step()
        return loss

    @graphed_step
    def a_step(seen: Tensor) -> Any:
        with torch.no_grad():
            _, log_pi, _ = actor.get_action(seen)
        loss = (-log_alpha.exp() * (log_pi + target_entropy)).mean()
        a_optimizer.zero_grad()
        loss.backward()
        a_optimizer.step()
        return loss

    seen, nexts = torch.randn(BATCH, OBSERVED), torch.randn(BATCH, OBSERVED)
    column, alpha = torch.zeros(BATCH, 1), torch.ones(())
    return {
        "q_step": (q_step, (alpha, nexts, column, column.clone(), seen, torch.zeros(BATCH, ACTED))),
        "actor_step": (actor_step, (alpha, seen)),
        "a_step": (a_step, (seen,)),
    }


def microseconds(run: Callable[[], object]) -> float:
    """Of CPU a call: the least of many means, as others use the machine."""
    return min(timeit.repeat(run, number=CALLS, repeat=REPEATS, timer=time.process_time)) / CALLS * 1e6


def parts(step: Any, given: tuple[Any, ...]) -> dict[str, float]:
    """Microseconds by what they are spent on."""
    structure, leaves = flatten((given, {}))
    arguments, function, capture = Arguments(structure, leaves), step.__wrapped__, step._records.captures()[0]
    return {
        "call": microseconds(lambda: step(*given)),
        "arguments": microseconds(lambda: Arguments(*flatten((given, {})))),
        "guard": microseconds(lambda: step._recall.find(function, arguments)),
        "replay": microseconds(lambda: capture(arguments.inputs)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with a_device() as device:
        for name, (step, given) in steps().items():
            for _ in range(6):
                step(*given)
            assert step.graphs == 1, step.eager_because
            device.replays = 0
            print(f"{name:12}", *(f"{part} {value:6.1f} us  " for part, value in parts(step, given).items()))
            assert device.replays == 2 * CALLS * REPEATS
            if options.profile:
                with cProfile.Profile() as profile:
                    for _ in range(CALLS * REPEATS):
                        step(*given)
                pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()

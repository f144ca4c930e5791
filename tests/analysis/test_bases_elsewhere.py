"""What a base class of another file runs in every step, its subclasses do, however the base's file imports others."""

from __future__ import annotations

import pytest

from perflint.analysis.links import ALONE, Context
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.project.ties import contexts_of

BASE = """import torch
{imported}

class Base:
    def train(self):
        for batch in self.train_loader:
            loss = self.loss_of(batch.cuda())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""
DERIVED = """import torch
from base import Base

class Derived(Base):
    def loss_of(self, batch):
        return self.model(batch + torch.zeros(4).cuda()).sum()
"""


AGENT = """from abc import ABC, abstractmethod
import torch

class Agent(ABC):
    def is_due(self):
        return self.steps % 4 == 0

    @abstractmethod
    def {name}(self):
        pass

    def run(self):
        state = self.env.reset()
        while True:
            state, reward, done, _ = self.env.step(self.act(state))
            self.steps += 1
            self.after_step()

    def after_step(self):
        if self.is_due():
            self.learn()
        if self.steps % 10000 == 0:
            self.report()
"""
LEARNING = """import torch
from agent import Agent
from steps import update

class Learner(Agent):
    def __init__(self, net):
        self.net = net.cuda()
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def learn(self):
        loss, mean = self.loss_of(self.memory.sample(32).cuda())
        update(self.optimizer, loss)

    def loss_of(self, batch):
        values = self.net(batch)
        return values.pow(2).mean(), values.detach().mean().item()

    def report(self):
        print(self.net(self.memory.sample(32).cuda()).mean().item())
"""
STEPS = """def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("imported", ["", "from loggers import *"])
def test_a_star_import_hides_no_base_class(imported: str) -> None:
    files = {"loggers.py": "def log(): ...\n", "base.py": BASE.format(imported=imported), "derived.py": DERIVED}
    assert lines_of("host-tensor", files) == {"derived.py": [6]}


@pytest.mark.parametrize(("name", "lines"), [("learn", {"learner.py": [16]}), ("reset", {})])
def test_a_step_that_a_loop_of_a_base_class_leaves_to_subclasses_runs_often(
    name: str, lines: dict[str, list[int]]
) -> None:
    files = {"agent.py": AGENT.format(name=name), "learner.py": LEARNING, "steps.py": STEPS}
    assert lines_of("item-in-loop", files) == lines


def lines_of(rule: str, files: dict[str, str]) -> dict[str, list[int]]:
    """The lines at which the rule finds something, by file, when the files have told each other all."""
    rules = [each for each in all_rules() if each.name == rule]
    contexts: dict[str, Context] = {}
    for _ in range(6):
        found = {name: find(text, rules, {}, contexts.get(name, ALONE)) for name, text in files.items()}
        contexts = contexts_of({name: each.links for name, each in found.items()})
    lines = {name: [files[name].count("\n", 0, each.start) + 1 for each in found[name].findings] for name in files}
    return {name: each for name, each in lines.items() if each}

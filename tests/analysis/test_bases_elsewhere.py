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


@pytest.mark.parametrize("imported", ["", "from loggers import *"])
def test_a_star_import_hides_no_base_class(imported: str) -> None:
    files = {"loggers.py": "def log(): ...\n", "base.py": BASE.format(imported=imported), "derived.py": DERIVED}
    rules = [each for each in all_rules() if each.name == "host-tensor"]
    contexts: dict[str, Context] = {}
    for _ in range(3):
        found = {name: find(text, rules, {}, contexts.get(name, ALONE)) for name, text in files.items()}
        contexts = contexts_of({name: each.links for name, each in found.items()})
    assert [len(found[name].findings) for name in files] == [0, 0, 1]

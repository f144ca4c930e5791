"""What a file tells a function of another one that makes its loaders: to pin their batches."""

from __future__ import annotations

import pytest

from perflint.analysis.links import ALONE, Context
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.project.ties import contexts_of

LOADERS = """from torch.utils.data import DataLoader

def make_loaders(args, **kwargs):
    if args.big:
        train_loader = DataLoader(Big(), batch_size=8, shuffle=True, **kwargs)
        val_loader = DataLoader(Big(), batch_size=8, **kwargs)
        return train_loader, val_loader
    train_loader = DataLoader(Small(), batch_size=8, shuffle=True, **kwargs)
    return train_loader, DataLoader(Small(), batch_size=8, **kwargs)
"""
SCRIPT = """import torch
from tqdm import tqdm
from data import {imported}

class Trainer:
    def __init__(self, args):
        kwargs = {kwargs}
        self.trainloader, self.testloader = make_loaders(args, **kwargs)
        self.model = torch.nn.Linear(4, 4).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, epochs):
        for epoch in range(epochs):
            with tqdm(self.trainloader) as bar:
                for sample in bar:
                    image = sample["image"]
                    loss = self.model(image.cuda()).sum()
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()

if __name__ == "__main__":
    Trainer(None).train(3)
"""
PINNED = '{"num_workers": 4, "pin_memory": True}'
KEPT = '{"num_workers": 4, "persistent_workers": True}'


@pytest.mark.parametrize("imported", ["make_loaders", "*"])
@pytest.mark.parametrize(("kwargs", "is_pinned"), [(PINNED, True), (KEPT, False), ("{}", False)])
def test_a_batch_is_pinned_where_the_function_that_makes_the_loader_is_told_so(
    imported: str, kwargs: str, is_pinned: bool
) -> None:
    assert bool(_lines("train.py", "blocking-copy", imported, kwargs)) is is_pinned


def _lines(path: str, rule: str, imported: str, kwargs: str) -> list[int]:
    """The lines of the rule's findings in one of the two files."""
    files = {"data.py": LOADERS, "train.py": SCRIPT.format(imported=imported, kwargs=kwargs)}
    rules = [each for each in all_rules() if each.name == rule]
    contexts: dict[str, Context] = {}
    for _ in range(4):
        found = {name: find(text, rules, {}, contexts.get(name, ALONE)) for name, text in files.items()}
        contexts = contexts_of({name: each.links for name, each in found.items()})
    return [files[path].count("\n", 0, each.start) + 1 for each in found[path].findings]

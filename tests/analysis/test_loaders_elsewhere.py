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
    files = {"data.py": LOADERS, "train.py": SCRIPT.format(imported=imported, kwargs=kwargs)}
    assert bool(_lines("train.py", files)) is is_pinned


MAKER = """from torch.utils.data import DataLoader

def make_loader(files, device="cpu"):
    loader = DataLoader(Small(files), batch_size=8, pin_memory={pinned})
    return loader
"""
TRAINER = """class Trainer:
    def __init__(self, model=None, optimizer=None, device="cpu", train_dataloader=None):
        self.model, self.optimizer, self.device = model, optimizer, device
        self.train_dataloader = train_dataloader

    def train(self):
        for batch in self.train_dataloader:
            images, labels = [each.to(self.device) for each in batch]
            loss = self.model(images, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""
MAIN = """from data import make_loader
from trainer import Trainer

def main(config):
    train_dataloader = make_loader(config.files, device=config.device)
    Trainer(config.model, config.optimizer, config.device, {given}).train()
"""


@pytest.mark.parametrize("given", ["train_dataloader", "train_dataloader=train_dataloader"])
@pytest.mark.parametrize(
    ("pinned", "is_pinned"), [("True", True), ('device != "cpu"', True), ("False", False), ('device == "cpu"', False)]
)
def test_a_batch_is_pinned_where_the_loader_is_handed_over_by_a_file_that_had_a_third_make_it(
    given: str, pinned: str, is_pinned: bool
) -> None:
    files = {"data.py": MAKER.format(pinned=pinned), "trainer.py": TRAINER, "main.py": MAIN.format(given=given)}
    assert _lines("trainer.py", files) == ([8] if is_pinned else [])


def _lines(path: str, files: dict[str, str]) -> list[int]:
    """The lines of what blocking-copy finds in one of the files."""
    rules = [each for each in all_rules() if each.name == "blocking-copy"]
    contexts: dict[str, Context] = {}
    for _ in range(4):
        found = {name: find(text, rules, {}, contexts.get(name, ALONE)) for name, text in files.items()}
        contexts = contexts_of({name: each.links for name, each in found.items()})
    return [files[path].count("\n", 0, each.start) + 1 for each in found[path].findings]

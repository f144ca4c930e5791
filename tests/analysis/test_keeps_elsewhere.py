"""A meter of another file is given tensors where its class only computes with them, and its numbers become floats."""

from __future__ import annotations

import pytest

from perflint.analysis.links import ALONE, Context
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.engine.rule import Finding
from perflint.project.ties import contexts_of

RULES = [rule for rule in all_rules() if rule.name == "item-in-loop"]
SCRIPT = """import torch
from torch.nn import functional as F
from utils import Meter

def train(model, optimizer, loader):
    meter = Meter()
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        meter.update(loss.item(), len(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return meter.avg
"""
METER = """class Meter:
    def __init__(self):
        self.sum, self.count, self.avg = 0, 0, 0

    def update(self, value, n=1):
        {keeps}
        self.count += n
        self.avg = self.sum / self.count
"""


def finding(utils: str, script: str = SCRIPT, **others: str) -> Finding:
    """That of the script, beside the file with the meter."""
    files = {"train.py": script, "utils.py": utils, **{f"{name}.py": text for name, text in others.items()}}
    contexts: dict[str, Context] = {}
    for _ in range(4):
        found = {path: find(text, RULES, {}, contexts.get(path, ALONE)) for path, text in files.items()}
        contexts = contexts_of({path: each.links for path, each in found.items()})
    (only,) = found["train.py"].findings
    return only


def test_a_meter_that_only_computes_is_given_the_tensor() -> None:
    (fix,) = finding(METER.format(keeps="self.sum += value * n")).fixes
    text = SCRIPT
    for edit in sorted(fix.edits, key=lambda each: each.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    assert "meter.update(loss.detach().double(), len(x))" in text and "return float(meter.avg)" in text


@pytest.mark.parametrize(
    "keeps",
    [
        "self.sum = value",  # which is the tensor itself, and added to below
        "self.sum += float(value) * n",
        "self.sum += 1 / value",
        "self.values.append(value)",
        "if value > 0: self.sum += value",
    ],
)
def test_a_meter_that_does_more_is_given_the_number(keeps: str) -> None:
    assert not finding(METER.format(keeps=keeps) + "\n    def more(self):\n        self.sum += 1\n").fixes


def test_a_meter_whose_attributes_others_set_is_given_the_number() -> None:
    script = SCRIPT.replace("    return meter.avg", "    meter.avg = 0")
    assert not finding(METER.format(keeps="self.sum += value * n"), script).fixes


def test_a_meter_whose_class_here_adds_to_that_there_is_given_the_number() -> None:
    derived = "class Own(Meter):\n    def tell(self):\n        print(self.sum)\n\ndef train"
    script = SCRIPT.replace("def train", derived).replace("= Meter()", "= Own()")
    assert not finding(METER.format(keeps="self.sum += value * n"), script).fixes


def test_a_meter_whose_attributes_another_file_sets_is_given_the_number() -> None:
    plot = "from utils import Meter\n\ndef clear(meter):\n    meter.sum = None\n"
    assert not finding(METER.format(keeps="self.sum += value * n"), plot=plot).fixes

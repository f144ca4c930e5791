"""The screen leaves out only rules that cannot fire."""

from __future__ import annotations

import pytest

from perflint.analysis.links import ALONE, Context
from perflint.engine.catalogue import all_rules
from perflint.engine.check import can_fire, find
from perflint.project.ties import contexts_of
from tests.stub_rules import CRASH, EVAL


def test_a_rule_stays_where_its_trigger_is_in_the_text() -> None:
    assert can_fire([EVAL, CRASH], "import torch\neval(x)\n") == (EVAL,)
    assert can_fire([EVAL, CRASH], "import torch\n") == ()


@pytest.mark.parametrize("text", ["import torch\n", "loss.backward()\n", "import lightning as L\n", "model.cuda()\n"])
def test_a_program_that_uses_torch_is_known_by_its_imports_or_its_calls(text: str) -> None:
    assert can_fire([EVAL], text + "eval(x)\n") == (EVAL,)


def test_a_program_that_has_nothing_to_do_with_torch_ends_here() -> None:
    assert can_fire([EVAL], "import numpy\neval(x)\n") == ()
    assert can_fire(all_rules(), "import json\nfor x in range(3):\n    print(x.item())\n") == ()


@pytest.mark.parametrize(("script", "lines"), [("from data import Rows\nRows().cuda()\n", [8]), ("import data\n", [])])
def test_a_dataset_need_not_name_torch_where_a_program_uses_it(script: str, lines: list[int]) -> None:
    dataset = (
        "import json\n\nclass Rows:\n    def __len__(self):\n        return 8\n\n"
        "    def __getitem__(self, index):\n        file = open('rows.json')\n        return json.load(file)[index]\n"
    )
    files = {"data.py": dataset, "train.py": script}
    rules = [rule for rule in all_rules() if rule.name == "heavy-getitem"]
    contexts: dict[str, Context] = {}
    for _ in range(2):
        found = {name: find(text, rules, {}, contexts.get(name, ALONE)) for name, text in files.items()}
        contexts = contexts_of({name: each.links for name, each in found.items()})
    assert [dataset.count("\n", 0, each.start) + 1 for each in found["data.py"].findings] == lines

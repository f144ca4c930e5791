"""The screen leaves out only rules that cannot fire."""

from __future__ import annotations

import pytest

from perflint.engine.catalogue import all_rules
from perflint.engine.check import can_fire
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

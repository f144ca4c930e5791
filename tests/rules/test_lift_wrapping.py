"""Whether calling something may be more than running its body is told by what a program uses, and not by its words."""

from __future__ import annotations

import ast

import pytest

from perflint.analysis.memory.dispatch import Modules, is_scripted, may_be_hooked, may_be_wrapped
from perflint.analysis.program import Program


@pytest.mark.parametrize(
    "text",
    [
        "model.register_forward_hook(f)",
        "import torch.nn.utils.prune as p\np.random_unstructured(layer)",
        "from torch.nn.utils import weight_norm as wn",
        "from torch.nn.utils.parametrizations import orthogonal",
        "from torch import nn\nnn.Linear = Linear",
        "import torch\nmodel = torch.ao.quantization.quantize_dynamic(model)",
    ],
)
def test_what_replaces_weights_or_adds_to_calls_is_a_hook(text: str) -> None:
    assert may_be_hooked(Program(text))
    assert may_be_wrapped(Program(text))


@pytest.mark.parametrize(
    "text",
    [
        "model.compile()",
        "import torch\nmodel = torch.compile(model)",
        "from torch.utils.checkpoint import checkpoint",
        "import torch\ntorch.utils.checkpoint.checkpoint(f, x)",
        "from torch import nn\nmodel = nn.DataParallel(model)",
        "import torch\n@torch.jit.script\ndef f(): pass",
    ],
)
def test_what_stands_for_a_module_wraps_it(text: str) -> None:
    assert may_be_wrapped(Program(text))
    assert not may_be_hooked(Program(text))


@pytest.mark.parametrize(
    "text",
    [
        "import re\nWORD = re.compile('a')",
        "import torch\ncheckpoint = torch.load(path)\nmodel.load_state_dict(checkpoint['model'])",
        "save_checkpoint(args.checkpoint, model)",
        "# nn.DataParallel, torch.compile and register_forward_hook would wrap it",
        "prune(trees)",
    ],
)
def test_what_is_only_called_so_wraps_nothing(text: str) -> None:
    assert not may_be_wrapped(Program(text))


def test_scripts_are_seen() -> None:
    assert is_scripted(Program("from torch import jit\njit.script(f)"))
    assert not is_scripted(Program("jit = 3"))


@pytest.mark.parametrize(
    ("name", "is_known"),
    [("name", False), ("'cell'", False), ("f'ce{i}'", False), ("f'layer{i}'", True), ("'other'", True)],
)
def test_attributes_set_by_name_are_seen(name: str, is_known: bool) -> None:
    text = f"""
from torch import nn

class Model(nn.Module):
    def __init__(self, layer):
        self.cell = nn.GRUCell(3, 4)
        setattr(self, {name}, layer)

    def forward(self, x, h):
        return self.cell(x, h)
"""
    program = Program(text)
    (call,) = (each for each in program.of_type(ast.Call) if ast.unparse(each.func) == "self.cell")
    (built,) = program.get(Modules).builders(call.func)
    assert (built is not None) is is_known

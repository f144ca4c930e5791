"""A function of another file that only moves its first argument moves what was made on the host just before."""

from __future__ import annotations

import pytest

from perflint.analysis.links import ALONE, Context
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.project.ties import contexts_of

RULES = [rule for rule in all_rules() if rule.name == "host-tensor"]
SCRIPT = """import torch
{imported}

model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(1000, 4)):
    loss = model(x.cuda() + {noise}).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
PLAIN = "from utils import put"
NOISE = "put(torch.randn(x.size(0), 4))"
GUARDED = """def put(x, grad=False):
    if torch.cuda.is_available():
        x = x.cuda()
    return torch.autograd.Variable(x, requires_grad=grad)
"""


@pytest.mark.parametrize(
    ("utils", "imported", "noise"),
    [
        (GUARDED, PLAIN, NOISE),
        (GUARDED, "from utils import *", NOISE),
        ("def put(x):\n    return x.to('cuda')", "import utils", f"utils.{NOISE}"),
    ],
)
def test_a_helper_that_moves_its_argument_copies_what_is_made_for_it(utils: str, imported: str, noise: str) -> None:
    assert _is_found(utils, imported, noise)


@pytest.mark.parametrize(
    ("utils", "noise"),
    [
        ("def put(x):\n    return x.cuda() + x.cuda()", NOISE),
        ("def put(x):\n    return x", NOISE),
        (GUARDED, "put(x)"),
        (GUARDED, "put(torch.tensor(x.tolist()))"),
    ],
)
def test_what_a_helper_computes_or_is_given_data_for_is_left_alone(utils: str, noise: str) -> None:
    assert not _is_found(utils, PLAIN, noise)


def _is_found(utils: str, imported: str, noise: str) -> bool:
    """Has the script a finding, beside the file with the helper?"""
    files = {"train.py": SCRIPT.format(imported=imported, noise=noise), "utils.py": f"import torch\n{utils}\n"}
    contexts: dict[str, Context] = {}
    for _ in range(4):
        found = {path: find(text, RULES, {}, contexts.get(path, ALONE)) for path, text in files.items()}
        contexts = contexts_of({path: each.links for path, each in found.items()})
    return bool(found["train.py"].findings)

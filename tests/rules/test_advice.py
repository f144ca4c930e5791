"""What is said about reads that have no fix is true of what the program does with the value."""

from __future__ import annotations

import pytest

from perflint.analysis.program import Program
from perflint.transforms.remedy import remedies

_PROGRAM = """
import math
import numpy as np
import torch
from torch import nn

model = nn.Linear(8, 8).cuda()


def evaluate(loader, meter, plot):
    seen = set()
    for images in loader:
        scores = model(images.cuda())
        top = scores.max()
        {}
"""

_SIZES = "on the host: keep"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("rows = list(range(top.item()))", _SIZES),
        ("rows = scores[: top.item()]", _SIZES),
        ("rows = scores.masked_select(scores > 0).sum()", "depends on the mask"),
        ("rows = torch.unique(scores)", "the number of values"),
        ("rows = torch.clamp(scores, max=top.item())", "pass the tensor"),
        ("rows = math.log(top.item())", "`torch.log` does the same on the device"),
        ("rows = max(1.0, top.item())", "torch.max"),
        ("rows = math.comb(int(top.item()), 2)", "torch has no such function"),
        ("rows = str(top.item())", "becomes text"),
        ("rows = plot[f'{top}']", "becomes text"),
        ("rows = '%d' % top.item()", "becomes text"),
        ("print(str(top))", "is shown as a tensor"),
        ("rows = torch.log(scores * top.item())", "a tensor is computed from"),
        ("rows = torch.log(abs(top.item()))", "computes on the device"),
        ("rows = torch.add(scores, top.item())", "`torch.add` gets a Python number in every iteration"),
        ("rows = np.log(top.item())", "`np.log` gets a Python number in every iteration"),
        ("rows = np.append(plot, top.item())", "`np.append` gets a Python number in every iteration"),
        ("seen.add(top.item())", "`seen.add` gets a Python number in every iteration"),
        ("seen.update([top.item()])", "`seen.update` gets a Python number in every iteration"),
        ("rows = torch.nn.functional.pad(scores, (1, 2), value=top.item())", "pass the tensor"),
        ("rows = torch.randint(0, 5, (3,), generator=top.item())", "pass the tensor"),
        ("rows = plot.view(top.item())", "`plot.view` gets a Python number in every iteration"),
        ("rows = tuple(scores.tolist())", "compute on the device"),
        ("rows = [top.item(), 1]", "a dict or list keeps"),
        ("rows = 2 * top.item() + 1", "leave out `.item()`"),
        ("meter.last = top.item()", "`meter.last` keeps"),
        ("rows = top.item(); size = 2 * rows", "line 15 computes with `rows`: leave out `.item()`"),
        ("rows = top.item(); plot(rows)", "line 15: `plot` gets a Python number"),
        (
            "rows = top.item()\n        if len(images) < 4:\n            break\n        if rows > 3: seen.clear()",
            "line 18: the value decides",
        ),
        ("rows = scores.cpu().numpy(); size = rows * 2", "copy the result"),
        ("plot(scores.cpu())", "`plot` gets a copy on the host"),
        ("meter.update(scores.cpu())", "gets a copy on the host: pass the detached tensor"),
        ("meter.update(top.item())", "gets a Python number: pass the detached tensor"),
    ],
)
def test_a_read_without_a_fix_is_told_what_can_be_done(statement: str, said: str) -> None:
    (read,) = remedies(Program(_PROGRAM.format(statement)))
    assert not read.fixes
    assert said in read.blocked

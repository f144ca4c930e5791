"""A run says how often graphs were replayed, since a fix that inserts one may still leave a loop eager."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.shim.runs import patched, project

WORKLOADS = Path(__file__).parents[2] / "fixtures" / "workloads"
REPLAYS = """\
from perflint.runtime.records import Records

first, second = Records("decode"), Records("forward")
second.refuse("training", "net.py:3: it prints")
for _ in range(3):
    first.replayed()
"""


def test_replays_are_counted_and_refusals_are_said(tmp_path: Path) -> None:
    (project(tmp_path) / "main.py").write_text(REPLAYS)
    run = patched(tmp_path, "main.py")
    assert "  graphs of decode: replayed 3 times\n" in run.stderr
    assert "  graphs of forward: replayed 0 times: net.py:3: it prints\n" in run.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a device")
def test_a_graph_that_has_no_device_is_said_to_be_no_use(tmp_path: Path) -> None:
    shutil.copy(WORKLOADS / "attention.py", project(tmp_path))
    run = patched(tmp_path, "--unsafe", "attention.py")
    assert "run `forward` as one CUDA graph" in run.stderr
    assert "replayed 0 times: there is no device\n" in run.stderr

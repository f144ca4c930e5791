"""What `perflint verify` observes of one GPU, and of the ranks on two: `pytest tests/gpu/test_verify_on_gpu.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from perflint.project.stored import VERDICTS
from perflint.verify import verdicts
from perflint.verify.agent.timeline import DEVICE, HOST, LANES
from perflint.verify.verdict import Verdict

FIXTURES = Path(__file__).parents[2] / "fixtures"
GREEDY = ("--batch", "100", "--steps", "128", "--width", "512", "--words", "1000", "--batches", "4000")
RANKS = ("torchrun", "--nproc-per-node", "2", "ranks.py", "100000")


@pytest.fixture(autouse=True)
def alone() -> None:
    """With other processes on the GPU there is no verdict on speed."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        pytest.skip("the tests before have put this process on the GPU: run this file by itself")


def verified(folder: Path, program: Path, *arguments: str) -> Verdict:
    shutil.copy(program, folder)
    (folder / "perflint.toml").touch()  # a project of its own
    command = [sys.executable, "-m", "perflint", "verify", "--budget", "60s", *arguments]
    environment = {**os.environ, "NCCL_NVLS_ENABLE": "0"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    print(result.stdout, result.stderr)
    assert result.returncode in (0, 1)
    (verdict,) = verdicts.read(folder / ".perflint" / VERDICTS)
    for name, side in (("before", verdict.before), ("after", verdict.after)):
        if side.timeline:
            shares = {lane: f"{side.timeline.share(lane):.3f}" for lane in side.timeline.lanes}
            print(
                name, "busy", side.busy, "slowdown", side.timeline.slowdown, shares, len(side.timeline.spans), "spans"
            )
    print(verdict.environment, len(verdict.readings), "readings", verdict.strangers, verdict.excluded)
    return verdict


def test_a_loop_that_waits_for_its_launches_leaves_the_gpu_idle_until_it_is_captured(tmp_path: Path) -> None:
    program = FIXTURES / "workloads" / "greedy.py"
    verdict = verified(tmp_path, program, "--select", "decode-loop", program.name, *GREEDY)
    before, after = verdict.before.timeline, verdict.after.timeline
    assert before is not None and after is not None
    assert before.lanes == after.lanes == LANES
    assert verdict.before.busy is not None and verdict.after.busy is not None
    assert 0.01 < verdict.before.busy < verdict.after.busy <= 1
    assert before.share(HOST) > 0.5
    assert before.slowdown < 3
    assert not verdict.strangers
    assert verdict.readings and "GPU clock" in verdict.environment and "driver" in verdict.environment


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_ranks_of_two_gpus_get_one_verdict(tmp_path: Path) -> None:
    verdict = verified(tmp_path, FIXTURES / "verify" / "ranks.py", *RANKS)
    assert verdict.is_same
    assert verdict.before.timeline is not None and DEVICE in verdict.before.timeline.lanes
    assert len({reading.gpu for reading in verdict.readings}) == 2
    assert not verdict.strangers

"""Measures on two GPUs what ranks that train together get: `python -m tests.gpu.measure_ranks FOLDER [SECONDS]`.

Graphed steps against eager ones, buckets of gradients, the profile of a slow rank against the truth, `verify` and
`tune`, in this order, until the seconds are spent (330). What is printed goes to FOLDER as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gpu.rank_steps import CASES

ROOT = Path(__file__).parents[2]
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
WASTED = 0.02  # seconds in each step of the last rank
_TORCHRUN = ("torchrun", "--nproc-per-node", "2")
_ENVIRONMENT = {**os.environ, "NCCL_NVLS_ENABLE": "0", "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}


class Clock:
    """What is left of the time."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()


def said(words: Sequence[str], folder: Path, seconds: float) -> tuple[int, str, str]:
    """The exit code and output of a program, which is ended after some seconds."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=_ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, errors = process.communicate()
        errors += f"\nended after {seconds:.0f} s"
    return process.returncode, output, errors


def steps_of(case: str, seconds: float = 75) -> tuple[dict[str, Any] | None, str]:
    """What the ranks of a case found, or None, and what they say of errors."""
    _, output, errors = said([*LAUNCHER, "-m", "tests.gpu.rank_steps", case], ROOT, seconds)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    return (json.loads(lines[-1]) if lines else None), errors


def profiled(wasted: float, seconds: float = 60) -> tuple[dict[str, Any] | None, str]:
    """The profile of the ranks, of which the last wastes so many seconds in each step."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "fixtures" / "profile" / "ranks.py", folder)
        Path(folder, "perflint.toml").touch()  # a project of its own
        words = ["-m", "perflint", "profile", "-q", "--json", *_TORCHRUN, "ranks.py", str(wasted)]
        code, output, errors = said(words, Path(folder), seconds)
    return (json.loads(output) if not code else None), errors


def truth() -> None:
    """Print how much of a step the first rank waits, by its profile and by what the step takes without the plant."""
    (slow, errors), (fast, _) = profiled(WASTED), profiled(0.0)
    if slow is None or fast is None:
        print("profile failed:", errors[-2000:])
        return
    both: dict[str, list[dict[str, float]]] = {}
    for name, found in (("slow", slow), ("fast", fast)):
        both[name], shares = found["ranks"], found["shares"]
        print(f"profile, {name}: {max(shares, key=lambda each: shares[each])}; {shares}; {both[name]}")
        print(f"    slowdown {found['slowdown']}, first lines {found['lines'][:2]}"[:700])
    step, bare = both["slow"][0]["step_ms"], both["fast"][0]["step_ms"]
    known = step - bare + both["fast"][0]["communication_ms"]
    share = both["slow"][0]["communication_ms"] / step
    print(f"rank 0 waits {100 * share:.1f} % of a step by its profile; {100 * known / step:.1f} % are true", flush=True)


def commanded(command: str, budget: int, *options: str) -> None:
    """Print what verify or tune says of ranks, and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "fixtures" / "verify" / "ranks.py", folder)
        Path(folder, "perflint.toml").touch()
        begin = time.monotonic()
        words = ["-m", "perflint", command, "--budget", f"{budget}s", *options, *_TORCHRUN, "ranks.py", "100000"]
        code, output, errors = said(words, Path(folder), budget + 40)
        print(f"{command}: exit code {code} after {time.monotonic() - begin:.0f} s of {budget}\n{output}")
        print(errors[-1500:], flush=True)


def main(folder: str, seconds: str = "330") -> None:
    """Measure, and print."""
    clock, results = Clock(float(seconds)), []
    for case in (*CASES, "buckets"):
        found, errors = steps_of(case, min(75, clock.left))
        results.append(found or {"case": case, "failed": errors[-1500:]})
        print(json.dumps(results[-1]), flush=True)
        Path(folder, "ranks.json").write_text(json.dumps(results, indent=1))
    truth()
    for command, most in (("verify", 45), ("tune", 120)):
        if clock.left > 40:
            commanded(command, min(most, int(clock.left) - 15))


if __name__ == "__main__":
    main(*sys.argv[1:])

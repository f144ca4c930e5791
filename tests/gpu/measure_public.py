"""Holds verdicts of public programs against their fixes in plain runs: `python -m tests.gpu.measure_public`.

Each line of --list is a folder and a command. A copy of the folder beside it gets every fix that `fix --unsafe` writes
for the script; the two take turns under plain Python, each for some seconds from its twentieth backward pass on. The
ratio of the times between backward passes is what somebody gains who applies the same fixes by hand.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from perflint.project.stored import VERDICTS
from perflint.verify import verdicts
from perflint.verify.summary import ratio_with_interval

TIMED = """
import os, runpy, sys, time, torch
seconds, sys.argv = float(sys.argv[1]), sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
count, begin, backward = 0, 0.0, torch.Tensor.backward
def timed(*args, **kwargs):
    global count, begin
    backward(*args, **kwargs)
    count += 1
    if count == 20 or count > 20 and time.perf_counter() - begin > seconds:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        if count > 20:
            sys.__stderr__.write(f"\\ntook {(now - begin) / (count - 20)}\\n")
            sys.__stderr__.flush()
            os._exit(0)
        begin = now
if __name__ == "__main__":
    torch.Tensor.backward = timed
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def verified(folder: Path, words: Sequence[str], budget: str) -> tuple[str, float]:
    """What `perflint verify` says, and how many seconds that took."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "perflint", "verify", "-q", "--budget", budget, *words]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    seconds = time.monotonic() - begin
    stored = folder / ".perflint" / VERDICTS
    verdict = next(iter(verdicts.read(stored)), None) if stored.exists() else None
    first = next(iter((done.stdout or done.stderr).splitlines()), "")
    kept = ", ".join(sorted({fix.rule for fix in verdict.fixes if fix.kept})) if verdict else ""
    ratio = ratio_with_interval(verdict.speed) if verdict and verdict.speed else ""
    return f"{first} | {ratio} | kept: {kept or '-'}", seconds


def fixed(folder: Path, script: str) -> Path:
    """A copy of the program beside it, with every fix written."""
    copy = folder.with_name(f"{folder.name}_fixed")
    shutil.copytree(folder, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".perflint*"))
    command = [sys.executable, "-m", "perflint", "fix", "--apply", "--unsafe", "--exit-zero", "-q", script]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    return copy


def plain(folder: Path, words: Sequence[str], seconds: float, runner: Path) -> float:
    """Seconds between two backward passes, in a run by plain Python."""
    command = [sys.executable, str(runner), str(seconds), *words]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    took = [line for line in done.stderr.splitlines() if line.startswith("took ")]
    if not took:
        raise RuntimeError(f"{folder}: {done.stderr[-500:]}")
    return float(took[-1].split()[1])


def main() -> None:
    """Verify, fix and time each program of the list, and print a line about it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", type=Path, required=True, help="of programs: a folder and a command on each line")
    parser.add_argument("--budget", default="60s", help="of each verdict")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each plain run, behind its start")
    parser.add_argument("--rounds", type=int, default=2, help="of plain runs")
    parser.add_argument("--output", type=Path)
    typed = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{device}, torch {torch.__version__}", flush=True)
    results = []
    for line in typed.list.read_text("utf-8").splitlines():
        name, *words = shlex.split(line)
        folder = Path(name).resolve()
        said, seconds = verified(folder, words, typed.budget)
        copy = fixed(folder, words[0])
        runner = folder.with_name("timed_run.py")
        runner.write_text(TIMED, encoding="utf-8")
        times: dict[Path, list[float]] = {folder: [], copy: []}
        for number in range(typed.rounds):
            for each in (folder, copy) if number % 2 == 0 else (copy, folder):
                times[each].append(plain(each, words, typed.seconds, runner))
        before, after = (statistics.median(times[each]) for each in (folder, copy))
        print(f"{line}\n  {said} | {seconds:.0f} s", flush=True)
        print(f"  every fix, plain runs: {before * 1e3:.2f} to {after * 1e3:.2f} ms, {before / after:.2f}x", flush=True)
        results.append({"program": line, "said": said, "seconds": seconds, "times": list(times.values())})
    if typed.output:
        typed.output.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()

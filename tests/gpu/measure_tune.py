"""Tunes whole programs and times them beside what an expert makes of them: `python -m tests.gpu.measure_tune`.

The programs in programs_steps are the steps of public programs in their published sizes, on batches that lie on the
device. After each verdict the program as it is, as tuned and as written by hand run by turns, each in a process of its
own: they print what an epoch takes a step, of which the medians without the first epochs are compared.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from perflint.tune import TUNED

HERE = Path(__file__).parent / "programs_steps"
PERFLINT = (sys.executable, "-m", "perflint")
_SIZES = {  # enough steps for a verdict, and epochs that plain runs are timed by
    "mnist": ("--steps 400 --epochs 400", "--steps 400 --epochs 12", ""),
    "vae": ("--steps 400 --epochs 400", "--steps 400 --epochs 12", ""),
    "dcgan": ("--steps 100 --epochs 400", "--steps 100 --epochs 12", ""),
    "ppo": ("--steps 200 --epochs 400", "--steps 200 --epochs 12", ""),
    "words": ("--steps 200 --epochs 400", "--steps 200 --epochs 12", ""),
    "gpt": ("--steps 50 --epochs 400", "--steps 50 --epochs 8", "--allow precision"),
    "resnet": ("--steps 20 --epochs 400", "--steps 20 --epochs 12", "--allow precision"),
}
_SKIPPED = 3  # epochs in which graphs are made
_TOOK = re.compile(r"took ([\d.]+) ms a step")


def tuned(name: str, folder: Path, budget: str) -> tuple[str, float]:
    """What `perflint tune` says, and how many seconds that took."""
    typed, _, allowed = _SIZES[name]
    begin = time.monotonic()
    command = [*PERFLINT, "tune", "--budget", budget, *allowed.split(), f"{name}.py", *typed.split()]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    return f"exit code {done.returncode}\n{done.stdout}{done.stderr[-1500:]}", time.monotonic() - begin


def milliseconds(command: Sequence[str], folder: Path) -> float:
    """What a step takes in a run of the command; not a number where it fails."""
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    took = [float(each) for each in _TOOK.findall(done.stdout)][_SKIPPED:]
    if not took:
        print(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-1500:]}", flush=True)
    return statistics.median(took) if took else float("nan")


def timed(name: str, folder: Path, rounds: int) -> Mapping[str, float]:
    """The milliseconds of a step of each version, medians of so many runs by turns."""
    sizes = _SIZES[name][1].split()
    ways = {
        "as it is": [sys.executable, f"{name}.py", *sizes],
        "tuned": [*PERFLINT, "run", "--tuned", f"{name}.py", *sizes],
        "by hand": [sys.executable, f"{name}_by_hand.py", *sizes],
    }
    if not (folder / ".perflint" / TUNED).exists():
        del ways["tuned"]
    runs = [{way: milliseconds(command, folder) for way, command in ways.items()} for _ in range(rounds)]
    return {way: statistics.median(each[way] for each in runs) for way in ways}


def main() -> None:
    """Tune, time, and print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*_SIZES])
    parser.add_argument("--budget", default="90s", help="of each verdict; 0: none")
    parser.add_argument("--rounds", type=int, default=2, help="of plain runs")
    parser.add_argument("--output", type=Path, help="a folder")
    typed = parser.parse_args()
    print(torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", torch.__version__, flush=True)
    for name in typed.names:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary).resolve()
            for path in (HERE / f"{name}.py", *(HERE / "by_hand").glob("*.py")):
                shutil.copy(path, folder)
            (folder / "perflint.toml").touch()  # a project of its own
            said, seconds = tuned(name, folder, typed.budget) if typed.budget != "0" else ("", 0.0)
            took = timed(name, folder, typed.rounds)
            each = ", ".join(f"{way} {ms:.3f} ms ({took['as it is'] / ms:.2f}x)" for way, ms in took.items())
            print(f"=== {name}: {each}; {seconds:.0f} s\n{said}", flush=True)
            if typed.output:
                content = {"program": name, "took": took, "seconds": seconds, "said": said}
                (typed.output / f"tuned_{name}.json").write_text(json.dumps(content), "utf-8")


if __name__ == "__main__":
    main()

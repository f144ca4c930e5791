"""Measures on a GPU whether profiles are right: `python -m tests.gpu.measure_profile FOLDER [PUBLIC]`.

Programs with a planted cost are profiled with it and without it: what it really costs is the difference of the steps.
Public programs in the folder PUBLIC are profiled as they are. Records go to FOLDER.
"""

from __future__ import annotations

import json
import lzma
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from perflint.profile.build import profile_of
from perflint.profile.record import Orders
from perflint.profile.result import Profile
from perflint.profile.running import Ran, run
from perflint.verify.messages import Kind, Program
from perflint.verify.processes import Guardian

ROOT = Path(__file__).parents[2]
PLANTED = ROOT / "fixtures" / "profile"
_WITHOUT = {  # a program, and how to write its planted line without the plant
    "stall": ("time.sleep(0.02)", "pass"),
    "slow_loader": ("time.sleep(0.0005)", "pass"),
    "reads": (".item()", ""),
}
_SIZES = {"pointwise": ["67108864"], "products": ["8192"]}
_PUBLIC = {
    "examples/mnist": ["main.py", "--epochs", "1"],
    "examples/vae": ["main.py", "--epochs", "1"],
    "nanoGPT": [
        *("train.py", "config/train_shakespeare_char.py", "--compile=False", "--eval_iters=5"),
        *("--eval_interval=200", "--max_iters=300"),
    ],
}
_WORKLOADS = {
    "chatty": "--examples 131072 --batch 2048 --width 1024 --layers 16 --epochs 2",
    "greedy": "",
    "finetune": "",
    "context": "",
    "images": "",
}


def profiled(path: Path, arguments: Sequence[str], folder: Path, *, stops: bool = False) -> tuple[Ran, Profile | None]:
    """What profiling a script brings."""
    program = Program(Kind.SCRIPT, str(path), tuple(arguments), folder)
    with closing(Guardian()) as guardian:
        ran = run(program, Orders(10, 10), lambda _: None, guardian, stops=stops, to_errors=True)
    return ran, profile_of(str(program), ran.records, ran.workers)


def shown(name: str, profile: Profile | None, seconds: float) -> None:
    """Print what a profile says."""
    if profile is None:
        print(f"{name}: no profile", flush=True)
        return
    shares = " ".join(f"{regime} {100 * share:.1f}" for regime, share in profile.shares.items())
    print(
        f"{name}: {profile.regime}; step {profile.step_ms:.3f} ms; x{profile.slowdown:.3f}; {shares}; {seconds:.0f} s"
    )
    for line in profile.lines[:5]:
        own = " ".join(f"{regime} {ms:.3f}" for regime, ms in line.own.items())
        print(
            f"    {Path(line.path).name}:{line.line} {own}; {line.launches:.0f} launches, {line.device_ms:.3f} GPU ms"
        )
    line_ = profile.roofline
    rates = {each: f"{value / 1e12:.1f}" for each, value in line_.achieved.items()}
    print(
        f"    TFLOP/s {rates}, {100 * line_.peak_share:.1f} % of peak; {line_.bandwidth / 1e12:.2f} TB/s"
        f"; {profile.notes}"
    )
    sys.stdout.flush()


def planted(folder: Path) -> list[dict[str, Any]]:
    """Profiles of planted programs, with the truth where it can be had."""
    results = []
    for path in sorted(PLANTED.glob("*.py")):
        name = path.stem
        if "# expect:" not in path.read_text():
            continue
        begin = time.perf_counter()
        ran, profile = profiled(path, _SIZES.get(name, []), ROOT)
        with lzma.open(folder / f"{name}.xz", "wb", preset=1) as file:
            pickle.dump(ran, file)
        shown(name, profile, time.perf_counter() - begin)
        result: dict[str, Any] = {
            "name": name,
            "regime": profile.regime if profile else "",
            "shares": dict(profile.shares) if profile else {},
        }
        if name in _WITHOUT and profile:
            with tempfile.TemporaryDirectory() as other:
                bare = Path(other, path.name)
                bare.write_text(path.read_text().replace(*_WITHOUT[name]))
                _, without = profiled(bare, [], ROOT)
            if without:
                truth = 1 - without.step_ms / profile.step_ms
                print(f"    without the plant {without.step_ms:.3f} ms: it takes {100 * truth:.1f} % of a step")
                result["truth"] = truth
        results.append(result)
    return results


def product() -> None:
    """Print the rate of the planted program's product, timed by itself."""
    values = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    weight = torch.full((8192, 8192), 1e-3, device="cuda", dtype=torch.bfloat16)
    events = [
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2)
    ]
    for _ in range(5):
        values @ weight
    events[0].record()
    for _ in range(30):
        values @ weight
    events[1].record()
    torch.cuda.synchronize()
    print(f"a product by itself: {30 * 2 * 8192**3 / events[0].elapsed_time(events[1]) / 1e9:.0f} TFLOP/s")


def rest() -> None:
    """Print what later steps take with and without a profile of earlier ones."""
    path = PLANTED / "long.py"
    for number in range(3):
        plain = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True).stdout
        command = [sys.executable, "-m", "perflint", "profile", "-q", str(path)]
        after = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found = [re.search(r"([\d.]+) ms a step", text) for text in (plain, after)]
        print(f"rest {number}: alone and behind a profile:", *(each and each[1] for each in found), flush=True)


def public(folder: Path) -> None:
    """Print the profiles of public programs and workloads."""
    for name, command in _PUBLIC.items():
        if (folder / name).exists():
            begin = time.perf_counter()
            script, *arguments = command
            _, profile = profiled(Path(script), arguments, folder / name, stops=True)
            shown(name, profile, time.perf_counter() - begin)
    for name, text in _WORKLOADS.items():
        begin = time.perf_counter()
        _, profile = profiled(ROOT / "fixtures" / "workloads" / f"{name}.py", text.split(), ROOT, stops=True)
        shown(name, profile, time.perf_counter() - begin)


def main(folder: str, programs: str = "") -> None:
    """Measure, and print."""
    results = planted(Path(folder))
    Path(folder, "planted.json").write_text(json.dumps(results))
    product()
    public(Path(programs)) if programs else None
    rest()


if __name__ == "__main__":
    main(*sys.argv[1:])

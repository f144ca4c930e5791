"""Measures on a GPU whether profiles are right: `python -m tests.gpu.measure_profile FOLDER [PUBLIC]`.

Programs with a planted cost are profiled with it and without it: what it really costs is the difference of the steps.
Or public programs in the folder PUBLIC are profiled as they are. Records go to FOLDER.
"""

from __future__ import annotations

import lzma
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import torch

from perflint.profile.record import Orders
from perflint.profile.result import Profile
from perflint.profile.running import Manner, Ran, profile_of, run
from perflint.verify.messages import Kind, Program
from perflint.verify.processes import Guardian

ROOT = Path(__file__).parents[2]
PLANTED = ROOT / "fixtures" / "profile"
WITHOUT = {  # a program, and how to write its planted line without the plant
    "stall": ("time.sleep(0.02)", "pass"),
    "slow_loader": ("time.sleep(0.0005)", "pass"),
    "reads": (".item()", ""),
}
SIZES = {
    "stall": [],
    "slow_loader": [],
    "reads": [],
    "tiny_launches": [],
    "pointwise": ["67108864"],
    "products": ["8192"],
}
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
    "context": "--batch 512 --times 1024 --width 1024 --speakers 1000 --steps 200",
}


def profiled(path: Path, arguments: Sequence[str], folder: Path, *, stops: bool = False) -> tuple[Ran, Profile | None]:
    """What profiling a script brings."""
    program = Program(Kind.SCRIPT, str(path), tuple(arguments), folder)
    with closing(Guardian()) as guardian:
        ran = run(program, Orders(10, 10, 20), lambda _: None, guardian, Manner(stops, stdout=sys.stderr.fileno()))
    return ran, profile_of(str(program), ran.records, ran.workers)


def shown(name: str, profile: Profile | None) -> None:
    """Print what a profile says."""
    if profile is None:
        print(f"{name}: no profile", flush=True)
        return
    shares = " ".join(f"{regime} {100 * share:.1f}" for regime, share in profile.shares.items())
    print(f"{name}: {profile.regime}; step {profile.step_ms:.3f} ms; x{profile.slowdown:.3f}; {shares}")
    for line in profile.lines[:5]:
        own = " ".join(f"{regime} {ms:.3f}" for regime, ms in line.own.items())
        work = f"{line.launches:.0f} launches, {line.device_ms:.3f} GPU ms"
        print(f"    {Path(line.path).name}:{line.line} {own}; {work}")
    roofline = profile.roofline
    rates = {each: f"{value / 1e12:.1f}" for each, value in roofline.achieved.items()}
    print(f"    TFLOP/s {rates}, {100 * roofline.peak_share:.1f} % of peak; {roofline.bandwidth / 1e12:.2f} TB/s")
    for note in profile.notes:
        print(f"    {note}")
    sys.stdout.flush()


def without(name: str) -> Profile | None:
    """The profile of a planted program without what is planted."""
    path = PLANTED / f"{name}.py"
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder, path.name)
        bare.write_text(path.read_text().replace(*WITHOUT[name]))
        return profiled(bare, [], ROOT)[1]


def planted(folder: Path) -> None:
    """Print the profiles of planted programs, with the truth where it can be had."""
    for name, arguments in SIZES.items():
        ran, profile = profiled(PLANTED / f"{name}.py", arguments, ROOT)
        keep(folder, name, ran)
        shown(name, profile)
        bare = without(name) if name in WITHOUT else None
        if bare and profile:
            truth = 1 - bare.step_ms / profile.step_ms
            print(f"    without the plant {bare.step_ms:.3f} ms: it takes {100 * truth:.1f} % of a step", flush=True)


def keep(folder: Path, name: str, ran: Ran) -> None:
    """Keep what was recorded, to be looked at again."""
    with lzma.open(folder / f"{name}.xz", "wb", preset=1) as file:
        pickle.dump(ran, file)


def product() -> float:
    """The FLOP/s of the planted program's products, timed by themselves: the best of several rounds, as clocks vary.

    They are a forward product and the two of its backward pass, which are faster. The numbers are those of the program,
    too: random ones take more power, so that the clock falls.
    """
    values = torch.ones(8192, 8192, device="cuda", dtype=torch.bfloat16)
    weight = torch.full((8192, 8192), 1 / 8192, device="cuda", dtype=torch.bfloat16)
    seconds = []
    for _ in range(6):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(10):
            values @ weight
            values @ weight.T
            values.T @ values
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return 30 * 2 * 8192**3 / min(seconds)


def rest() -> None:
    """Print what steps take before and behind a profile, and without any."""
    path = PLANTED / "long.py"
    profiling = ["-m", "perflint", "profile", "-q", "--warm-up", "3900"]
    for number in range(3):
        for words in ([], profiling):
            command = [sys.executable, *words, str(path)]
            said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
            print(f"rest {number}, {'profiled' if words else 'alone'}:", *said[:1], flush=True)


def public(folder: Path, programs: Path) -> None:
    """Print the profiles of public programs in a folder, and of workloads."""
    for name, command in _PUBLIC.items():
        if (programs / name).exists():
            script, *arguments = command
            ran, profile = profiled(Path(script), arguments, programs / name, stops=True)
            keep(folder, Path(name).name, ran)
            shown(name, profile)
    for name, text in _WORKLOADS.items():
        _, profile = profiled(ROOT / "fixtures" / "workloads" / f"{name}.py", text.split(), ROOT, stops=True)
        shown(name, profile)


def main(folder: str, programs: str = "") -> None:
    """Measure, and print."""
    if programs:
        public(Path(folder), Path(programs))
    else:
        planted(Path(folder))
        print(f"a product by itself: {product() / 1e12:.0f} TFLOP/s", flush=True)
    rest()


if __name__ == "__main__":
    main(*sys.argv[1:])

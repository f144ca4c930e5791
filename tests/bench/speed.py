"""Times perflint against TorchFix and hotpath-ai on the sources of timm, and alone on those of transformers.

    python tests/bench/speed.py WORK_FOLDER [--rounds 5] [--slow-rounds 1]

Into WORK_FOLDER it downloads both wheels, and installs each rival in an environment of its own (their dependencies
clash). Rivals and perflint take turns within each round, so that a busy machine slows them alike; the ratios are of
medians. Prints each measurement as it comes, then a table with the machine's load, and exits with 1 where a target is
missed. It takes about ten minutes, most of them TorchFix's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

WHEELS = {"timm": "timm==1.0.31", "transformers": "transformers==5.23.0"}
RIVALS = {"torchfix": "torchfix==0.7.0", "hotpath": "hotpath-ai==0.1.0"}
CHANGED = "timm/models/vision_transformer.py"  # a large file: the worst that a commit hook is likely to meet
MEMORY_EVERY_S = 0.1
PATIENCE_S = 400  # what takes longer is stopped and counts as this, which is in its favour

Command = Sequence[str | Path]


@dataclass(frozen=True)
class Target:
    """A measured figure and the bound that it has to keep: at most, or at least where `least`."""

    name: str
    value: float
    bound: float
    unit: str = "s"
    least: bool = False

    @property
    def kept(self) -> bool:
        return self.value >= self.bound if self.least else self.value <= self.bound

    def __str__(self) -> str:
        relation = ">=" if self.least else "<="
        verdict = "ok" if self.kept else "MISSED"
        return f"| {self.name} | {self.value:.3g} {self.unit} | {relation} {self.bound:g} {self.unit} | {verdict} |"


def main() -> int:
    """Fetch, measure, print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow-rounds", type=int, default=1, help="of what takes minutes: TorchFix, transformers")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    sources = {name: fetch(work, name, requirement) for name, requirement in WHEELS.items()}
    rivals = {name: install(work, name, requirement) for name, requirement in RIVALS.items()}
    seconds(perflint("--version"))  # so that the bytecode is there
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {load()}")
    targets = [
        *against_rivals(sources["timm"], rivals, arguments.rounds, arguments.slow_rounds),
        *alone(work, sources["timm"], arguments.rounds),
        *large(work, sources["transformers"], arguments.rounds, arguments.slow_rounds),
    ]
    print(f"\n{load()}, medians of {arguments.rounds} rounds, of slow runs {arguments.slow_rounds}\n")
    print("| what | measured | target | |\n|---|---|---|---|", *targets, sep="\n")
    return 0 if all(target.kept for target in targets) else 1


def load() -> str:
    """How busy the machine is: above the number of cores, times are longer than they need be."""
    return f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"


def fetch(work: Path, name: str, requirement: str) -> Path:
    """The folder with the sources in the wheel of `requirement`."""
    folder = work / name
    if not folder.exists():
        wheels = work / "wheels"
        pip: Command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, requirement]
        subprocess.run(pip, check=True)
        (wheel,) = wheels.glob(f"{name}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def install(work: Path, name: str, requirement: str) -> Path:
    """The program `name` in an environment of its own."""
    environment = work / f"environment-{name}"
    binaries = environment / ("Scripts" if sys.platform == "win32" else "bin")
    if not environment.exists():
        venv.create(environment, with_pip=True)
        subprocess.run([binaries / "python", "-m", "pip", "install", "--quiet", requirement], check=True)
    return binaries / name


def perflint(*arguments: str | Path) -> list[str | Path]:
    """The command line of this checkout's perflint."""
    return [sys.executable, "-m", "perflint", *arguments]


def check(folder: Path, *arguments: str | Path) -> list[str | Path]:
    """The command that checks `folder` with the default settings."""
    return perflint("check", "--isolated", "--quiet", "--output-format", "json", *arguments, folder)


def seconds(command: Command) -> float:
    """How long `command` takes from start to end; 2 and more are failures, for all three programs."""
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, env=environment()
        )
    except subprocess.TimeoutExpired:
        return PATIENCE_S
    taken = time.perf_counter() - started
    if done.returncode > 1:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return taken


def environment() -> dict[str, str]:
    """The environment, but for what keeps Python from storing its bytecode: an installed program has it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measured(what: str, times: Sequence[float]) -> float:
    """The median of `times`, which are printed."""
    print(f"{what}: {statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f}), {load()}", flush=True)
    return statistics.median(times)


def median(what: str, command: Command, rounds: int) -> float:
    """The median time of `command`."""
    return measured(what, [seconds(command) for _ in range(rounds)])


def against_rivals(timm: Path, rivals: Mapping[str, Path], rounds: int, slow_rounds: int) -> Iterator[Target]:
    """The ratios on timm, cold and without a cache."""
    commands: dict[str, Command] = {
        "perflint": check(timm, "--no-cache"),
        "hotpath": [rivals["hotpath"], "analyze", timm],
        "torchfix": [rivals["torchfix"], timm],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds):
        for name, command in commands.items():
            if name != "torchfix" or number < slow_rounds:
                times[name].append(seconds(command))
    took = {name: measured(f"{name} on timm", taken) for name, taken in times.items()}
    yield Target("timm: TorchFix's time / ours", took["torchfix"] / took["perflint"], 25, "x", least=True)
    yield Target("timm: our time / hotpath-ai's", took["perflint"] / took["hotpath"], 2.5, "x")


def alone(work: Path, timm: Path, rounds: int) -> Iterator[Target]:
    """What perflint takes with a cache, to say its version, and in a commit hook."""
    with fresh_cache(work) as cache:
        seconds(check(timm, "--cache-dir", cache))
        yield Target("timm, warm", median("timm, warm", check(timm, "--cache-dir", cache), rounds), 0.4)
        hook = [hooked(timm, work, number, cache) for number in range(rounds)]
        yield Target("timm, one changed file", measured("timm, one changed file", hook), 0.4)
    yield Target("--version", median("--version", perflint("--version"), rounds), 0.12)


def hooked(timm: Path, work: Path, number: int, cache: Path) -> float:
    """The time for one file that no cache has seen."""
    changed = work / "changed.py"
    changed.write_text((timm / CHANGED).read_text(encoding="utf-8") + f"# {number}\n", encoding="utf-8")
    return seconds(check(changed, "--cache-dir", cache, "--force-exclude"))


def large(work: Path, transformers: Path, rounds: int, slow_rounds: int) -> Iterator[Target]:
    """Time and memory on transformers."""
    with fresh_cache(work) as cache:
        cold = median("transformers, cold", check(transformers, "--no-cache"), slow_rounds)
        yield Target("transformers, cold", cold, 40)
        seconds(check(transformers, "--cache-dir", cache))
        warm = median("transformers, warm", check(transformers, "--cache-dir", cache), rounds)
        yield Target("transformers, warm", warm, 1)
    if sys.platform == "linux":
        yield Target("transformers, peak memory", peak_memory(check(transformers, "--no-cache")) / 2**20, 1000, "MiB")


@contextmanager
def fresh_cache(work: Path) -> Iterator[Path]:
    """A folder for a cache that nobody has used."""
    folder = work / "cache"
    shutil.rmtree(folder, ignore_errors=True)
    yield folder


def peak_memory(command: Command) -> int:
    """The most memory in bytes that `command` and its workers hold together; pages that they share count once."""
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment()) as process:
        while process.poll() is None:
            peak = max(peak, sum(proportional_bytes(pid) for pid in family(process.pid)))
            time.sleep(MEMORY_EVERY_S)
    return peak


def family(pid: int) -> list[int]:
    """`pid` and the processes that it started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [pid, *map(int, children)]


def proportional_bytes(pid: int) -> int:
    """A process's memory, with its part of what it shares."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


if __name__ == "__main__":
    sys.exit(main())

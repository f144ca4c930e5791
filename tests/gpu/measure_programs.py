"""Times whole programs by `python`, by `perflint run` and as mended by hand: `python -m tests.gpu.measure_programs`.

Each of fixtures/workloads is run at the size that its docstring gives, from the start of Python to its exit, with its
plan known from a run at a small size. The ways of a program take turns, in another order each round; rounds are begun
for as long as there is time. With --tune-loader the loader of `images` is measured first, by a run that is timed, too.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).parents[2]
WORKLOADS = HERE / "fixtures" / "workloads"
COUNTS = ("--steps", "--batches", "--examples", "--images", "--episodes")  # what --share takes a part of
PYTHON, BY_HAND = "python", "by hand"
GRAPHS = ("attention", "greedy")  # which perflint mends by --unsafe alone


@dataclass
class Program:
    """A workload in a project of its own, the ways to run it, and how long each run took."""

    name: str
    folder: Path
    size: Sequence[str]
    ways: Mapping[str, Sequence[str]]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)
    summary: dict[str, str] = field(default_factory=dict)

    def run(self, way: str) -> None:
        """Run it one way."""
        seconds, done = run(self.folder, [*self.ways[way], *self.size])
        self.seconds.setdefault(way, []).append(seconds)
        self.printed[way] = done.stdout
        self.summary[way] = done.stderr.partition("perflint: ")[2]

    @property
    def expected(self) -> float:
        """How long a round will take, by those that were."""
        return sum(statistics.fmean(each) for each in self.seconds.values())

    def lines(self) -> str:
        """What was measured."""
        medians = {way: statistics.median(each) for way, each in self.seconds.items()}
        shown = "  ".join(
            f"{way} {seconds:.1f} s ({medians[PYTHON] / seconds:.2f}x)" for way, seconds in medians.items()
        )
        others = [way for way, text in self.printed.items() if text != self.printed[PYTHON]]
        rounds = len(self.seconds[PYTHON])
        return f"{self.name:10} {shown}  {rounds} rounds" + (f"; other output: {', '.join(others)}" if others else "")


def run(folder: Path, arguments: Sequence[str]) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run Python with `arguments` in `folder`; the seconds that it took, and what it printed."""
    start = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return time.perf_counter() - start, done


def program(name: str, folder: Path, extra: Sequence[str], share: float) -> Program:
    """The workload `name`, copied to `folder`, with its plan made."""
    file = f"{name}.py"
    folder.mkdir()
    (folder / "perflint.toml").touch()
    shutil.copy(WORKLOADS / file, folder)
    options = [*(["--unsafe"] if name in GRAPHS else []), *extra]
    ways = {PYTHON: [file], "perflint": ["-m", "perflint", "run", *options, file]}
    expert = WORKLOADS / "by_hand" / file
    if expert.exists():
        shutil.copy(expert, folder.with_name(f"{name}_by_hand.py"))
        ways[BY_HAND] = [str(folder.with_name(f"{name}_by_hand.py"))]
    run(folder, ways["perflint"])
    return Program(name, folder, sized(name, share), ways)


def sized(name: str, share: float) -> list[str]:
    """The arguments that a program's docstring gives, with a `share` of its steps."""
    lines = (WORKLOADS / f"{name}.py").read_text("utf-8").splitlines()
    words = shlex.split(next(line for line in lines if line.startswith("python")))[2:]
    for place, word in enumerate(words[:-1]):
        if word in COUNTS:
            words[place + 1] = str(max(int(int(words[place + 1]) * share), 1))
    return words


def tuned(program: Program) -> str:
    """Have the loader of a program measured, and say how long that run took and what it found."""
    seconds, done = run(program.folder, ["-m", "perflint", "run", "--tune-loader", f"{program.name}.py", *program.size])
    program.ways = {**program.ways, "tuned": program.ways["perflint"]}
    del program.ways["perflint"]
    return f"{program.name}: tuned in {seconds:.1f} s: {done.stderr.partition('perflint: ')[2]}"


def measure(programs: Sequence[Program], rounds: int, end: float) -> None:
    """Run each program's ways in turn, for as long as a round more will be over before `end`; print what came of it."""
    for number in range(rounds):
        for each in programs:
            if number and time.monotonic() + each.expected > end:
                continue
            ways = list(each.ways)
            for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
                each.run(way)
            print(each.lines(), flush=True)


def main() -> None:
    """Measure, print one line for each program and round, and write all that was measured to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=sorted(each.stem for each in WORKLOADS.glob("*.py")))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=330.0, help="begin no round that would end later")
    parser.add_argument("--share", type=float, default=1.0, help="of the steps that the docstrings give")
    parser.add_argument("--tune-loader", action="store_true", help="have the loader of `images` measured first")
    parser.add_argument("--options", default="", help="of `perflint run`, beside --unsafe for graphs")
    parser.add_argument("--output", type=Path)
    typed = parser.parse_args()
    end = time.monotonic() + typed.seconds
    with tempfile.TemporaryDirectory() as temporary:
        extra = shlex.split(typed.options)
        programs = [program(name, Path(temporary).resolve() / name, extra, typed.share) for name in typed.only]
        if typed.tune_loader:
            print(*[tuned(each) for each in programs if each.name == "images"], sep="\n", flush=True)
        measure(programs, typed.rounds, end)
        if typed.output:
            raw = [{**asdict(each), "folder": ""} for each in programs]
            typed.output.write_text(json.dumps(raw, indent=1), "utf-8")


if __name__ == "__main__":
    main()

"""Races programs whose truth is known, and counts what verdicts say of them: `python -m tests.gpu.measure_trust`.

One race of several processes of each program holds many races: of any rounds, and in each of them of any processes as
the original, the original again and the patch. A hundred of these are drawn at random, so that they share windows.
Programs of a list, a folder and a command on each line, are raced against themselves just as a budget would have it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from perflint.project import available_cores
from perflint.shim.plan import Plan
from perflint.verify.messages import CALLS, OPTIMIZER, Kind, Program, Variant
from perflint.verify.processes import Guardian
from perflint.verify.protocol import Budget, Protocol, Schedule, TimeUp
from perflint.verify.race import race
from perflint.verify.running import Fault
from perflint.verify.runs import Course
from perflint.verify.statistics import (
    AGAIN,
    ORIGINAL,
    PATCHED,
    Samples,
    Window,
    against_original,
    itself,
    noise_floor,
    speed,
    step_seconds,
)
from tests.verify.courses import PROGRAMS, changed

WORKLOADS = PROGRAMS.parent / "workloads"
STEP = 0.02  # seconds
PRODUCTS = 420  # of a step: 5 % more or less are whole numbers, too
SIZES = (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)  # of the matrices
ROUNDS, RACES = 8, 100  # what a race of five minutes has, and how many are drawn
LANES = 5  # processes of each workload
IDENTICAL = {  # so many steps that they never end
    "seq2seq": "--steps 1000000",
    "attention": "--steps 1000000",
    "chatty": "--epochs 1000000",
    "reinforce": "--episodes 1000000",
    "finetune": "--epochs 1000000 --workers 2",
}
LARGER = {"seq2seq": "--batch 100 --width 512 --length 32", "attention": "--batch 100 --width 512 --length 20"}


@dataclass(frozen=True)
class Field:
    """A race's samples, and for each kind of program the variants that are of it."""

    samples: Samples
    kinds: Mapping[str, Sequence[str]]

    def drawn(self, kind: str, dice: random.Random) -> Samples:
        """A race of the original, the original again, and a program of a kind, drawn from this one."""
        rounds = sorted({window.round for window in self.samples.windows})
        chosen = dice.sample(rounds, min(ROUNDS, len(rounds)))
        windows: list[Window] = []
        for number, round_ in enumerate(chosen):
            first, second = dice.sample(list(self.kinds[ORIGINAL]), 2)
            third = dice.choice([each for each in self.kinds[kind] if each not in (first, second)])
            roles = {first: ORIGINAL, second: AGAIN, third: PATCHED}
            windows += (
                replace(window, variant=roles[window.variant], round=number)
                for window in self.samples.windows
                if window.round == round_ and window.variant in roles
            )
        return Samples(tuple(windows))

    def verdicts(self, kind: str, races: int) -> dict[str, int]:
        """What so many races say of a program of a kind."""
        dice = random.Random(0)
        return dict(Counter(str(_speed(self.drawn(kind, dice))) for _ in range(races)))


def _speed(samples: Samples) -> object:
    estimate, aa = against_original(samples, PATCHED), itself(samples)
    return speed(estimate, noise_floor(aa)) if estimate and aa else "nothing"


def matrix_size(device: str) -> int:
    """Of matrices whose products make a step of about 20 ms."""
    taken = {}
    for size in SIZES:
        weight = torch.randn(size, size, device=device) / size**0.5
        for _ in range(2):
            _synchronize(device)
            begin, x = time.perf_counter(), weight
            for _ in range(PRODUCTS):
                x = x @ weight
            _synchronize(device)
            taken[size] = time.perf_counter() - begin
        if taken[size] > 2 * STEP:
            break
    return min(taken, key=lambda size: abs(taken[size] - STEP))


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def planted(device: str, guardian: Guardian, seconds: float, pairs: int) -> Field:
    """A race of three originals, and of programs with 5 % more and 5 % less to do, for so many seconds."""
    arguments = (device, str(matrix_size(device)), str(PRODUCTS))
    kinds: Mapping[str, Sequence[str]] = {
        ORIGINAL: (ORIGINAL, AGAIN, "third"),
        "5 % slower": ("slower",),
        "5 % faster": ("faster",),
    }
    work = {"5 % slower": "range(products * 21 // 20)", "5 % faster": "range(products * 20 // 21)"}
    variants = [
        replace(
            changed(guardian.folder, "steps.py", "range(products)", work.get(kind, "range(products)"), ["step"]),
            name=name,
        )
        for kind, names in kinds.items()
        for name in names
    ]
    course = Course(Program(Kind.SCRIPT, str(PROGRAMS / "steps.py"), arguments, guardian.folder), guardian)
    return Field(_raced(course, variants, Protocol(CALLS, 20, 13, pairs, 1000, 0, 120.0), seconds), kinds)


def identical(name: str, device: str, guardian: Guardian, seconds: float, pairs: int) -> Field:
    """A race of a workload against itself, several times over."""
    typed = f"{IDENTICAL[name]} {LARGER.get(name, '') if device == 'cuda' else ''}".split()
    names = (ORIGINAL, AGAIN, *(f"lane {number}" for number in range(2, LANES)))
    plan = Plan(str(WORKLOADS), {}, (), (), {}, False, False, str(guardian.folder))
    course = Course(Program(Kind.SCRIPT, str(WORKLOADS / f"{name}.py"), tuple(typed), guardian.folder), guardian)
    begin = time.monotonic()
    look = course.look(Variant(ORIGINAL, plan), 2.0)
    usual = sorted(look.steps)[len(look.steps) // 2]
    protocol = Protocol(OPTIMIZER, 10, max(1, round(0.25 / usual)), pairs, 1000, 0, 120.0)
    left = seconds - (time.monotonic() - begin)
    samples = _raced(course, [Variant(each, plan) for each in names], protocol, left)
    return Field(samples, {ORIGINAL: names})


def against_itself(folder: Path, words: Sequence[str], guardian: Guardian, seconds: float) -> list[str]:
    """What a race of a program in such a budget says of three programs that are the same as it."""
    kind = Kind.MODULE if words[0] == "-m" else Kind.SCRIPT
    name, *arguments = words[1:] if kind is Kind.MODULE else [str(folder / words[0]), *words[1:]]
    course = Course(Program(kind, name, tuple(arguments), folder), guardian, budget=Budget(4 * seconds))
    plan = Plan(str(folder), {}, (), (), {}, False, False, str(guardian.folder))
    course.prepared()
    look = course.look(Variant(ORIGINAL, plan), seconds / 10)
    names = (ORIGINAL, AGAIN, *(f"lane {number}" for number in range(2, LANES)))
    protocol = Schedule(look, beside=available_cores()).protocol(LANES, seconds)
    samples = race(course, [Variant(each, plan) for each in names], protocol, lambda _: False).samples
    floor = noise_floor(itself(samples))
    found = [estimate for each in names[2:] if (estimate := against_original(samples, each))]
    rounds = len({window.round for window in samples.windows})
    said = [str(speed(estimate, floor)) for estimate in found]
    ratios = ", ".join(f"{each.ratio:.2f} ({each.low:.2f} to {each.high:.2f})" for each in found)
    print(f"{folder.name} {' '.join(words)}: {rounds} rounds, noise {floor:.3f}: {ratios}: {said}", flush=True)
    return said


def counted(programs: Sequence[str], guardian: Guardian, seconds: float, end: float) -> Counter[str]:
    """What races say of programs against themselves, one after the other until the end, again and again."""
    total: Counter[str] = Counter()
    while time.monotonic() < end:
        for line in programs:
            folder, *words = shlex.split(line)
            try:
                total.update(against_itself(Path(folder), words, guardian, seconds))
            except (Fault, TimeUp) as failure:
                print(f"{line}: {failure!r}", flush=True)
            print(dict(total), flush=True)
            if time.monotonic() > end:
                break
    return total


def _raced(course: Course, variants: Sequence[Variant], protocol: Protocol, seconds: float) -> Samples:
    end = time.monotonic() + seconds
    return race(course, variants, protocol, lambda _: time.monotonic() > end).samples


def report(name: str, field: Field, kind: str, races: int) -> dict[str, Any]:
    """Print and return what races of a kind say."""
    found = field.verdicts(kind, races)
    rounds = len({window.round for window in field.samples.windows})
    step = step_seconds(field.samples, [ORIGINAL]) or 0.0
    said = ", ".join(f"{count} {words}" for words, count in sorted(found.items()))
    print(
        f"{name:10s} {kind:10s} {step * 1e3:8.2f} ms a step, {rounds:2d} rounds, {races:3d} races: {said}", flush=True
    )
    windows = [vars(window) for window in field.samples.windows]
    return {"program": name, "kind": kind, "step": step, "rounds": rounds, "verdicts": found, "windows": windows}


def main() -> None:
    """Race what was asked for, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["planted", "identical", "programs"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=270, help="for all races")
    parser.add_argument("--pairs", type=int, default=6, help="windows of each process")
    parser.add_argument("--each", type=float, default=30, help="for a race of one program of the list")
    parser.add_argument("--list", type=Path, help="of programs: a folder and a command on each line")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    device = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"{device}, torch {torch.__version__}, races of {ROUNDS} rounds of {options.pairs} pairs at most")
    results: list[dict[str, Any]] = []
    with closing(Guardian()) as guardian:
        if options.part == "programs":
            end = time.monotonic() + options.seconds
            programs = options.list.read_text("utf-8").splitlines()
            results.append(dict(counted(programs, guardian, options.each, end)))
        if options.part == "planted":
            field = planted(options.device, guardian, options.seconds, options.pairs)
            results += [report("steps", field, kind, RACES) for kind in field.kinds]
        for name in IDENTICAL if options.part == "identical" else ():
            field = identical(name, options.device, guardian, options.seconds / len(IDENTICAL), options.pairs)
            results.append(report(name, field, ORIGINAL, RACES // len(IDENTICAL)))
    if options.output:
        options.output.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Holds every fix of every rule against generated programs in which something has another name and is written to.

    python -m tests.bench.aliases [--count 20000] [--seed 0] [--first 0] [--processes 2] [--only TEMPLATE] [--all]
    python -m tests.bench.aliases --every [--only TEMPLATE]

Each program is a template of `tests/aliases/templates`, an alias of something in it, an effect on that, and a place for
it. It is run before and after the fix: a fix that is called exact must change no bit, one called rounding next to none.
Exits with 1 if a patch was wrong; each is listed by its parts, as few as it takes. `--all` lists every program that was
wrong, too. `--every` tries each part by itself wherever a fix does not bear it, in order; else programs are drawn
by chance, of several parts. Controls are programs in which a copy is written to, or nothing: their fix must stay.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice

import torch

from tests.aliases.programs import Case, Template, drawn, every, rendered, templates
from tests.aliases.trial import Outcome, Verdict, minimised, tried, would_be_right

_BATCH = 50  # programs that a process is given at once
_FOUND = (Verdict.SILENT, Verdict.REFUSED, Verdict.SAME)


@dataclass(frozen=True)
class Trial:
    """A program and what became of it; `least` is the simplest that goes wrong in the same way."""

    number: int
    case: Case
    outcome: Outcome
    least: Case | None
    needless: bool | None


def trials(numbers: Sequence[int], seed: int | None, only: str) -> list[Trial]:
    """What becomes of the programs of these numbers: of those drawn with a seed, or of every one."""
    torch.set_num_threads(1)
    among = _among(only)
    if seed is None:
        cases = islice(every(among), numbers[0], numbers[-1] + 1)
        return [_trial(number, case) for number, case in zip(numbers, cases, strict=True)]
    return [_trial(number, drawn(random.Random(f"{seed} {number}"), among)) for number in numbers]


def _among(only: str) -> tuple[Template, ...]:
    return tuple(template for template in templates() if template.name.startswith(only))


def _trial(number: int, case: Case) -> Trial:
    outcome = tried(rendered(case))
    least = minimised(case, outcome) if outcome.verdict is Verdict.WRONG else None
    is_kept = outcome.verdict not in (Verdict.SILENT, Verdict.REFUSED)
    return Trial(number, case, outcome, least, None if is_kept else would_be_right(case))


def _all_trials(arguments: argparse.Namespace) -> Iterator[Trial]:
    count = sum(1 for _ in every(_among(arguments.only))) if arguments.every else arguments.count
    last = arguments.first + count
    batches = [range(start, min(start + _BATCH, last)) for start in range(arguments.first, last, _BATCH)]
    fixed = [None if arguments.every else arguments.seed] * len(batches), [arguments.only] * len(batches)
    if arguments.processes == 1:
        for batch in map(trials, batches, *fixed):
            yield from batch
        return
    with ProcessPoolExecutor(arguments.processes) as pool:
        for batch in pool.map(trials, batches, *fixed):
            yield from batch


def report(found: Iterable[Trial], lists_all: bool) -> int:
    """Print what came out; how many were wrong."""
    verdicts: Counter[Verdict] = Counter()
    controls: Counter[Verdict] = Counter()
    refused: Counter[str] = Counter()
    needless: Counter[bool | None] = Counter()
    behaviour: Counter[bool] = Counter()
    wrong: dict[str, list[Trial]] = {}
    for trial in found:
        verdicts[trial.outcome.verdict] += 1
        if trial.outcome.behaviour:
            behaviour[trial.outcome.behaviour != "same"] += 1
        if trial.case.is_control:
            controls[trial.outcome.verdict] += 1
            if trial.outcome.verdict in (Verdict.SILENT, Verdict.REFUSED):
                refused[str(trial.case)] += 1
        elif trial.outcome.verdict in (Verdict.SILENT, Verdict.REFUSED):
            needless[trial.needless] += 1
        if trial.least is not None:
            rules = ", ".join(f"{rule} ({safety})" for rule, safety in trial.outcome.applied) or "perflint"
            wrong.setdefault(f"{rules} | {trial.least}", []).append(trial)
            if lists_all:
                print(f"{trial.number}: {trial.case}: {trial.outcome.detail}")
    print(f"{verdicts.total()} programs: " + ", ".join(f"{verdicts[each]} {each.value}" for each in Verdict))
    print(f"fixes that change behaviour: {behaviour.total()} programs, {behaviour[True]} of which give something else")
    kept = controls[Verdict.SAME]
    print(f"controls: {kept} of {sum(controls[each] for each in _FOUND)} keep their fix")
    print(f"others without a fix: {needless[True]} would have given the same with it, {needless[False]} would not")
    for text, times in refused.most_common(20):
        print(f"  a control without its fix, {times} times: {text}")
    print(f"{verdicts[Verdict.WRONG]} wrong patches, {len(wrong)} kinds")
    for text, same in sorted(wrong.items(), key=lambda item: -len(item[1])):
        print(f"{len(same):6} {text}: {same[0].outcome.detail} (number {same[0].number})")
    return verdicts[Verdict.WRONG]


def main() -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--every", action="store_true")
    arguments = parser.parse_args()
    return 1 if report(_all_trials(arguments), arguments.all) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Holds every fix of every rule against generated programs in which something has another name and is written to.

    python -m tests.bench.aliases [--count 20000] [--seed 0] [--first 0] [--processes 2] [--only TEMPLATE] [--needless]
    python -m tests.bench.aliases --every [--only TEMPLATE]

Each program is a template of `tests/aliases/templates`, an alias of something in it, an effect on that, and a place for
it. It is run before and after the fix: a fix that is called exact must change no bit, one called rounding next to none.
Exits with 1 if a patch was wrong; each is listed at once, and in the end some by their parts, as few as it takes.
`--every` tries each part by itself wherever a fix does not bear it, in order; else programs are drawn by chance, of
several parts. Controls are programs in which a copy is written to, or nothing: their fix must stay. `--needless` tells
how many fixes were withheld that would have done no harm, which takes long.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import islice

import torch

from tests.aliases.programs import Case, Template, drawn, every, rendered, templates
from tests.aliases.trial import Outcome, Verdict, minimised, tried, would_be_right

_BATCH = 50  # programs that a process is given at once
_MINIMISED = 5  # wrong patches of a template by the same rules that are brought down to what it takes
_FOUND = (Verdict.SILENT, Verdict.REFUSED, Verdict.SAME)


@dataclass(frozen=True)
class Trial:
    """A program and what became of it; `needless`: its fix would have done no harm, if that was asked."""

    number: int
    case: Case
    outcome: Outcome
    needless: bool | None = None

    @property
    def is_fixed(self) -> bool:
        return self.outcome.verdict in (Verdict.SAME, Verdict.WRONG)

    @property
    def rules(self) -> str:
        """The rules whose fixes were applied, and what they promise."""
        return ", ".join(f"{rule} ({safety})" for rule, safety in self.outcome.applied) or "perflint"


def trials(numbers: Sequence[int], arguments: argparse.Namespace) -> list[Trial]:
    """What becomes of the programs of these numbers: of those drawn with a seed, or of every one."""
    torch.set_num_threads(1)
    gc.set_threshold(100_000)  # programs leave little behind
    cases: Iterable[Case]
    among = _among(arguments.only)
    if arguments.every:
        cases = islice(every(among), numbers[0], numbers[-1] + 1)
    else:
        cases = (drawn(random.Random(f"{arguments.seed} {number}"), among) for number in numbers)
    return [_trial(number, case, arguments.needless) for number, case in zip(numbers, cases, strict=True)]


def _among(only: str) -> tuple[Template, ...]:
    return tuple(template for template in templates() if template.name.startswith(only))


def _trial(number: int, case: Case, asks_need: bool) -> Trial:
    outcome = tried(rendered(case))
    is_left = asks_need and outcome.verdict in (Verdict.SILENT, Verdict.REFUSED)
    return Trial(number, case, outcome, would_be_right(case) if is_left else None)


def _all_trials(arguments: argparse.Namespace) -> Iterator[Trial]:
    count = sum(1 for _ in every(_among(arguments.only))) if arguments.every else arguments.count
    last = arguments.first + count
    batches = [range(start, min(start + _BATCH, last)) for start in range(arguments.first, last, _BATCH)]
    with ProcessPoolExecutor(arguments.processes) if arguments.processes > 1 else nullcontext() as pool:
        for batch in (map if pool is None else pool.map)(trials, batches, [arguments] * len(batches)):
            print(f"\r{batch[-1].number + 1} of {last}", end="", file=sys.stderr, flush=True)
            for trial in batch:
                if trial.outcome.verdict is Verdict.WRONG:  # at once: a run takes long
                    print(f"{trial.number}: {trial.rules} | {trial.case}: {trial.outcome.detail}", flush=True)
                yield trial


def report(found: Iterable[Trial]) -> int:
    """Print what came out; how many were wrong."""
    verdicts: Counter[Verdict] = Counter()
    controls: Counter[Verdict] = Counter()
    refused: Counter[str] = Counter()
    needless: Counter[bool | None] = Counter()
    wrong: dict[tuple[str, str], list[Trial]] = {}
    for trial in _until_interrupted(found):
        verdicts[trial.outcome.verdict] += 1
        if trial.case.is_control:
            controls[trial.outcome.verdict] += 1
            if not trial.is_fixed:
                refused[str(trial.case)] += 1
        elif not trial.is_fixed:
            needless[trial.needless] += 1
        if trial.outcome.verdict is Verdict.WRONG:
            wrong.setdefault((trial.case.template.name, trial.rules), []).append(trial)
    print(f"{verdicts.total()} programs: " + ", ".join(f"{verdicts[each]} {each.value}" for each in Verdict))
    kept = controls[Verdict.SAME]
    print(f"controls: {kept} of {sum(controls[each] for each in _FOUND)} keep their fix")
    print(f"others without a fix: {needless.total()}, {needless[True]} of which are known to need none")
    for text, times in refused.most_common(20):
        print(f"  a control without its fix, {times} times: {text}")
    kinds = Counter(least for same in wrong.values() for least in _least(same))
    print(f"{verdicts[Verdict.WRONG]} wrong patches, {len(kinds)} kinds")
    for text, times in kinds.most_common():
        print(f"{times:6} {text}")
    return verdicts[Verdict.WRONG]


def _until_interrupted(found: Iterable[Trial]) -> Iterator[Trial]:
    with suppress(KeyboardInterrupt):
        yield from found


def _least(wrong: Sequence[Trial]) -> Iterator[str]:
    """For each of these the simplest program that goes wrong in the same way, of as many as time allows."""
    for trial in wrong[:_MINIMISED]:
        yield f"{trial.rules} | {minimised(trial.case, trial.outcome)}: {trial.outcome.detail}"


def main() -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--needless", action="store_true")
    parser.add_argument("--every", action="store_true")
    arguments = parser.parse_args()
    return 1 if report(_all_trials(arguments)) else 0


if __name__ == "__main__":
    sys.exit(main())

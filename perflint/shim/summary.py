"""What the processes of a run did, for its last lines on the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perflint.shim.loaders import Made
from perflint.shim.plan import Change, Plan


class Effect(NamedTuple):
    """A change, the file that it is in, whether the run loaded that file, and how often the change was run."""

    path: str
    change: Change
    loaded: bool
    times: int


def effects(plan: Plan, counts: Sequence[Sequence[int]]) -> tuple[Effect, ...]:
    """The effect of each change of `plan`, by the counts of all processes."""
    slots = plan.slots
    totals = [sum(column) for column in zip([0] * plan.counters, *counts, strict=True)]
    return tuple(
        Effect(path, change, totals[slots[path]] > 0, totals[slots[path] + number])
        for path, file in plan.files.items()
        for number, change in enumerate(file.changes, 1)
    )


def summary(plan: Plan, counts: Sequence[Sequence[int]], loaders: Sequence[Made]) -> Iterator[str]:
    """The lines of a run's summary."""
    seen = [each for each in effects(plan, counts) if each.loaded]
    number = sum(each.times > 0 for each in seen) + sum(bool(each.arguments) for each in loaders)
    processes = f" in {len(counts)} processes" if len(counts) > 1 else ""
    yield f"perflint: {_number(number, 'fix', 'fixes')} took effect{processes}"
    for each in seen:
        times = _number(each.times, "time", "times") if each.times else "never took effect"
        yield f"  {os.path.relpath(each.path)}:{each.change.line} {each.change.rule}: {each.change.title} ({times})"

    for loader in loaders:
        added = ", ".join(f"{name}={value}" for name, value in loader.arguments.items())
        rest = f"no workers: {loader.reason}" if loader.reason else ""
        yield f"  {os.path.relpath(loader.path)}:{loader.line} loader: {'; '.join(filter(None, [added, rest]))}"


def preview(plan: Plan) -> Iterator[str]:
    """The lines that say what a run would change, and what it would leave and why."""
    for path, file in plan.files.items():
        for each in file.changes:
            yield f"{os.path.relpath(path)}:{each.line} {each.rule}: {each.title} ({each.safety})"
    if plan.watches:
        yield f"{', '.join(plan.watches)}: decided on as they are made"
    for left in plan.left:
        yield f"{os.path.relpath(left.path)}:{left.line} {left.rule}: left: {left.reason}"


def _number(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"

"""The summary of a run on the terminal, and the preview of one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perflint.shim.counts import Process, Tallied
from perflint.shim.loaders import Made
from perflint.shim.plan import COMPILE, KnownLoader, Plan

_MOST_NAMED = 4  # processes in one line


class Noted(NamedTuple):
    """What the processes of a run have noted: their counts, loaders, graphs and compiled modules."""

    processes: Sequence[Process]
    loaders: Sequence[Made]
    graphs: Sequence[Tallied]
    compiled: Sequence[Tallied]


def summary(plan: Plan, noted: Noted, start: Path) -> Iterator[str]:
    """The lines of the summary of a run that began in the folder `start`."""
    number = sum(bool(each.arguments) for each in noted.loaders) + sum(bool(each.times) for each in noted.compiled)
    unloaded, lines = 0, []
    for path, file in plan.files.items():
        slot = plan.slots[path]
        if not any(each.counts[slot] for each in noted.processes):
            unloaded += len(file.changes)
            continue
        for offset, change in enumerate(file.changes, 1):
            times = _times(noted.processes, slot + offset)
            number += bool(times)
            place = f"{os.path.relpath(path, start)}:{change.line}"
            lines.append(f"  {place} {change.rule}: {change.title} ({_shown(times)})")
    names = {each.name for each in noted.processes}
    where = f" in {len(names)} processes" if len(names) > 1 else ""
    yield f"perflint: {_number(number, 'fix', 'fixes')} took effect{where}"
    yield from lines
    if unloaded:
        fixes = _number(unloaded, "fix", "fixes")
        yield f"  not applied: {fixes} in files that were not loaded, or were changed meanwhile"
    yield from _of_run_time(plan, noted, start)


def _of_run_time(plan: Plan, noted: Noted, start: Path) -> Iterator[str]:
    for graph in noted.graphs:
        replays = _number(graph.times, "time", "times")
        yield f"  graphs of {graph.name}: replayed {replays}" + ("" if graph.times else f": {graph.remark}")
    for loader in noted.loaders:
        added = ", ".join(f"{name}={value}" for name, value in loader.arguments.items())
        rest = f"no workers: {loader.reason}" if loader.reason else ""
        said = "; ".join(filter(None, [added, rest, loader.note]))
        yield f"  {os.path.relpath(loader.path, start)}:{loader.line} loader: {said}"
    for module in noted.compiled:
        yield f"  compile {module.name}: {module.remark} ({_number(module.times, 'call', 'calls')})"
    if plan.compiles and not noted.compiled:
        yield "  compile: never took effect: no module was called often enough"
    for left in plan.left:
        if left.rule == COMPILE:
            yield f"  {os.path.relpath(left.path, start)}:{left.line} compile: never took effect: {left.reason}"


def _times(processes: Sequence[Process], slot: int) -> dict[str, int]:
    """How often each process counted in a slot, by the processes' names."""
    times: dict[str, int] = {}
    for process in processes:
        if process.counts[slot]:
            times[process.name] = times.get(process.name, 0) + process.counts[slot]
    return times


def _shown(times: Mapping[str, int]) -> str:
    """How often a change ran, and in which processes if not in the first one alone."""
    if not times:
        return "never took effect"
    total = _number(sum(times.values()), "time", "times")
    if [*times] == ["main"]:
        return total
    if len(times) > _MOST_NAMED:
        return f"{total} in {len(times)} processes"
    return f"{total}: {', '.join(f'{count:,} in {name}' for name, count in times.items())}"


def preview(plan: Plan) -> Iterator[str]:
    """The lines that say what a run would change, what it would leave, and why."""
    for path, file in plan.files.items():
        for each in file.changes:
            yield f"{os.path.relpath(path)}:{each.line} {each.rule}: {each.title} ({each.safety})"
    if plan.watches:
        yield f"{', '.join(plan.watches)}: decided on as they are made"
    if plan.compiles:
        yield "modules: compiled once they have been called again and again (rounding)"
    for path, loaders in plan.loaders.items():
        for loader in loaders:
            yield f"{os.path.relpath(path)}:{loader.line} loader: {_expected(loader, plan.unsafe)}"
    for left in plan.left:
        rule = f" {left.rule}" if left.rule else ""
        yield f"{os.path.relpath(left.path)}:{left.line}{rule}: left: {left.reason}"


def _expected(loader: KnownLoader, unsafe: bool) -> str:
    """What may become of a loader, as far as its text tells."""
    workers = f"; no workers: {loader.doubt}" if loader.doubt else ""
    if unsafe:
        return f"tried out{workers.replace('no workers', 'for its text alone, no workers')}"
    return (f"{' and '.join(loader.proven)}, if its samples allow it" if loader.proven else "left") + workers


def _number(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"

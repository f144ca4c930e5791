"""The summary of a run on the terminal, and the preview of one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perflint.documents.lines import at_line
from perflint.report.words import count
from perflint.shim.counts import FIXES, Tallied, change, graphed, read, tallied
from perflint.shim.loaders import made
from perflint.shim.plan import COMPILE, KnownLoader, Plan
from perflint.shim.settings import COMPILING, KNOWN, SETTINGS

_MOST_NAMED = 4  # processes in one line


def summary(plan: Plan, run: Path) -> Iterator[str]:
    """The lines that say what the processes of a run have noted in its folder so far."""
    fixes, loaders, settings = read(run, FIXES), list(made(run)), tallied(run, SETTINGS)
    number = sum(bool(each.arguments) for each in loaders) + sum(bool(each.times) for each in settings)
    unloaded, lines = 0, []
    for path, file in plan.files.items():
        if not _times(fixes, path, 0):
            unloaded += len(file.changes)
            continue
        for offset, fix in enumerate(file.changes, 1):
            times = _times(fixes, path, offset)
            number += bool(times)
            lines.append(f"  {_at(path, fix.line, plan)} {fix.rule}: {fix.title} ({_shown(times)})")
    names = {each.process for each in fixes}
    where = f" in {len(names)} processes" if len(names) > 1 else ""
    yield f"perflint: {count(number, 'fix', 'fixes')} took effect{where}"
    yield from (line if number == 1 else f"{line}, in {number} places" for line, number in Counter(lines).items())
    if unloaded:
        rest = count(unloaded, "fix", "fixes")
        yield f"  not applied: {rest} in files that were not loaded, or were changed meanwhile"
    for graph in graphed(run):
        replays = count(graph.times, "time")
        yield f"  graphs of {graph.name}: replayed {replays}" + ("" if graph.times else f": {graph.remark}")
    for loader in loaders:
        added = ", ".join(f"{name}={value}" for name, value in loader.arguments.items())
        rest = f"no workers: {loader.reason}" if loader.reason else ""
        said = "; ".join(filter(None, [added, rest, loader.note]))
        yield f"  {_at(loader.path, loader.line, plan)} loader: {said}"
    for setting in settings:
        effect = count(setting.times, "time") if setting.times else f"never took effect: {setting.remark}"
        if setting.name in KNOWN:
            yield f"  {setting.name}: {KNOWN[setting.name].title} ({effect})"
        else:  # a class of modules
            yield f"  {setting.name}: {setting.remark} ({count(setting.times, 'call')})"
    if {*COMPILING} & {*plan.settings} and all(each.name in KNOWN for each in settings):
        yield "  compile: never took effect: no module was called often enough"
    for left in plan.left:
        if left.rule == COMPILE:
            yield f"  {_at(left.path, left.line, plan)} compile: never took effect: {left.reason}"


def _at(path: str, line: int, plan: Plan) -> str:
    """A line as seen from where the run began."""
    return at_line(path, line, os.path.relpath(path, plan.start))


def _times(fixes: Sequence[Tallied], path: str, number: int) -> dict[str, int]:
    """How often each process counted a change of a file, by the processes' names."""
    times: dict[str, int] = {}
    for each in fixes:
        if each.name == change(path, number):
            times[each.process] = times.get(each.process, 0) + each.times
    return times


def _shown(times: Mapping[str, int]) -> str:
    """How often a change ran, and in which processes if not in the first one alone."""
    if not times:
        return "never took effect"
    total = count(sum(times.values()), "time")
    if [*times] == ["main"]:
        return total
    if len(times) > _MOST_NAMED:
        return f"{total} in {len(times)} processes"
    return f"{total}: {', '.join(f'{number:,} in {name}' for name, number in times.items())}"


def preview(plan: Plan) -> Iterator[str]:
    """The lines that say what a run would change, what it would leave, and why."""
    for path, file in plan.files.items():
        for each in file.changes:
            yield f"{at_line(path, each.line)} {each.rule}: {each.title} ({each.safety})"
    if plan.watches:
        yield f"{', '.join(plan.watches)}: decided on as they are made"
    for name in plan.settings:
        yield f"{name}: {KNOWN[name].title} ({KNOWN[name].safety})"
    for path, loaders in plan.loaders.items():
        for loader in loaders:
            yield f"{at_line(path, loader.line)} loader: {_expected(loader, plan.unsafe)}"
    for left in plan.left:
        rule = f" {left.rule}" if left.rule else ""
        yield f"{at_line(left.path, left.line)}{rule}: left: {left.reason}"


def _expected(loader: KnownLoader, unsafe: bool) -> str:
    """What may become of a loader, as far as its text tells."""
    workers = f"; no workers: {loader.doubt}" if loader.doubt else ""
    if unsafe:
        return f"tried out{workers.replace('no workers', 'for its text alone, no workers')}"
    return (f"{' and '.join(loader.proven)}, if its samples allow it" if loader.proven else "left") + workers

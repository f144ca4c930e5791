"""The figures of a verdict for humans: what was measured before and after, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perflint.verify.verdict import Verdict
from perflint.verify.wording import count, percent, ratio_with_interval, seconds, size


@dataclass(frozen=True)
class Figure:
    """A figure before and after, as text."""

    name: str
    before: str
    after: str
    note: str = ""


def figures(verdict: Verdict) -> Iterator[Figure]:
    """The figures that were measured on both sides."""
    before, after = verdict.before, verdict.after
    if verdict.step_seconds and verdict.speed:
        first, second = verdict.step_seconds
        note = f"{ratio_with_interval(verdict.speed)}, noise {100 * verdict.floor:.1f} %"
        yield Figure("step", seconds(first), seconds(second), note)
    if before.setup_seconds and after.setup_seconds:
        steps = verdict.break_even_steps
        note = f"won back after {count(steps, 'step')}" if steps else ""
        yield Figure("set-up", seconds(before.setup_seconds), seconds(after.setup_seconds), note)
    if before.device_bytes and after.device_bytes:
        yield Figure("GPU memory", size(before.device_bytes), size(after.device_bytes), "at its peak")
    if before.host_bytes and after.host_bytes:
        yield Figure("host memory", size(before.host_bytes), size(after.host_bytes), "at its peak")
    if before.busy is not None and after.busy is not None:
        yield Figure("GPU busy", percent(before.busy), percent(after.busy), "of the time")

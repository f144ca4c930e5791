"""What a race and the recordings show of each of its sides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from perflint.report.words import count
from perflint.verify.compare import losses
from perflint.verify.race import Race
from perflint.verify.runs import Recorded
from perflint.verify.statistics import step_seconds
from perflint.verify.verdict import Reach, Side


def reach_of(run: Recorded, other: Recorded | None = None) -> Reach:
    """How far a run of the original was recorded, and another one as well, if there was time for any of it."""
    if other and other.is_cut and not other.is_lost:
        return Reach(min(run.last, other.last), unseen=run.unseen, elsewhere=run.elsewhere)
    return Reach(run.last, run.code is not None, run.unseen, run.elsewhere)


def side_of(race: Race, variant: str, recorded: Recorded | None) -> Side:
    """What is told of a variant: its start, its memory, its losses if it was recorded, and how its time was spent."""
    starts = [start for start in race.starts if start.variant == variant]
    seen = next((start.timeline for start in starts if start.timeline), None)
    step = step_seconds(race.samples, [variant])
    return Side(
        next((start.seconds for start in starts if not math.isnan(start.seconds)), 0.0),
        max((start.device_bytes for start in starts), default=0),
        max((start.host_bytes for start in starts), default=0),
        losses=losses(recorded.folder) if recorded else (),
        timeline=seen.scaled(step) if seen and step else None,
    )


def left_out(race: Race, gpus: Sequence[str], sides: Iterable[Side]) -> Iterator[str]:
    """What the race could not take in, in words."""
    if race.unsteady:
        yield f"{count(race.unsteady, 'pair')} of windows in which something was compiled or captured"
    if race.apart:
        yield f"the programs ran one after the other, for they have no room beside each other: {race.apart}"
    if gpus and any(side.busy is None for side in sides):
        yield "how busy the GPU was: it could not be observed"

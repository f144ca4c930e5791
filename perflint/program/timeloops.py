"""Recognises loops over time, and tells by data flow which kind each is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.program import time_kinds
from perflint.program.dataflow import LoopFlow
from perflint.program.loop_body import loop_flow
from perflint.program.time_evidence import Evidence
from perflint.program.time_header import Header, read_header
from perflint.program.time_repeats import only_repeats
from perflint.program.time_signs import numbers_noise, solves, walks_chunks
from perflint.program.time_surroundings import never_over_time
from perflint.program.walk import Loop

if TYPE_CHECKING:
    from perflint.program import Program

_KINDS = (time_kinds.recurrence, time_kinds.rollout, time_kinds.independent, time_kinds.twin)


@dataclass(frozen=True)
class TimeLoop:
    """What is known of a time loop: its kind, what in the data flow shows it, and that data flow."""

    kind: str
    because: str
    header: Header
    flow: LoopFlow


def time_loop(program: Program, loop: Loop) -> TimeLoop | None:
    """`loop` as a loop over time, or None if it is none."""
    header = read_header(program, loop)
    if header.is_other or never_over_time(program, loop) or solves(loop) or walks_chunks(program, loop, header):
        return None
    flow = loop_flow(program, loop, header)
    evidence = Evidence(program, loop, header, flow, flow.states())
    if flow.members or evidence.takes_chunks or not (flow.operations or evidence.models):
        return None
    verdict = time_kinds.generation(evidence)
    if verdict is None and not numbers_noise(loop, header):
        verdict = next(filter(None, (kind(evidence) for kind in _KINDS)), None)
    if verdict is None or only_repeats(evidence):
        return None
    return TimeLoop(*verdict, header, flow)


__all__ = ["TimeLoop", "time_loop"]

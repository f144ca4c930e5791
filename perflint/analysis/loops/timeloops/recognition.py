"""Decides whether a loop runs over time: exclusions first, then the kinds in order."""

from __future__ import annotations

from perflint.analysis.facts import Program
from perflint.analysis.loops.body import loop_flow
from perflint.analysis.loops.found import TimeLoop
from perflint.analysis.loops.header import read_header
from perflint.analysis.loops.timeloops import kinds
from perflint.analysis.loops.timeloops.evidence import Evidence
from perflint.analysis.loops.timeloops.exclusions import never_over_time, walks_chunks
from perflint.analysis.loops.timeloops.repeats import only_repeats
from perflint.analysis.loops.timeloops.solvers import numbers_noise, solves
from perflint.syntax.walk import Loop

# The first verdict wins, behind `generation`: what a model chooses and gets back decides over the steps that are given
# besides. Then a state that meets steps, one that meets none, no state, and what only another loop shows.
_KINDS = (kinds.recurrence, kinds.rollout, kinds.independent, kinds.twin)


def time_loop(program: Program, loop: Loop) -> TimeLoop | None:
    """`loop` as a loop over time, or None if it is none."""
    header = read_header(program, loop)
    if header.is_other or never_over_time(program, loop, header) or solves(loop) or walks_chunks(program, loop, header):
        return None
    flow = loop_flow(program, loop, header)
    evidence = Evidence(program, loop, header, flow, flow.states())
    if flow.members or evidence.takes_chunks or not (flow.operations or evidence.models):
        return None
    verdict = kinds.generation(evidence)
    if verdict is None and not numbers_noise(loop, header):
        verdict = next(filter(None, (kind(evidence) for kind in _KINDS)), None)
    return None if verdict is None or only_repeats(evidence) else TimeLoop(*verdict, header, flow)

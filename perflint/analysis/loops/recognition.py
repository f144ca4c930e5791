"""Decides whether a loop runs over time: exclusions first, then the kinds in order."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.facts import Program
from perflint.analysis.loops import verdicts
from perflint.analysis.loops.body import loop_flow
from perflint.analysis.loops.evidence import Evidence
from perflint.analysis.loops.exclusions import never_over_time, solves
from perflint.analysis.loops.found import TimeLoop
from perflint.analysis.loops.header import read_header
from perflint.syntax.walk import Loop, PlainLoop, nodes_of_body, path_of, whole_of

# The first verdict wins, behind `generation`: what a model chooses and gets back decides over the steps that are given
# besides. Then a state that meets steps, one that meets none, no state, and what only another loop shows.
_KINDS = (verdicts.recurrence, verdicts.rollout, verdicts.independent, verdicts.twin)


def time_loop(program: Program, loop: Loop) -> TimeLoop | None:
    """`loop` as a loop over time, or None if it is none."""
    header = read_header(program, loop)
    if header.is_other or never_over_time(program, loop, header) or solves(loop):
        return None
    flow = loop_flow(program, loop, header)
    evidence = Evidence(program, loop, header, flow, flow.states())
    if flow.members or evidence.takes_chunks or not (flow.operations or evidence.models):
        return None
    verdict = verdicts.generation(evidence)
    if verdict is None:
        verdict = next(filter(None, (kind(evidence) for kind in _KINDS)), None)
    return None if verdict is None or _only_repeats(evidence) else TimeLoop(*verdict, header, flow)


def _only_repeats(loop: Evidence) -> bool:
    """Does it walk through nothing itself, and carry nothing but what loops over time inside of it give?"""
    nodes = list(nodes_of_body(loop.loop))
    loops = [node for node in nodes if isinstance(node, PlainLoop)]
    inside = {id(part) for each in loops if loop.program.time_loop(each) is not None for part in ast.walk(each)}
    if loop.flow.slices or not any(id(call.node) in inside for call in loop.models):
        return False
    own = {id(call.node) for call in loop.models if id(call.node) not in inside and call.trace.carried}
    if own and any(each.how == "slot" and id(each.node) not in inside for each in loop.flow.collected):
        return False  # what its own model made of the last step, the inner loop makes the next one of
    outside = [node for node in nodes if isinstance(node, ast.Assign | ast.AugAssign) and id(node) not in inside]
    return not _reached(outside, own) & set(loop.states)


def _reached(statements: list[ast.Assign | ast.AugAssign], calls: set[int]) -> set[str]:
    """The names that are bound to what `calls` give, at once or through one another."""
    found: set[str] = set()
    pending = True
    while pending:
        reached = {
            name
            for node in statements
            if any(
                id(part) in calls or (isinstance(part, ast.expr) and path_of(part) in found) for part in ast.walk(node)
            )
            for name in _bound(node)
        }
        pending = not reached <= found
        found |= reached
    return found


def _bound(node: ast.Assign | ast.AugAssign) -> Iterator[str]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        yield from filter(None, map(whole_of, parts))

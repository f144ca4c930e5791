"""Recognises loops over time, and tells by data flow which kind each is."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.program.dataflow import LoopFlow
from perflint.program.loop_body import loop_flow
from perflint.program.loop_state import is_carried_by_rnn, rnn_name
from perflint.program.time_evidence import is_collected, is_grid, names_another_axis, never_over_time, walks_time
from perflint.program.time_header import Header, read_header
from perflint.program.trace import CAT, CHOICE, MODEL, RESIZE, RNN, Trace
from perflint.program.values import Kind
from perflint.program.walk import Loop, path_of

if TYPE_CHECKING:
    from perflint.program import Program

VECTORIZABLE, AUTOREGRESSIVE, MIXED, RECURRENCE = "vectorizable", "autoregressive", "mixed", "recurrence"


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
    if header.is_other or never_over_time(program, loop):
        return None
    flow = loop_flow(program, loop, header)
    if flow.members or not (flow.operations or any(call.sort.model for call in flow.calls)):
        return None
    states = flow.states()
    verdict = _generation(program, loop, header, flow, states)
    if verdict is None and flow.truth() and states:
        verdict = _recurrence(program, loop, header, flow, states)
    if verdict is None and states:
        verdict = _rollout(program, loop, flow, states)
    if verdict is None and not states:
        verdict = _map(program, loop, header, flow)
    return TimeLoop(*verdict, header, flow) if verdict is not None else None


Verdict = tuple[str, str]


def _generation(program: Program, loop: Loop, header: Header, flow: LoopFlow, states: dict[str, Trace]) -> Verdict | None:
    """A choice from a model's output, or the output itself, goes back into the model."""
    entering = {name for call in flow.calls if call.sort.model for name in call.trace.carried}
    for name in states:
        end = flow.closure(name)
        if name not in entering or MODEL not in end.ops or name not in end.carried:
            continue
        grows = any(each.name == name and each.how == "cat" for each in flow.collected)
        chosen = CHOICE in end.ops and not _returned(flow, name, end)
        if (chosen or grows) and not (CHOICE not in end.ops and RESIZE in end.ops) and _launches_torch(program, flow):
            what = f"{name!r} is built from what the step before chose" if chosen else f"{name!r} grows by each step's output"
            return _own_output(flow, f"{what}, and goes back into the model")
    return None


def _own_output(flow: LoopFlow, because: str) -> Verdict:
    if flow.forced:
        return MIXED, f"{_names(flow.forced)} is taken from a given sequence or from the loop's own output, decided at run time"
    return AUTOREGRESSIVE, because


def _recurrence(program: Program, loop: Loop, header: Header, flow: LoopFlow, states: dict[str, Trace]) -> Verdict | None:
    """Steps of a given sequence go in, and a state is carried."""
    truth = flow.truth()
    if flow.chunks:
        return None
    tensors = {each.base for each in flow.slices if each.is_tensor and not is_grid(program, each)}
    has_rnn = any(RNN in end.ops for end in states.values())
    returned = {name for name, end in states.items() if _returned(flow, name, end)}
    has_model = any(MODEL in end.ops for end in states.values())
    if any(RESIZE in end.ops for end in states.values()) or not (truth & tensors or has_rnn or returned):
        return None
    if not (truth & tensors) and not (has_rnn or (returned and _launches_torch(program, flow))):
        return None
    if has_model and not has_rnn and not returned and (flow.index_as_data or not is_collected(program, loop, flow)):
        return None  # a sampler or a solver of differential equations
    if not has_model and (not flow.operations or flow.permuted or names_another_axis(header)):
        return None
    given = f"steps of {_names(truth)} go in"
    if flow.forced and (has_model or has_rnn):
        return MIXED, f"{_names(flow.forced)} is taken from a given sequence or from the loop's own output, decided at run time"
    fed = _fed_back(flow, states, returned)
    if fed and returned and has_model and fed - returned:
        return AUTOREGRESSIVE, f"{_names(fed - returned)}, the output of the step before, goes back into the model"
    if all(is_carried_by_rnn(program, flow, name) for name in states):
        return VECTORIZABLE, f"{given}, and only {rnn_name(program, flow)}'s own state {_names(states)} is carried"
    return RECURRENCE, f"{given}, and the state {_names(states)} is carried through more than a torch RNN"


def _rollout(program: Program, loop: Loop, flow: LoopFlow, states: dict[str, Trace]) -> Verdict | None:
    """Nothing given goes in; what comes out is kept as one tensor."""
    if flow.index_as_data or any(RESIZE in end.ops for end in states.values()) or flow.truth():
        return None
    through_model = {name for name, end in states.items() if MODEL in end.ops}
    if not through_model or not is_collected(program, loop, flow):
        return None
    fed = _fed_back(flow, states, set())
    if fed & through_model:
        return _own_output(flow, f"{_names(fed & through_model)}, the output of the step before, goes back into the model")
    if any(_returned(flow, name, states[name]) for name in through_model):
        return RECURRENCE, f"the state {_names(through_model)} is carried from step to step"
    return None


def _map(program: Program, loop: Loop, header: Header, flow: LoopFlow) -> Verdict | None:
    """Each step stands for itself; whether the axis is time must show elsewhere."""
    if not flow.operations or not flow.slices or not flow.collected or flow.forced:
        return None
    used = {base for call in flow.operations for base in _slices_in(flow, call)}
    if not used or not walks_time(program, loop, header, flow):
        return None
    return VECTORIZABLE, f"each step only reads its own part of {_names(used)}; nothing is carried"


def _slices_in(flow: LoopFlow, node: ast.AST) -> set[str]:
    return {each.base for each in flow.slices}


def _returned(flow: LoopFlow, name: str, end: Trace) -> bool:
    """Is the state what a model that was given it returns, as a cell does?"""
    return any(
        (id(call.node), part) in end.definitions
        for call in flow.calls
        if call.sort.model and any(given == name for given, _ in call.direct)
        for part in (None, *range(8))
    )


def _fed_back(flow: LoopFlow, states: dict[str, Trace], returned: set[str]) -> set[str]:
    """The states that are also among the collected results."""
    results = {definition for each in flow.collected if each.how in ("append", "slot", "yield") for definition in each.trace.definitions}
    slots = {each.name for each in flow.collected if each.how == "slot" and MODEL in each.trace.ops}
    return {name for name, end in states.items() if end.definitions & results or name in slots}


def _launches_torch(program: Program, flow: LoopFlow) -> bool:
    return bool(flow.operations) or any(program.value(call.node).kind is Kind.TENSOR for call in flow.calls)


def _names(names: object) -> str:
    assert isinstance(names, set | frozenset | dict)
    return ", ".join(sorted(names)[:3])


__all__ = ["TimeLoop", "path_of", "time_loop", "CAT"]

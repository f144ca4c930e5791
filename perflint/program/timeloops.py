"""Recognises loops over time, and tells by data flow which kind each is."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.program.dataflow import LoopFlow
from perflint.program.indices import is_rest, place
from perflint.program.loop_body import loop_flow
from perflint.program.loop_calls import rnn_kind
from perflint.program.loop_state import is_carried_by_rnn, rnn_name, unseen_name
from perflint.program.time_evidence import has_twin, is_collected, never_over_time, walks_objects
from perflint.program.time_header import Header, called, read_header
from perflint.program.time_signs import (
    counts_rounds,
    counts_time,
    is_grid,
    is_named_time,
    mentions,
    names_another_axis,
    numbers_noise,
    solves,
    spans_sequence,
    walks_chunks,
    walks_rewards,
    walks_time,
)
from perflint.program.trace import ARITHMETIC, CHOICE, MODEL, RESIZE, RNN, Trace
from perflint.program.values import Kind
from perflint.program.walk import Loop, own_nodes, path_of

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
    if header.is_other or never_over_time(program, loop) or solves(loop) or walks_chunks(program, loop, header):
        return None
    flow = loop_flow(program, loop, header)
    if flow.members or not (flow.operations or any(call.sort.model for call in flow.calls)):
        return None
    states = flow.states()
    verdict = _generation(program, loop, header, flow, states)
    if verdict is None and numbers_noise(loop, header):
        return None
    if verdict is None and flow.truth() and states:
        verdict = _recurrence(program, loop, header, flow, states)
    if verdict is None and states:
        verdict = _rollout(program, loop, header, flow, states)
    if verdict is None and not states:
        verdict = _map(program, loop, header, flow)
    if verdict is None and states and has_twin(program, loop, flow):
        verdict = _as_twin(flow, states)
    if verdict is None or _only_repeats(program, loop, flow):
        return None
    return TimeLoop(*verdict, header, flow)


Verdict = tuple[str, str]


def _entering(flow: LoopFlow) -> set[str]:
    """What the iteration before left that goes into a model."""
    return {name for call in flow.calls if call.sort.model for name in call.trace.carried}


def _only_repeats(program: Program, loop: Loop, flow: LoopFlow) -> bool:
    """Does it walk through nothing itself, and run its models in loops over time of their own: windows, samples?"""
    calls = {id(call.node) for call in flow.calls if call.sort.model}
    if flow.slices or not calls:
        return False
    nodes = (node for statement in loop.body for node in own_nodes(statement))
    inner = [node for node in nodes if isinstance(node, ast.For | ast.While) and program.time_loop(node) is not None]
    return bool(inner) and calls <= {id(part) for each in inner for part in ast.walk(each)}


def _generation(
    program: Program, loop: Loop, header: Header, flow: LoopFlow, states: dict[str, Trace]
) -> Verdict | None:
    """A choice from a model's output, or the output itself, goes back into the model."""
    if counts_rounds(header):
        return None
    entering = _entering(flow)
    refined = {name for name in states if CHOICE in flow.ends[name].ops and _is_refined(program, flow, name)}
    for name in states:
        end = flow.closure(name)
        if name not in entering or MODEL not in end.ops or name not in end.carried or _is_refined(program, flow, name):
            continue
        if end.carried & refined & entering or _is_on_host(program, flow, end):
            continue
        if name in flow.painted and _is_tensor(program, flow, name):
            continue
        grows = any(each.name == name and each.how == "cat" for each in flow.collected)
        chosen = CHOICE in end.ops and not _returned(flow, name, end)
        if (chosen or grows) and RESIZE not in end.ops and _launches_torch(program, flow):
            what = (
                f"{name!r} is built from what the step before chose"
                if chosen
                else f"{name!r} grows by each step's output"
            )
            return _own_output(flow, f"{what}, and goes back into the model")
        if _slides(flow, name) and not end.slices and not names_another_axis(header, flow):
            return _own_output(flow, f"each step's output enters the window {name!r}, which goes back into the model")
    return None


def _slides(flow: LoopFlow, name: str) -> bool:
    """Does each step move a window on, as `x = torch.cat([x[:, 1:], y], dim=1)` does?"""
    made = [call.node for call in flow.calls if call.sort.cat and (id(call.node), None) in flow.ends[name].definitions]
    joined = [node.args[0].elts for node in made if node.args and isinstance(node.args[0], ast.Tuple | ast.List)]
    olds = [parts[0] for parts in joined if len(parts) == 2]
    return any(isinstance(old, ast.Subscript) and path_of(old.value) == name and is_rest(old.slice) for old in olds)


def _is_on_host(program: Program, flow: LoopFlow, end: Trace) -> bool:
    """Do the given steps go to numpy, and to no model as they are?"""
    models = (call.node for call in flow.calls if call.sort.model and call.trace.slices)
    is_given = any(program.value(each).kind is Kind.TENSOR for node in models for each in node.args)
    return bool(end.slices) and end.slices <= flow.host and not is_given


def _is_refined(program: Program, flow: LoopFlow, name: str) -> bool:
    """Is the state a whole sequence, parts of which each iteration replaces, rather than one step after the other?"""
    for read in flow.reads.get(name, ()):
        parent = program.parent(read)
        if isinstance(parent, ast.Call) and called(parent) == "where" and read in parent.args[-2:]:
            return True
        if isinstance(parent, ast.Attribute) and parent.attr == "masked_scatter":
            return True
    return False


def _own_output(flow: LoopFlow, because: str) -> Verdict:
    if flow.forced:
        return (
            MIXED,
            f"{_names(flow.forced)} is taken from a given sequence or from the loop's own output, decided at run time",
        )
    return AUTOREGRESSIVE, because


def _recurrence(
    program: Program, loop: Loop, header: Header, flow: LoopFlow, states: dict[str, Trace]
) -> Verdict | None:
    """Steps of a given sequence go in, and a state is carried."""
    grids = {each.base for each in flow.slices if is_grid(program, each)}
    truth = flow.truth() - grids - flow.host
    if not truth or (flow.chunks and not any(rnn_kind(program, call.node.func) == "rnn-cell" for call in flow.calls)):
        return None
    tensors = {each.base for each in flow.slices if each.is_tensor}
    if walks_rewards(flow) and any(_meets_tensor(program, flow, name) for name in states):
        tensors |= truth  # or lists of tensors
    has_rnn = any(RNN in end.ops for end in states.values())
    returned = {
        name for name, end in states.items() if _returned(flow, name, end) and not _is_keyed(program, flow, name)
    }
    has_model = any(MODEL in end.ops for end in states.values())
    if any(RESIZE in end.ops for end in states.values()) or not (truth & tensors or has_rnn or returned):
        return None
    known = any(call.sort.model and not call.sort.unsure and call.trace.carried & set(states) for call in flow.calls)
    spans = spans_sequence(program, loop, header, flow)
    if not (truth & tensors) and not (has_rnn or (returned and _launches_torch(program, flow))):
        return None
    if not known and walks_objects(loop, header):
        return None
    if not has_rnn and not returned:
        states = {name: end for name, end in states.items() if name not in flow.painted}
    if not states:
        return None
    if has_model and not has_rnn and not returned:
        sums = all(
            any(each.name == name and each.how == "sum" for each in flow.collected)
            for name, end in states.items()
            if MODEL in end.ops
        )
        last = any(_reads_step_before(program, header, flow, name) for name in states)
        if sums or (flow.index_as_data and not last) or not is_collected(program, loop, flow):
            return None  # a sampler or a solver of differential equations
    if not has_model:
        states = {name: end for name, end in states.items() if end.ops and _is_tensor(program, flow, name)}
        if not states or flow.permuted or not flow.operations:
            return None
        if any(_reads_all_before(program, header, flow, name) for name in states):
            return None
        if not is_named_time(program, loop, header, flow) and not is_collected(program, loop, flow):
            return None
    steps = returned and any(each.axis == 1 for each in flow.slices)
    if names_another_axis(header, flow) or not (known or steps or spans):
        return None
    given = f"steps of {_names(truth)} go in"
    if flow.forced and (has_model or has_rnn):
        return (
            MIXED,
            f"{_names(flow.forced)} is taken from a given sequence or from the loop's own output, decided at run time",
        )
    drawn = {each.name for each in flow.collected if each.how == "slot"} & _entering(flow) & set(states)
    if drawn - flow.filtered() and has_model and not has_rnn and not returned:
        if not spans:
            return None  # whole sequences, one cycle after the other
        return AUTOREGRESSIVE, f"{_names(drawn)}, the output of the step before, goes back into the model"
    if all(is_carried_by_rnn(program, flow, name) for name in states):
        return VECTORIZABLE, f"{given}, and only {rnn_name(program, flow)}'s own state {_names(states)} is carried"
    unseen = unseen_name(program, flow)
    through = f"{unseen}, which this file does not define" if unseen else "more than a torch RNN"
    return RECURRENCE, f"{given}, and the state {_names(states)} is carried through {through}"


def _rollout(program: Program, loop: Loop, header: Header, flow: LoopFlow, states: dict[str, Trace]) -> Verdict | None:
    """Nothing given goes in; what comes out is kept as one tensor."""
    if flow.index_as_data or any(RESIZE in end.ops for end in states.values()) or flow.truth():
        return None
    if flow.chunks or names_another_axis(header, flow) or not _launches_torch(program, flow):
        return None
    through_model = {name for name, end in states.items() if MODEL in end.ops}
    sums = [each for each in flow.collected if each.how == "sum" and "." not in each.name.removeprefix("self.")]
    scored = {name for each in sums for name in each.trace.carried & through_model}
    if scored and counts_time(header) and not counts_rounds(header):
        return _own_output(flow, f"{_names(scored)}, the output of the step before, goes back into the model")
    if not through_model or not is_collected(program, loop, flow):
        return None
    fed = _fed_back(flow, states)
    if fed & through_model:
        return _own_output(
            flow, f"{_names(fed & through_model)}, the output of the step before, goes back into the model"
        )
    if any(_returned(flow, name, states[name]) for name in through_model):
        return RECURRENCE, f"the state {_names(through_model)} is carried from step to step"
    return None


def _as_twin(flow: LoopFlow, states: dict[str, Trace]) -> Verdict | None:
    """Nothing given goes in, and a loop over time elsewhere runs the same models."""
    fed = {name for name in _entering(flow) & set(states) if not _returned(flow, name, states[name])}
    if flow.truth() or flow.index_as_data or not {name for name in fed if MODEL in states[name].ops}:
        return None
    return _own_output(flow, f"{_names(fed)}, computed from the output of the step before, goes back into the model")


def _map(program: Program, loop: Loop, header: Header, flow: LoopFlow) -> Verdict | None:
    """Each step stands for itself; whether the axis is time must show elsewhere."""
    if not flow.operations or not flow.slices or not flow.collected or flow.forced:
        return None
    used = {each.base for each in flow.slices}
    if flow.chunks or all(each.offset is None for each in flow.slices) or _may_hide_state(flow):
        return None
    if not walks_time(program, loop, header, flow):
        return None
    return VECTORIZABLE, f"each step only reads its own part of {_names(used)}; nothing is carried"


def _may_hide_state(flow: LoopFlow) -> bool:
    """Is a model handed a cache, which carries what it saw from call to call?"""
    return any(
        "cache" in (keyword.arg or "") or "past" in (keyword.arg or "")
        for call in flow.calls
        if call.sort.model
        for keyword in call.node.keywords
    )


def _returned(flow: LoopFlow, name: str, end: Trace) -> bool:
    """Is the state what a model that was given it returns, as a cell does?"""
    return any(
        (id(call.node), part) in end.definitions
        for call in flow.calls
        if call.sort.model and any(given == name for given, _ in call.direct)
        for part in (None, *range(8))
    )


def _reads_all_before(program: Program, header: Header, flow: LoopFlow, name: str) -> bool:
    """Is everything read that was written so far, as `x[: i + 1]` is to make a row orthogonal to the others?"""
    parents = (program.parent(read) for read in flow.reads.get(name, ()))
    return any(
        isinstance(part, ast.Slice) and part.lower is None and part.upper is not None and mentions(part.upper, header)
        for parent in parents
        if isinstance(parent, ast.Subscript)
        for part in ast.walk(parent.slice)
    )


def _reads_step_before(program: Program, header: Header, flow: LoopFlow, name: str) -> bool:
    """Is the state a tensor with a step for each iteration, of which the last one is read, behind the batch axis?"""
    slots = {each.name for each in flow.collected if each.how == "slot"}
    parts = (program.parent(read) for read in flow.reads.get(name, ()))
    places = (place(part, header.indices) for part in parts if isinstance(part, ast.Subscript))
    return name in slots and any(axis is not None and axis >= 1 and offset == -1 for axis, offset in places)


def _is_keyed(program: Program, flow: LoopFlow, name: str) -> bool:
    """Is it a dictionary, read by keys that are strings?"""
    parents = (program.parent(read) for read in flow.reads.get(name, ()))
    return any(
        isinstance(parent, ast.Subscript) and program.value(parent.slice).kind is Kind.STRING for parent in parents
    )


def _is_tensor(program: Program, flow: LoopFlow, name: str) -> bool:
    kinds = {program.value(read).kind for read in flow.reads.get(name, ())}
    shown = ARITHMETIC in flow.ends[name].ops and flow.ends[name].slices & flow.proven
    return Kind.TENSOR in kinds or (bool(shown) and kinds <= {Kind.UNKNOWN, Kind.NUMBER})


def _meets_tensor(program: Program, flow: LoopFlow, name: str) -> bool:
    """Is the state surely a tensor, which operations join with the steps?"""
    surely = any(program.value(read).kind is Kind.TENSOR for read in flow.reads.get(name, ()))
    return surely and ARITHMETIC in flow.ends[name].ops and bool(flow.ends[name].slices)


def _fed_back(flow: LoopFlow, states: dict[str, Trace]) -> set[str]:
    """The states that are also among the collected results."""
    results = {
        definition
        for each in flow.collected
        if each.how in ("append", "slot", "yield", "cat")
        for definition in each.trace.definitions
    }
    slots = {each.name for each in flow.collected if each.how == "slot" and MODEL in each.trace.ops}
    lists = {each.name for each in flow.collected if each.how == "append"}
    return {name for name, end in states.items() if (end.definitions & results or name in slots) and name not in lists}


def _launches_torch(program: Program, flow: LoopFlow) -> bool:
    return bool(flow.operations) or any(program.value(call.node).kind is Kind.TENSOR for call in flow.calls)


def _names(names: object) -> str:
    assert isinstance(names, set | frozenset | dict)
    return ", ".join(sorted(names)[:3])


__all__ = ["TimeLoop", "time_loop"]

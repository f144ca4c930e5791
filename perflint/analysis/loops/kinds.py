"""Classifies loops: step loops, time loops by exclusions, kinds and evidence, and others."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from perflint.analysis.autograd.effects import trains
from perflint.analysis.call_graph import is_abstract, overridden
from perflint.analysis.facts import Program
from perflint.analysis.heat.freshness import brings_data, evaluates, steps_an_environment
from perflint.analysis.ir.occurrences import computed_of
from perflint.analysis.links import GradMode, Summary
from perflint.analysis.loops.body import loop_flow
from perflint.analysis.loops.calls import is_carried_by_rnn, rnn_name, unseen_name
from perflint.analysis.loops.evidence import Evidence
from perflint.analysis.loops.flow import (
    AUTOREGRESSIVE,
    CHOICE,
    MIXED,
    MODEL,
    RECURRENCE,
    VECTORIZABLE,
    LoopKind,
    TimeLoop,
)
from perflint.analysis.loops.header import may_compute, never_over_time, read_header, solves
from perflint.analysis.values.values import CONTAINER_METHODS, Kind
from perflint.syntax.walk import (
    DEFINITIONS,
    LOOPS,
    Function,
    Loop,
    PlainLoop,
    body_of,
    children,
    nodes_of_body,
    own_nodes,
    receiver_of,
)

Verdict = tuple[str, str]  # a kind, and because of what


def _time_loop(program: Program, loop: Loop) -> TimeLoop | None:
    header = read_header(program, loop)
    if header.is_other or never_over_time(program, loop, header) or solves(loop) or not may_compute(program, loop):
        return None
    flow = loop_flow(program, loop, header)
    evidence = Evidence(program, loop, header, flow, flow.states())
    if flow.members or evidence.resizes or evidence.takes_chunks or not (flow.operations or evidence.models):
        return None
    # The first verdict wins: what a model chooses and gets back decides over the steps that are given besides. Then a
    # state that meets steps, one that meets none, no state, and what only another loop shows.
    kinds = (_generation, _recurrence, _rollout, _independent, _twin)
    verdict = next(filter(None, (kind(evidence) for kind in kinds)), None)
    return None if verdict is None or _only_repeats(evidence) else TimeLoop(*verdict, header, flow)


def _generation(loop: Evidence) -> Verdict | None:
    """A choice from a model's output, or the output itself, goes back into the model."""
    if loop.counts_rounds:
        return None
    found = (because for name in loop.states if (because := _generated(loop, name)))
    because = next(found, "")
    return _own_output(loop, because) if because else None


def _generated(loop: Evidence, name: str) -> str:
    """How what the loop puts out goes back into the model under this name; empty if it doesn't."""
    flow, end = loop.flow, loop.flow.closure(name)
    if name not in loop.entering or MODEL not in end.ops or name not in end.carried or loop.replaces_parts(name):
        return ""
    if end.carried & loop.refined & loop.entering or loop.is_on_host(end):
        return ""
    if name in flow.painted and loop.is_tensor(name):
        return ""
    if loop.launches and CHOICE in end.ops and not loop.hands_back(name):
        return f"`{name}` is built from what the step before chose, and goes back into the model"
    if not end.slices and loop.slides(name):
        return f"each step's output enters the window `{name}`, which goes back into the model"
    return ""


def _recurrence(loop: Evidence) -> Verdict | None:
    """Steps of a given sequence go in, and a state is carried."""
    if not loop.states or not loop.given or loop.flow.chunks:
        return None
    states = _carried(loop)
    columns = loop.walks_columns and bool(loop.returned)
    if not states or loop.names_another_axis or not (loop.has_carrier or columns or loop.spans_sequence):
        return None
    if loop.flow.forced:
        return _mixed(loop)
    drawn = {each.name for each in loop.flow.collected if each.how == "slot"} & loop.entering & states
    return _fed(drawn) if drawn - loop.flow.filtered() else _by_carrier(loop, states)


def _is_cell(loop: Evidence) -> bool:
    return loop.has_rnn or bool(loop.returned)


def _carried(loop: Evidence) -> set[str]:
    if _is_cell(loop):
        return set(loop.states) if loop.given_tensors or loop.has_rnn or loop.launches else set()
    states = set(loop.states) - loop.flow.painted
    if not loop.given_tensors or not states:
        return set()
    if loop.computed:
        return set() if _is_solver(loop, states) else states
    return _filtered(loop, states)


def _is_solver(loop: Evidence, states: set[str]) -> bool:
    """Does it look like a sampler, or a solver of differential equations, rather than a reader of a sequence?"""
    if loop.flow.index_as_data:
        return True
    return not (loop.is_collected or loop.counts_time or (loop.has_carrier and loop.replaced >= states))


def _filtered(loop: Evidence, states: set[str]) -> set[str]:
    """The tensors that arithmetic carries along a time axis, as filters and discounted returns are."""
    tensors = {name for name in states if loop.is_tensor(name)}
    if loop.flow.permuted or any(map(loop.reads_all_before, tensors)):
        return set()
    return tensors if loop.counts_time or loop.is_collected else set()


def _by_carrier(loop: Evidence, states: set[str]) -> Verdict:
    if all(is_carried_by_rnn(loop.program, loop.flow, each) for each in states):
        carrier = rnn_name(loop.program, loop.flow)
        return VECTORIZABLE, f"nothing is carried but the state ({_quoted(states)}) of {carrier}"
    unseen = unseen_name(loop.program, loop.flow)
    through = f"`{unseen}`, which this file does not define" if unseen else "more than a torch RNN"
    return RECURRENCE, f"the state ({_quoted(states)}) is carried through {through}"


def _rollout(loop: Evidence) -> Verdict | None:
    """Nothing given goes in; what comes out is kept as one tensor."""
    if not loop.states or loop.flow.index_as_data or loop.flow.truth():
        return None
    if loop.flow.chunks or loop.names_another_axis or not loop.launches:
        return None
    sums = [each for each in loop.flow.collected if each.how == "sum" and "." not in each.name.removeprefix("self.")]
    scored = {name for each in sums for name in each.trace.carried & loop.replaced - {each.name}}
    if scored and loop.counts_time and not loop.counts_rounds:
        return _own_output(loop, _fed(scored)[1])
    if not loop.computed or not loop.is_collected:
        return None
    if fed := loop.fed_back & loop.computed:
        return _own_output(loop, _fed(fed)[1])
    ends_by_itself = isinstance(loop.loop, ast.While)  # as what is generated does, rather than layers or rounds
    return _own_output(loop, _fed(loop.replaced)[1]) if loop.replaced and ends_by_itself else None


def _twin(loop: Evidence) -> Verdict | None:
    """A loop over time elsewhere hands the same models a state in the same way."""
    entering = loop.entering & loop.computed
    if loop.flow.index_as_data or loop.flow.truth() or not entering or not loop.has_twin:
        return None
    fed = {name for name in loop.entering & set(loop.states) if not loop.hands_back(name)}
    if not fed:
        return RECURRENCE, f"the state ({_quoted(entering)}) is carried from step to step"
    because = f"what is computed from the step before ({_quoted(fed)}) goes back into the model"
    return _own_output(loop, because)


def _independent(loop: Evidence) -> Verdict | None:
    """Each step stands for itself; whether the axis is time must show elsewhere."""
    flow = loop.flow
    if loop.states or not flow.operations or not flow.slices or not flow.collected or flow.chunks:
        return None
    if not loop.computes or loop.is_captioned:
        return None
    if all(each.offset is None for each in flow.slices) or not (loop.is_prepended or loop.counts_time):
        return None
    if loop.keeper:
        return RECURRENCE, f"`{loop.keeper}` keeps a state from step to step"
    used = {each.base for each in flow.slices}
    return VECTORIZABLE, f"each step reads its own part of {_quoted(used)}, and nothing is carried"


def _own_output(loop: Evidence, because: str) -> Verdict:
    return _mixed(loop) if loop.flow.forced else (AUTOREGRESSIVE, because)


def _mixed(loop: Evidence) -> Verdict:
    source = "from a given sequence or from the loop's own output, as the run decides"
    named = loop.flow.forced - {"?"}
    return MIXED, f"{_quoted(named) if named else 'what goes in'} comes {source}"


def _fed(names: Iterable[str]) -> Verdict:
    return AUTOREGRESSIVE, f"the output of the step before ({_quoted(names)}) goes back into the model"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)[:3])


def _only_repeats(loop: Evidence) -> bool:
    """Does it iterate over nothing itself, and carry nothing but what loops over time inside of it give?"""
    nodes = list(nodes_of_body(loop.loop))
    loops = [node for node in nodes if isinstance(node, PlainLoop)]
    inside = {part for each in loops if loop.program.time_loop(each) is not None for part in ast.walk(each)}
    if loop.flow.slices or not any(call.node in inside for call in loop.models):
        return False
    own = {call.node for call in loop.models if call.node not in inside and call.trace.carried}
    if own and any(each.how == "slot" and each.node not in inside for each in loop.flow.collected):
        return False  # what its own model made of the last step, the inner loop makes the next one of
    outside = (node for node in nodes if isinstance(node, ast.Assign | ast.AugAssign) and node not in inside)
    made = computed_of(outside, (), lambda node: node in own)
    return made.isdisjoint(name.partition(".")[0] for name in loop.states)


_OF_CONTAINERS = CONTAINER_METHODS | {"_replace", "_asdict"}
SWITCHES = ("no_grad", "inference_mode", "set_grad_enabled")
_TRAINING = ("backward(", ".zero_grad(", ".step(")


class Loops:
    """The kinds of a program's loops, each computed when it is asked for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._kinds: dict[ast.AST, LoopKind] = {}
        self._time_loops: dict[ast.AST, TimeLoop] = {}
        self._trains: dict[ast.AST, bool] = {}
        self._repeats: dict[ast.AST, bool] = {}
        self._may_evaluate = any(word in program.text for word in SWITCHES)
        self._may_train = any(word in program.text for word in _TRAINING) or program.trains_elsewhere

    def kind(self, loop: Loop) -> LoopKind:
        if loop not in self._kinds:
            self._kinds[loop] = LoopKind.OTHER  # while it is being computed: functions may call each other
            self._kinds[loop] = self._classify(loop)
        return self._kinds[loop]

    def time_loop(self, loop: Loop) -> TimeLoop | None:
        return self._time_loops.get(loop) if self.kind(loop) is LoopKind.TIME else None

    def _classify(self, loop: Loop) -> LoopKind:
        if isinstance(loop, ast.For) and self._program.value(loop.iter).kind is Kind.LOADER:
            return LoopKind.STEP
        found = _time_loop(self._program, loop)
        if found is not None:
            self._time_loops[loop] = found
            return LoopKind.TIME
        if isinstance(loop, ast.For) and _is_written_out(loop.iter):
            return LoopKind.OTHER
        nodes = list(self._one_iteration(loop.body))
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        is_step = any(map(self._marks_a_step, calls)) or self._is_evaluated(calls)
        if self._is_rollout(nodes) or (self._is_epoch(nodes) if is_step else not self._is_evaluation(loop, nodes)):
            return LoopKind.OTHER
        own = [node for node in nodes if not self._is_whole_epoch(node)]  # whatever that draws for its own steps
        return LoopKind.STEP if brings_data(self._program, loop, own) else LoopKind.OTHER

    def _is_evaluation(self, loop: Loop, nodes: Sequence[ast.AST]) -> bool:
        return evaluates(self._program, loop, nodes) and not any(
            isinstance(node, LOOPS) and self.kind(node) is not LoopKind.OTHER for node in nodes
        )

    def _is_epoch(self, nodes: Sequence[ast.AST]) -> bool:
        """Do the steps run in a loop inside, so that out here gradients are zeroed, or a model is looked at?"""
        has_steps = any(isinstance(node, LOOPS) and self.kind(node) is LoopKind.STEP for node in nodes)
        return has_steps and not any(self.trains_in(node) and receiver_of(node, "zero_grad") is None for node in nodes)

    def _is_whole_epoch(self, node: ast.AST) -> bool:
        function = self._program.callee(node)
        return function is not None and self._may_train and not self.trains_once(function) and self._has_steps(function)

    def _has_steps(self, function: Function) -> bool:
        loops = (each for each in own_nodes(function) if isinstance(each, LOOPS))
        return any(self.kind(each) is LoopKind.STEP and any(map(self.trains_in, own_nodes(each))) for each in loops)

    def trains_repeatedly(self, function: Function) -> bool:
        """Does calling `function` train in a loop of steps, there or in what it calls?"""
        if self._may_train and function not in self._repeats:
            self._repeats[function] = False
            calls = self._program.calls_in(function)
            self._repeats[function] = self._has_steps(function) or any(map(self._repeats_in, calls))
        return self._repeats.get(function, False)

    def _repeats_in(self, node: ast.Call) -> bool:
        callee = self._program.callee(node)
        is_elsewhere = any(each.repeats for each in self._summaries(node))
        return is_elsewhere or (callee is not None and self.trains_repeatedly(callee))

    def _summaries(self, node: ast.Call) -> Iterator[Summary]:
        """Those of what a call may reach in other files: also subclasses, where a method leaves it to them."""
        callee = self._program.callee(node)
        others = overridden(self._program, node) if callee is not None and is_abstract(callee) else ()
        return self._program.summaries(node, others)

    def _one_iteration(self, statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
        """The nodes that run about once an iteration, not in step and time loops inside, nor in definitions."""
        stack = list(statements)
        while stack:
            node = stack.pop()
            yield node
            if node.__class__ in DEFINITIONS:
                continue
            if isinstance(node, LOOPS) and self.kind(node) is not LoopKind.OTHER:
                stack.append(node.test if isinstance(node, ast.While) else node.iter)
                continue
            stack.extend(children(node))

    def _marks_a_step(self, node: ast.Call) -> bool:
        return self.trains_in(node) or self._runs_model(node)

    def _runs_model(self, node: ast.Call) -> bool:
        return self._may_be_model(node) and self._program.grad_mode(node) is GradMode.OFF

    def _is_evaluated(self, calls: Sequence[ast.Call]) -> bool:
        """Does a function evaluate a model, unless each iteration trains one first?"""
        return any(map(self._evaluates_in, calls)) and not any(map(self._repeats_in, calls))

    def _evaluates_in(self, node: ast.Call) -> bool:
        callee = self._program.callee(node)
        is_elsewhere = any(each.evaluates for each in self._summaries(node))
        return is_elsewhere or (callee is not None and self.evaluates_once(callee))

    def evaluates_once(self, function: Function) -> bool:
        """Does it run a model without gradients, for one sample: outside of loops, but for those over time?"""
        runs = (
            [each for each in self._program.calls_in(function) if self._runs_model(each)] if self._may_evaluate else []
        )
        inside = own_nodes(function) if runs else ()
        loops = (each for each in inside if isinstance(each, LOOPS) and self.kind(each) is not LoopKind.TIME)
        return not {each for loop in loops for each in own_nodes(loop)}.issuperset(runs)

    def _may_be_model(self, node: ast.Call) -> bool:
        callee = self._program.value(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _OF_CONTAINERS:  # of a part of what a model gave
            return False
        if callee.kind in (Kind.MODULE, Kind.TENSOR):  # a tensor can't be called: a model too
            return True
        if callee.owner is not None and callee.owner.kind is Kind.MODULE and isinstance(node.func, ast.Attribute):
            return node.func.attr.startswith("forward")
        return callee.kind is Kind.UNKNOWN and any(self._program.value(argument).on_device for argument in node.args)

    def trains_once(self, function: Function) -> bool:
        if not self._may_train:
            return False
        if function not in self._trains:
            self._trains[function] = False
            nodes = list(self._one_iteration(body_of(function)))
            self._trains[function] = any(map(self.trains_in, nodes)) and not self._is_epoch(nodes)
        return self._trains[function]

    def trains_in(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        if trains(self._program, node) or any(summary.trains for summary in self._summaries(node)):
            return True
        callee = self._program.callee(node)
        return callee is not None and self.trains_once(callee)

    def _is_rollout(self, nodes: Sequence[ast.AST]) -> bool:
        inner = (node for node in nodes if isinstance(node, LOOPS))
        return any(
            steps_an_environment(self._program, node) for each in inner for node in self._one_iteration(each.body)
        )


def _is_written_out(walked: ast.expr) -> bool:
    parts = (ast.List, ast.Tuple, ast.Constant, ast.Load, ast.UnaryOp, ast.USub)
    return isinstance(walked, ast.List | ast.Tuple) and all(isinstance(each, parts) for each in ast.walk(walked))

"""`graphed_loop`: a loop of steps with carried state and a test for its end, run in captured chunks."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeVar

import torch

from perflint.runtime import eager
from perflint.runtime.chunks import LoopReplay, Manner, Result
from perflint.runtime.records import Record, Records
from perflint.runtime.refusal import CannotCapture, explain
from perflint.runtime.scope import Scope, plain_function
from perflint.runtime.tree import flatten
from perflint.runtime.usable import can_capture, check, inside
from perflint.runtime.walk import Walk
from perflint.runtime.watch import observe

S = TypeVar("S")
_loops: dict[CodeType, _Loop] = {}


def graphed_loop(
    step: Callable[[int, S], tuple[Any, ...]], state: S, steps: int, *, dim: int = 0, chunk: int = 32
) -> tuple[S, Any]:
    """Run `step` up to `steps` times, as CUDA graphs of `chunk` steps each; return the last state and all outputs.

    `step(t, state)` returns `(state, output)`, or `(state, output, done)`: the loop ends behind the first step whose
    `done`, a boolean tensor of one element, is true. It means the same as

        outputs = []
        for t in range(steps):
            state, output, done = step(t, state)
            outputs.append(output)
            if done:
                break
        return state, torch.stack(outputs, dim)

    and returns bitwise the same, but `done` is read once a chunk and not at each step: up to `chunk - 1` more steps
    are computed and dropped. State and outputs are tensors or nested lists, tuples or dicts of them; each output leaf
    is stacked along `dim`. The state must keep its shapes: a cache that grows has to be allocated at full length and
    written in place (slots behind the last step hold undefined values, then). `step` may be a local function.

    The graphs are kept for the code of `step`, under the same conditions as those of `cuda_graph`, without gradients:
    where gradients are recorded, without torch.cuda, and where a step can't be captured (one RuntimeWarning says why)
    the loop above is what runs.

    Raises ValueError if `steps` or `chunk` < 1, TypeError if a step returns something else.
    """
    if steps < 1 or chunk < 1:
        raise ValueError(f"steps and chunk must be at least 1, not {steps} and {chunk}")
    function = plain_function(step)
    if function is None or not can_capture():
        return _plain(step, state, steps, dim)
    loop = _loops.get(function.__code__)
    if loop is None:
        loop = _loops[function.__code__] = _Loop(function)
    return loop.run(step, state, steps, Manner(chunk, dim, _counts(step, function)))  # type: ignore[no-any-return]


def _plain(step: eager.Step, state: Any, steps: int, dim: int) -> tuple[Any, Any]:
    state, outputs, _ = eager.run(step, state, 0, steps)
    return state, eager.stack(outputs, dim)


def _counts(step: object, function: FunctionType) -> bool:
    return eager.uses_parameter(function.__code__, 0 if step is function else 1)


class _Loop:
    """The captures of one step function, or of all local functions made by the same code."""

    def __init__(self, function: FunctionType) -> None:
        self.records = Records(function.__qualname__, max_graphs=8, max_bytes=None)
        self.scope = Scope(function)

    def run(self, step: eager.Step, state: Any, steps: int, manner: Manner) -> Any:
        mode = torch.is_grad_enabled()
        if mode in self.records.refused:
            return _plain(step, state, steps, manner.dim)
        walk = self._walk(step, state)
        if not walk.devices:
            return _plain(step, state, steps, manner.dim)
        reason = check(walk)
        if mode and any(tensor.requires_grad for tensor in (*walk.inputs, *walk.state)):
            reason = "gradients are recorded; call it under torch.no_grad()"
        if reason:
            self.records.refuse(mode, reason)
            return _plain(step, state, steps, manner.dim)
        with self.records.lock:
            record = self.records.find(_place(walk, manner))
            if record is not None:
                return self._replay(record, step, state, steps, manner, walk)
        return self._observe(step, state, steps, manner, walk)

    def _walk(self, step: eager.Step, state: Any) -> Walk:
        leaves: list[Any] = []
        structure = flatten(state, leaves)
        return Walk(self.scope, step, structure, leaves)

    def _observe(self, step: eager.Step, state: Any, steps: int, manner: Manner, walk: Walk) -> Any:
        mode = torch.is_grad_enabled()
        while self.scope.learn((*walk.modules, *walk.objects, step)):
            walk = self._walk(step, state)
        course = eager.Course()
        try:
            with inside():
                result, facts = observe(
                    walk,
                    lambda: self._walk(step, state),
                    lambda: eager.run(step, state, 0, steps, course),
                )
        except CannotCapture as refusal:
            self.records.refuse(mode, refusal.args[0])
            return refusal.args[1][0], eager.stack(refusal.args[1][1], manner.dim)
        with self.records.lock:
            held = (*walk.modules, *walk.objects, *walk.state)
            if not self.records.add(_place(walk, manner), facts, held, course):
                self.records.refuse(mode, "its state, or what else it reads, differs from call to call")
        return result[0], eager.stack(result[1], manner.dim)

    def _replay(self, record: Record, step: eager.Step, state: Any, steps: int, manner: Manner, walk: Walk) -> Any:
        course: eager.Course = record.notes
        result = Result(steps, manner.dim)
        taken, ended, reason = 0, False, None
        running: LoopReplay | None = None
        try:
            if course.warm_up:  # the state takes its lasting form in the first step
                state, outputs, ended = eager.run(step, state, 0, course.warm_up)
                taken = course.warm_up
                result.add(*eager.collect(outputs, manner.dim), taken)
            with inside():
                replay = record.capture or LoopReplay(walk, record.facts, state, manner, course.dice)
                replay.start(state)
                running = replay
                while taken < steps and not ended:
                    count, state, ended = replay.run(step, taken, min(manner.chunk, steps - taken), result)
                    taken += count
            reason = self.records.keep(record, replay) if replay.grown else None
        except Exception as error:
            reason = explain(error)
        if running is not None:
            state = running.owned(state)
        self.records.replayed()
        if reason:
            self.records.refuse(torch.is_grad_enabled(), reason)
        if taken < steps and not ended:
            state, outputs, _ = eager.run(step, state, taken, steps)
            result.add(*eager.collect(outputs, manner.dim), len(outputs))
        return state, result.outputs()


def _place(walk: Walk, manner: Manner) -> Any:
    return (walk.key, manner, torch.cuda.current_stream().cuda_stream)

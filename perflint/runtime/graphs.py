"""Runs a function, chunks of a loop or a step of training as one CUDA graph, with the results of eager mode."""

from __future__ import annotations

try:
    import torch
except ImportError as _error:
    raise ImportError("perflint.runtime.graphs needs PyTorch: pip install torch") from _error

from collections.abc import Callable, Hashable
from functools import partial
from types import FunctionType
from typing import Any, Literal, ParamSpec, TypeVar, overload

from torch import Tensor

from perflint.runtime.chunks import (
    Course,
    LoopReplay,
    Manner,
    Result,
    Step,
    Until,
    collect,
    run_eagerly,
    stack,
    uses_parameter,
)
from perflint.runtime.records import (
    Graphed,
    Record,
    Records,
    can_capture,
    check,
    current_stream,
    explain,
    inside,
    name_of,
)
from perflint.runtime.replay import Call, Replay, flatten
from perflint.runtime.scope import plain_function
from perflint.runtime.step import GraphedStep, graphed_step
from perflint.runtime.training import TrainingReplay
from perflint.runtime.walk import Walk

__all__ = ["GraphedFunction", "GraphedStep", "cuda_graph", "graphed_loop", "graphed_step"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Out = TypeVar("Out")
_SLOTS = 4  # captures of one key, for forward passes that wait for their backward passes
_loops: dict[tuple[int, int, bool], _Loop] = {}  # by the identities of code, which the loops keep


def cuda_graph(function: Callable[P, R]) -> GraphedFunction[P, R]:
    """Decorate a function, method or module so that it runs as one CUDA graph, with bitwise equal results.

        @cuda_graph
        def decode(model, encoded, steps): ...          # or `fast = cuda_graph(decode)`

    The first call with given arguments is eager and observed, the second is captured, later ones are replayed without
    running Python code. A graph belongs to the shapes, strides, types and device of tensor arguments, to the values of
    others, and to what the function reads besides: parameters and buffers (by address), modules' training mode,
    attributes, closures and globals that its code names; grad mode and autocast. Weights updated or loaded in place
    are used as they are; replaced ones lead to a new graph.

    Tensors in lists, tuples and dicts are copied in. Results are copied out, and share no memory with arguments or each
    other. Gradients flow through a captured backward pass, which sums the parts of each parameter's gradient beside it,
    as eager mode does, where they take at most a 64th of the device's memory. Random numbers advance the device's
    generator as in eager mode.

    Eight graphs are kept, in at most a quarter of the device's memory; the least recently used go first.

    What can't be captured stays eager, with one RuntimeWarning that says why: synchronisation with the host
    (`.item()`, `if tensor:`, masks as indices), copies between host and device, random numbers of the host, hooks on
    modules, assigned attributes, gradients computed inside, arguments that differ at every call. Without torch.cuda,
    within other captures, torch.compile or dispatch modes, the function is called unchanged.

    Limits: a replay does nothing besides computing (no printing, counting, appending to long lists). Second derivatives
    raise RuntimeError. Gradients of a parameter also used outside are summed in another order. Global switches such as
    TF32 must be set before the first call.

    Raises TypeError for generator functions and coroutines.
    """
    return GraphedFunction(function)


class GraphedFunction(Graphed[P, R]):
    """What `cuda_graph` returns: called like the function, and a method where the function would be one."""

    def __init__(self, function: Callable[P, R]) -> None:
        super().__init__(function, "cuda_graph")
        self._records = Records(name_of(function))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not can_capture():
            return self.__wrapped__(*args, **kwargs)
        mode = _mode(self.__wrapped__, args)
        if mode in self._records.refused:
            return self.__wrapped__(*args, **kwargs)
        return self._replay(Call(self.__wrapped__, *flatten((args, kwargs))), mode)  # type: ignore[no-any-return]

    def _walk(self, call: Call) -> Walk:
        return Walk(self._records.scope_of(call.function), call.function, call.structure, call.leaves)

    def _replay(self, call: Call, mode: Hashable) -> Any:
        walk = self._walk(call)
        if not walk.devices:
            return call.run({})
        if reason := check(walk):
            self._records.refuse(mode, reason)
            return call.run({})
        stream = current_stream()
        with self._records.lock:
            for slot in range(_SLOTS):
                key = walk.key(stream, slot)
                record = self._records.find(key)
                if record is None:
                    break
                if record.capture is None and not self._capture(record, call, walk, mode):
                    return call.run({})
                if not record.capture.busy:
                    self._records.replayed()
                    return record.capture(walk.inputs)
            else:
                return call.run({})
        run, functions = partial(call.run, {}), (call.function,)
        return self._records.observe(mode, partial(self._walk, call), functions, run, lambda w: w.key(stream, slot))

    def _capture(self, record: Record, call: Call, walk: Walk, mode: Hashable) -> bool:
        trained = torch.is_grad_enabled() and any(t.requires_grad for t in (*walk.inputs, *walk.state))
        try:
            with inside():
                if trained:
                    capture: Any = TrainingReplay(call, walk, record.facts, self._records.warn)
                else:
                    capture = Replay(call, walk, record.facts)
            reason = self._records.keep(record, capture)
        except Exception as error:
            reason = explain(error)
        if reason is not None:
            self._records.refuse(mode, reason)
        return reason is None


def _mode(function: object, args: tuple[object, ...]) -> Hashable:
    owners = (getattr(function, "__self__", function), *args)
    return (torch.is_grad_enabled(), *[owner.training for owner in owners if isinstance(owner, torch.nn.Module)])


@overload
def graphed_loop(
    step: Callable[[int, S], tuple[S, Out]],
    state: S,
    steps: int,
    *,
    until: Callable[[Out], Any] | None = ...,
    dim: int = ...,
    chunk: int = ...,
    last_state: Literal[True] = ...,
) -> tuple[S, Out]: ...
@overload
def graphed_loop(
    step: Callable[[int, S], tuple[S, Out]],
    state: S,
    steps: int,
    *,
    until: Callable[[Out], Any] | None = ...,
    dim: int = ...,
    chunk: int = ...,
    last_state: Literal[False],
) -> Out: ...
def graphed_loop(
    step: Callable[[int, Any], tuple[Any, Any]],
    state: Any,
    steps: int,
    *,
    until: Callable[[Any], Any] | None = None,
    dim: int = 0,
    chunk: int = 32,
    last_state: bool = True,
) -> Any:
    """Run `step` up to `steps` times, as CUDA graphs of `chunk` steps each; return the last state and all outputs.

    `step(t, state)` returns `(state, output)`; the loop ends after the first step for which `until(output)`, a
    boolean tensor of one element, is true. It means the same as

        outputs = []
        for t in range(steps):
            state, output = step(t, state)
            outputs.append(output)
            if until(output):
                break
        return state, torch.stack(outputs, dim)

    and returns bitwise the same, but `until` is computed and read once a chunk: up to `chunk - 1` more steps are
    computed and dropped. They must not fail on the device, as an index that grows too large would, or a draw from no
    chances. State and outputs are tensors or nested lists, tuples or dicts of them; each output leaf is stacked along
    `dim`. What the test needs must be among the outputs. The state must keep its shapes: allocate a growing cache at
    full length and write it in place (what lies after the last step's slot is undefined, then). `step` and `until` may
    be local functions. With `last_state=False` only outputs are returned, and states need no memory of their own.

    Graphs are kept for the code of `step` and `until`, as those of `cuda_graph`, but without gradients: where these are
    recorded, without torch.cuda, and where a step can't be captured (one RuntimeWarning says why), the loop above runs.

    Raises ValueError if `steps` or `chunk` < 1, TypeError if a step returns something else.
    """
    if steps < 1 or chunk < 1:
        raise ValueError(f"steps and chunk must be at least 1, not {steps} and {chunk}")
    function, test = plain_function(step), plain_function(until)
    if function is None or not can_capture():
        result = _plain(step, until, state, steps, dim)
    else:
        key = (id(function.__code__), id(test.__code__) if test else 0, step is function)
        loop = _loops.get(key)
        if loop is None:
            loop = _loops[key] = _Loop(function, test, step is function)
        result = _Run(loop, step, until, state, steps, Manner(chunk, dim, loop.counts, last_state))()
    return result if last_state else result[1]


def _plain(step: Step, until: Until | None, state: Any, steps: int, dim: int) -> tuple[Any, Any]:
    state, outputs, _ = run_eagerly(step, until, state, 0, steps)
    return state, stack(outputs, dim)


class _Loop:
    def __init__(self, function: FunctionType, test: FunctionType | None, plain: bool) -> None:
        self.records = Records(function.__qualname__)
        self.counts = uses_parameter(function.__code__, 0 if plain else 1)
        self._code = (function.__code__, test and test.__code__)


class _Run:
    def __init__(self, loop: _Loop, step: Step, until: Until | None, state: Any, steps: int, manner: Manner) -> None:
        self._records = loop.records
        self._step, self._until, self._state, self._steps, self._manner = step, until, state, steps, manner

    def __call__(self) -> tuple[Any, Any]:
        mode = torch.is_grad_enabled()
        if mode in self._records.refused:
            return self._plain()
        walk = self._walk()
        if not walk.devices:
            return self._plain()
        reason = check(walk)
        if mode and any(tensor.requires_grad for tensor in (*walk.inputs, *walk.state)):
            reason = "gradients are recorded; call it under torch.no_grad()"
        if reason:
            self._records.refuse(mode, reason)
            return self._plain()
        with self._records.lock:
            record = self._records.find(self._place(walk))
            if record is not None:
                return self._replay(record, walk)
        return self._observe()

    def _plain(self) -> tuple[Any, Any]:
        return _plain(self._step, self._until, self._state, self._steps, self._manner.dim)

    def _walk(self) -> Walk:
        structure, leaves = flatten(self._state)
        functions = self._step, self._until
        return Walk(self._records.scope_of(*functions), functions, structure, leaves)

    def _place(self, walk: Walk) -> Any:
        return walk.key(self._manner, current_stream())

    def _observe(self) -> tuple[Any, Any]:
        course, functions = Course(), (self._step, self._until)
        run = partial(self._eager, self._state, 0, self._steps, course)
        mode = torch.is_grad_enabled()
        result = self._records.observe(mode, self._walk, functions, run, self._place, course)
        return result[0], stack(result[1], self._manner.dim)

    def _eager(self, state: Any, first: int, steps: int, course: Course | None = None) -> Any:
        return run_eagerly(self._step, self._until, state, first, steps, course)

    def _replay(self, record: Record, walk: Walk) -> tuple[Any, Any]:
        course: Course = record.notes
        steps, dim, state = self._steps, self._manner.dim, self._state
        result = Result(steps, dim)
        taken, ended, reason = 0, False, None
        running: LoopReplay | None = None
        last: list[Tensor] = []
        try:
            if course.warm_up:  # the state takes its lasting form in the first step
                state, outputs, ended = self._eager(state, 0, course.warm_up)
                taken = course.warm_up
                result.add(*collect(outputs, dim), taken)
            with inside():
                replay = record.capture or LoopReplay(walk, record.facts, state, self._manner, course.draws)
                replay.start(state, check=course.warm_up > 0)
                running = replay
                while taken < steps and not ended:
                    length = min(self._manner.chunk, steps - taken)
                    count, last, ended = replay.run(self._step, self._until, taken, length, result)
                    taken += count
            reason = self._records.keep(record, replay) if replay.grown else None
        except Exception as error:
            reason = explain(error)
        if running is not None and last:
            running.give_back()
            self._records.replayed()
            if self._manner.keeps or not (ended or taken == steps):
                state = running.owned(last)
        if reason:
            self._records.refuse(torch.is_grad_enabled(), reason)
        if taken < steps and not ended:
            state, outputs, _ = self._eager(state, taken, steps)
            result.add(*collect(outputs, dim), len(outputs))
        return state, result.outputs()

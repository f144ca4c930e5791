"""Runs a loop of steps eagerly, or as CUDA graphs of several steps each, testing for its end between them."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from perflint.runtime.records import CannotCapture, Facts
from perflint.runtime.replay import (
    Capture,
    Recorder,
    copies,
    copy_into,
    distinct,
    finish,
    flatten,
    rebuild,
    twin,
    written,
)
from perflint.runtime.walk import Walk

Step = Callable[[int, Any], tuple[Any, Any]]
Until = Callable[[Any], Any]
Form = tuple[Hashable, ...]


class Manner(NamedTuple):
    """How a loop is cut up: steps a graph, the dimension outputs are stacked on, whether steps use their index.

    `keeps`: the last state is asked for. Any step may be the last, so each state then has memory of its own.
    """

    chunk: int
    dim: int
    counts: bool
    keeps: bool


@dataclass(frozen=True)
class _Steps:
    outputs: list[Tensor]
    structure: Hashable
    tests: Tensor | None
    states: list[list[Tensor]]


@dataclass(frozen=True)
class _Chunk:
    graph: torch.cuda.CUDAGraph
    steps: _Steps
    verdicts: Tensor | None

    def replay(self) -> None:
        self.graph.replay()
        if self.verdicts is not None and self.steps.tests is not None:
            self.verdicts.copy_(self.steps.tests, non_blocking=True)


class LoopReplay(Capture):
    """The captured chunks of one loop, with a common pool and static state, which each chunk renews."""

    def __init__(self, walk: Walk, facts: Facts, state: Any, manner: Manner, draws: int) -> None:
        self._structure, leaves = flatten(state)
        self._form = form_of(state)
        self._numbers = [number for number, leaf in enumerate(leaves) if _on_device(leaf)]
        tensors = [leaves[number] for number in self._numbers]
        self._leaves = [None if _on_device(leaf) else leaf for leaf in leaves]
        self._statics = [twin(tensor) for tensor in tensors]
        if any(distinct(static) is not static for static in self._statics):
            raise CannotCapture("its state is an expanded tensor")
        inputs = {id(walk.inputs[number]) for number in facts.written_inputs}
        self._written = [id(tensor) in inputs for tensor in tensors]
        self._recorder = Recorder(walk.devices, [*written(walk, facts), *self._statics])
        self._facts, self._manner, self._draws = replace(facts, written_inputs=()), manner, draws
        self._given: list[Tensor] = []
        self._chunks: dict[tuple[int, int], _Chunk] = {}
        self._tested = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.grown = False

    def start(self, state: Any, check: bool) -> None:
        if check and form_of(state) != self._form:
            raise CannotCapture("its state changes shape, layout or values that are not on the device")
        _, leaves = flatten(state)
        self.grown = False
        self._given = [leaves[number] for number in self._numbers]
        copy_into(self._statics, self._given)

    def run(
        self, step: Step, until: Until | None, first: int, count: int, result: Result
    ) -> tuple[int, list[Tensor], bool]:
        """Replay `count` steps from `first`; return how many the loop takes, the state after them, and its end.

        The state's tensors are the graph's memory; `owned` copies them. Where no last state is asked for, it is the one
        after the graph, from which the loop goes on unless it has ended.
        """
        key = (first if self._manner.counts else 0, count)
        if key not in self._chunks:
            self._chunks[key] = self._capture(functools.partial(self._steps, step, until, first, count))
            self.grown = True
        chunk = self._chunks[key]
        generator = torch.cuda.default_generators[self._recorder.device.index]
        offset = generator.get_offset() if self._draws else 0
        chunk.replay()
        self._tested.record()
        result.add(chunk.steps.outputs, chunk.steps.structure, count)
        finish(self._facts, (), ())
        taken, ended = count, False
        if chunk.verdicts is not None:
            self._tested.synchronize()
            tests = chunk.verdicts.tolist()
            ended = True in tests
            taken = tests.index(True) + 1 if ended else len(tests)
        if taken < count:
            result.drop(count - taken)
            if self._draws:
                generator.set_offset(offset + taken * self._draws)
        states = chunk.steps.states
        return taken, states[min(taken, len(states)) - 1], ended

    def give_back(self) -> None:
        for given, static, is_written in zip(self._given, self._statics, self._written, strict=True):
            if is_written:
                given.copy_(static)

    def owned(self, last: list[Tensor]) -> Any:
        """The caller's own state: its tensors where steps passed them along, copies of the rest."""
        made = iter(
            copies([tensor for tensor, static in zip(last, self._statics, strict=True) if tensor is not static])
        )
        whose = zip(self._given, last, self._statics, strict=True)
        return self._state([given if tensor is static else next(made) for given, tensor, static in whose])

    def _state(self, tensors: list[Tensor]) -> Any:
        leaves = list(self._leaves)
        for number, tensor in zip(self._numbers, tensors, strict=True):
            leaves[number] = tensor
        return rebuild(self._structure, iter(leaves))

    def _capture(self, body: Callable[[], _Steps]) -> _Chunk:
        self._recorder.rehearse(body)
        graph, steps = self._recorder.record(body)
        verdicts = None if steps.tests is None else torch.empty_like(steps.tests, device="cpu", pin_memory=True)
        return _Chunk(graph, steps, verdicts)

    def _steps(self, step: Step, until: Until | None, first: int, count: int) -> _Steps:
        state = self._state(self._statics)
        outputs: list[Any] = []
        states: list[list[Tensor]] = []
        moved: set[int] = set()
        for index in range(first, first + count):
            state, output = unpack(step(index, state))
            if form_of(state) != self._form:
                raise CannotCapture("its state changes shape, layout or values that are not on the device")
            _, found = flatten(state)
            tensors = [found[number] for number in self._numbers]
            moved |= {place for place, static in enumerate(self._statics) if tensors[place] is not static}
            states = [*states, tensors] if self._manner.keeps else [tensors]
            outputs.append(output)
        stacked, structure = collect(outputs, self._manner.dim)
        tests = None if until is None else self._tests(until, outputs, rebuild(structure, iter(stacked)))
        self._apart(states, moved)
        copy_into([self._statics[place] for place in moved], [states[-1][place] for place in moved])
        return _Steps(stacked, structure, tests, states)

    def _tests(self, until: Until, outputs: list[Any], stacked: Any) -> Tensor:
        try:
            tests: Tensor = torch.vmap(until, in_dims=self._manner.dim)(stacked)
        except CannotCapture:
            raise
        except Exception:
            tests = torch.stack([until(output) for output in outputs])
        return tests.reshape(len(outputs)).bool()

    def _apart(self, states: list[list[Tensor]], moved: Iterable[int]) -> None:
        """Keep what steps leave in memory that the next chunk's state isn't written to."""
        taken = {static.untyped_storage().data_ptr() for static in self._statics}
        for place in moved:
            if self._written[place]:
                raise CannotCapture("it writes to its state in place and returns another tensor for it")
            for state in states:
                if state[place].untyped_storage().data_ptr() in taken:
                    (state[place],) = copies([state[place]])


class Result:
    def __init__(self, steps: int, dim: int) -> None:
        self._steps, self._dim, self._count = steps, dim, 0
        self._tensors: list[Tensor] | None = None
        self._structure: Hashable = None

    def add(self, stacked: list[Tensor], structure: Hashable, count: int) -> None:
        if self._tensors is None:
            self._structure = structure
            self._tensors = [
                tensor.new_empty(
                    [self._steps if d == self._dim % tensor.dim() else n for d, n in enumerate(tensor.shape)]
                )
                for tensor in stacked
            ]
        for whole, part in zip(self._tensors, stacked, strict=True):
            whole.narrow(self._dim, self._count, count).copy_(part)
        self._count += count

    def drop(self, count: int) -> None:
        self._count -= count

    def outputs(self) -> Any:
        tensors = self._tensors or []
        if self._count < self._steps:
            tensors = [
                tensor.narrow(self._dim, 0, self._count).clone(memory_format=torch.contiguous_format)
                for tensor in tensors
            ]
        return rebuild(self._structure, iter(tensors))


def _on_device(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_cuda


@dataclass
class Course:
    """What an eager loop went through: its state's first form, and the generator's offsets between steps."""

    forms: list[Form] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def note(self, state: Any) -> None:
        if len(self.forms) < 3:
            self.forms.append(form_of(state))
        self.offsets.append(torch.cuda.default_generators[torch.cuda.current_device()].get_offset())

    @property
    def draws(self) -> int:
        steps = {after - before for before, after in zip(self.offsets, self.offsets[1:], strict=False)}
        if len(steps) != 1:
            raise CannotCapture("its steps draw different numbers of random values")
        return steps.pop()

    @property
    def warm_up(self) -> int:
        """How many steps run before the state has its lasting form, 0 or 1; else CannotCapture."""
        if len(self.forms) < 2 or self.forms[0] == self.forms[1]:
            return 0
        if len(self.forms) < 3 or self.forms[1] == self.forms[2]:
            return 1
        raise CannotCapture("its state changes shape, layout or values that are not on the device")


def run_eagerly(
    step: Step, until: Until | None, state: Any, first: int, steps: int, course: Course | None = None
) -> tuple[Any, list[Any], bool]:
    outputs = []
    if course:
        course.note(state)
    for index in range(first, steps):
        state, output = unpack(step(index, state))
        outputs.append(output)
        if course:
            course.note(state)
        if until is not None and until(output):
            return state, outputs, True
    return state, outputs, False


def unpack(result: tuple[Any, Any]) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError("a step of graphed_loop must return (state, output)")
    return result


def collect(outputs: list[Any], dim: int) -> tuple[list[Tensor], Hashable]:
    structures, columns = zip(*map(flatten, outputs), strict=True)
    if len({*structures}) != 1 or not all(isinstance(leaf, Tensor) for leaves in columns for leaf in leaves):
        raise TypeError("a step's output must be tensors, in the same structure at every step")
    return [torch.stack(column, dim) for column in zip(*columns, strict=True)], structures[0]


def stack(outputs: list[Any], dim: int) -> Any:
    tensors, structure = collect(outputs, dim)
    return rebuild(structure, iter(tensors))


def form_of(state: Any) -> Form:
    """All of a state but the values of device tensors, which must not change from step to step."""
    structure, leaves = flatten(state)
    return (structure, *[_form_of_leaf(leaf) for leaf in leaves])


def _form_of_leaf(leaf: Any) -> Hashable:
    if isinstance(leaf, Tensor):
        if leaf.layout is not torch.strided:
            raise CannotCapture("its state holds a sparse tensor")
        if not leaf.is_cuda:
            return (leaf.shape, leaf.stride(), leaf.dtype, id(leaf))
        if not (leaf.is_floating_point() or leaf.is_complex()):
            # whole numbers are the same whichever kernel computes them: strides count where they lead somewhere
            strides = (stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True) if size > 1)
            return (leaf.shape, tuple(strides), leaf.dtype, leaf.device)
        return (leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.data_ptr() % 16)
    return leaf if isinstance(leaf, Hashable) else id(leaf)


def uses_parameter(code: CodeType, number: int) -> bool:
    if number >= code.co_argcount:
        return True
    name = code.co_varnames[number]
    for instruction in dis.get_instructions(code):
        value = instruction.argval
        if not instruction.opname.startswith("STORE") and (name == value or (type(value) is tuple and name in value)):
            return True
    return False

"""A captured call: static inputs, the graph, and results that belong to the caller."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from perflint.runtime.capture import Recorder, copies, copy_into, distinct, twin
from perflint.runtime.refusal import CannotCapture
from perflint.runtime.tree import flatten, rebuild
from perflint.runtime.walk import Walk
from perflint.runtime.watch import Facts

_CONSTANTS = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size, enum.Enum)


@dataclass(frozen=True)
class Call:
    """One call of a function, taken apart: `structure` and `leaves` are those of `(args, kwargs)`."""

    function: Callable[..., Any]
    structure: Hashable
    leaves: list[Any]

    def run(self, stand_ins: dict[int, Tensor]) -> Any:
        """Call the function with some leaves replaced, by identity."""
        leaves = (stand_ins.get(id(leaf), leaf) for leaf in self.leaves)
        args, kwargs = rebuild(self.structure, leaves)
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class Outcome:
    """What a captured run returned. Each leaf is ("input", number), ("output", number) or ("same", value)."""

    structure: Hashable
    leaves: tuple[tuple[str, Any], ...]
    tensors: list[Tensor]

    def result(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
        """The caller's result, from the caller's inputs and copies of `tensors`."""
        return rebuild(self.structure, self._leaves(inputs, outputs))

    def _leaves(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Iterator[Any]:
        for kind, value in self.leaves:
            yield inputs[value] if kind == "input" else outputs[value] if kind == "output" else value


def settle(result: Any, statics: Sequence[Tensor], kept: dict[int, Tensor]) -> Outcome:
    """Sort the leaves of a result while it is captured; `kept` maps what stands for a state tensor to that tensor.

    A view of an input, of the state or of another output becomes a tensor of its own: results never share memory.
    """
    found: list[Any] = []
    structure = flatten(result, found)
    numbers = {id(static): number for number, static in enumerate(statics)}
    taken = {tensor.untyped_storage().data_ptr() for tensor in (*statics, *kept.values())}
    leaves: list[tuple[str, Any]] = []
    tensors: list[Tensor] = []
    outputs: dict[int, int] = {}
    for leaf in found:
        if id(leaf) in numbers:
            leaves.append(("input", numbers[id(leaf)]))
        elif id(leaf) in kept:
            leaves.append(("same", kept[id(leaf)]))
        elif isinstance(leaf, Tensor):
            _check(leaf)
            if id(leaf) not in outputs:
                place = leaf.untyped_storage().data_ptr()
                outputs[id(leaf)] = len(tensors)
                tensors.append(leaf.clone() if place in taken else leaf)
                taken.add(place)
            leaves.append(("output", outputs[id(leaf)]))
        elif isinstance(leaf, _CONSTANTS):
            leaves.append(("same", leaf))
        else:
            raise CannotCapture(f"it returns a {type(leaf).__name__}, which may hold tensors")
    return Outcome(structure, tuple(leaves), tensors)


def _check(tensor: Tensor) -> None:
    if not tensor.is_cuda:
        raise CannotCapture("it returns a tensor on the host")
    if type(tensor) not in (Tensor, Parameter) or tensor.layout is not torch.strided:
        raise CannotCapture(f"it returns a {type(tensor).__name__} of layout {tensor.layout}")


class Replay:
    """A function without gradients as one graph: inputs are copied in, it is launched, outputs are copied out."""

    busy = False  # a graph without a backward pass is free again at once

    def __init__(self, call: Call, walk: Walk, facts: Facts) -> None:
        self._recorder = Recorder(walk.devices, written(walk, facts))
        self._statics = [twin(tensor) for tensor in walk.inputs]
        self._cores = [distinct(static) for static in self._statics]
        self._facts = facts
        stand_ins = {id(tensor): static for tensor, static in zip(walk.inputs, self._statics, strict=True)}
        kept = {id(tensor): tensor for tensor in walk.state}
        copy_into(self._cores, [distinct(tensor) for tensor in walk.inputs])
        self._recorder.rehearse(lambda: call.run(stand_ins))
        copy_into(self._cores, [distinct(tensor) for tensor in walk.inputs])
        self._graph, self._outcome = self._recorder.record(lambda: settle(call.run(stand_ins), self._statics, kept))

    @property
    def bytes(self) -> int:
        """Device memory held: the graph's pool and the static inputs."""
        return self._recorder.bytes + sum(static.nbytes for static in self._statics)

    def __call__(self, inputs: list[Tensor]) -> Any:
        """The function's result for the tensors of this call, in the order of `Walk.inputs`."""
        launch(self._graph, self._cores, inputs)
        finish(self._facts, inputs, self._statics)
        return self._outcome.result(inputs, copies(self._outcome.tensors))


def launch(graph: torch.cuda.CUDAGraph, cores: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Fill the static inputs and start the graph on the current stream."""
    copy_into(cores, [t if core.shape == t.shape else distinct(t) for core, t in zip(cores, inputs, strict=True)])
    graph.replay()


def finish(facts: Facts, inputs: Sequence[Tensor], statics: Sequence[Tensor]) -> None:
    """Give the caller's tensors what the function wrote to its arguments; tell autograd of what it wrote elsewhere."""
    for number in facts.written_inputs:
        inputs[number].copy_(statics[number])
    for tensor in facts.written_state:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


def written(walk: Walk, facts: Facts) -> list[Tensor]:
    """What a rehearsal may change. Some kernels write buffers without telling (batch norm): all buffers count."""
    buffers = [tensor for tensor in walk.state if type(tensor) is not Parameter]
    return list({id(tensor): tensor for tensor in (*buffers, *facts.written_state)}.values())

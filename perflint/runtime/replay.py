"""Captures a call as one CUDA graph over static inputs, and replays it."""

from __future__ import annotations

import enum
import gc
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils import _pytree

from perflint.runtime.checks import Checks, raise_failed
from perflint.runtime.records import CannotCapture, Facts, Rehearsal
from perflint.runtime.walk import Walk

_ONE_AT_A_TIME = threading.RLock()
_RELOADS = (12, 6)  # the version of CUDA from which on a profiler can load CUPTI again where graphs are
_streams: dict[torch.device, torch.cuda.Stream] = {}
_CONSTANTS = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size, enum.Enum)
LEAF = None


def twin(tensor: Tensor) -> Tensor:
    sizes, strides = tensor.shape, tensor.stride()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) if tensor.numel() else 0
    offset = tensor.data_ptr() % 16 // tensor.element_size()
    memory = torch.empty(offset + extent, dtype=tensor.dtype, device=tensor.device)
    return memory.as_strided(sizes, strides, offset)


def distinct(tensor: Tensor) -> Tensor:
    """The view of an expanded tensor that has each element once; CannotCapture for other overlaps."""
    core = tensor
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            core = core.narrow(dimension, 0, 1)
    order = sorted((stride, size) for size, stride in zip(core.shape, core.stride(), strict=True) if size > 1)
    reach = 0
    for stride, size in order:
        if stride <= reach:
            raise CannotCapture("an argument's elements overlap in memory")
        reach += (size - 1) * stride
    return core


def copy_into(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    types = [target.dtype for target in targets]
    with torch.no_grad():
        for each in dict.fromkeys(types):
            torch._foreach_copy_(
                [target for target, of in zip(targets, types, strict=True) if of is each],
                [source for source, of in zip(sources, types, strict=True) if of is each],
            )


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    made = [torch.empty_like(tensor) for tensor in tensors]
    copy_into(made, tensors)
    return made


def side_stream(device: torch.device) -> torch.cuda.Stream:
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return _streams[device]


class Recorder:
    """Where one function is captured: a side stream and a memory pool; the generator's offset is kept.

    `body` may run several times: `state`, all that it writes, is restored after each rehearsal. Graphs that never run
    at the same time may share a `pool`.
    """

    def __init__(self, devices: Iterable[int], state: Sequence[Tensor], pool: Any = None) -> None:
        (number,) = devices
        self.device = device = torch.device("cuda", number)
        self.pool = pool or torch.cuda.graph_pool_handle()
        self.bytes = 0
        self._state = state
        self._stream = side_stream(device)

    def rehearse(self, body: Callable[[], Any]) -> None:
        """Run once on the capturing stream, so that libraries set up; CannotCapture if that needs the host."""
        generator = torch.cuda.default_generators[self.device.index]
        offset = generator.get_offset()
        saved = [tensor.detach().clone() for tensor in self._state]
        rehearsal = Rehearsal()
        self._stream.wait_stream(torch.cuda.current_stream())
        try:
            with _fresh_casts(), torch.cuda.stream(self._stream), rehearsal, Checks():
                body()
            if rehearsal.refusal:  # the function caught the error itself
                raise CannotCapture(rehearsal.refusal)
        finally:
            torch.cuda.current_stream().wait_stream(self._stream)
            generator.set_offset(offset)
            for tensor, value in zip(self._state, saved, strict=True):
                tensor.data.copy_(value)

    def record(self, body: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        """Capture `body`; return the graph and the result of `body`. Nothing has run yet.

        A failed capture leaves stream, allocator and generator as they were.
        """
        _keep_profilers()
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        ended, collects, checks = False, gc.isenabled(), Checks(self.device)
        with _ONE_AT_A_TIME:
            gc.disable()  # a graph that is freed meanwhile would end the capture
            try:
                # thread_local: a loader's pinning thread may allocate meanwhile
                with (
                    _fresh_casts(),
                    _own_workspaces(),
                    torch.cuda.graph(graph, self.pool, self._stream, capture_error_mode="thread_local"),
                ):
                    held = torch.cuda.memory_reserved(self.device)
                    with checks:
                        result = body()
                    checks.tell()
                    held = torch.cuda.memory_reserved(self.device) - held
                ended = True
            finally:
                if collects:
                    gc.enable()
                torch.cuda.set_stream(stream)
                if not ended:
                    self._clean_up()
        self.bytes += held
        return graph, result

    def _clean_up(self) -> None:
        """Close what torch leaves open after an invalidated capture, by an empty one that succeeds."""
        with suppress(RuntimeError, AttributeError):  # older versions of torch name it otherwise
            torch._C._cuda_endAllocateToPool(self.device.index, self.pool)
            torch._C._cuda_releasePool(self.device.index, self.pool)
        torch.cuda.synchronize(self.device)
        self.pool = torch.cuda.graph_pool_handle()
        with torch.cuda.graph(torch.cuda.CUDAGraph(), self.pool, self._stream, capture_error_mode="thread_local"):
            torch.zeros(1, device=self.device)


@contextmanager
def _fresh_casts() -> Iterator[None]:
    """Keep autocast's cached casts of weights from entering or leaving a graph."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


@contextmanager
def _own_workspaces() -> Iterator[None]:
    """Have cuBLAS work in the graph's pool: torch frees a stream's workspace with its next graph."""
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


def _keep_profilers() -> None:
    """Have a profiler keep CUPTI loaded, as torch does for its own graphs: older CUDA crashes otherwise."""
    version = torch.version.cuda
    if version and tuple(map(int, version.split(".")[:2])) < _RELOADS:
        os.environ.update(DISABLE_CUPTI_LAZY_REINIT="1", TEARDOWN_CUPTI="0")


@dataclass(frozen=True)
class Call:
    function: Callable[..., Any]
    structure: Hashable
    leaves: list[Any]

    def run(self, stand_ins: dict[int, Tensor]) -> Any:
        leaves = (stand_ins.get(id(leaf), leaf) for leaf in self.leaves)
        args, kwargs = rebuild(self.structure, leaves)
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class Outcome:
    structure: Hashable
    leaves: tuple[tuple[str, Any], ...]
    tensors: list[Tensor]

    def result(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
        known = {"input": inputs, "output": outputs}
        return rebuild(self.structure, (known[kind][value] if kind in known else value for kind, value in self.leaves))


def settle(result: Any, statics: Sequence[Tensor], kept: dict[int, Tensor]) -> Outcome:
    """Sort a result's leaves during capture; `kept` maps stand-ins to the state tensors they stand for.

    Views of inputs, state or other outputs become tensors of their own: results never share memory.
    """
    structure, found = flatten(result)
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


class Capture:
    _recorder: Recorder
    _statics: list[Tensor]

    @property
    def busy(self) -> bool:
        """Is its memory in use? A graph without a backward pass is free at once."""
        return False

    @property
    def bytes(self) -> int:
        return self._recorder.bytes + sum(static.nbytes for static in self._statics)


class Replay(Capture):
    """A function without gradients as one graph: copy inputs in, launch, copy outputs out."""

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

    def __call__(self, inputs: list[Tensor]) -> Any:
        launch(self._graph, self._cores, inputs)
        finish(self._facts, inputs, self._statics)
        return self._outcome.result(inputs, copies(self._outcome.tensors))


def launch(graph: torch.cuda.CUDAGraph, cores: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    raise_failed()
    copy_into(cores, [t if core.shape == t.shape else distinct(t) for core, t in zip(cores, inputs, strict=True)])
    graph.replay()


def finish(facts: Facts, inputs: Sequence[Tensor], statics: Sequence[Tensor]) -> None:
    for number in facts.written_inputs:
        inputs[number].copy_(statics[number])
    for tensor in facts.written_state:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


def written(walk: Walk, facts: Facts) -> list[Tensor]:
    """What a rehearsal may change: also all buffers, as some kernels (batch norm) write them without telling."""
    buffers = [tensor for tensor in walk.state if type(tensor) is not Parameter]
    return list({id(tensor): tensor for tensor in (*buffers, *facts.written_state)}.values())


def flatten(value: Any) -> tuple[Hashable, list[Any]]:
    """The structure of `value`, equal for equal forms, and its leaves in order.

    Takes apart lists, tuples, named tuples, dicts and what is registered with torch's pytree.
    """
    leaves: list[Any] = []
    return _structure(value, leaves), leaves


def _structure(value: Any, leaves: list[Any]) -> Hashable:
    kind = type(value)
    if kind is Tensor:  # first, as it is the most frequent
        leaves.append(value)
        return LEAF
    if kind is tuple or kind is list:
        return (kind, tuple([_structure(item, leaves) for item in value]))
    if kind is dict:
        return (dict, tuple(value), tuple([_structure(item, leaves) for item in value.values()]))
    if issubclass(kind, tuple):
        return (kind, tuple([_structure(item, leaves) for item in value]))
    if kind in _pytree.SUPPORTED_NODES:
        children, context = _pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        return (kind, _Context(context), tuple([_structure(item, leaves) for item in children]))
    leaves.append(value)
    return LEAF


def rebuild(structure: Any, leaves: Iterator[Any]) -> Any:
    if structure is LEAF:
        return next(leaves)
    kind = structure[0]
    children = [rebuild(child, leaves) for child in structure[-1]]
    if kind is tuple or kind is list:
        return kind(children)
    if kind is dict:
        return dict(zip(structure[1], children, strict=True))
    if issubclass(kind, tuple):
        return kind._make(children) if hasattr(kind, "_make") else kind(children)
    return _pytree.SUPPORTED_NODES[kind].unflatten_fn(children, structure[1].value)


class _Context:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))

"""Captures a call with gradients: a graph for the forward pass, one for each form of the backward pass."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Module, Parameter

from perflint.runtime.records import CannotCapture, Facts, explain
from perflint.runtime.replay import (
    Call,
    Capture,
    Outcome,
    Recorder,
    copies,
    copy_into,
    distinct,
    finish,
    flatten,
    launch,
    settle,
    twin,
    written,
)
from perflint.runtime.walk import Walk, casts_once

_SHARE = 64  # the parts of all gradients, before they are summed, may take one part in so many of the device's memory
_FORMS = 4  # of the backward pass that are captured; further ones run eagerly
_Gradients = Sequence[Tensor | None]


def summed_aside(parameters: Sequence[Tensor], size: int, device: torch.device) -> list[object]:
    """Sum the parts of each parameter's gradient on a stream beside the backward pass.

    Until the end of a capture each part has its own memory, so all parts must be affordable: `size` bytes. Keep the
    result alive until the forward pass has run.
    """
    if size > torch.cuda.get_device_properties(device).total_memory // _SHARE:
        return []
    with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
        return [torch.autograd.graph.get_gradient_edge(parameter).node for parameter in parameters]


def bytes_to_sum(result: Any) -> int:
    _, leaves = flatten(result)
    return sum(leaf.nbytes for leaf in _uses_of_leaves(each for each in leaves if isinstance(each, Tensor)))


def leaves_of(outputs: Sequence[Tensor]) -> list[Tensor]:
    return list({id(leaf): leaf for leaf in _uses_of_leaves(outputs)}.values())


def _uses_of_leaves(outputs: Iterable[Tensor]) -> Iterator[Tensor]:
    for node in tape(output.grad_fn for output in outputs):
        for following, _ in node.next_functions:
            if type(following).__name__ == "AccumulateGrad":
                yield following.variable


def tape(ends: Iterable[Any]) -> Iterator[Any]:
    stack = [each for each in ends if each is not None]
    seen = set(stack)
    while stack:
        yield (node := stack.pop())
        found = {each for each, _ in node.next_functions if each is not None} - seen
        seen |= found
        stack += found


class TrainingReplay(Capture):
    """A function with gradients. Between forward and backward pass its memory is `busy`.

    The captured forward pass's tape is kept. The first backward pass of a form (which outputs have gradients, and their
    layout) runs eagerly over that tape, filled by a replay; the form is captured at the next call.
    """

    def __init__(self, call: Call, walk: Walk, facts: Facts, warn: Callable[[str], None]) -> None:
        self._recorder = Recorder(walk.devices, written(walk, facts))
        self._statics = [_leaf(tensor) for tensor in walk.inputs]
        self._cores = [distinct(static.detach()) for static in self._statics]
        self._facts, self._warn = facts, warn
        self._forms: dict[Hashable, _Backward | None] = {}
        self._wanted: list[tuple[Hashable, _Casts, list[Tensor | None]]] = []
        self._turn = 0
        self._waiting: Callable[[], object] = lambda: None
        with stand_ins(walk.modules, call.leaves) as parameters:
            places = {id(tensor): static for tensor, static in zip(walk.inputs, self._statics, strict=True)}
            kept = {id(tensor): tensor for tensor in walk.state}
            for alias, parameter in parameters:
                places[id(parameter)] = alias
                kept[id(alias)] = parameter

            def body() -> Outcome:
                # hooks: the tape's own check of versions would forbid the next step's parameters
                with torch.autograd.graph.saved_tensors_hooks(Tensor.detach, lambda tensor: tensor):
                    return settle(call.run(places), self._statics, kept)

            sizes: list[int] = []
            copy_into(self._cores, [distinct(tensor) for tensor in walk.inputs])
            self._recorder.rehearse(lambda: sizes.append(bytes_to_sum(call.run(places))))
            sums = summed_aside([alias for alias, _ in parameters], sizes[0], self._recorder.device)
            self._graph, self._outcome = self._recorder.record(body)
            del sums  # the tape has them
        self._sort_leaves([parameter for _, parameter in parameters], [alias for alias, _ in parameters])

    def _sort_leaves(self, parameters: list[Tensor], aliases: list[Tensor]) -> None:
        numbers = {id(static): number for number, static in enumerate(self._statics)}
        known = {id(alias): parameter for alias, parameter in zip(aliases, parameters, strict=True)}
        self._targets = leaves_of(self._outcome.tensors)
        self._sources: list[int | Tensor] = []
        for leaf in self._targets:
            source = numbers.get(id(leaf), known.get(id(leaf)))
            if source is None:
                raise CannotCapture("it trains a tensor that is neither an argument nor a module's parameter")
            self._sources.append(source)

    @property
    def busy(self) -> bool:
        return self._waiting() is not None

    def __call__(self, inputs: list[Tensor]) -> Any:
        self._capture_wanted()
        sources = [inputs[source] if isinstance(source, int) else source for source in self._sources]
        outputs = _Replayed.apply(self, inputs, *sources)  # type: ignore[no-untyped-call]
        finish(self._facts, inputs, self._statics)
        return self._outcome.result(inputs, outputs)

    def forward(self, inputs: list[Tensor], context: _Turn) -> list[Tensor]:
        """Launch the forward graph; its memory is needed as long as the context lives."""
        launch(self._graph, self._cores, inputs)
        self._turn += 1
        context.number, self._waiting = self._turn, weakref.ref(context)
        return copies(self._outcome.tensors)

    def differentiable(self) -> list[bool]:
        return [tensor.requires_grad for tensor in self._outcome.tensors]

    def backward(self, gradients: _Gradients, context: _Turn) -> list[Tensor | None]:
        if context.number != self._turn:
            raise RuntimeError("perflint: this backward pass came after another call of the same captured function")
        casts = _Casts(torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
        form = (casts, *[g if g is None else (g.stride(), g.data_ptr() % 16) for g in gradients])
        captured = self._forms.get(form)
        if captured is not None:
            result = captured(gradients)
        else:
            result = list(self._over_the_tape(gradients))
            if form not in self._forms and len(self._forms) < _FORMS:
                self._forms[form] = None
                self._wanted.append((form, casts, [None if g is None else twin(g) for g in gradients]))
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            self._waiting = lambda: None
        return result

    def _over_the_tape(self, gradients: _Gradients) -> Sequence[Tensor | None]:
        pairs = [(o, g) for o, g in zip(self._outcome.tensors, gradients, strict=True) if g is not None]
        outputs, given = [output for output, _ in pairs], [gradient for _, gradient in pairs]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*AccumulateGrad node's stream")  # is meant
            return torch.autograd.grad(outputs, self._targets, given, retain_graph=True, allow_unused=True)

    def _capture_wanted(self) -> None:
        while self._wanted:
            form, casts, statics = self._wanted.pop()
            try:
                with torch.autocast("cuda", casts.dtype, casts.enabled):
                    graph, result = self._recorder.record(functools.partial(self._over_the_tape, statics))
                self._forms[form] = _Backward(graph, [s for s in statics if s is not None], result)
            except Exception as error:
                self._warn(f"its backward pass runs eagerly: {explain(error)}")


class _Casts(NamedTuple):
    """The backward pass's autocast state: it often runs outside of the forward pass's region."""

    enabled: bool
    dtype: torch.dtype


class _Backward:
    def __init__(self, graph: torch.cuda.CUDAGraph, statics: list[Tensor], result: _Gradients) -> None:
        self._graph, self._cores, self._result = graph, [distinct(static) for static in statics], result

    def __call__(self, gradients: _Gradients) -> list[Tensor | None]:
        launch(self._graph, self._cores, [gradient for gradient in gradients if gradient is not None])
        # copies: autograd would keep the static tensors themselves as `.grad`
        made = iter(copies([gradient for gradient in self._result if gradient is not None]))
        return [None if gradient is None else next(made) for gradient in self._result]


class _Turn:
    number = 0


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, replay: TrainingReplay, inputs: list[Tensor], *sources: Tensor) -> tuple[Tensor, ...]:
        ctx.replay, ctx.turn = replay, _Turn()
        ctx.set_materialize_grads(False)
        outputs = replay.forward(inputs, ctx.turn)
        fixed = [t for t, differentiable in zip(outputs, replay.differentiable(), strict=True) if not differentiable]
        ctx.mark_non_differentiable(*fixed)
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, None, *ctx.replay.backward(gradients, ctx.turn))


def _leaf(tensor: Tensor) -> Tensor:
    static = twin(tensor)  # a view, whose casts autocast doesn't keep
    if casts_once(tensor) == "leaf":
        static = static.detach()
    return static.requires_grad_(tensor.requires_grad)


@contextmanager
def stand_ins(modules: list[Module], leaves: list[Any]) -> Iterator[list[tuple[Parameter, Parameter]]]:
    """Replace trainable parameters by others of the same memory; yield pairs (stand-in, parameter).

    A capture's tape then has its own gradient nodes, on the capturing stream, apart from the caller's.
    """
    places = [
        (module, name, parameter)
        for module in {id(module): module for module in modules}.values()
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter.requires_grad
    ]
    trainable = {id(parameter): parameter for _, _, parameter in places}
    trainable |= {id(leaf): leaf for leaf in leaves if type(leaf) is Parameter and leaf.requires_grad}
    aliases = {key: Parameter(parameter.detach()) for key, parameter in trainable.items()}
    try:
        for module, name, parameter in places:
            setattr(module, name, aliases[id(parameter)])
        yield [(aliases[key], parameter) for key, parameter in trainable.items()]
    finally:
        for module, name, parameter in places:
            setattr(module, name, parameter)

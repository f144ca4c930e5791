"""A training step with its optimizers as a CUDA graph that leaves gradients where eager mode does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import add, gt
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import optimizer as hooks

from perflint.runtime import optimizers as optim
from perflint.runtime.records import CannotCapture
from perflint.runtime.replay import Call, Capture, Recorder, copies, copy_into, distinct, launch, settle, twin
from perflint.runtime.scene import Scene, Showed


class Gradients:
    """The gradients a graph makes, which lie in the same memory after each replay."""

    def __init__(self, made: list[tuple[Tensor, Tensor]]) -> None:
        self.made = made
        self.tensors = [gradient for _, gradient in made]
        self._places = [gradient.untyped_storage() for gradient in self.tensors]
        self._addresses = [place._cdata for place in self._places]
        self._least: list[tuple[int, int]] = []

    def count(self) -> None:
        self._least = list(zip(*(self._users_if(has_them) for has_them in (False, True)), strict=True))

    def is_held(self) -> bool:
        least = [each[leaf.grad is made] for (leaf, made), each in zip(self.made, self._least, strict=True)]
        return any(map(gt, self._users(), least))

    def _users(self) -> list[int]:
        users = map(torch._C._storage_Use_Count, self._addresses)
        return list(map(add, map(sys.getrefcount, self.tensors), users))

    def _users_if(self, has_them: bool) -> list[int]:
        before = [leaf.grad for leaf, _ in self.made]
        give((leaf, each if has_them else None) for leaf, each in self.made)
        users = self._users()
        give((leaf, gradient) for (leaf, _), gradient in zip(self.made, before, strict=True))
        return users


@dataclass
class Pool:
    """The memory of graphs with gradients of the same leaves: each replay drops those of the last.

    A graph may compute where one captured later leaves its gradients: `left` are those possibly in use.
    """

    left: dict[int, Gradients] = field(default_factory=dict)
    _handle: Any = None
    _graphs: WeakSet[Any] = field(default_factory=WeakSet)
    _captured: int = 0

    @property
    def handle(self) -> Any:
        """Where the next graph computes; None at first, as torch frees the memory with the last graph."""
        if not self._graphs:
            self._handle = None
            self.left.clear()
        return self._handle

    def add(self, graph: object, handle: Any) -> int:
        self._graphs.add(graph)
        self._handle = handle
        self._captured += 1
        return self._captured

    def is_in_use(self, number: int) -> bool:
        for other in [each for each in self.left if each > number]:
            if self.left[other].is_held():
                return True
            del self.left[other]
        return False


def give(gradients: Iterable[tuple[Tensor, Tensor | None]]) -> None:
    for leaf, gradient in gradients:
        leaf.grad = gradient


_TAPE = torch.empty(0, requires_grad=True)  # that there is a tape behind results
_SPENT = "perflint: the step that made this was replayed, its backward pass included"


class StepReplay(Capture):
    def __init__(self, call: Call, scene: Scene, showed: Showed, pool: Pool) -> None:
        walk, leaves = scene.walk, scene.leaves
        self._recorder = Recorder(walk.devices, (), pool.handle)
        self._statics = [twin(tensor) for tensor in walk.inputs]
        self._cores = [distinct(static) for static in self._statics]
        self._optimizers, self._stepped = scene.optimizers, showed.stepped
        copy_into(self._cores, [distinct(tensor) for tensor in walk.inputs])
        places = {id(tensor): static for tensor, static in zip(walk.inputs, self._statics, strict=True)}
        kept = {id(tensor): tensor for tensor in walk.state}
        before, carried = [leaf.grad for leaf in leaves], showed.pattern.carried
        self._carried = [
            (leaf, twin(was))
            for leaf, was in zip(leaves, before, strict=True)
            if was is not None and id(leaf) in carried
        ]
        self._carry()
        try:
            for leaf, static in self._carried:
                leaf.grad = static
            with optim.capturable(scene.optimizers), _without_hooks():
                self._graph, outcome = self._recorder.record(lambda: settle(call.run(places), self._statics, kept))
            after = [leaf.grad for leaf in leaves]
        finally:
            give(zip(leaves, before, strict=True))
        self._pool, self._number = pool, pool.add(self._graph, self._recorder.pool)
        self._recorded = [number for number, tensor in enumerate(outcome.tensors) if tensor.requires_grad]
        self._spend = spend(len(self._recorded))
        self._outcome = replace(outcome, tensors=[tensor.detach() for tensor in outcome.tensors])
        pairs = zip(leaves, before, after, strict=True)
        self._exits = [(leaf, now) for leaf, was, now in pairs if now is not was]
        self._kept = [leaf for leaf in leaves if id(leaf) in showed.pattern.kept]
        self._written = showed.written
        self._gradients = Gradients([(leaf, gradient) for leaf, gradient in self._exits if gradient is not None])
        if any(gradient.requires_grad for _, gradient in self._gradients.made):
            raise CannotCapture("it leaves gradients that can be differentiated")
        del after, pairs, outcome
        self._gradients.count()
        is_random = any(isinstance(each, nn.RNNBase) and each.training and each.dropout for each in walk.modules)
        self._generator = torch.cuda.default_generators[self._recorder.device.index] if is_random else None
        self._drawn = self._randomness()

    def is_held(self) -> bool:
        return self._gradients.is_held() or self._pool.is_in_use(self._number)

    def is_reseeded(self) -> bool:
        """Whether the device's random numbers, and so cuDNN's own dropout, began anew."""
        (seed, offset), (known, last) = self._randomness(), self._drawn
        return seed != known or offset < last

    def _randomness(self) -> tuple[int, int]:
        return (self._generator.initial_seed(), self._generator.get_offset()) if self._generator else (0, 0)

    def _carry(self) -> None:
        """Copy gradients that the step adds to, before it drops them, to where it finds them."""
        if pairs := [(static, leaf.grad) for leaf, static in self._carried if leaf.grad is not None]:
            copy_into([static for static, _ in pairs], [gradient for _, gradient in pairs])

    def __call__(self, inputs: list[Tensor]) -> Any:
        optim.refresh(self._optimizers)
        self._carry()
        launch(self._graph, self._cores, inputs)
        self._pool.left[self._number] = self._gradients
        for leaf, gradient in self._exits:
            if leaf.grad is not gradient:
                leaf.grad = gradient
        kept = [gradient for leaf in self._kept if (gradient := leaf.grad) is not None]
        torch.autograd.graph.increment_version([*self._written, *kept, *self._gradients.tensors])
        for optimizer in self._stepped:
            for hook in (*hooks._global_optimizer_pre_hooks.values(), *hooks._global_optimizer_post_hooks.values()):
                hook(optimizer, (), {})
        self._drawn = self._randomness()
        outputs = copies(self._outcome.tensors)
        for number, output in zip(self._recorded, self._spend([outputs[each] for each in self._recorded]), strict=True):
            outputs[number] = output
        return self._outcome.result(inputs, outputs)


@contextmanager
def _without_hooks() -> Iterator[None]:
    """Keep hooks of all optimizers, which may not wait here, from steps that the replay repeats."""
    known: list[dict[Any, Any]] = [hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks]
    kept = [dict(each) for each in known]
    for each in known:
        each.clear()
    try:
        yield
    finally:
        for each, before in zip(known, kept, strict=True):
            each.update(before)


def spend(count: int) -> Callable[[Sequence[Tensor]], Sequence[Tensor]]:
    """Gives so many results the end of a tape that raises."""
    if count == 0:
        return lambda _: ()
    end: Any = torch._C._functions.DelayedError(_SPENT, count + 1)
    return lambda results: end(_TAPE, *results)[1:]

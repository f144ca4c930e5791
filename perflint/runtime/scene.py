"""What one call of a training step reads and changes, with optimizers and gradients; and its key."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from perflint.runtime import optimizers as optim
from perflint.runtime import ranks
from perflint.runtime.checks import Checks
from perflint.runtime.glance import Glance
from perflint.runtime.probe import host_rng
from perflint.runtime.records import CannotCapture, Rehearsal, Unsettled, current_stream, device_refusal, inside
from perflint.runtime.replay import flatten, side_stream
from perflint.runtime.training import tape
from perflint.runtime.walk import Arguments, Key, Walk

_SHARDED = frozenset({"FullyShardedDataParallel", "FSDPModule"})
_SCALARS = (int, float, bool, str, type(None))
_PATIENCE = 8  # snapshots, one after the other, that were of no use


class Scene:
    """One call of a step: its walk, the optimizers it can reach, the leaves that may get gradients.

    `exchanging`: modules that average gradients over ranks, which take the step `together` or apart.
    """

    def __init__(self, walk: Walk, *, together: bool = False) -> None:
        self.walk, self._together = walk, together
        self.exchanging = [each for each in walk.modules if ranks.is_exchanging(each)]
        found = [each for each in walk.objects if isinstance(each, Optimizer)]
        self.optimizers: list[Optimizer] = list({id(each): each for each in found}.values())
        found_too = (*walk.state, *optim.parameters(self.optimizers))
        self.possible_leaves = list({id(tensor): tensor for tensor in found_too if tensor.is_leaf}.values())
        self.leaves = [leaf for leaf in self.possible_leaves if leaf.requires_grad or leaf.grad is not None]

    @property
    def refusal(self) -> str | None:
        walk = self.walk
        if reason := device_refusal(walk):
            return reason
        if any(tensor.requires_grad and tensor.is_leaf for tensor in walk.inputs):
            return "an argument requires gradients"
        if any(tensor.requires_grad and not tensor.is_leaf for tensor in walk.state):
            return "it reads a tensor that was computed, with gradients, before it: give it `.detach()` of that"
        if any(type(each).__name__ == "OptimizedModule" or each._compiled_call_impl for each in walk.modules):
            return "it calls a compiled module"
        return self._spread() or hindrance(self.leaves) or optim.refusal(self.optimizers)

    def _spread(self) -> str | None:
        for module in self.walk.modules:
            if not {each.__name__ for each in type(module).__mro__}.isdisjoint(_SHARDED):
                return f"{type(module).__name__} exchanges parameters with other processes"
            if isinstance(module, torch.nn.DataParallel) and len(module.device_ids) > 1:
                return "DataParallel splits its batches over several devices"
        if self._together:
            return next(filter(None, map(ranks.refusal, self.exchanging)), None)
        if self.exchanging:
            return f"{type(self.exchanging[0]).__name__} exchanges gradients with other processes"
        return "several processes train together" if ranks.several() else None

    def read(self) -> Key:
        return self.walk.key(*switches())

    def gradients(self) -> list[Gradient | None]:
        return [None if leaf.grad is None else Gradient.of(leaf.grad) for leaf in self.leaves]

    def key(self, pattern: Pattern, gradients: Sequence[Gradient | None]) -> Key:
        """The key of a call with this pattern and these `gradients` before it: which kernels run on which memory."""
        grads = (pattern.part(leaf, grad) for leaf, grad in zip(self.leaves, gradients, strict=True))
        return Key((self.read(), *optim.numbers(self.optimizers), *optim.addresses(self.optimizers), *grads))


def hindrance(leaves: Iterable[Tensor]) -> str | None:
    if any(leaf._backward_hooks or leaf._post_accumulate_grad_hooks for leaf in leaves):
        return "a parameter has hooks on its gradient, which a replay would not call"
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return "there are hooks on all modules, which a replay would not call"
    return None


def switches() -> tuple[Hashable, ...]:
    """What decides which kernels run and where, beside the thread's modes."""
    cudnn = torch.backends.cudnn
    formats = (torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32)
    return (*formats, torch.cuda.current_device(), current_stream())


class Gradient(NamedTuple):
    place: tuple[int, int]
    form: tuple[torch.Size, tuple[int, ...], torch.dtype]

    @staticmethod
    def of(gradient: Tensor) -> Gradient:
        return Gradient(_place(gradient), _form(gradient))


def _place(gradient: Tensor) -> tuple[int, int]:
    return id(gradient), gradient.data_ptr()


def _form(gradient: Tensor) -> tuple[torch.Size, tuple[int, ...], torch.dtype]:
    return gradient.shape, gradient.stride(), gradient.dtype


def _untouched(_: object) -> str:
    return "untouched"


@dataclass(frozen=True)
class Pattern:
    """What a step does with the gradients it finds, by their leaves' identities.

    `replaced` are dropped unseen, `carried` are read or added to and then dropped, `kept` stay.
    """

    replaced: frozenset[int]
    carried: frozenset[int]
    kept: frozenset[int]

    def part(self, leaf: Tensor, gradient: Gradient | None) -> Hashable:
        if id(leaf) in self.replaced:
            return "replaced"
        if gradient is None:
            return None
        if id(leaf) in self.carried:
            return gradient.form
        return gradient.place if id(leaf) in self.kept else _untouched(gradient)

    def look(self, leaf: Tensor) -> Callable[[Tensor], Hashable]:
        """What finds the part of a leaf that isn't `replaced` in its gradient."""
        if id(leaf) in self.carried:
            return _form
        return _place if id(leaf) in self.kept else _untouched


@dataclass(frozen=True)
class Showed:
    """What an eager call of a step showed.

    `renewed`: leaves, by identity, to which it gave other gradients or none; `written`: tensors changed in place,
    gradients aside; `stepped`: optimizers.
    """

    pattern: Pattern
    renewed: frozenset[int]
    written: tuple[Tensor, ...]
    stepped: tuple[Optimizer, ...]


class _Notes(Rehearsal):  # type: ignore[no-untyped-call]
    def __init__(self, old: Sequence[Tensor]) -> None:
        super().__init__()
        self._old = {gradient.untyped_storage().data_ptr(): id(gradient) for gradient in old}
        self.read: set[int] = set()

    def refuse(self, reason: str) -> None:
        self.refusal = self.refusal or reason

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in _tensors((*args, *(kwargs or {}).values())):
            if tensor.layout is not torch.strided:
                self.refuse(f"it computes with a tensor of layout {tensor.layout}")
            elif (gradient := self._old.get(tensor.untyped_storage().data_ptr())) is not None:
                self.read.add(gradient)
        return super().__torch_dispatch__(func, types, args, kwargs)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def watch(scene: Scene, run: Callable[[], Any]) -> tuple[Any, Showed]:
    """Run one step eagerly on the stream of captures; return its result and what it showed.

    Raises CannotCapture, with the result as its second argument, if a replay would not do all that the run did.
    """
    walk, leaves = scene.walk, scene.leaves
    rng, scalars = host_rng(), _scalars(walk.objects)
    numbers = optim.numbers(scene.optimizers)
    tensors = list({id(each): each for each in (*walk.inputs, *walk.state, *leaves)}.values())
    versions = [tensor._version for tensor in tensors]
    before = [leaf.grad for leaf in leaves]
    old = [gradient for gradient in before if gradient is not None]
    history = _History([each for each in walk.inputs if each.requires_grad])
    with _steps() as stepped, aside(walk), inside(), history, _Notes(old) as notes, Checks():
        result = run()
    after = [leaf.grad for leaf in leaves]
    keeps_casts = torch.is_autocast_enabled("cuda") and torch.is_autocast_cache_enabled()
    changed = {id(each) for each, version in zip(tensors, versions, strict=True) if each._version != version}
    reasons = (
        (rng != host_rng(), "it draws random numbers on the host"),
        (any(now is not None and now.layout is not torch.strided for now in after), "its gradients are sparse"),
        (any(id(each) in changed for each in walk.inputs), "it writes to its arguments in place"),
        (history.is_used(result), "gradients may flow through an argument: give it `.detach()` of that"),
        (not {id(each) for each in stepped} <= {id(each) for each in scene.optimizers}, _UNSEEN),
        (keeps_casts and any(each.requires_grad and id(each) in changed for each in leaves), _KEPT),
        (numbers != optim.numbers(scene.optimizers), "it changes an optimizer's settings, as a scheduler does"),
        (optim.refusal(scene.optimizers) is not None, optim.refusal(scene.optimizers)),
    )
    for holds, reason in reasons:
        if holds:
            raise CannotCapture(reason, result)
    if notes.refusal or scalars != _scalars(walk.objects):
        raise Unsettled(notes.refusal or "it changes an object of a library, such as a scheduler", result)
    dropped = {id(leaf) for leaf, was, now in zip(leaves, before, after, strict=True) if was is not now}
    used = {id(leaf) for leaf, was in zip(leaves, before, strict=True) if was is not None and id(was) in notes.read}
    had = {id(leaf) for leaf, was in zip(leaves, before, strict=True) if was is not None}
    pattern = Pattern(frozenset(had & dropped - used), frozenset(dropped & used), frozenset(used - dropped))
    written = tuple(each for each in tensors if id(each) in changed)
    return result, Showed(pattern, frozenset(dropped), written, tuple(stepped))


class _History:
    """What a call does with its arguments' history, which a graph's copies lack."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors, self._ends = tensors, {each.grad_fn for each in tensors}
        self._handles: list[Any] = []
        self._has_gradients = False

    def __enter__(self) -> None:
        self._handles = [each.register_hook(self._note) for each in self._tensors]  # type: ignore[no-untyped-call]

    def __exit__(self, *_: object) -> None:
        for each in self._handles:
            each.remove()

    def _note(self, _: Tensor) -> None:
        self._has_gradients = True

    def is_used(self, result: Any) -> bool:
        """Has a gradient flowed into it, may one of the result, or was an argument detached in place?"""
        if self._has_gradients or not all(each.requires_grad for each in self._tensors):
            return True
        given = {id(each) for each in self._tensors}
        made = (each for each in flatten(result)[1] if isinstance(each, Tensor) and id(each) not in given)
        return not self._ends.isdisjoint(tape(each.grad_fn for each in made))


_KEPT = "autocast around it keeps casts of the weights that it changes: enter it in the step, or without its cache"
_UNSEEN = "it steps an optimizer that is neither an argument nor named in it"


def _scalars(objects: Sequence[object]) -> list[tuple[Hashable, ...]]:
    found: list[tuple[Hashable, ...]] = []
    for each in objects:
        members = getattr(each, "__dict__", None)
        if type(members) is dict and not isinstance(each, Optimizer):
            found.append(tuple((name, repr(value)) for name, value in members.items() if isinstance(value, _SCALARS)))
    return found


@contextmanager
def _steps() -> Iterator[list[Optimizer]]:
    stepped: list[Optimizer] = []
    handle = register_optimizer_step_pre_hook(lambda optimizer, *_: stepped.append(optimizer))
    try:
        yield stepped
    finally:
        handle.remove()


@contextmanager
def aside(walk: Walk) -> Iterator[None]:
    """Run on the stream of captures, which the tape's ends then belong to; wait both ways."""
    (number,) = walk.devices
    stream, current = side_stream(torch.device("cuda", number)), torch.cuda.current_stream()
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        current.wait_stream(stream)


class _Entry:
    """The key of a call, and what it found of gradients that it doesn't drop unseen."""

    def __init__(self, key: Hashable, pattern: Pattern, leaves: Iterable[Tensor]) -> None:
        self.key = key
        left = [leaf for leaf in leaves if id(leaf) not in pattern.replaced]
        self._left: list[tuple[Callable[[], Any], Callable[[Any], Hashable]]]
        self._left = [(weakref.ref(leaf), pattern.look(leaf)) for leaf in left]
        self._seen = self._parts()

    def holds(self) -> bool:
        """To be asked while these leaves are alive, as they are where all that was read is."""
        return self._parts() == self._seen

    def _parts(self) -> list[Hashable]:
        found = ((leaf().grad, look) for leaf, look in self._left)
        return [None if gradient is None else look(gradient) for gradient, look in found]


class Recall:
    """What a function's last calls read, and their keys."""

    def __init__(self) -> None:
        self._glance: Glance | None = None
        self._entries: dict[Hashable, _Entry] = {}
        self._misses = 0

    def find(self, function: object, arguments: Arguments) -> Hashable | None:
        entry = self._entries.get(_key(function, arguments))  # first, as the last batch is often another
        if entry is None or not self._holds() or _has_any_global_hook() or not entry.holds():  # type: ignore[no-untyped-call]
            return None
        self._misses = 0
        return entry.key

    def note(self, function: object, scene: Scene, key: Hashable, pattern: Pattern) -> None:
        if not self._holds():
            if self._misses == _PATIENCE:
                return
            self._misses += 1
            reads = scene.walk.reads
            optim.look(reads, scene.optimizers)
            self._glance, self._entries = Glance(reads), {}
        entry = _Entry(key, pattern, scene.possible_leaves)
        self._entries[_key(function, scene.walk.arguments)] = entry

    def _holds(self) -> bool:
        return self._glance is not None and self._glance.holds()

    def forget(self) -> None:
        self._glance, self._entries, self._misses = None, {}, 0


def _key(function: object, arguments: Arguments) -> Hashable:
    return (id(function), *arguments.parts, *map(id, arguments.others), *switches())

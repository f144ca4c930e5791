"""Tells the key of a call again without a walk, where nothing has changed that is in it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from perflint.runtime import optimizers as optim
from perflint.runtime.reads import Glance
from perflint.runtime.scene import Gradient, Pattern, Scene, hindrance, switches
from perflint.runtime.walk import Arguments

_PATIENCE = 8  # snapshots, one after the other, that were of no use


@dataclass(frozen=True)
class _Entry:
    """The key of a record, with what it says of the gradients that the step doesn't drop unseen."""

    key: Hashable
    pattern: Pattern
    left: tuple[Callable[[], Any], ...]  # these leaves, which are alive where all that was read is
    gradients: list[Hashable]


class Recall:
    """What one function's last calls have read, and their keys by what else is in them."""

    def __init__(self) -> None:
        self._glance: Glance | None = None
        self._entries: dict[Hashable, _Entry] = {}
        self._leaves: tuple[Callable[[], Any], ...] = ()
        self._holds = False
        self._misses = 0

    def find(self, function: object, arguments: Arguments) -> Hashable | None:
        """The key of a call, if the last ones tell which it is."""
        self._holds = self._glance is not None and self._glance.holds()
        entry = self._entries.get(_key(function, arguments)) if self._holds else None
        if entry is None:
            return None
        if hindrance([each() for each in self._leaves]):
            return None
        if _parts(entry.pattern, [each() for each in entry.left]) != entry.gradients:
            return None
        self._misses = 0
        return entry.key

    def note(self, function: object, scene: Scene, key: Hashable, pattern: Pattern) -> None:
        """Remember what a call reads that is about to be replayed, unless that has been of no use."""
        if not self._holds:
            if self._misses == _PATIENCE:
                return
            self._misses += 1
            reads = scene.walk.reads
            optim.look(reads, scene.optimizers)
            self._glance, self._entries = Glance(reads), {}
            self._leaves = tuple(map(weakref.ref, scene.leaves))
        left = [leaf for leaf in scene.possible_leaves if id(leaf) not in pattern.replaced]
        entry = _Entry(key, pattern, tuple(map(weakref.ref, left)), _parts(pattern, left))
        self._entries[_key(function, scene.walk.arguments)] = entry

    def forget(self) -> None:
        """Begin anew."""
        self._glance, self._entries, self._misses = None, {}, 0


def _key(function: object, arguments: Arguments) -> Hashable:
    return (id(function), *arguments.parts, *map(id, arguments.others), *switches())


def _parts(pattern: Pattern, leaves: Sequence[Tensor]) -> list[Hashable]:
    gradients = [leaf.grad for leaf in leaves]
    return [
        pattern.part(leaf, None if gradient is None else Gradient.of(gradient))
        for leaf, gradient in zip(leaves, gradients, strict=True)
    ]

"""The gradients that graphs of a step leave in their memory, which others of them may use again."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor


class Gradients:
    """The gradients that a graph makes. They keep their memory, and lie there after each replay."""

    def __init__(self, made: list[tuple[Tensor, Tensor]]) -> None:
        self.made = made
        self._places = [gradient.untyped_storage() for _, gradient in made]
        self._least: list[list[int]] = []

    def count(self) -> None:
        """Note their users while there is none but the graph, and the leaves if these have them."""
        self._least = [self._users_if(has_them) for has_them in (False, True)]

    def is_held(self) -> bool:
        """Whether somebody else has one of them, or a view of one."""
        users = self._users()
        least = (self._least[leaf.grad is gradient] for leaf, gradient in self.made)
        return any(count > each[number] for number, (count, each) in enumerate(zip(users, least, strict=True)))

    def _users(self) -> list[int]:
        count = torch._C._storage_Use_Count
        pairs = zip(self.made, self._places, strict=True)
        return [sys.getrefcount(made) + count(place._cdata) for (_, made), place in pairs]

    def _users_if(self, has_them: bool) -> list[int]:
        before = [leaf.grad for leaf, _ in self.made]
        give((leaf, each if has_them else None) for leaf, each in self.made)
        users = self._users()
        give((leaf, gradient) for (leaf, _), gradient in zip(self.made, before, strict=True))
        return users


@dataclass
class Pool:
    """The memory of graphs that leave gradients of the same leaves: each replay drops those of the one before it.

    A graph may compute where one that was captured behind it leaves its gradients: `left` are those that may be in use.
    """

    left: dict[int, Gradients] = field(default_factory=dict)
    _handle: Any = None
    _graphs: WeakSet[Any] = field(default_factory=WeakSet)
    _captured: int = 0

    @property
    def handle(self) -> Any:
        """Where the next graph computes; None while there is none, for torch gives the memory up with the last one."""
        if not self._graphs:
            self._handle = None
            self.left.clear()
        return self._handle

    def add(self, graph: object, handle: Any) -> int:
        """Note where a graph computes; return its number."""
        self._graphs.add(graph)
        self._handle = handle
        self._captured += 1
        return self._captured

    def is_in_use(self, number: int) -> bool:
        """Whether somebody has gradients that the graph of that number may overwrite."""
        for other in [each for each in self.left if each > number]:
            if self.left[other].is_held():
                return True
            del self.left[other]
        return False


def give(gradients: Iterable[tuple[Tensor, Tensor | None]]) -> None:
    for leaf, gradient in gradients:
        leaf.grad = gradient

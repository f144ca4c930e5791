"""The origin of a value inside one iteration of a loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

Definition = tuple[int, int | None]  # a call, and which part of its result
NOTHING: frozenset[str] = frozenset()

MODEL, RNN, CHOICE, CAT, RESIZE, ARITHMETIC = "model", "rnn", "choice", "cat", "resize", "arithmetic"


class Trace(NamedTuple):
    """What went into a value: slices of sequences, values carried from the iteration before, the loop's index.

    `ops` are the sorts of operations it went through. `definitions` are the calls whose result it is, or is a view of.
    `kept` are those of the carried values that went into it other than through a model.
    """

    slices: frozenset[str] = NOTHING
    carried: frozenset[str] = NOTHING
    ops: frozenset[str] = NOTHING
    is_index: bool = False
    definitions: frozenset[Definition] = frozenset()
    kept: frozenset[str] = NOTHING

    @property
    def varies(self) -> bool:
        """Is it another value in each iteration?"""
        return bool(self.slices or self.carried or self.is_index or self.ops)

    def through(self, *ops: str) -> Trace:
        """The result of operations on it, which is no view of it."""
        kept = NOTHING if MODEL in ops else self.kept
        return Trace(self.slices, self.carried, self.ops.union(ops), self.is_index, kept=kept)

    def number(self) -> Trace:
        """The result of arithmetic on it."""
        return Trace(self.slices, self.carried, self.ops, self.is_index, kept=self.kept)


INVARIANT = Trace()
INDEX = Trace(is_index=True)


def from_before(path: str) -> Trace:
    """What the iteration before left under a name."""
    return Trace(carried=frozenset({path}), kept=frozenset({path}))


def is_forced(given: Trace, own: Trace, name: str) -> bool:
    """Is `given` a step of a given sequence, and `own`, which `name` may be instead, what the loop itself put out?"""
    if not given.slices or not own.carried or (given.slices <= own.slices and CHOICE not in own.ops):
        return False
    through_model = MODEL in given.ops & own.ops and name in own.carried - given.carried
    is_chosen = CHOICE in own.ops - given.ops and bool(own.carried - given.carried)
    return not given.carried or through_model or is_chosen


def merged(traces: Iterable[Trace]) -> Trace:
    """What went into a value that is made of all of these, or is one of them."""
    slices, carried, kept, ops, definitions, is_index = (*[NOTHING] * 4, frozenset[Definition](), False)
    for trace in traces:
        slices |= trace.slices
        carried |= trace.carried
        kept |= trace.kept
        ops |= trace.ops
        definitions |= trace.definitions
        is_index |= trace.is_index
    return Trace(slices, carried, ops, is_index, definitions, kept)

"""The data flow of a loop: loop-invariant, a slice of a sequence, loop-carried, or collected."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from perflint.analysis.loops.trace import INVARIANT, Trace, merged


@dataclass(frozen=True)
class TimeSlice:
    """One step of the sequence `base`: `x[:, t + 1]` has axis 1 and offset 1; None where they can't be told."""

    base: str
    node: ast.expr
    axis: int | None = 0
    offset: int | None = 0
    is_tensor: bool = True  # not a list of the steps


@dataclass(frozen=True)
class Collected:
    """A result of each iteration kept under `name`: `how` is append, slot, cat, sum or yield."""

    name: str
    how: str
    node: ast.AST
    trace: Trace


@dataclass(frozen=True)
class CallSort:
    """`model`: it is a module, a function that runs one, or, where `unsure`, something unknown."""

    model: bool = False
    unsure: bool = False
    rnn: bool = False
    choice: bool = False
    cat: bool = False
    resize: bool = False
    view: bool = False
    launches: bool = False


@dataclass(frozen=True)
class Call:
    """A call in the body; `direct` are the carried names that it is handed as they are, and at which position."""

    node: ast.Call
    sort: CallSort
    trace: Trace
    direct: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class LoopFlow:
    """The data flow of one iteration, seen from its end.

    `reads` are the places that read what the iteration before left under a name, `ends` what this one leaves there.
    `forced` are names which a run-time test sets either to a slice of a given sequence or to something computed from
    the loop's own results. `index_as_data`: the number of the iteration goes into a tensor or a model. `members`: a
    module, or another object, is picked by the iteration.
    """

    slices: tuple[TimeSlice, ...]
    reads: Mapping[str, tuple[ast.expr, ...]]
    ends: Mapping[str, Trace]
    collected: tuple[Collected, ...]
    calls: tuple[Call, ...]
    operations: tuple[ast.expr, ...]  # on tensors, that vary with the iteration
    forced: frozenset[str]
    host: frozenset[str]  # sequences, steps of which go to numpy
    painted: frozenset[str]  # changed at places that vary, but have nothing to do with the step's number
    permuted: frozenset[str]  # written at one place and read at one that bears no fixed relation to it
    index_as_data: bool
    members: bool
    chunks: bool  # a range of steps is taken each time
    proven: frozenset[str] = frozenset()  # sequences of unknown type that their use shows to be tensors
    objects: frozenset[str] = frozenset()  # states that what is called keeps inside

    def sums(self) -> set[str]:
        """The names that only ever add up what the iterations give."""
        return {each.name for each in self.collected if each.how == "sum"} - set(self.reads)

    def delayed(self) -> set[str]:
        """The names that hand on a slice of a sequence to the next iteration, and nothing computed from the last."""
        return {name for name in self.reads if (end := self.ends.get(name)) and end.slices and not end.carried}

    def states(self) -> dict[str, Trace]:
        """What each name hands on that is computed from what the iteration before handed on."""
        passive = self.sums() | self.delayed()
        found = {}
        for name in self.reads:
            end = self.ends.get(name)
            if end is not None and name not in passive and (end.carried or "model" in end.ops):
                found[name] = end
        return found

    def closure(self, name: str) -> Trace:
        """What goes into what `name` hands on, over any number of iterations."""
        trace, seen = self.ends.get(name, INVARIANT), {name}
        while pending := trace.carried - seen:
            seen |= pending
            trace = merged((trace, *(self.ends.get(other, INVARIANT).number() for other in pending)))
        return trace

    def is_kept(self, name: str) -> bool:
        """Does what `name` holds get to itself other than through a model, over any number of iterations?"""
        pending, seen = {name}, set[str]()
        while pending:
            found = frozenset().union(*(self.ends.get(each, INVARIANT).kept for each in pending))
            seen |= pending
            if name in found:
                return True
            pending = set(found) - seen
        return False

    def truth(self) -> frozenset[str]:
        """The sequences, steps of which go into the states."""
        states = self.states()
        delayed = self.delayed()
        found: set[str] = set()
        for name, end in states.items():
            found |= end.slices - {name}
            for other in end.carried & delayed:
                found |= self.ends[other].slices
        return frozenset(found - set(states)) | self.filtered()

    def filtered(self) -> frozenset[str]:
        """The sequences that are changed in place, each step by the step before: `x[t] = x[t] + c * x[t - 1]`."""
        slots = {each.name for each in self.collected if each.how == "slot"}
        return frozenset(
            name for name, end in self.states().items() if name in end.slices & end.carried and name in slots
        )


@dataclass
class Draft:
    """A data flow while it is being traced."""

    slices: list[TimeSlice] = field(default_factory=list)
    reads: dict[str, list[ast.expr]] = field(default_factory=dict)
    collected: list[Collected] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    operations: list[ast.expr] = field(default_factory=list)
    forced: set[str] = field(default_factory=set)
    host: set[str] = field(default_factory=set)
    permuted: set[str] = field(default_factory=set)
    index_as_data: bool = False
    members: bool = False
    chunks: bool = False
    proven: frozenset[str] = frozenset()
    objects: set[str] = field(default_factory=set)

    def finished(self, ends: Mapping[str, Trace], painted: set[str]) -> LoopFlow:
        """The flow, now that it is known what the iteration leaves behind."""
        return LoopFlow(
            slices=tuple(self.slices),
            reads={name: tuple(places) for name, places in self.reads.items()},
            ends=ends,
            collected=tuple(self.collected),
            calls=tuple(self.calls),
            operations=tuple(self.operations),
            forced=frozenset(self.forced),
            host=frozenset(self.host),
            painted=frozenset(painted),
            permuted=frozenset(self.permuted),
            index_as_data=self.index_as_data,
            members=self.members,
            chunks=self.chunks,
            proven=self.proven,
            objects=frozenset(self.objects),
        )

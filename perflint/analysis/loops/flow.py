"""What is known of a loop: its kind, its head, and its data flow: invariant, sliced, loop-carried, or collected."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from perflint.analysis.ir.graph import Value
from perflint.syntax.walk import reachable

VECTORIZABLE, AUTOREGRESSIVE, MIXED, RECURRENCE = "vectorizable", "autoregressive", "mixed", "recurrence"


class LoopKind(Enum):
    """What one iteration of a loop is."""

    STEP = "step"  # of training or evaluation, on a batch of its own
    TIME = "time"  # of a sequence, or of generation
    OTHER = "other"  # an epoch, a rollout, a layer, a file, ...


@dataclass(frozen=True)
class Element:
    """A target of the loop that is one step of the sequence `base`: of a tensor, along `axis`, or of a list."""

    target: ast.expr
    base: str
    source: ast.expr
    is_tensor: bool
    axis: int | None = 0


@dataclass
class Header:
    """What the head of a loop tells.

    `indices` are its induction variables, `bounds` what they count from and to, by more than one if it `strides`.
    `members` are targets that are neither steps of a sequence nor numbers. `is_other`: it walks no time axis.
    """

    indices: set[str] = field(default_factory=set)
    elements: list[Element] = field(default_factory=list)
    members: list[ast.expr] = field(default_factory=list)
    bounds: list[ast.expr] = field(default_factory=list)
    strides: bool = False
    is_other: bool = False


@dataclass(frozen=True)
class TimeLoop:
    """What is known of a time loop: its kind, what in the data flow shows it, and that data flow."""

    kind: str
    because: str
    header: Header
    flow: LoopFlow


Definition = tuple[int, int | None]  # a call, and which part of its result
NOTHING: frozenset[str] = frozenset()

MODEL, RNN, CHOICE, CAT, ARITHMETIC = "model", "rnn", "choice", "cat", "arithmetic"


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
        return bool(self.slices or self.carried or self.is_index or self.ops)

    def through(self, *ops: str) -> Trace:
        """The result of operations on it, which is no view of it."""
        kept = NOTHING if MODEL in ops else self.kept
        return Trace(self.slices, self.carried, self.ops.union(ops), self.is_index, kept=kept)

    def part(self, element: int | None) -> Trace:
        parts = frozenset((call, element if part is None else part) for call, part in self.definitions)
        return self._replace(definitions=parts)


INVARIANT = Trace()
INDEX = Trace(is_index=True)


def from_before(path: str) -> Trace:
    return Trace(carried=frozenset({path}), kept=frozenset({path}))


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


def is_forced(given: Trace, own: Trace, name: str) -> bool:
    """Is `given` a step of a given sequence, and `own`, which `name` may be instead, what the loop itself put out?"""
    if not given.slices or not own.carried or (given.slices <= own.slices and CHOICE not in own.ops):
        return False
    through_model = MODEL in given.ops & own.ops and name in own.carried - given.carried
    is_chosen = CHOICE in own.ops - given.ops and bool(own.carried - given.carried)
    return not given.carried or through_model or is_chosen


class State(NamedTuple):
    """Where what a variable holds comes from: `bound` by this iteration, `carried` from the one before, or either."""

    trace: Trace
    bound: bool = False
    carried: bool = False


@dataclass
class Known:
    states: dict[Value, State] = field(default_factory=dict)
    traces: dict[ast.expr, Trace] = field(default_factory=dict)


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
    view: bool = False
    launches: bool = False

    def ops(self) -> list[str]:
        has = (self.model, self.rnn, self.choice, self.cat, self.launches)
        names = (MODEL, RNN, CHOICE, CAT, ARITHMETIC)
        return [name for name, each in zip(names, has, strict=True) if each]


@dataclass(frozen=True)
class Call:
    """A call in the body; `direct` are the carried names that it is passed as they are, and at which position."""

    node: ast.Call
    sort: CallSort
    trace: Trace
    direct: tuple[tuple[str, int], ...]


@dataclass
class LoopFlow:
    """The data flow of one iteration, seen from its end.

    `reads` are the places that read what the iteration before left under a name, `ends` what this one leaves there.
    `forced` are names which a run-time test sets either to a slice of a given sequence or to something computed from
    the loop's own results. `index_as_data`: the number of the iteration goes into a tensor or a model. `members`: a
    module, or another object, is picked by the iteration.
    """

    slices: list[TimeSlice] = field(default_factory=list)
    reads: dict[str, list[ast.expr]] = field(default_factory=dict)
    ends: dict[str, Trace] = field(default_factory=dict)
    collected: list[Collected] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    operations: list[ast.expr] = field(default_factory=list)  # on tensors, that vary with the iteration
    forced: set[str] = field(default_factory=set)
    host: set[str] = field(default_factory=set)  # sequences, steps of which go to numpy
    painted: set[str] = field(default_factory=set)  # changed at places unrelated to the step's number
    permuted: set[str] = field(default_factory=set)  # written at one place and read at one with no fixed relation to it
    proven: frozenset[str] = NOTHING  # sequences of unknown type that their use shows to be tensors
    index_as_data: bool = False
    members: bool = False
    chunks: bool = False  # a range of steps is taken each time

    def sums(self) -> set[str]:
        return {each.name for each in self.collected if each.how == "sum"} - set(self.reads)

    def delayed(self) -> set[str]:
        """The loop-carried names that hold a slice of a sequence, and nothing computed from the last iteration."""
        return {name for name in self.reads if (end := self.ends.get(name)) and end.slices and not end.carried}

    def states(self) -> dict[str, Trace]:
        """The loop-carried values that are computed from loop-carried ones, by name."""
        passive = self.sums() | self.delayed()
        ends = {name: self.ends[name] for name in self.reads if name in self.ends and name not in passive}
        return {name: end for name, end in ends.items() if end.carried or MODEL in end.ops}

    def closure(self, name: str) -> Trace:
        """What the loop-carried value of `name` depends on, over any number of iterations."""
        first, *others = reachable([name], lambda each: self.ends.get(each, INVARIANT).carried)
        return merged([self.ends.get(first, INVARIANT), *(self.ends.get(each, INVARIANT).through() for each in others)])

    def is_kept(self, name: str) -> bool:
        """Does what `name` holds get to itself other than through a model, over any number of iterations?"""
        kept = self.ends.get(name, INVARIANT).kept
        return name in reachable(kept, lambda each: self.ends.get(each, INVARIANT).kept)

    def truth(self) -> frozenset[str]:
        """The sequences, steps of which go into the states."""
        states, delayed = self.states(), self.delayed()
        found: set[str] = set()
        for name, end in states.items():
            found |= (end.slices - {name}).union(*(self.ends[other].slices for other in end.carried & delayed))
        return frozenset(found - set(states)) | self.filtered()

    def filtered(self) -> frozenset[str]:
        """The sequences that are changed in place, each step by the step before: `x[t] = x[t] + c * x[t - 1]`."""
        slots = {each.name for each in self.collected if each.how == "slot"}
        return frozenset(name for name, end in self.states().items() if name in slots & end.slices & end.carried)

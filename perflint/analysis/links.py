"""What analyses find, in common terms, and what the files of a run tell each other: summaries, queries, contexts."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
from operator import attrgetter

_OF_TENSORS = frozenset("DdBbHhT")
LOADERS = "L"  # what a class of loaders "returns" that hands on to torch's what it is given
_OF_LOADERS = frozenset(f"lp{LOADERS}0123456789")


class Heat(IntEnum):
    """How often a place in the program runs."""

    ONCE = 0  # once, or now and then
    STEP = 1  # every training or evaluation step
    TIME = 2  # every time step


class GradMode(Enum):
    """Whether operations are recorded for a backward pass; UNKNOWN where it depends on a value, or on the caller."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class Effect(Enum):
    """What running code does, by itself or in the functions and modules that it calls.

    TRAINS: runs a backward pass, steps an optimizer or sets gradients to zero. DIFFERENTIATES: trains, takes gradients
    or asks for some to be recorded. RUNS_MODULE: calls a module, other than a loss. RECORDS: does so where no known
    code switches gradients off. ELSEWHERE: runs a module of another file of the project. UNSEEN: runs a module, or in a
    module anything, of which the code is not known.
    """

    TRAINS = "trains"
    DIFFERENTIATES = "differentiates"
    RUNS_MODULE = "runs a module"
    RECORDS = "records"
    ELSEWHERE = "elsewhere"
    UNSEEN = "unseen"


class Fate(Enum):
    """What becomes of a graph."""

    DIFFERENTIATED = "differentiated"
    KEPT = "kept"  # in an attribute, a variable of another scope, or what a caller owns
    RETURNED = "returned"  # to callers that are not known, or in other files
    LOST = "lost"  # not analysed
    OBSERVED = "observed"  # shown as text, copied, or given to code that is not known, none of which needs it
    HOOKED = "hooked"  # by hooks that the file registers, and which may keep it
    ASKED = "asked"  # whether there is one decides what is computed


@dataclass(frozen=True)
class GraphUse:
    """The place where a graph is differentiated or noticed, or may live on for somebody else to do so."""

    node: ast.AST
    fate: Fate


class Likelihood(IntEnum):
    """How sure something is."""

    NO = 0
    POSSIBLE = 1
    CERTAIN = 2


class Says(IntFlag):
    """Where a program computes, by what one file, or all its files together, show."""

    NOTHING = 0
    SCRIPT = 1  # running it does something
    TRAINS = 2  # it trains or evaluates
    BUILDS = 4  # what takes part in that
    DEVICE = 8  # on a device, or so it seems; where it computes is then settled
    COMPILES = 16  # with torch.jit what it runs or imports, wherever that computes
    TRANSFORMS = 32  # what it runs or imports: differentiates it twice or forward, or maps it by torch.vmap
    FORMATS = 64  # it names a number format, or has a framework choose one

    @property
    def stays_on_host(self) -> bool:
        """Is it a program that trains, and never speaks of a device?"""
        return self & ~(OF_IMPORTS | Says.FORMATS) == Says.SCRIPT | Says.TRAINS | Says.BUILDS


class Manner(IntFlag):
    """How a function is called."""

    PLAIN = 0
    QUIET = 1  # where gradients are switched off, or may be
    HANDLED = 2  # where errors that it raises are handled
    NEEDED = 4  # for what an environment steps with, which has to be on the host
    EVALUATED = 8  # with modules in evaluation mode
    TRAINED = 16  # with one that is in training mode, or may be
    CALLED = 32  # at all, or perhaps: by code that is given the function


OF_IMPORTS = Says.COMPILES | Says.TRANSFORMS  # what holds for all that a file imports


@dataclass(frozen=True, order=True)
class HotPlace:
    """What makes code hot: a loop, or the function `runs`, which is called in every step.

    It begins at `line`, in `cell` where that is of a notebook, of the file at `file`; empty for the file that asks.
    """

    file: str = ""
    cell: int | None = None
    line: int = 0
    runs: str = ""


NOWHERE = HotPlace()


@dataclass(frozen=True, order=True)
class HotCall:
    """A call at a hot place, which `by` makes hot, or one that is given a module or a loader.

    `target` is a dotted name as the calling file knows it, or, where a call is given to the file that it reaches, the
    name there: "accuracy", "Net.loss". "@" stands before a method called on `self`, which a subclass may override, "?"
    before one of an object of unknown class. `positional` has the codes of the arguments and `keywords` one with each
    name (see `values.codes`); `classes` names the classes of the objects among them, by position or name: one without a
    dot is of the file that is reached.
    """

    target: str
    heat: int
    positional: str = ""
    keywords: tuple[tuple[str, str], ...] = ()
    classes: tuple[tuple[str, str], ...] = ()
    by: HotPlace = NOWHERE


_all_of = attrgetter("target", "heat", "positional", "keywords", "classes", "by")  # as tuples, which compare fast


def nearest(calls: Iterable[HotCall]) -> tuple[HotCall, ...]:
    """`calls`, sorted; of those that differ but in what makes them hot, the one by the nearest loop."""
    found: dict[tuple[object, ...], HotCall] = {}
    for call in sorted(calls, key=_all_of):
        found.setdefault(_all_of(call)[:-1], call)
    return tuple(found.values())


@dataclass(frozen=True, order=True)
class ParameterEffect:
    """What a function does with what it is given for a parameter: write to it, return it or a part of it.

    The name of `*args` and `**kwargs` has its stars, and a "*" alone stands before keywords alone.
    """

    name: str
    writes: bool = False
    returns: bool = False


@dataclass(frozen=True, order=True)
class Summary:
    """The summary of a function, made in its own file for the callers in others.

    `target` names it as a `HotCall` does. `returns` encodes what it returns (see `values.codes`), empty if unknown;
    `trains`: a call does one step of training; `repeats`: a loop of such; `evaluates`: it runs a model once, without
    gradients; `draws`: it draws data anew each time, as far as somebody asked; `starts`: it starts processes; `loads`:
    iterating over the result, or an object of the class, does. `memory`: what a call does with each parameter, and with
    nothing else that its caller could know; None if unknown. `differentiates`: a call takes gradients, or asks for
    some; POSSIBLE where it may, or would notice that there are none; None where nobody asked. `computes`: it only
    computes on the device, so that a CUDA graph may hold it. `records`: it runs modules, and switches gradients off for
    none. `drops`: it only lets go of the graph of its first argument. `counts`: it only adds up what it is given in
    attributes of its object, which nothing else sets.
    """

    target: str
    returns: str = ""
    trains: bool = False
    draws: bool = False
    starts: Likelihood = Likelihood.NO
    loads: Likelihood = Likelihood.NO
    memory: tuple[ParameterEffect, ...] | None = None
    differentiates: Likelihood | None = None
    computes: bool = False
    records: bool = False
    drops: bool = False
    counts: bool = False
    repeats: bool = False
    evaluates: bool = False

    @property
    def is_empty(self) -> bool:
        steps = self.trains or self.draws or self.repeats or self.evaluates
        return not (self.returns or steps or self.starts_processes or self.tells_effects or self.drops)

    @property
    def tells_effects(self) -> bool:
        return (self.memory, self.differentiates) != (None, None) or self.computes or self.counts

    @property
    def without_effects(self) -> Summary:
        """The summary for who doesn't ask for effects."""
        told = self.target, self.returns, self.trains, self.draws, self.starts, self.loads
        return Summary(*told, drops=self.drops, repeats=self.repeats, evaluates=self.evaluates)

    @property
    def starts_processes(self) -> bool:
        return bool(self.starts or self.loads)

    @property
    def returns_tensor(self) -> bool:
        return not _OF_TENSORS.isdisjoint(self.returns)

    @property
    def returns_loader(self) -> bool:
        return not _OF_LOADERS.isdisjoint(self.returns)


@dataclass(frozen=True, order=True)
class Seen:
    """What a variable of a function held in a `run`: a tensor of so many axes, or an object of a class, the `kind`."""

    function: str
    name: str
    kind: str
    rank: int | None
    run: str


@dataclass(frozen=True)
class Links:
    """What a file exports to the other files of the run, and what it needs of them.

    It exports its hot `calls`, the `functions` whose heat depends on their callers, its classes with their `bases`, and
    the `summaries` of its functions. Its queries name targets in other files: `result_queries` ask whether they return
    a tensor, `guess_queries` whether a guess of that is right, `step_queries` whether a call trains, `start_queries`
    whether it starts processes, `draw_queries` whether it draws data, `effect_queries` what it does with arguments and
    gradients, `first_queries` with its first argument. `imports` are its imports at module level; `says` is where it
    computes; `says_query`: what it asks whether others say it of what they import. `edits` are the attributes that it
    binds or changes of objects that may be of other files' classes, `edit_queries` those of which it asks whether
    others do so. `rebinds` are names that torch exports too, to which it gives another meaning, for star imports.
    `manners` are the targets that it calls other than plainly, or hands over, or calls as it starts; `manner_queries`
    its functions of which it asks whether others do so; `module_queries` its classes of which it asks whether a base in
    another file is a module's. It `hands_on` what it imports and doesn't use, by its name there, or all of a module by
    a star. `cold_targets` are those of its calls that are hot only if others call their functions in hot code.
    """

    calls: tuple[HotCall, ...] = ()
    functions: tuple[str, ...] = ()
    bases: tuple[tuple[str, str], ...] = ()
    summaries: tuple[Summary, ...] = ()
    result_queries: tuple[str, ...] = ()
    guess_queries: tuple[str, ...] = ()
    step_queries: tuple[str, ...] = ()
    start_queries: tuple[str, ...] = ()
    draw_queries: tuple[str, ...] = ()
    effect_queries: tuple[str, ...] = ()
    first_queries: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    says: Says = Says.NOTHING
    says_query: Says = Says.NOTHING
    edits: tuple[str, ...] = ()
    edit_queries: tuple[str, ...] = ()
    rebinds: tuple[str, ...] = ()
    manners: tuple[tuple[str, Manner], ...] = ()
    manner_queries: tuple[tuple[str, Manner], ...] = ()
    module_queries: tuple[str, ...] = ()
    hands_on: tuple[tuple[str, str], ...] = ()
    cold_targets: tuple[str, ...] = ()

    @property
    def queries(self) -> frozenset[str]:
        return frozenset(self.effect_queries).union(*self._other_queries)

    @property
    def effects_alone(self) -> frozenset[str]:
        return frozenset(self.effect_queries).difference(*self._other_queries)

    @property
    def _other_queries(self) -> tuple[tuple[str, ...], ...]:
        return self.result_queries, self.guess_queries, self.step_queries, self.start_queries, self.first_queries


@dataclass(frozen=True)
class Context:
    """What the other files of a run contribute to one: their hot calls of it, and the summaries that it queried.

    Of its functions, `asked` are those of whose effects others ask, `drawing` those of which they ask whether they draw
    data. What the file itself asked for: `manners`, how others call its functions; `modules`, the classes whose bases
    in other files are modules'; `told`, what programs that it is part of say of all that they import; `edited`, the
    attributes that they edit. `on_host`: whether those programs never leave the host; None if unknown. `rebound`:
    modules of which it imports all names, each with a name to which they give another meaning. `seen`: what a run of
    the file as it is has shown.
    """

    calls: tuple[HotCall, ...] = ()
    summaries: tuple[Summary, ...] = ()
    on_host: bool | None = None
    told: Says = Says.NOTHING
    edited: tuple[str, ...] = ()
    rebound: tuple[tuple[str, str], ...] = ()
    asked: tuple[str, ...] = ()
    drawing: tuple[str, ...] = ()
    manners: tuple[tuple[str, Manner], ...] = ()
    modules: tuple[str, ...] = ()
    seen: tuple[Seen, ...] = ()


NONE = Links()
ALONE = Context()

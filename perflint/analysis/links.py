"""What ties the files of a run together: what each asks of the others, says to them, and is told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

_OF_TENSORS = frozenset("DdHhT")


class Likelihood(IntEnum):
    """How sure something is."""

    NO = 0
    POSSIBLE = 1
    CERTAIN = 2


class Says(IntFlag):
    """What a file, or the files of a program together, say of where that computes."""

    NOTHING = 0
    SCRIPT = 1  # running it does something
    TRAINS = 2  # it trains or evaluates
    BUILDS = 4  # what takes part in that
    DEVICE = 8  # on a device, or so it seems; where it computes is then settled
    COMPILES = 16  # with torch.jit what it runs or imports, wherever that computes

    @property
    def stays_on_host(self) -> bool:
        """Is it a program that trains, and never speaks of a device?"""
        return self & ~Says.COMPILES == Says.SCRIPT | Says.TRAINS | Says.BUILDS


@dataclass(frozen=True, order=True)
class HotCall:
    """A call at a hot place.

    `target` is a dotted name as the calling file knows it, or, where a call is given to the file that it reaches,
    the name there: "accuracy", "Net.loss". A target that begins with "@" is a method called on `self`, which a
    subclass may override, one that begins with "?" a method of an object whose class is not known. `positional` has
    the codes of the arguments and `keywords` one with each name (see `program.codes`).
    """

    target: str
    heat: int
    positional: str = ""
    keywords: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, order=True)
class Answer:
    """What is known of a function from its own file.

    `target` names it as a `HotCall` does. `gives` says what it returns (see `program.codes`), empty where that is not
    known; `trains`: a call does one step of training; `draws`: on data that it fetches itself. `starts`: a call starts
    processes; `loads`: iterating over what it gives, or over an object of the class, does.
    """

    target: str
    gives: str = ""
    trains: bool = False
    draws: bool = False
    starts: Likelihood = Likelihood.NO
    loads: Likelihood = Likelihood.NO

    @property
    def is_silent(self) -> bool:
        """Does it say nothing?"""
        return not (self.gives or self.trains or self.starts_processes)

    @property
    def starts_processes(self) -> bool:
        """Are processes started, or may they be, by a call or by iterating over its result?"""
        return bool(self.starts or self.loads)

    @property
    def gives_tensor(self) -> bool:
        """Is there a tensor in what the function returns?"""
        return not _OF_TENSORS.isdisjoint(self.gives)


@dataclass(frozen=True)
class Links:
    """What ties a file to others.

    Its hot calls of them; functions of its own for which it matters who calls them; its classes with the names of
    their bases; all that it can answer about its functions; and the targets that it asks about: as `questions` whether
    they give a tensor, as `doubts` whether they really do, as `steps` whether a call trains, and as `starts` whether
    processes are started. `imports` names the modules, or what is in them, that it imports as it starts, and `says`
    what it says of where it computes.
    """

    calls: tuple[HotCall, ...] = ()
    functions: tuple[str, ...] = ()
    bases: tuple[tuple[str, str], ...] = ()
    answers: tuple[Answer, ...] = ()
    questions: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    says: Says = Says.NOTHING


@dataclass(frozen=True)
class Context:
    """What the other files of a run tell one: the calls of it in their hot code, and answers to its questions.

    `on_host`: whether the programs that it is part of never leave the host; None where they don't tell.
    `is_compiled`: whether one of these programs compiles with torch.jit.
    """

    calls: tuple[HotCall, ...] = ()
    answers: tuple[Answer, ...] = ()
    on_host: bool | None = None
    is_compiled: bool = False

    def __bool__(self) -> bool:
        return bool(self.calls or self.answers or self.is_compiled) or self.on_host is not None


NONE = Links()
ALONE = Context()

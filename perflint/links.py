"""What ties the files of a run together: calls at hot places that reach other files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class HotCall:
    """A call at a hot place.

    `target` is a dotted name as the calling file knows it, or, where a call is given to the file that it reaches,
    the name there: "accuracy", "Net.loss". A target that begins with "@" is a method called on `self`, which a
    subclass may override, one that begins with "?" a method of an object whose class is not known. `positional` has
    a character for each argument and `keywords` one with each name: D a tensor on the device, H on the host, small
    where it is only likely, g for a guess, - for anything else.
    """

    target: str
    heat: int
    positional: str = ""
    keywords: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Links:
    """What ties a file to others: its hot calls of them, functions of its own for which it matters who calls them, and
    its classes with the names of their bases."""

    calls: tuple[HotCall, ...] = ()
    functions: tuple[str, ...] = ()
    bases: tuple[tuple[str, str], ...] = ()


NONE = Links()

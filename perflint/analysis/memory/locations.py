"""What an alias analysis tells apart: locations in memory, the writes to them, and the summary of a function."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

ELEMENTS = "[]"  # all items of a container
ANY = "*"  # all attributes and items, and what can be reached from them
_DEEPEST = 3


_OF_OTHERS = frozenset({ast.Call, ast.Attribute, ast.BinOp})  # what functions make


class Origin(IntEnum):
    """Who made what is in a location."""

    MADE = 0  # the expression, or definition, that is its root
    PARAMETER = 1  # the caller: what the parameter that is its root refers to
    OUTER = 2  # the scope around, which calls it by the name that is its root
    ANYWHERE = 3  # nobody knows: it may be any other location


class Location(NamedTuple):
    """The memory of a tensor, or an object: of its root, or the part of that at the end of `path`.

    A view has the location of its base. What lies outside of the function is told apart by paths of attributes and
    items, down to a fixed depth; what the function itself makes holds other locations in cells. Parts of what may be
    anywhere are attributes of that name, of anything.
    """

    origin: Origin
    root: ast.AST | str
    path: tuple[str, ...] = ()

    @property
    def is_outside(self) -> bool:
        return self.origin is not Origin.MADE

    @property
    def has_unknown_contents(self) -> bool:
        """May it hold what this function has not put there: is it outside, or made by another function?"""
        return self.origin is not Origin.MADE or self.root.__class__ in _OF_OTHERS

    def part(self, name: str) -> Location:
        if self.origin is Origin.ANYWHERE or self.path[-1:] == (ANY,):
            return self
        is_deep = len(self.path) >= _DEEPEST or (self.path and self.path[-1].startswith("["))
        return Location(self.origin, self.root, (*self.path, ANY if is_deep else name))

    def may_be(self, other: Location, *, within: bool = False) -> bool:
        """May both be the same; with `within`, may `other` also be a part of this one?"""
        if self.origin is Origin.ANYWHERE or other.origin is Origin.ANYWHERE:
            return _is_part(self, other) if self.origin is Origin.ANYWHERE else _is_part(other, self)
        if self.origin is not other.origin or self.root != other.root:
            return False
        for here, there in zip(self.path, other.path, strict=False):
            if ANY in (here, there):
                return True
            if not _may_be_one(here, there):
                return False
        return len(self.path) == len(other.path) or (within and len(self.path) < len(other.path))


def item(index: ast.AST) -> str:
    """The name of what a container holds at `index`: of its own where that is a string, as no tensor has."""
    return f"[{index.value!r}]" if isinstance(index, ast.Constant) and isinstance(index.value, str) else ELEMENTS


def _may_be_one(name: str, other: str) -> bool:
    if name.startswith("[") and other.startswith("["):
        return name == other or ELEMENTS in (name, other)
    return name == other or f"[{name!r}]" == other or name == f"[{other!r}]"  # `batch["mask"]` is `batch.mask`


def _is_part(anything: Location, place: Location) -> bool:
    if place.origin is Origin.ANYWHERE or not anything.path:
        return True
    return anything.path[0] in place.path or (place.is_outside and ANY in place.path)


ANYWHERE = Location(Origin.ANYWHERE, "")
GRADIENTS = Location(Origin.ANYWHERE, "", ("grad",))  # of any tensor
Locations = frozenset[Location]
NOWHERE: Locations = frozenset()


def made(node: ast.AST) -> Location:
    return Location(Origin.MADE, node)


class Write(NamedTuple):
    """A write to `to` by `node`.

    `deep`: by code that is not known, also to all that can be reached from there. `deferred`: at any time after, as
    by a function that somebody keeps. `attribute`: only this attribute of an object is bound anew.
    """

    node: ast.AST
    to: Location
    deep: bool = False
    deferred: bool = False
    attribute: str = ""

    @property
    def is_in_sight(self) -> bool:
        """Is it known to write there and then, if to one of several: not just possible for lack of knowledge?"""
        return not (self.deep or self.deferred or self.to.origin is Origin.ANYWHERE)

    def reaches(self, locations: Iterable[Location]) -> bool:
        return not self.attribute and any(self.to.may_be(each, within=self.deep) for each in locations)


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """What a call of a function does, in terms of the locations outside of it.

    Attributes:
        returns: what it may return, or yield; a location that it made itself stands for something new.
        holds: what can be reached from new objects among these.
        writes: what it writes to; the nodes are its own.
        keeps: what it stores outside: an object, the attribute or items of it, and what is stored there.
        is_generator: it runs while its result is iterated over.
        names: the variables around it that are spoken of in these, sorted.
    """

    returns: Locations = NOWHERE
    holds: Locations = NOWHERE
    writes: frozenset[Write] = frozenset()
    keeps: frozenset[tuple[Location, str, Locations]] = frozenset()
    is_generator: bool = False
    names: tuple[str, ...] = ()


class TooManyFacts(Exception):
    """A function is too large for all that it may do to be distinguished."""


@dataclass(slots=True)
class Cells:
    """What the objects of a function hold, by object and attribute; it only grows, until nothing changes.

    Raises TooManyFacts where that comes to more than `most`: more would take seconds, and block what it is asked for
    all the same.
    """

    held: dict[tuple[Location, str], set[Location]] = field(default_factory=dict)
    names: dict[Location, set[str]] = field(default_factory=dict)
    size: int = 0
    most: int = 4_000
    _parts: dict[tuple[Location, str], Location | None] = field(default_factory=dict)

    def store(self, objects: Iterable[Location], name: str, values: Iterable[Location]) -> None:
        values = frozenset(values)
        for each in objects if values else ():
            cell = self.held.get((each, name))
            if cell is None:
                cell = self.held[each, name] = set()
                self.names.setdefault(each, set()).add(name)
            if not values <= cell:
                self.size -= len(cell)
                cell |= values
                self.size += len(cell)
                if self.size > self.most:
                    raise TooManyFacts

    def load(self, objects: Iterable[Location], name: str) -> Locations:
        found: set[Location | None] = set()
        for each in objects:
            for one in self.names.get(each, ()):
                if one in (name, ANY) or name == ANY or _may_be_one(name, one):
                    found |= self.held[each, one]
            if (each, name) not in self._parts:
                self._parts[each, name] = each.part(name) if each.has_unknown_contents else None
            found.add(self._parts[each, name])
        return frozenset(each for each in found if each is not None)

    def reach(self, objects: Iterable[Location]) -> Locations:
        found, pending = set(objects), list(objects)
        while pending:
            each = pending.pop()
            for name in self.names.get(each, ()):
                new = self.held[each, name] - found
                found |= new
                pending += new
        return frozenset(found)

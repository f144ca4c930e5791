"""The vocabulary of names for axes and rounds, and the splitting of names into words."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_GLUED = re.compile(r"^(?:num|n|max|mini|micro|multi|sub|up|down)?([a-z]{3,}?)(?:size|sz|num|idx|id)?$")
_PLURAL = re.compile(r"(?<=\w\w)(?:(?<=x|s|h)es|(?<!s)s)$")

TIME = frozenset({"len", "length", "seq", "sequence"})
OTHER_AXES = frozenset({"batch", "image", "iter", "layer", "order", "subdivision"})


def words(name: str) -> set[str]:
    """The words of a name, as they are and in the singular, and without what is glued to them: nlayers, batchsize."""
    plain = {word.lower() for word in _WORD.findall(name)}
    cores = plain | {match[1] for word in plain if (match := _GLUED.match(word))}
    return cores | {_PLURAL.sub("", word) for word in cores}


def any_of(names: Iterable[str], vocabulary: frozenset[str]) -> bool:
    """Does one of the names contain one of the words?"""
    return any(not vocabulary.isdisjoint(words(name)) for name in names)

"""The vocabulary of names for axes and rounds, and the splitting of names into words."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_GLUED = re.compile(r"^(?:num|n|max|mini|micro|multi|sub|up|down)?([a-z]{3,}?)(?:size|sz|num|idx|id)?$")
_PLURAL = re.compile(r"(?<=\w\w)(?:(?<=x|s|h)es|(?<!s)s)$")

TIME = frozenset("time timestep step seq sequence len length seqlen frame horizon window".split())

ROUNDS = frozenset(
    "iter iteration epoch layer block depth stage optim optimizer optimiser optimization hop codebook quantizer"
    " quantiser quantize quantized loop looped canvas chunks subdivision training".split()
)
_AXES = frozenset(
    "batch class head layer scale level image img anchor channel group view stage dim box block segment tile patch"
    " quantile hop".split()
)
COUNTED = _AXES | frozenset(
    "agent bbox bs bsz chan chunks codebook data dataloader dataset depth dimension doc document epoch expert feature"
    " file filename iter iteration part sample sentence test topk train trainer training".split()
)
WALKED = _AXES | frozenset(
    "attr chunk edge freq frequency key neighbor node offset order param seg shape size store".split()
)


def words(name: str) -> set[str]:
    """The words of a name, as they are and in the singular, and without what is glued to them: nlayers, batchsize."""
    plain = {word.lower() for word in _WORD.findall(name)}
    cores = plain | {match[1] for word in plain if (match := _GLUED.match(word))}
    return cores | {_PLURAL.sub("", word) for word in cores}


def any_of(names: Iterable[str], vocabulary: frozenset[str]) -> bool:
    """Does one of the names contain one of the words?"""
    return any(not vocabulary.isdisjoint(words(name)) for name in names)

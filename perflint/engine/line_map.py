"""Maps the lines of a text to those of the text that it was made from."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import takewhile
from typing import Literal, TypeVar

from perflint.engine.rule import Finding

Line = TypeVar("Line", bound=Hashable)
Opcode = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]

_NEWLINE = re.compile(r"\r\n|\r|\n")


def original_line(text: str, finding: Finding, before: str) -> int:
    """The line of `before` at which a finding in `text`, which other fixes have made of it, begins."""
    return abs(line_map(text, before)[len(_NEWLINE.findall(text, 0, finding.start))])


@lru_cache(maxsize=4)  # all fixes of one pass ask for the same texts
def line_map(text: str, other: str) -> tuple[int, ...]:
    """For each line of `text` the line of `other` that it stands for, negative where that one reads differently.

    Lines count from 1. An indented line is the same line, only that it reads differently.
    """
    ours, theirs = _NEWLINE.split(text), _NEWLINE.split(other)
    lines: list[int] = []
    compared = Lines([line.strip() for line in ours], [line.strip() for line in theirs])
    for kind, start, stop, begin, end in compared.get_opcodes():
        tail = _alike(ours[start:stop], theirs[begin:end])
        for offset in range(stop - start):
            line = min(begin + offset, max(end - 1 - tail, begin), len(theirs) - 1)
            if offset >= stop - start - tail:
                line = end - (stop - start - offset)
            same = kind == "equal" and ours[start + offset] == theirs[line]
            lines.append(line + 1 if same else -line - 1)
    return tuple(lines)


class Lines(SequenceMatcher[Line]):
    """Compares lines, between those that are unique in both: by itself, it is slow where many are alike."""

    def __init__(self, ours: Sequence[Line], theirs: Sequence[Line]) -> None:
        super().__init__(None, (), (), autojunk=False)
        self._ours, self._theirs = ours, theirs

    def get_opcodes(self) -> list[Opcode]:
        """How to turn the lines that are ours into theirs."""
        found: list[Opcode] = []
        start = begin = 0
        for stop, end in (*_anchors(self._ours, self._theirs), (len(self._ours), len(self._theirs))):
            matcher = SequenceMatcher(None, self._ours[start:stop], self._theirs[begin:end], autojunk=False)
            for kind, first, last, head, tail in matcher.get_opcodes():
                opcode = (kind, start + first, start + last, begin + head, begin + tail)
                before = found.pop() if found and found[-1][0] == kind else opcode
                found.append((kind, before[1], opcode[2], before[3], opcode[4]))
            start, begin = stop, end
        return found


def _anchors(ours: Sequence[Line], theirs: Sequence[Line]) -> list[tuple[int, int]]:
    """Places of lines that each text has once: as many as come in the same order in both."""
    counts, others = Counter(ours), Counter(theirs)
    places = {line: place for place, line in enumerate(theirs) if others[line] == 1}
    pairs = [(place, places[line]) for place, line in enumerate(ours) if counts[line] == 1 and line in places]
    ends: list[int] = []  # for each length of a run of pairs in order, the smallest place that one ends at
    before: list[int] = []  # for each pair the length of the longest run that it may follow on
    for _, place in pairs:
        before.append(bisect_left(ends, place))
        ends[before[-1] : before[-1] + 1] = [place]
    chosen: list[tuple[int, int]] = []
    for pair, length in zip(reversed(pairs), reversed(before), strict=True):
        if length == len(ends) - len(chosen) - 1 and (not chosen or pair[1] < chosen[-1][1]):
            chosen.append(pair)
    return chosen[::-1]


def _alike(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """How many of the last lines begin with the same words, as a `return` that is written otherwise does."""
    pairs = zip(reversed(ours), reversed(theirs), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].split()[:1] == pair[1].split()[:1] != [], pairs))

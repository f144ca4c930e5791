"""Validates edits, detects conflicts between them, applies them to a text, and maps its lines to those before."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import takewhile
from typing import Literal, TypeVar

from perflint.engine.rule import Edit, Finding, Fix

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_INDENTS = re.compile(r"(?:\A|\n)[ \t]+\Z")


def apply_fixes(text: str, fixes: Sequence[Fix]) -> str:
    """`text` with the edits of all `fixes` made; an insertion that several make is made once. They must not overlap."""
    edits: list[Edit] = []
    for fix in fixes:
        shared = set(edits)
        edits += [edit for edit in fix.edits if edit.start < edit.end or edit not in shared]
    parts: list[str] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += text[position : edit.start], edit.text
        position = edit.end
    return "".join([*parts, text[position:]])


def fitted(text: str, fix: Fix) -> Fix:
    """`fix` with the line breaks of `text` where it makes its edits, and without edits that change nothing."""
    edits = [replace(edit, text=_fitted(text, edit)) for edit in fix.edits]
    return replace(fix, change=tuple(edit for edit in edits if edit.text != text[edit.start : edit.end]))


def _fitted(text: str, edit: Edit) -> str:
    if "\r" not in text or "\n" not in edit.text:
        return edit.text
    return re.sub(r"(?<!\r)\n", _newline_before(text, edit.start), edit.text)


def _newline_before(text: str, offset: int) -> str:
    end = 1 + max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset))
    if end:
        return "\r\n" if text.endswith("\r\n", 0, end) else text[end - 1]
    first = _LINE_BREAK.search(text)
    return first[0] if first else "\n"


def malformed(text: str, fix: Fix) -> str:
    """What is wrong with `fix` as a patch of `text`; empty where nothing is."""
    edits = sorted(fitted(text, fix).edits, key=lambda edit: (edit.start, edit.end))
    if not edits:
        return "the fix changes nothing"
    if any(not 0 <= edit.start <= edit.end <= len(text) for edit in edits):
        return "an edit lies outside the text"
    if any(before.end > after.start for before, after in itertools.pairwise(edits)):
        return "edits of one fix overlap"
    return ""


def collide(text: str, fix: Fix, other: Fix) -> bool:
    """Whether edits of a text overlap or touch, other than as the same insertion, or one adds lines that the other may
    indent.
    """
    touching = any(
        a.start <= b.end and b.start <= a.end and not (a == b and a.start == a.end)
        for a in fix.edits
        for b in other.edits
    )
    if touching or not _meet(text, fix, other):
        return touching
    return (_indents(fix) and _adds_lines(other)) or (_indents(other) and _adds_lines(fix))


def _meet(text: str, fix: Fix, other: Fix) -> bool:
    (start, end), (first, last) = (_reach(text, each) for each in (fix, other))
    return start <= last and first <= end


def _reach(text: str, fix: Fix) -> tuple[int, int]:
    last = max(edit.end for edit in fix.edits)
    line = _LINE_BREAK.search(text, last)
    return min(edit.start for edit in fix.edits), line.start() if line else len(text)


def _indents(fix: Fix) -> bool:
    return any(_INDENTS.search(edit.text) for edit in fix.edits)


def _adds_lines(fix: Fix) -> bool:
    return any(_LINE_BREAK.search(edit.text) for edit in fix.edits)


Line = TypeVar("Line", bound=Hashable)
Opcode = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]

_NEWLINE = re.compile(r"\r\n|\r|\n")


def original_line(text: str, finding: Finding, before: str) -> int:
    """The line of `before` at which a finding in `text`, which other fixes have made of it, begins."""
    return abs(line_map(text, before)[len(_NEWLINE.findall(text, 0, finding.start))])


@lru_cache(maxsize=4)  # all fixes of one pass ask for the same texts
def line_map(text: str, other: str) -> tuple[int, ...]:
    """For each line of `text` the line of `other` that it stands for, negative where that reads differently.

    Lines count from 1. An indented or moved line is the same line.
    """
    ours, theirs = _NEWLINE.split(text), _NEWLINE.split(other)
    lines: list[int] = []
    bare, others = [line.strip() for line in ours], [line.strip() for line in theirs]
    opcodes = Lines(bare, others).get_opcodes()
    for kind, start, stop, begin, end in opcodes:
        tail = _alike(ours[start:stop], theirs[begin:end])
        for offset in range(stop - start):
            line = min(begin + offset, max(end - 1 - tail, begin), len(theirs) - 1)
            if offset >= stop - start - tail:
                line = end - (stop - start - offset)
            same = kind == "equal" and ours[start + offset] == theirs[line]
            lines.append(line + 1 if same else -line - 1)
    for place, line in _moved(bare, others, [opcode for opcode in opcodes if opcode[0] != "equal"]):
        lines[place] = line + 1 if ours[place] == theirs[line] else -line - 1
    return tuple(lines)


def _moved(ours: Sequence[str], theirs: Sequence[str], changed: Sequence[Opcode]) -> Iterator[tuple[int, int]]:
    """The places in both of lines that stand elsewhere now: unique ones, and those that follow these."""
    new = [place for _, start, stop, _, _ in changed for place in range(start, stop) if ours[place]]
    gone = [place for *_, begin, end in changed for place in range(begin, end) if theirs[place]]
    mine, places = _once(ours, new), _once(theirs, gone)
    found: dict[int, int] = {}
    free = {*gone}
    for place in new:
        after = found.get(place - 1, -2) + 1
        if after in free and ours[place] == theirs[after]:
            found[place] = after
        elif ours[place] in mine and ours[place] in places:
            found[place] = places[ours[place]]
    yield from found.items()


def _once(lines: Sequence[str], among: Sequence[int]) -> dict[str, int]:
    counts = Counter(lines[place] for place in among)
    return {lines[place]: place for place in among if lines[place] and counts[lines[place]] == 1}


class Lines(SequenceMatcher[Line]):
    """Compares lines, between those that are unique in both: by itself, it is slow where many are alike."""

    def __init__(self, ours: Sequence[Line], theirs: Sequence[Line]) -> None:
        super().__init__(None, (), (), autojunk=False)
        self._ours, self._theirs = ours, theirs

    def get_opcodes(self) -> list[Opcode]:
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
    """How many of the last lines begin with the same words, as a changed `return` does."""
    pairs = zip(reversed(ours), reversed(theirs), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].split()[:1] == pair[1].split()[:1] != [], pairs))

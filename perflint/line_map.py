"""Which line of a text stands for which line of the text that it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import takewhile

from perflint.rule import Finding


def original_line(text: str, finding: Finding, before: str) -> int:
    """The line of `before` at which a finding in `text`, which other fixes have made of it, begins."""
    return abs(line_map(text, before)[text.count("\n", 0, finding.start)])


def line_map(text: str, other: str) -> list[int]:
    """For each line of `text` the line of `other` that it stands for, negative where that one reads differently.

    Lines count from 1. An indented line is the same line, only that it reads differently.
    """
    ours, theirs = text.split("\n"), other.split("\n")
    lines: list[int] = []
    matcher = SequenceMatcher(None, [line.strip() for line in ours], [line.strip() for line in theirs], autojunk=False)
    for kind, start, stop, begin, end in matcher.get_opcodes():
        tail = _alike(ours[start:stop], theirs[begin:end])
        for offset in range(stop - start):
            line = min(begin + offset, max(end - 1 - tail, begin), len(theirs) - 1)
            if offset >= stop - start - tail:
                line = end - (stop - start - offset)
            same = kind == "equal" and ours[start + offset] == theirs[line]
            lines.append(line + 1 if same else -line - 1)
    return lines


def _alike(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """How many of the last lines begin with the same words, as a `return` that is written otherwise does."""
    pairs = zip(reversed(ours), reversed(theirs), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].split()[:1] == pair[1].split()[:1] != [], pairs))

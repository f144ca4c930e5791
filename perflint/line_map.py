"""Which line of a text stands for which line of the text that it was made from."""

from __future__ import annotations

from difflib import SequenceMatcher

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
        for offset in range(stop - start):
            line = min(begin + offset, max(end - 1, begin), len(theirs) - 1)
            same = kind == "equal" and ours[start + offset] == theirs[line]
            lines.append(line + 1 if same else -line - 1)
    return lines

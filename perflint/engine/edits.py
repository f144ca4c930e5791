"""Validates edits, detects conflicts between them, and applies them to a text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from perflint.engine.rule import Edit, Fix

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
    """What ends the line before the one at `offset`: the cells of a notebook may differ in that."""
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


def collide(fix: Fix, other: Fix) -> bool:
    """Whether edits overlap or touch, or one adds lines where the other may indent those around them.

    The same insertion made by both does not count.
    """
    touching = any(
        a.start <= b.end and b.start <= a.end and not (a == b and a.start == a.end)
        for a in fix.edits
        for b in other.edits
    )
    return touching or (_indents(fix) and _adds_lines(other)) or (_indents(other) and _adds_lines(fix))


def _indents(fix: Fix) -> bool:
    return any(edit.start == edit.end and _INDENTS.search(edit.text) for edit in fix.edits)


def _adds_lines(fix: Fix) -> bool:
    return any(_LINE_BREAK.search(edit.text) for edit in fix.edits)

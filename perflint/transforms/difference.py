"""The edits that make one text of another, no larger than they need to be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from perflint.syntax.edits import Edit

_TOKENS = re.compile(r"\w+|\s+|.")
_ENDS = ("\n", "\r")


def difference(old: str, new: str, start: int = 0) -> Iterator[Edit]:
    """The edits that make `new` of `old`, which begins at `start`; a line that is only indented is an edit by itself.

    Both have `\\n` at the ends of their lines.
    """
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    offsets = [start]
    for line in before:
        offsets.append(offsets[-1] + len(line))
    yield from _joined(_changes(before, after, offsets))


def _changes(before: list[str], after: list[str], offsets: list[int]) -> Iterator[Edit]:
    matcher = SequenceMatcher(None, [line.strip() for line in before], [line.strip() for line in after], autojunk=False)
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(before[first:last], after[begin:end], strict=True)
            for number, (one, other) in enumerate(pairs, first):
                yield from _trimmed(one, other, offsets[number])
        else:
            yield from _trimmed("".join(before[first:last]), "".join(after[begin:end]), offsets[first])


def _joined(edits: Iterator[Edit]) -> Iterator[Edit]:
    """The same with those as one that touch."""
    last: Edit | None = None
    for edit in edits:
        if last is not None and last.end == edit.start:
            last = Edit(last.start, edit.end, last.text + edit.text)
            continue
        if last is not None:
            yield last
        last = edit
    if last is not None:
        yield last


def _trimmed(old: str, new: str, start: int) -> Iterator[Edit]:
    """One edit without the tokens that both begin or end with; none where they are the same."""
    if old == new:
        return
    one, other = _TOKENS.findall(old), _TOKENS.findall(new)
    most = min(len(one), len(other))
    front = next((i for i in range(most) if one[i] != other[i]), most)
    most -= front
    back = next((i for i in range(most) if one[-1 - i] != other[-1 - i]), most)
    start += len("".join(one[:front]))
    gone, come = "".join(one[front : len(one) - back]), "".join(other[front : len(other) - back])
    yield Edit(start, start + len(gone), come)

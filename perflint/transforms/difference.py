"""The edits that make one text of another, no larger than they need to be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from perflint.syntax.edits import Edit

_TOKENS = re.compile(r"\w+|\s+|.")
_ALIKE = 0.4  # of the tokens of two lines


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
            for old_lines, new_lines in _paired(before[first:last], after[begin:end]):
                yield from _trimmed("".join(old_lines), "".join(new_lines), offsets[first])
                first += len(old_lines)


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


def _paired(old: list[str], new: list[str]) -> list[tuple[list[str], list[str]]]:
    """Which lines became which: those at the top or those at the bottom, as they are alike, the rest is one piece."""
    shared = min(len(old), len(new))
    top = [([one], [other]) for one, other in zip(old, new, strict=False)]
    if len(old) == len(new):
        return top
    bottom = [([one], [other]) for one, other in zip(old[-shared:], new[-shared:], strict=True)] if shared else []
    likeness = [sum(_alike(one[0], other[0]) for one, other in pairs) for pairs in (top, bottom)]
    if not any(likeness):
        return [(old, new)]
    if likeness[0] >= likeness[1]:
        return [*top, (old[shared:], new[shared:])]
    return [(old[: len(old) - shared], new[: len(new) - shared]), *bottom]


def _alike(one: str, other: str) -> float:
    ratio = SequenceMatcher(None, _TOKENS.findall(one), _TOKENS.findall(other), autojunk=False).ratio()
    return ratio if ratio > _ALIKE else 0.0


def merged(edits: Iterable[Edit], text: str, regions: Sequence[tuple[int, int, bool]]) -> Iterator[Edit]:
    """The edits of `text`, those in one of the `regions` as one, which covers all of that where it is to be `whole`.

    Fixes that change something there, too, would else be taken to go together with this one.
    """
    rest = sorted(edits)
    for start, end, whole in sorted(regions):
        inside = [each for each in rest if start <= each.start < end or (each.start < end and start < each.end)]
        if not inside:
            continue
        rest = [each for each in rest if each not in inside]
        first = min(start, inside[0].start) if whole else inside[0].start
        last = max(end, inside[-1].end) if whole else inside[-1].end
        written, at = "", first
        for edit in inside:
            written += text[at : edit.start] + edit.text
            at = edit.end
        rest = sorted([*rest, Edit(first, last, written + text[at:last])])
    yield from rest


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

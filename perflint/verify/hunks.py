"""The patch of a file, hunk by hunk, each with the fixes that it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from perflint.verify.verdict import Hunk

_CONTEXT = 3
_Opcodes = Sequence[tuple[str, int, int, int, int]]


def hunks(path: str, before: str, after: str, alone: Mapping[str, str]) -> Iterator[Hunk]:
    """The hunks that make `after` of `before`, the text of the file `path`.

    `alone` has, by the names of the fixes, what each makes of the file by itself.
    """
    old, new = before.split("\n"), after.split("\n")
    touched = {name: _touched(old, text.split("\n")) for name, text in alone.items()}
    for opcodes in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT):
        lines = range(opcodes[0][1], opcodes[-1][2] + 1)
        fixes = tuple(name for name, places in touched.items() if not places.isdisjoint(lines))
        yield Hunk(path, "".join(f"{line}\n" for line in _lines(old, new, opcodes)), fixes)


def _touched(old: Sequence[str], new: Sequence[str]) -> frozenset[int]:
    """The lines of `old`, from 0, that are changed, or in front of which something is added."""
    opcodes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = (range(start, max(stop, start + 1)) for kind, start, stop, _, _ in opcodes if kind != "equal")
    return frozenset(line for lines in changed for line in lines)


def _lines(old: Sequence[str], new: Sequence[str], opcodes: _Opcodes) -> Iterator[str]:
    first, last = opcodes[0], opcodes[-1]
    yield f"@@ -{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]} @@"
    for kind, start, stop, begin, end in opcodes:
        if kind == "equal":
            yield from (f" {line}" for line in old[start:stop])
        else:
            yield from (f"-{line}" for line in old[start:stop])
            yield from (f"+{line}" for line in new[begin:end])

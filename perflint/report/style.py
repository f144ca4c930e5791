"""Colours and width of a report for humans, and the escaping of control characters in users' text."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
_UNSAFE_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


@dataclass(frozen=True)
class Style:
    """What the caller wants: `width` in terminal cells (None: lines are never cropped), `notes` end the summary."""

    color: bool = False
    width: int | None = None
    quiet: bool = False
    verbose: bool = False
    notes: tuple[str, ...] = ()

    def paint(self, look: str, text: str) -> str:
        """`text` in a look such as "bold red", or as it is where color is off."""
        if not self.color or not text:
            return text
        codes = ";".join(_CODES[word] for word in look.split())
        return f"\x1b[{codes}m{text}\x1b[0m"


def printable(text: str) -> str:
    """`text` on one line, with every character that could move the cursor, reorder or fail to encode escaped."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) not in _UNSAFE_CATEGORIES:
        return character
    return character.encode("unicode_escape").decode("ascii")

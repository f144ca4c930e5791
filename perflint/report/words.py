"""Numbers in words, and sentences without them."""

from __future__ import annotations

import re

_NAMES = re.compile(r"`[^`]*`|'[^']*'|\d+")  # of the user's code, and numbers


def count(number: int, one: str, more: str = "") -> str:
    """Such as `1 fix` or `2 fixes`."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def outline(text: str) -> str:
    """`text` less its names and numbers: what sentences about several places have in common."""
    return _NAMES.sub("", text)

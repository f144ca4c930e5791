"""Numbers in words."""

from __future__ import annotations


def count(number: int, one: str, more: str = "") -> str:
    """Such as `1 fix` or `2 fixes`."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"

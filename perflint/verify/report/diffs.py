"""The lines of a hunk of a diff, for the report."""

from __future__ import annotations

from collections.abc import Iterator

_LOOKS = {"+": "added", "-": "removed", "@": "place", "\\": "place"}


def lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line of a hunk with its look."""
    for line in text.removesuffix("\n").split("\n"):
        yield _LOOKS.get(line[:1], "kept"), line.removesuffix("\r").expandtabs(8)

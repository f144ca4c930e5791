"""What there is to compare of a program: the values that it computes, and of those that it keeps what changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from perflint.verify.agent.state import DERIVED, OPTION

_KEPT = (*DERIVED, OPTION)


class Evidence:
    """The values of one run, step by step: what it keeps and never changes would be the same whatever it computes."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, Any] = {}
        self._changing: set[str] = set()

    def add(self, name: str, value: Any) -> None:
        """A value of the next step; its digest, if it is kept."""
        if isinstance(value, str) or value.numel():
            self._counts[name] += 1
        if name.startswith(_KEPT) and self._first.setdefault(name, value) != value:
            self._changing.add(name)

    @property
    def values(self) -> int:
        """How many there are."""
        counted = (name for name in self._counts if name in self._changing or not name.startswith(_KEPT))
        return sum(self._counts[name] for name in counted)

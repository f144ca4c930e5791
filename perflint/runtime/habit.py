"""What a loop is used to: how many steps it takes before it ends, where that is about the same from call to call."""

from __future__ import annotations

_GRAIN = 8  # steps that count as about the same
_CALLS = 3  # in a row that make a habit


class Habit:
    """Notes how many steps each call took."""

    def __init__(self) -> None:
        self._steps, self._calls = 0, 0

    def note(self, taken: int) -> None:
        """One more call took so many steps."""
        steps = -(-taken // _GRAIN) * _GRAIN
        self._calls = self._calls + 1 if steps == self._steps else 1
        self._steps = steps

    @property
    def steps(self) -> int:
        """As many steps as the last calls needed, or 0 where they differed."""
        return self._steps if self._calls >= _CALLS else 0

"""Keeps the syntax of the files that were worked on last: they may be looked at again, in another context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflint.analysis.links import ALONE, Context

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_MOST = 3_000_000  # characters, whose syntax takes some 90 MB


class Parsed:
    """Parses programs, each once for as long as not too much was parsed since.

    It keeps what the text tells, not what was made of it: the last program that it gave is not to be used any more
    when it is asked for the next.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Program] = {}
        self._size = 0
        self._last: Program | None = None

    def __call__(self, text: str, context: Context) -> Program:
        from perflint.analysis.program import Program  # here, because a run whose files are all known does without

        self._put_away()
        known = self._kept.pop(text, None)
        if known is None:
            self._last = Program(text, context)
        else:
            self._size -= len(text)
            self._last = known.in_context(context)
        return self._last

    def __reduce__(self) -> tuple[type[Parsed], tuple[()]]:
        """What goes to other processes: these keep what they parse themselves."""
        return Parsed, ()

    def _put_away(self) -> None:
        last, self._last = self._last, None
        if last is None:
            return
        self._kept[last.text] = last.in_context(ALONE)
        self._size += len(last.text)
        last.release()
        while self._size > _MOST:
            self._size -= len(oldest := next(iter(self._kept)))
            del self._kept[oldest]

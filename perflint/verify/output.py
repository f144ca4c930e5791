"""What a program prints, up to a limit: it may print gigabytes."""

from __future__ import annotations

import re
import signal
import threading
from typing import IO

_EXCEPTION = re.compile(r"(?:\[rank\d+\]: )?(?P<what>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)")
_KEPT = 2**20  # bytes from the beginning that are kept, and as many from the end


def last_words(errors: str) -> str:
    """The line that tells why a program has failed: of an exception, but not of a launcher's on its ranks."""
    lines = errors.strip().splitlines()
    found = (match for line in reversed(lines) if (match := _EXCEPTION.match(line)))
    told = next((match["what"] for match in found if "ChildFailedError" not in match["what"]), "")
    return told or (lines[-1] if lines else "")


def ending(code: int, errors: str) -> str:
    """How a program has ended, in words, by its exit code and what it printed of errors."""
    if code >= 0:
        return ": ".join(filter(None, [f"ended with exit code {code}", last_words(errors) if code else ""]))
    known = [each for each in signal.Signals if each == -code]
    why = ", as where memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by {known[0].name if known else f'signal {-code}'}{why}"


class Output:
    """Reads a pipe to its end in a thread of its own."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.count = 0
        self._head, self._tail = b"", b""
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for the end of what is printed, which comes once all who could print are gone."""
        self._thread.join(seconds)

    @property
    def text(self) -> str:
        """What was printed, without the middle where it was too much."""
        missing = self.count - len(self._head) - len(self._tail)
        middle = f"\n... {missing:,} bytes ...\n".encode() if missing > 0 else b""
        return (self._head + middle + self._tail).decode("utf-8", "replace")

    def _read(self, pipe: IO[bytes]) -> None:
        while part := pipe.read1(65536):  # type: ignore[attr-defined]
            self.count += len(part)
            room = _KEPT - len(self._head)
            self._head, part = self._head + part[:room], part[room:]
            self._tail = (self._tail + part)[-_KEPT:]

"""What a program prints, up to a limit: it may print gigabytes."""

from __future__ import annotations

import fcntl
import re
import select
import signal
import struct
import termios
import threading
import time
from typing import IO

_EXCEPTION = re.compile(r"(?:\[rank\d+\]: )?(?P<what>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)")
_GLANCE = 0.001  # seconds
_INT = struct.calcsize("i")
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
        words = last_words(errors) if code else ""
        hint = " (verify runs programs without input)" if words.startswith("EOFError: EOF when reading") else ""
        return ": ".join(filter(None, [f"ended with exit code {code}", f"{words}{hint}"]))
    known = [each for each in signal.Signals if each == -code]
    why = ", as where memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by {known[0].name if known else f'signal {-code}'}{why}"


class Output:
    """Reads a pipe to its end in a thread of its own."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.count = 0
        self._head, self._tail = b"", b""
        self._pipe, self._lock = pipe, threading.Lock()
        self._thread = threading.Thread(target=self._read, daemon=True)
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

    def so_far(self) -> str:
        """The first lines of a program that waits: all that it has printed, up to a limit."""
        while self._thread.is_alive():
            with self._lock:
                if not self._is_filled():
                    break
            time.sleep(_GLANCE)
        whole = self._head if self.count == len(self._head) else self._head[: self._head.rfind(b"\n") + 1]
        return whole.decode("utf-8", "replace")

    def _is_filled(self) -> bool:
        """Whether there is anything left to be read."""
        return fcntl.ioctl(self._pipe, termios.FIONREAD, bytes(_INT)) != bytes(_INT)

    def _read(self) -> None:
        waiting = select.poll()
        waiting.register(self._pipe, select.POLLIN)
        while waiting.poll():
            with self._lock:  # nothing is on its way while others hold it
                part = self._pipe.read1(65536)  # type: ignore[attr-defined]
                if not part:
                    return
                self.count += len(part)
                room = _KEPT - len(self._head)
                self._head, part = self._head + part[:room], part[room:]
                self._tail = (self._tail + part)[-_KEPT:]

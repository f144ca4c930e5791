"""Files that processes of a run leave for each other: written whole or not at all, and checked when they are read."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

_DIGEST = 16


def write(path: Path, data: bytes) -> None:
    """Put `data` at `path`, in place of what is there; raises OSError."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_bytes(blake2b(data, digest_size=_DIGEST).digest() + data)
    beside.replace(path)


def read(path: Path) -> bytes:
    """What was written at `path`; raises OSError where nothing was, and ValueError where it is damaged."""
    content = path.read_bytes()
    data = content[_DIGEST:]
    if blake2b(data, digest_size=_DIGEST).digest() != content[:_DIGEST]:
        raise ValueError(f"{path} is damaged")
    return data

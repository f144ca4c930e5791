"""Files by which processes of a run exchange records: written atomically, verified when read."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from perflint.project.cache_folder import FOLDER

RUNS = "run"  # the folder for what is kept of runs, inside of a cache
_DIGEST = 16
_KEEP_S = 30 * 86_400
_MARKS = ("perflint.toml", "pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg")


def project_of(folder: Path) -> Path:
    """The nearest folder, upwards from `folder`, that a project's own files mark; `folder` itself where none does."""
    marked = (each for each in (folder, *folder.parents) if any((each / name).exists() for name in _MARKS))
    return next(marked, folder)


def place(project: Path) -> Path:
    """Where the cache of a project keeps what is for its runs."""
    return project / FOLDER / RUNS


def write(path: Path, data: bytes) -> None:
    """Put `data` at `path`, in place of what is there; raises OSError."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(blake2b(data, digest_size=_DIGEST).digest() + data)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def sweep(folder: Path) -> None:
    """Remove what was written to `folder` so long ago that it is not worth its room; it would be made again."""
    oldest = time.time() - _KEEP_S
    for file in folder.iterdir():
        with suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()


def read(path: Path) -> bytes:
    """What was written at `path`; raises OSError where nothing was, and ValueError where it is damaged."""
    content = path.read_bytes()
    data = content[_DIGEST:]
    if blake2b(data, digest_size=_DIGEST).digest() != content[:_DIGEST]:
        raise ValueError(f"{path} is damaged")
    return data

"""The files of a run: discovery, imports, summaries between files, cache, and worker processes.

In here: the folder of the project that a file is part of, that of its caches, and what a process may use.
"""

from __future__ import annotations

import atexit
import gc
import os
from contextlib import suppress
from math import ceil
from pathlib import Path

CACHE = ".perflint_cache"
MARKS = ("perflint.toml", "pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg")
_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file marks a cache of perflint's, see https://bford.info/cachedir/\n"
)


def project_of(folder: Path) -> Path:
    """The nearest folder, upwards from `folder`, that has the files of a project; `folder` itself if none has."""
    return next(filter(is_marked, (folder, *folder.parents)), folder)


def is_marked(folder: Path) -> bool:
    return any((folder / name).exists() for name in MARKS)


def project_around(folder: Path) -> Path:
    """The project of what is named in `folder`: that of the working directory, if it holds the folder.

    A home directory is no project, whoever works in it.
    """
    here, own = Path.cwd(), project_of(folder)
    is_inside = folder.is_relative_to(here) and here not in (Path.home(), Path(here.anchor))
    around = project_of(here)
    return around if is_inside and (is_marked(around) or not is_marked(own)) else own


def make_cache(folder: Path) -> None:
    """Make the cache `folder` if it is not there, marked as one for git and for backups; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        (folder / ".gitignore").write_text("*\n")
        (folder / "CACHEDIR.TAG").write_text(_TAG)


_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_MOST_NEW = 4_000_000  # objects, some 400 MB; collecting at 1,000,000 costs an eighth of the time of a check


def available_cores() -> int:
    """How many cores this process may use: its affinity, and its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = _CGROUP_QUOTA.read_text().split()
        cores = min(cores, max(ceil(int(quota) / int(period)), 1))
    return cores


def collect_seldom(processes: int = 1) -> None:
    """Let a process that is all ours, and soon over, collect little as it runs, and nothing as it ends.

    `processes`: how many share the memory.
    """
    gc.set_threshold(_MOST_NEW // processes, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)

"""What this process may use: its cores, and the memory that seldom collecting garbage takes."""

from __future__ import annotations

import atexit
import gc
import os
from contextlib import suppress
from math import ceil
from pathlib import Path

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

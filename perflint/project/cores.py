"""Counts the cores that this process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from math import ceil
from pathlib import Path

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """How many cores this process may use: its affinity, and its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = _CGROUP_QUOTA.read_text().split()
        cores = min(cores, max(ceil(int(quota) / int(period)), 1))
    return cores

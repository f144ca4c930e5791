"""Turns Python's cyclic garbage collection off where there is hardly any garbage."""

import atexit
import gc

_MOST_NEW = 4_000_000  # objects, some 400 MB; collecting at 1,000,000 costs an eighth of the time of a check


def collect_seldom(processes: int = 1) -> None:
    """Let a process that is all ours, and soon over, collect little as it runs, and nothing as it ends.

    `processes`: how many share the memory.
    """
    gc.set_threshold(_MOST_NEW // processes, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)

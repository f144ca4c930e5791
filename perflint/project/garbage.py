"""Turns Python's cyclic garbage collection off where there is hardly any garbage."""

import atexit
import gc

_MOST_NEW = 200_000  # objects; a tree of syntax makes so many that Python's 700 costs a third of the time


def collect_seldom() -> None:
    """Let a process that is all ours, and soon over, collect little as it runs, and nothing as it ends."""
    gc.set_threshold(_MOST_NEW, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)

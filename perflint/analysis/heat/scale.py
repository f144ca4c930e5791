"""How often code runs."""

from enum import IntEnum


class Heat(IntEnum):
    """How often a place in the program runs."""

    ONCE = 0  # once, or now and then
    STEP = 1  # every training or evaluation step
    TIME = 2  # every time step

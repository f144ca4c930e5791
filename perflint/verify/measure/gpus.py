"""What was seen of GPUs: their clocks, and programs of others on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """The GPU of the UUID `gpu` at a `time` in seconds since 1970: MHz, W and °C, not a number where it doesn't tell.

    `reasons` are the bits of NVML that say why its clocks are held back.
    """

    time: float
    gpu: str
    driver: str
    sm_mhz: float
    memory_mhz: float
    watts: float
    celsius: float
    reasons: int


@dataclass(frozen=True)
class Stranger:
    """A program on the GPU of the UUID `gpu` that isn't ours."""

    gpu: str
    pid: str
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"

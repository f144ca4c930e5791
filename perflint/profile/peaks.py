"""The peaks of GPUs by their names, from their makers' data sheets: dense arithmetic by format, and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """TFLOP/s by the name of a format, without sparsity, and TB/s of the memory."""

    flops: Mapping[str, float]
    bandwidth: float


def _peak(fp64: float, fp32: float, tf32: float, half: float, bandwidth: float, bf16: float | None = None) -> Peak:
    flops = {"fp64": fp64, "fp32": fp32, "tf32": tf32, "fp16": half, "bf16": half if bf16 is None else bf16}
    return Peak(flops, bandwidth)


_PEAKS = (  # the first whose words are all in a device's name
    ("B200", _peak(37, 75, 1100, 2250, 8.0)),
    ("H200", _peak(67, 67, 494.7, 989.4, 4.8)),
    ("GH200", _peak(67, 67, 494.7, 989.4, 4.0)),
    ("H100 NVL", _peak(60, 60, 417.5, 835.5, 3.9)),
    ("H100 PCIe", _peak(51, 51, 378, 756, 2.0)),
    ("H100", _peak(67, 67, 494.7, 989.4, 3.35)),
    ("A100 80GB PCIe", _peak(19.5, 19.5, 156, 312, 1.935)),
    ("A100 80GB", _peak(19.5, 19.5, 156, 312, 2.039)),
    ("A100", _peak(19.5, 19.5, 156, 312, 1.555)),
    ("A40", _peak(0.58, 37.4, 74.8, 149.7, 0.696)),
    ("A30", _peak(10.3, 10.3, 82, 165, 0.933)),
    ("A10G", _peak(0.49, 31.5, 35, 70, 0.6)),
    ("A10", _peak(0.49, 31.2, 62.5, 125, 0.6)),
    ("RTX A6000", _peak(0.6, 38.7, 77.4, 154.8, 0.768)),
    ("L40S", _peak(1.4, 91.6, 183, 362, 0.864)),
    ("L40", _peak(1.4, 90.5, 90.5, 181, 0.864)),
    ("L4", _peak(0.47, 30.3, 60, 121, 0.3)),
    ("RTX 4090", _peak(1.3, 82.6, 82.6, 165.2, 1.008)),
    ("RTX 3090", _peak(0.56, 35.6, 35.6, 71, 0.936)),
    ("V100", _peak(7.8, 15.7, 15.7, 125, 0.9, 15.7)),
    ("T4", _peak(0.25, 8.1, 8.1, 65, 0.32, 8.1)),
)


def peak_of(device: str, bandwidth: float = 0.0) -> Peak | None:
    """The peaks of a device by its name; for others what torch tells of its memory's, in bytes/s, if anything."""
    for words, peak in _PEAKS:
        if all(word in device.split() or word in device for word in words.split()):
            return peak
    return Peak({}, bandwidth / 1e12) if bandwidth else None

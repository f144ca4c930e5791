"""What bounds operations: their kinds by name, and their floating point operations and bytes against the peaks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from perflint.profile.record import Operation, Record


class Regime(str, Enum):
    OVERHEAD = "overhead"
    INPUT = "input"
    READS = "host reads"
    COMPUTE = "compute"
    MEMORY = "memory"
    COMMUNICATION = "communication"


_ARITHMETIC = re.compile(
    r"gemm|gemv|matmul|cutlass|xmma|nvjet|wgmma|_mma|mma_|s16816|s1688|s884|h884|conv(?!ert)|wgrad|dgrad|fprop|winograd"
    r"|flash|fmha|attention|splitk|dot_kernel|triton_tem|lstm|gru_|persist|_fft|fft_",
    re.IGNORECASE,
)
_COLLECTIVES = re.compile(r"^(nccl|gloo|c10d|mpi|ucc)|ncclDev|ncclKernel|record_param_comms", re.IGNORECASE)
_OPERATIONS = re.compile(
    r"^aten::(_?addmm\w*|mm|mv|addmv|bmm|baddbmm|addbmm|dot|vdot|_?convolution\w*|mkldnn_\w+|thnn_conv\w*|slow_conv\w*"
    r"|\w*conv_depthwise\w*|_scaled_dot_product\w+|_efficient_attention\w*|_flash_attention\w*|_cudnn_attention\w*|_?thnn_fused\w+|lstm\w*"
    r"|cudnn_convolution\w*|linalg_\w+|_fft_\w+|_int_mm|_scaled_mm)$|^mkldnn::"
)
_FREE = re.compile(
    r"^aten::(view|_unsafe_view|reshape\w*|t|transpose|permute|as_strided\w*|expand\w*|slice|select|narrow|unsqueeze|squeeze"
    r"|detach\w*|alias|unbind|split\w*|chunk|unfold|empty\w*|resize_|set_|to|_to_copy|contiguous|result_type|linear|matmul"
    r"|item|_local_scalar_dense|is_nonzero|size|stride|numpy_T|lift_fresh|resolve_\w+|requires_grad_|conv[123]d|broadcast_\w+"
    r"|type_as|movedim|flatten|unflatten|diagonal|real|imag|swapaxes|_reshape_alias|equal|new_empty\w*|zeros|ones|full"
    r"|zeros_like|ones_like|full_like|rand|randn|randn_like|rand_like|cross_entropy_loss|layer_norm|batch_norm|dropout"
    r"|scaled_dot_product_attention|cosine_similarity|_batch_norm_impl_index|embedding)$"
)


@cache
def of_work(name: str) -> Regime:
    """What a GPU kernel or copy is, by name: copies to the host serve reads, those to the device are input."""
    if name.startswith("Memcpy"):
        return Regime.INPUT if "HtoD" in name else Regime.READS if "DtoH" in name else Regime.MEMORY
    if _COLLECTIVES.search(name):
        return Regime.COMMUNICATION
    return Regime.COMPUTE if _ARITHMETIC.search(name) else Regime.MEMORY


@cache
def of_operation(name: str) -> Regime:
    """What an operation on a CPU does itself, without those it calls: nothing but overhead, at times."""
    if _COLLECTIVES.search(name):
        return Regime.COMMUNICATION
    if _OPERATIONS.match(name):
        return Regime.COMPUTE
    return Regime.OVERHEAD if not name.startswith("aten::") or _FREE.match(name) else Regime.MEMORY


_BYTES = {
    "double": 8,
    "float": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "long int": 8,
    "int": 4,
    "short int": 2,
    "bool": 1,
    "unsigned char": 1,
    "signed char": 1,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "long": 8,
    "short": 2,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
_FORMATS = {"double": "fp64", "float": "fp32", "c10::Half": "fp16", "c10::BFloat16": "bf16"}
_MAIN = 12

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Point:
    """An operation in a step: its calls and seconds, all FLOPs and bytes, its format, the kernel behind it.

    Without a known formula, `flops` are one for each element of the largest input; without shapes, `bytes` are 0.
    """

    name: str
    kernel: str
    format: str
    calls: float
    seconds: float
    flops: float
    bytes: float
    regime: Regime
    is_counted: bool

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Roofline:
    """A step's main operations, longest first, with the device's peaks if known.

    `achieved` are FLOP/s of arithmetic by format, `peak_share` their share of the peaks; `bandwidth` is bytes/s of what
    memory bounds.
    """

    points: tuple[Point, ...]
    peak: Peak | None
    achieved: Mapping[str, float]
    peak_share: float
    bandwidth: float


def roofline(record: Record) -> Roofline:
    peak = peak_of(record.device, record.bandwidth) if record.is_gpu else None
    steps = max(record.operation_steps, 1)
    points = sorted((_point(each, record, steps) for each in record.operations), key=lambda each: -each.seconds)
    arithmetic = [each for each in points if each.is_counted and each.regime is Regime.COMPUTE]
    achieved = {}
    for name in sorted({each.format for each in arithmetic}):
        chosen = [each for each in arithmetic if each.format == name]
        achieved[name] = sum(each.flops for each in chosen) / sum(each.seconds for each in chosen)
    spent = sum(each.seconds for each in arithmetic)
    known = peak is not None and all(each.format in peak.flops for each in arithmetic)
    least = sum(each.flops / (peak.flops[each.format] * 1e12) for each in arithmetic) if known and peak else 0.0
    memory = [each for each in points if each.bytes and each.regime is Regime.MEMORY]
    moved = sum(each.bytes for each in memory) / (sum(each.seconds for each in memory) or math.inf)
    return Roofline(tuple(points[:_MAIN]), peak, achieved, least / spent if spent else 0.0, moved)


def _point(operation: Operation, record: Record, steps: int) -> Point:
    regime = of_work(operation.kernel) if record.is_gpu else of_operation(operation.name)
    counted = flops(operation.name, operation.shapes, operation.given)
    elements = max((math.prod(shape) for shape in operation.shapes if shape), default=0)
    return Point(
        operation.name.removeprefix("aten::"),
        operation.kernel,
        _format(operation, record),
        operation.calls / steps,
        max(operation.seconds, 1e-9) / steps,
        (counted or elements) * operation.calls / steps,
        moved(operation) * operation.calls / steps,
        regime,
        counted > 0,
    )


def _format(operation: Operation, record: Record) -> str:
    name = next((_FORMATS[each] for each in operation.types if each in _FORMATS), "")
    setting = record.settings.get("conv" if "conv" in operation.name else "matmul", "highest")
    is_converted = record.is_gpu and setting != "highest" and of_operation(operation.name) is Regime.COMPUTE
    return "tf32" if name == "fp32" and is_converted else name


def moved(operation: Operation) -> float:
    """The bytes of a call's distinct inputs and of an output like the largest; 0 without shapes.

    A matrix product's output is as its shapes say.
    """
    sizes = [
        math.prod(shape) * _BYTES[kind]
        for shape, kind in zip(operation.shapes, operation.types, strict=False)
        if shape and kind in _BYTES
    ]
    if not sizes:
        return 0.0
    width = next((_BYTES[kind] for kind in operation.types if kind in _BYTES), 4)
    name = operation.name.removeprefix("aten::")
    if name in _PRODUCTS:
        first, second = _factors(name, operation.shapes)
        output = math.prod(first[:-1]) * second[-1] * width if first and second else max(sizes)
    elif _REDUCES.intersection(name.split("_")):
        output = 0
    else:
        output = max(sizes)
    return float(sum(sizes) + output)


_REDUCES = frozenset(("sum", "mean", "norm", "max", "min", "argmax", "nll", "all", "any"))
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "_addmm_activation": 1}  # where the first factor stands


def _factors(name: str, shapes: Shapes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    place = _PRODUCTS[name]
    return (shapes[place], shapes[place + 1]) if len(shapes) > place + 1 else ((), ())


def flops(name: str, shapes: Shapes, given: Sequence[Any] = ()) -> float:
    """Floating point operations of one call, 2 for each multiplication with addition; 0 without a known formula."""
    name = name.removeprefix("aten::")
    if name in _PRODUCTS:
        first, second = _factors(name, shapes)
        return 2.0 * math.prod(first) * second[-1] if first and second else 0.0
    for words, formula in _FORMULAS.items():
        if name.startswith(words):
            return formula(shapes, given)
    return 0.0


def _convolution(shapes: Shapes, given: Sequence[Any]) -> float:
    """convolution(input [N, C, ...], weight [K, C/groups, ...], bias, stride, padding, dilation, transposed, ...)."""
    if len(shapes) < 2 or len(given) < 7 or not shapes[0] or not shapes[1]:
        return 0.0
    inputs, weight = shapes[0], shapes[1]
    stride, padding, dilation, transposed = given[3:7]
    if transposed:
        return 2.0 * math.prod(inputs) * math.prod(weight[1:])
    output = [
        (size + 2 * _at(padding, axis) - _at(dilation, axis) * (width - 1) - 1) // _at(stride, axis) + 1
        for axis, (size, width) in enumerate(zip(inputs[2:], weight[2:], strict=False))
    ]
    return 2.0 * inputs[0] * math.prod(output) * math.prod(weight)


def _at(numbers: Sequence[int], axis: int) -> int:
    return numbers[axis] if axis < len(numbers) else numbers[-1]


def _convolution_backward(shapes: Shapes, given: Sequence[Any]) -> float:
    """convolution_backward(gradient, input, weight, bias sizes, stride, ..., mask of what is wanted)."""
    if len(shapes) < 3 or not shapes[0] or not shapes[2]:
        return 0.0
    wanted = given[-1] if given and isinstance(given[-1], tuple) else (True, True)
    weight = shapes[2]
    transposed = len(given) > 7 and given[7]
    sized = shapes[1] if transposed else shapes[0]
    return 2.0 * math.prod(sized) * math.prod(weight[1:]) * sum(map(bool, wanted[:2]))


@dataclass(frozen=True)
class _Attention:
    """An attention operation: where queries stand, whether heads precede positions, and where `causal` stands.

    The backward pass, whose first argument is a gradient, computes five products where the forward pass has two.
    """

    queries: int
    heads_first: bool
    causal: int

    def __call__(self, shapes: Shapes, given: Sequence[Any]) -> float:
        queries, keys, values = (*shapes[self.queries : self.queries + 3], *[()] * 3)[:3]
        if any(len(shape) != 4 for shape in (queries, keys, values)):
            return 0.0
        positions = 2 if self.heads_first else 1
        others = math.prod(queries[:3]) / queries[positions]
        pairs = queries[positions] * keys[positions]
        counted = 2.0 * others * pairs * (queries[3] + values[3])
        is_causal = self.causal < len(given) and given[self.causal] in (True, 1)
        return counted * (2.5 if self.queries else 1.0) * (0.5 if is_causal else 1.0)


_FORMULAS: dict[str, Callable[[Shapes, Sequence[Any]], float]] = {
    "convolution_backward": _convolution_backward,
    "convolution": _convolution,
    "_convolution": _convolution,
    "cudnn_convolution": lambda shapes, given: _convolution(shapes, _in_order(given, 2)),
    "mkldnn_convolution": lambda shapes, given: _convolution(shapes, _in_order(given, 3)),
    "_scaled_dot_product_flash_attention_backward": _Attention(1, True, 11),
    "_scaled_dot_product_flash_attention": _Attention(0, True, 4),
    "_scaled_dot_product_efficient_attention_backward": _Attention(1, True, 10),
    "_scaled_dot_product_efficient_attention": _Attention(0, True, 6),
    "_scaled_dot_product_cudnn_attention": _Attention(0, True, 6),
    "_flash_attention_backward": _Attention(1, False, 11),
    "_flash_attention_forward": _Attention(0, False, 8),
    "_efficient_attention_backward": _Attention(1, False, 13),
    "_efficient_attention_forward": _Attention(0, False, 9),
    "_cudnn_attention_backward": _Attention(1, True, 14),
    "_cudnn_attention_forward": _Attention(0, True, 10),
}


def _in_order(given: Sequence[Any], first: int) -> Sequence[Any]:
    padding, stride, dilation, *_ = (*given[first:], None, None, None)
    return (None, None, None, stride, padding, dilation, False) if len(given) > first + 2 else ()


@dataclass(frozen=True)
class Peak:
    """TFLOP/s by format, without sparsity, and TB/s of memory."""

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
    """A device's peaks by name, else the memory's `bandwidth` in bytes/s, if torch tells it."""
    for words, peak in _PEAKS:
        if all(word in device.split() or word in device for word in words.split()):
            return peak
    return Peak({}, bandwidth / 1e12) if bandwidth else None

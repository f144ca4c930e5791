"""Operations count by their shapes, and against the peaks of the device."""

from __future__ import annotations

import pytest

from perflint.profile.record import Operation, Record
from perflint.profile.roofline import flops, moved, peak_of, roofline

CONVOLUTION = (None, None, None, (2, 2), (1, 1), (1, 1), False, (0, 0), 1)


@pytest.mark.parametrize(
    ("name", "shapes", "given", "expected"),
    [
        ("aten::mm", ((3, 4), (4, 5)), (), 2 * 3 * 4 * 5),
        ("aten::addmm", ((5,), (3, 4), (4, 5)), (), 2 * 3 * 4 * 5),
        ("aten::bmm", ((7, 3, 4), (7, 4, 5)), (), 2 * 7 * 3 * 4 * 5),
        ("aten::convolution", ((2, 3, 8, 8), (6, 3, 3, 3), ()), CONVOLUTION, 2 * (2 * 6 * 4 * 4) * 3 * 9),
        ("aten::_scaled_dot_product_flash_attention", ((2, 4, 8, 16),) * 3, (None,) * 3 + (0.0, False), 32768),
        ("aten::_scaled_dot_product_flash_attention", ((2, 4, 8, 16),) * 3, (None,) * 3 + (0.0, True), 16384),
        ("aten::_flash_attention_forward", ((2, 8, 4, 16),) * 3, (None,) * 8 + (False,), 32768),
        ("aten::_cudnn_attention_backward", ((2, 4, 8, 16),) * 6, (None,) * 14 + (True,), 2.5 * 16384),
        ("aten::add", ((9,), (9,)), (), 0),
    ],
)
def test_flops_follow_from_shapes(
    name: str, shapes: tuple[tuple[int, ...], ...], given: tuple[object, ...], expected: int
) -> None:
    assert flops(name, shapes, given) == expected


def test_bytes_are_those_of_distinct_inputs_and_outputs() -> None:
    product = Operation("aten::mm", ((3, 4), (4, 5)), ("c10::BFloat16", "c10::BFloat16"), (), "gemm", 1, 1.0)
    assert moved(product) == 2 * (3 * 4 + 4 * 5 + 3 * 5)
    added = Operation("aten::add", ((8, 8), (8,), ()), ("float", "float", "Scalar"), (), "add", 1, 1.0)
    assert moved(added) == 4 * (64 + 8 + 64)


def test_the_share_of_the_peak_is_by_device_and_format() -> None:
    seconds = 2 * 8192**3 / (0.5 * 989.4e12)
    product = Operation(
        "aten::mm", ((8192, 8192),) * 2, ("c10::BFloat16",) * 2, (), "nvjet_hsh_128x256", 3, 3 * seconds
    )
    record = Record(device="NVIDIA H100 80GB HBM3", is_gpu=True, operations=[product], operation_steps=3)
    found = roofline(record)
    assert found.peak_share == pytest.approx(0.5)
    assert found.achieved == {"bf16": pytest.approx(0.5 * 989.4e12)}


@pytest.mark.parametrize(
    ("setting", "is_gpu", "format_"), [("highest", True, "fp32"), ("high", True, "tf32"), ("high", False, "fp32")]
)
def test_single_precision_is_tf32_where_torch_may_use_it(setting: str, is_gpu: bool, format_: str) -> None:
    product = Operation("aten::mm", ((64, 64),) * 2, ("float",) * 2, (), "gemm", 1, 1.0)
    record = Record(device="A100", is_gpu=is_gpu, operations=[product], operation_steps=1, settings={"matmul": setting})
    assert [*roofline(record).achieved] == [format_]


@pytest.mark.parametrize(
    ("device", "bandwidth"),
    [
        ("NVIDIA H100 80GB HBM3", 3.35),
        ("NVIDIA H100 PCIe", 2.0),
        ("NVIDIA H200", 4.8),
        ("NVIDIA A100-SXM4-40GB", 1.555),
    ],
)
def test_peaks_are_known_by_the_names_of_devices(device: str, bandwidth: float) -> None:
    peak = peak_of(device)
    assert peak is not None and peak.bandwidth == bandwidth


def test_of_other_devices_only_the_memory_is_known() -> None:
    assert peak_of("Some GPU") is None
    peak = peak_of("Some GPU", 1.5e12)
    assert peak is not None and (peak.bandwidth, peak.flops) == (1.5, {})

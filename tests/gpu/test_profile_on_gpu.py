"""Profiles of programs with a planted cost name the regime, the line and the share."""

from __future__ import annotations

from functools import cache

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from perflint.profile.result import LineCost, Profile
from tests.gpu.measure_profile import PLANTED, ROOT, SIZES, product, profiled, without

POINTS = 0.03
EXPECTED = {
    "stall": "overhead",
    "slow_loader": "input",
    "reads": "host reads",
    "tiny_launches": "overhead",
    "pointwise": "memory",
    "products": "compute",
}


@cache
def profile_of(name: str) -> Profile:
    """The profile of a planted program."""
    profile = profiled(PLANTED / f"{name}.py", SIZES[name], ROOT)[1]
    assert profile is not None
    return profile


def planted_line(name: str) -> int:
    """The number of the line that is marked in a program."""
    lines = (PLANTED / f"{name}.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if "# expect:" in line)


def dearest(profile: Profile, regime: str) -> LineCost:
    """The line to which most of a regime's time goes."""
    return max(profile.lines, key=lambda line: line.own.get(regime, 0.0))


@pytest.mark.parametrize(("name", "regime"), EXPECTED.items())
def test_the_regime_is_the_planted_one(name: str, regime: str) -> None:
    profile = profile_of(name)
    assert profile.regime == regime
    assert sum(profile.shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["stall", "slow_loader", "reads", "tiny_launches"])
def test_the_line_is_the_planted_one(name: str) -> None:
    assert dearest(profile_of(name), EXPECTED[name]).line == planted_line(name)


def test_a_read_costs_what_the_program_gains_without_it() -> None:
    profile, bare = profile_of("reads"), without("reads")
    assert bare is not None
    gain = 1 - bare.step_ms / profile.step_ms
    assert profile.shares["host reads"] == pytest.approx(gain, abs=POINTS + 0.01)  # launches behind a wait are slower


def test_a_stall_costs_what_was_planted() -> None:
    profile = profile_of("stall")
    assert dearest(profile, "overhead").own_ms / profile.step_ms == pytest.approx(20.06 / profile.step_ms, abs=POINTS)


def test_the_share_of_the_peak_is_that_of_the_product_by_itself() -> None:
    roofline = profile_of("products").roofline
    assert roofline.peak is not None
    peak = roofline.peak.flops["bf16"] * 1e12
    assert roofline.achieved["bf16"] / peak == pytest.approx(product() / peak, abs=POINTS)

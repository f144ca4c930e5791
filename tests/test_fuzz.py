"""Mutated fixtures: perflint may have something to say of a broken file, but is not broken by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.fuzz import corpus, fault, faults
from tests.stub_rules import CRASH, EVAL

FIXTURES = Path(__file__).parent.parent / "fixtures"
PER_SEED = 20


@pytest.mark.parametrize("seed", range(6))
def test_nothing_crashes_the_check_or_the_fix(seed: int) -> None:
    files = corpus(FIXTURES)
    assert files
    for number, data, found in faults(files, PER_SEED, seed):
        assert not found, f"file {number}:\n{found}\n{data.decode(errors='replace')}"


def test_the_fuzzer_notices_a_crash_and_a_fix_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.fuzz.all_rules", lambda: (CRASH, EVAL))
    assert "ZeroDivisionError" in fault(b"import torch\ncrash = True\n", {})
    monkeypatch.setattr(type(EVAL), "replacement", "x or ")
    assert "DefectError" in fault(b"import torch\neval(x)\n", {})
    assert fault(b"import torch\n", {}) == ""

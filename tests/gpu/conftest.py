"""Graphs of one test are none of the next one's."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _forget_steps() -> Iterator[None]:
    """Steps of the same code share what is known of them, refusals included."""
    yield
    if steps := sys.modules.get("perflint.runtime.step"):
        for known in steps._known.values():
            known.records.clear()
            known.clear()

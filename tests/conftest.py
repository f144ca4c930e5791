"""Generated tests try the same few programs in every run; `pytest --hypothesis-profile=many` tries many others.

What keeps a run short is told in README.md; torch computes on one core.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Hashable

os.environ["OMP_NUM_THREADS"] = "1"  # each worker of xdist has one core
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # a thousand processes import perflint, and pytest compiles hypothesis itself

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

gc.set_threshold(20_000, *gc.get_threshold()[1:])  # trees are no garbage: a fifth of the time goes into looking for it

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("repeatable", _PATIENT, derandomize=True, max_examples=40)
settings.register_profile("many", _PATIENT, max_examples=1000)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what begins first at the front, and the tests of one case beside each other."""
    places: dict[Hashable, int] = {}

    def place(item: pytest.Item) -> tuple[bool, int]:
        given = getattr(item, "callspec", None)
        shared = given.params.get("case", item) if given else item
        return not item.get_closest_marker("first"), places.setdefault((item.path, id(shared)), len(places))

    items.sort(key=place)

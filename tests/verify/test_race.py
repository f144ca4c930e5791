"""Races: the variants take turns, or run one after the other where they have no room beside each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from perflint.verify.agent.timeline import HOST, LOADER
from perflint.verify.messages import OPTIMIZER
from perflint.verify.protocol import Protocol
from perflint.verify.race import Room, race
from perflint.verify.statistics import AGAIN, ORIGINAL
from tests.verify.courses import course, original

SHORT = Protocol(OPTIMIZER, warm_up=2, window=2, pairs=2, rounds=1, horizon=2, patience=60.0, observed=3)


def test_a_race_times_pairs_of_windows_and_observes_what_follows_them(tmp_path: Path) -> None:
    first = original(tmp_path)
    with course("train.py", "100") as races:
        found = race(races, [first, replace(first, name=AGAIN)], SHORT, lambda _: True)
    assert [(each.number, each.steps) for each in found.samples.windows] == [(0, 2), (0, 2), (1, 2), (1, 2)]
    assert {each.variant for each in found.samples.windows} == {ORIGINAL, AGAIN}
    assert found.room == Room()
    (printed,) = found.printed
    assert printed.keys() == {ORIGINAL, AGAIN}
    assert [len(text.splitlines()) for text in printed.values()] == [5, 5]  # the sixth comes after the last window
    (timeline,) = [start.timeline for start in found.starts if start.variant == ORIGINAL]
    assert timeline is not None
    assert len(timeline.steps) == 2  # the first one is not shown
    assert timeline.lanes == (HOST, LOADER)


def test_a_program_that_ends_before_it_is_warm_is_timed_as_a_whole(tmp_path: Path) -> None:
    first = original(tmp_path)
    with course("train.py", "2") as races:
        found = race(races, [first, replace(first, name=AGAIN)], replace(SHORT, warm_up=9, window=1), lambda _: True)
    assert [(each.number, each.steps) for each in found.samples.windows] == [(0, 1), (0, 1)]
    assert not found.protocol.unit


def test_programs_without_memory_for_each_other_run_one_after_the_other(tmp_path: Path) -> None:
    first = original(tmp_path)
    (tmp_path / "alive").mkdir()
    with course("crowded.py", str(tmp_path / "alive")) as races:
        found = race(races, [first, replace(first, name=AGAIN)], SHORT, lambda _: True)
    assert len(found.samples.windows) == 4
    assert "OutOfMemoryError: CUDA out of memory." in found.room.reason


def test_programs_that_would_use_up_the_memory_of_the_host_are_not_started_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**20))
    first = original(tmp_path)
    with course("train.py", "100") as races:
        found = race(races, [first, replace(first, name=AGAIN)], SHORT, lambda _: True)
    assert "1 more would take" in found.room.reason
    assert len(found.samples.windows) == 4

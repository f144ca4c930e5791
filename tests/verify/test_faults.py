"""What fails, hangs or ends early in a race is out of it, and the others go on; an original may do none of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perflint.verify.messages import Arrival, Platform, Variant
from perflint.verify.protocol import Protocol
from perflint.verify.race import Race, Room, race
from perflint.verify.running import Fault, NoProgress, ProgramEnded, Running
from perflint.verify.runs import Course
from perflint.verify.statistics import AGAIN, ORIGINAL, ORIGINALS
from tests.verify.courses import original

PROTOCOL = Protocol("steps", warm_up=2, window=2, pairs=3, rounds=3)
Trouble = Callable[[str, int, int], Fault | None]


class Played:
    """A process that takes no time, and is in `trouble` of some kind by its name, step, and how many are there."""

    alive = 0

    def __init__(self, name: str, trouble: Trouble) -> None:
        self._name, self._trouble, self.folder = name, trouble, "none"
        self.output = SimpleNamespace(so_far=lambda: f"{name}\n")

    def __enter__(self) -> Played:
        Played.alive += 1
        return self

    def __exit__(self, *_: object) -> None:
        Played.alive -= 1

    def advance(self, until: int, patience: float, *, observed: bool = False) -> Arrival:
        if fault := self._trouble(self._name, until, Played.alive):
            raise fault
        return Arrival(until, "steps", 0.5, 0, 0, 0, Platform(0, 1, "CPU", {}))

    def pause(self) -> None:
        """It stands still anyway."""


@dataclass(frozen=True)
class Stage(Course):
    """A course whose processes are played."""

    trouble: Trouble = lambda name, step, alive: None
    begun: list[str] = field(default_factory=list)

    def running(self, variant: Variant, unit: str, **orders: Any) -> Running:
        self.begun.append(variant.name)
        return cast(Running, Played(variant.name, self.trouble))


def raced(folder: Path, trouble: Trouble, *names: str, protocol: Protocol = PROTOCOL) -> tuple[Race, list[str]]:
    """A race of the originals and variants of these names, and whose processes were begun, in their order."""
    stage = Stage(cast(Any, None), cast(Any, SimpleNamespace(journal=folder / "journal")), trouble=trouble)
    first = original(folder)
    found = race(stage, [replace(first, name=name) for name in (*ORIGINALS, *names)], protocol, lambda _: False)
    assert Played.alive == 0
    return found, stage.begun


def ended(name: str, words: str = "ended", code: int = 1) -> Fault:
    return ProgramEnded(name, words, code, "")


def test_what_fails_is_tried_by_itself_and_then_left_out(tmp_path: Path) -> None:
    race, begun = raced(
        tmp_path, lambda name, step, _: ended(name) if name == "bad" and step > 4 else None, "bad", "fine"
    )
    assert {name: str(fault) for name, fault in race.faults.items()} == {"bad": "the program with bad ended"}
    assert {each.variant for each in race.samples.windows} == {*ORIGINALS, "fine"}
    assert {each.round for each in race.samples.windows} == {0, 1, 2}
    assert {each.variant for each in race.starts} == {*ORIGINALS, "fine"}
    assert begun.count("bad") == 2
    assert race.room == Room()  # the others need not make room for it
    assert race.printed == ({name: f"{name}\n" for name in ORIGINALS},) * 3


def test_what_fails_in_a_later_round_is_left_out_of_all(tmp_path: Path) -> None:
    tries = iter(range(99))

    def trouble(name: str, step: int, alive: int) -> Fault | None:
        return ended(name) if name == "bad" and next(tries) > 3 else None

    race, _ = raced(tmp_path, trouble, "bad", "fine")
    assert {each.variant for each in race.samples.windows} == {*ORIGINALS, "fine"}
    assert {each.round for each in race.samples.windows} == {0, 1, 2}


def test_what_hangs_is_not_waited_for_twice(tmp_path: Path) -> None:
    hung = "hangs after step 4"
    race, begun = raced(
        tmp_path, lambda name, step, _: NoProgress(name, hung) if name == "bad" and step > 4 else None, "bad", "fine"
    )
    assert [str(fault) for fault in race.faults.values()] == [f"the program with bad {hung}"]
    assert begun.count("bad") == 1
    assert race.room == Room()


def test_what_fails_only_beside_others_races_apart(tmp_path: Path) -> None:
    race, _ = raced(tmp_path, lambda name, step, alive: ended(name) if alive > 2 else None, "fine")
    assert not race.faults
    assert race.room.reason.endswith("ended")
    assert {each.variant for each in race.samples.windows} == {*ORIGINALS, "fine"}


def test_as_many_run_at_a_time_as_have_room(tmp_path: Path) -> None:
    names = [str(number) for number in range(6)]
    race, _ = raced(tmp_path, lambda name, step, alive: ended(name) if alive > 4 else None, *names)
    assert not race.faults
    assert race.room == Room(4, race.room.reason)
    assert {each.variant for each in race.samples.windows} == {*ORIGINALS, *names}
    assert {each.round for each in race.samples.windows} == {0, 1, 2}


@pytest.mark.parametrize("name", ORIGINALS)
def test_an_original_that_fails_ends_the_race(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProgramEnded, match="the original ended"):
        raced(tmp_path, lambda each, step, _: ended(each) if each == name and step > 4 else None, "fine")


def test_a_race_that_has_lost_every_variant_is_over(tmp_path: Path) -> None:
    race, begun = raced(tmp_path, lambda name, step, _: ended(name) if name == "bad" else None, "bad")
    assert list(race.faults) == ["bad"]
    assert begun.count(ORIGINAL) <= 1
    assert not race.samples.windows


@pytest.mark.parametrize(("last", "warm_up"), [(2, 9), (4, 2), (0, 2)])
def test_a_variant_that_ends_where_the_original_goes_on_is_no_faster_but_another_program(
    tmp_path: Path, last: int, warm_up: int
) -> None:
    def trouble(name: str, step: int, alive: int) -> Fault | None:
        return ended(name, code=0) if step > (last if name == "bad" else 20) else None

    race, _ = raced(tmp_path, trouble, "bad", protocol=replace(PROTOCOL, warm_up=warm_up))
    assert str(race.faults["bad"]) == "the program with bad comes to its end sooner than the original"


def test_programs_that_all_end_early_are_timed_in_shorter_windows(tmp_path: Path) -> None:
    race, _ = raced(tmp_path, lambda name, step, _: ended(name, code=0) if step > 3 else None, "fine")
    assert not race.faults
    assert race.protocol.window == 1
    assert {each.variant for each in race.samples.windows} == {ORIGINAL, AGAIN, "fine"}


def test_a_patch_that_ends_sooner_just_once_is_not_called_wrong(tmp_path: Path) -> None:
    runs = 0

    def trouble(name: str, step: int, alive: int) -> Fault | None:
        nonlocal runs
        runs += name == "bad" and step == PROTOCOL.warm_up
        return ended(name, code=0) if name == "bad" and runs == 1 and step > 4 else None

    with pytest.raises(Fault, match="the original is as long as its patch in one run, but not in another: let it"):
        raced(tmp_path, trouble, "bad")

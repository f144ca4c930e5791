"""A patch that is another program after the first steps is rejected for the fixes that make it so."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from perflint.engine.rule import Safety
from perflint.verify import examine
from perflint.verify.examine import Examination
from perflint.verify.protocol import Budget
from perflint.verify.runs import Recorded
from perflint.verify.summary import wrong
from perflint.verify.verdict import Grade, Likeness, Reach
from tests.verify.verdicts import fix

RUN = Recorded(Path(), None, "", "", last=20, unseen=("main() at train.py:3",))
FIXES = [replace(fix(number), name=name) for number, name in enumerate("ABCD")]


class Looked:
    """As if programs had been looked at further, of which those with one of the `wrong` sets of fixes are others."""

    wrong: Collection[str] = ()
    standard = SimpleNamespace(run=replace(RUN, last=400, unseen=()))

    def __init__(self, *_: object) -> None:
        """It takes no programs."""

    def likenesses(self, variants: Sequence[str]) -> list[Likeness]:
        return [
            Likeness(Grade.DIFFERENT if any(set(each) <= set(variant) for each in self.wrong) else Grade.BITWISE)
            for variant in variants
        ]


@pytest.mark.parametrize(
    ("wrong", "blamed"),
    [((), ""), (["B"], "B"), (["A", "C"], "AC"), (["AB"], "ABD"), (["C"], "C"), (["A", "BD"], "ABD")],  # C only alone
)
def test_fixes_are_blamed_that_are_wrong_alone_or_else_all_that_are_so_together(
    monkeypatch: pytest.MonkeyPatch, wrong: Sequence[str], blamed: str
) -> None:
    monkeypatch.setattr(examine, "Further", type("Wrong", (Looked,), {"wrong": wrong}))
    variants = SimpleNamespace(
        with_fixes=lambda name, keys: "".join(keys),
        holds=lambda variant, key: variant == "C" or "C" not in variant,
    )
    examination = Examination(*cast(Any, (Mock(), variants, Budget(60.0), Path(), lambda _: None, None)))
    records = SimpleNamespace(standard=SimpleNamespace(run=RUN), one=1.0)
    vars(examination).update(
        _records=records, _comparing=Budget(60.0), _protocol=None, _keys={name: name for name in "ABCD"}
    )
    assert "".join(sorted(examination._wrong_later(cast(Any, SimpleNamespace(won=FIXES))))) == blamed
    assert examination._reach == Reach(400)


@pytest.mark.parametrize(
    "beside, said",
    [
        (Safety.EXACT, "it promised exact results, but together with the others all are equal but for rounding"),
        (Safety.ROUNDING, "there was no time to record it alone"),
    ],
)
def test_a_fix_that_was_recorded_with_others_only_is_not_said_to_differ_by_itself(beside: Safety, said: str) -> None:
    promises = {1: Safety.EXACT, 2: beside}
    variants = SimpleNamespace(
        fixes=[SimpleNamespace(rule="item-in-loop", line=line) for line in promises],
        with_fixes=lambda name, keys: name,
        effect=lambda *_: SimpleNamespace(is_reached=True, times=1, obstacle=""),
        holds=lambda *_: True,
        verdict=lambda name, key, *_: replace(fix(key.line), name=name, safety=promises[key.line], activations=1),
    )
    examination = Examination(*cast(Any, (Mock(), variants, Budget(60.0), Path(), lambda _: None, None)))
    rounded = Likeness(Grade.ROUNDING, ("all are equal but for rounding",))
    records = SimpleNamespace(seconds=lambda _: 99.0, graded=lambda *_: rounded, own=Likeness(Grade.BITWISE))
    keys = {f"item-in-loop {key.line}": key for key in variants.fixes}
    vars(examination).update(_records=records, _comparing=Budget(60.0), _protocol=None, _keys=keys)
    reasons = {wrong(each, Grade.BITWISE) for each in examination._seen(cast(Any, "all"), RUN)} - {""}
    assert reasons == {said}

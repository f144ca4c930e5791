"""Fixes that first run late are reached in a copy of the program that is shortened, and that is said."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from perflint.project.settings import load
from perflint.shim.planning import Project
from perflint.verify.examine import _left_open, _merged
from perflint.verify.messages import EVALUATION, OPTIMIZER, SHORT, Recording
from perflint.verify.protocol import Look, Passage, Schedule
from perflint.verify.statistics import Outcome, Samples
from perflint.verify.summary import advice, sentence
from perflint.verify.variants import Shortcut, Variants, is_evaluation, shortcut
from perflint.verify.verdict import Grade
from tests.verify.courses import PROGRAMS, course
from tests.verify.verdicts import fix, verdict

LINES = (PROGRAMS / "evaluates.py").read_text("utf-8").splitlines()


def line(text: str) -> int:
    """The first line that begins so."""
    return next(number for number, each in enumerate(LINES, 1) if each.strip().startswith(text))


def test_what_lies_behind_a_loop_or_a_test_is_reached_by_shortening_these(tmp_path: Path) -> None:
    (tmp_path / "perflint.toml").touch()
    program = shutil.copy(PROGRAMS / "evaluates.py", tmp_path)
    variants = Variants(Project(tmp_path, tmp_path, load(tmp_path).settings))
    with course(str(program), "3", folder=tmp_path) as races:
        look = races.look(variants.watched(), 0.3)
        late = variants.late(look.ran)
        assert [key.line for key in late] == [line("parts = torch.cat"), line("wrong = torch.cat")]
        way = shortcut(look.frames, [(key.path, key.line) for key in late], variants.paths)
        assert {place for _, place in way.loops} == {line("for number, (x, y)")}
        assert {place for _, place in way.tests} == {line("if (number + 1) % 400")}
        evaluated = variants.only(late[1:], shortcut(look.frames, [(late[1].path, late[1].line)], variants.paths))
        seen = races.look(evaluated.watched(), 20.0, SHORT)
        assert [each.kind for each in seen.passages].count(EVALUATION) == 3 * 10
        evaluating, training = seen.places[EVALUATION], seen.places[OPTIMIZER]
        wanted = [is_evaluation([(key.path, key.line)], evaluating, training, variants.paths) for key in late]
        assert wanted == [False, True]
        assert len(replace(seen, chosen=EVALUATION).steps) == 3 * 10
        short = variants.only(late, way)
        jobs = [
            (variant, Recording(str(tmp_path / variant.name), (), ()))
            for variant in (short.with_fixes("original", ()), short.with_fixes("patched", late))
        ]
        before, after = races.record(jobs, OPTIMIZER, 1000, 60.0, beside=2)
    assert before.code == after.code == 0
    assert before.output == after.output
    assert before.output.count("wrong by") == 3
    assert before.output.count(f"{1}: ") == 3  # the second batch of each epoch
    assert [short.effect(key, jobs[1][0], after).times > 0 for key in late] == [True, True]


NESTED = """\
def main():
    for epoch in range(9):
        for batch in loader:
            step(batch)
            if batch % 10 == 0:
                report(batch)
        if epoch % 5 == 0:
            measure()
    final()


def measure():
    scores()


def scores():
    late = 1


def report(batch):
    late = 2


def final():
    late = 3


def unused():
    late = 4


main()
"""


@pytest.mark.parametrize(
    ("late", "loops", "tests", "reached"),
    [
        ([17], [3], [7], [17]),
        ([21], [], [5], [21]),
        ([25], [2, 3], [], [25]),
        ([17, 25], [3], [7], [17]),
        ([17, 21], [3], [5, 7], [17, 21]),
        ([4], [], [], []),
        ([29], [], [], []),
        ([29, 17], [3], [7], [17]),
    ],
)
def test_of_places_behind_loops_the_nearest_are_reached(
    tmp_path: Path, late: Sequence[int], loops: Sequence[int], tests: Sequence[int], reached: Sequence[int]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(NESTED)
    frames = [("/lib/torch/optim.py", 9), (str(path), 4), (str(path), 32)]
    found = shortcut(frames, [(str(path.resolve()), each) for each in late], [str(path)])
    assert sorted(place for _, place in found.loops) == loops
    assert sorted(place for _, place in found.tests) == tests
    assert sorted(place for _, place in found.reached) == reached
    assert len([*found.notes]) == len(loops) + len(tests)


def test_windows_of_a_shortened_program_hold_whole_epochs() -> None:
    times = [0.01 + (number % SHORT == 0) for number in range(40)]
    look = Look(1.0, tuple(Passage(OPTIMIZER, each) for each in times), is_whole=False, period=SHORT)
    assert look.usual == pytest.approx(0.135)
    assert Schedule(look).protocol(3, 30.0).window % SHORT == 0


def test_the_verdict_is_that_on_the_whole_program_unless_only_the_copy_gains() -> None:
    faster, level = verdict(1.5, (fix(0),)), verdict(1.0, (fix(0),))
    copy = replace(
        verdict(1.4, (fix(1),)), is_shortened=True, excluded=tuple(Shortcut(frozenset({("train.py", 3)})).notes)
    )
    for first, second, speed in ((faster, copy, 1.5), (level, copy, 1.4), (level, replace(level, fixes=()), 1.0)):
        found = _merged(first, second)
        assert found.speed is not None and found.speed.ratio == pytest.approx(speed, rel=0.05)
        assert (found.outcome is Outcome.FASTER) is (speed > 1.0)
        assert found.likeness.grade is Grade.BITWISE
        assert (", in a shortened copy, the patched program" in f", {sentence(found)[8:]}") is (speed == 1.4)
    assert [each.kept for each in _merged(faster, copy).fixes] == [True, True]
    assert "the loop at train.py:3 ended after 8 iterations" in _merged(faster, copy).excluded[0]


def test_where_only_late_fixes_could_take_effect_and_were_not_reached_the_verdict_is_open() -> None:
    idle = replace(verdict(1.0, (fix(0),)), samples=Samples(), is_idle=True, longer=150.0)
    assert idle.outcome is Outcome.UNFIXED
    found = _left_open(idle, [fix(1)])
    assert found.outcome is Outcome.UNCHECKED and len(found.fixes) == 2
    assert advice(found) == "Verify again with --budget 150s."
    assert _left_open(level := verdict(1.0, (fix(0),)), []) == level

"""Lines of a changed text are found again in what it was made from."""

from __future__ import annotations

import random

from perflint.engine.edits import line_map

LOOP = """\
for t in range(n):
    x = step(x)
    xs.append(x)
return torch.stack(xs)
"""


def test_lines_that_are_the_same_stand_for_each_other_around_what_was_changed() -> None:
    assert line_map("a\nB\nc", "a\nb\nc") == (1, -2, 3)
    assert line_map("a\nc", "a\nb\nc") == (1, 3)
    assert line_map("a\nb\nc", "a\nc") == (1, -2, 2)
    assert line_map("if x:\n    a", "a") == (-1, -1)


def test_a_return_that_is_written_otherwise_stands_for_the_return() -> None:
    assert line_map("xs = steps(x)\nreturn xs\n", LOOP) == (-1, -4, 5)


def test_a_line_that_has_moved_far_leaves_the_others_where_they_were() -> None:
    lines = [str(number) for number in range(40)]
    assert line_map("\n".join(["38", *lines[:38], "39"]), "\n".join(lines))[1:] == (*range(1, 39), 40)


def test_texts_of_many_lines_that_are_alike_take_no_time_worth_speaking_of() -> None:
    drawn = random.Random(0)
    before = [line for number in range(400) for line in (f"class C{number}:", *LOOP.splitlines())]
    after = [line for line in before if drawn.random() < 0.9]
    mapped = line_map("\n".join(after), "\n".join(before))
    assert all(before[line - 1] == after[place] for place, line in enumerate(mapped) if line > 0)
    assert sum(line > 0 for line in mapped) > 0.95 * len(after)


TRAINED = """\
for x in xs:
    x = x.to(d)
    y = f(x)
    y.backward()
    total += y.item()
for x in xs[:1]:
    x = x.to(d)
"""
OUTLINED = """\
def step(x):
    y = f(x)
    y.backward()
for x in xs:
    x = x.to(d)
    step(x)
    total += y.detach()
total = float(total)
for x in xs[:1]:
    x = x.to(d, True)
"""


def test_lines_that_have_moved_are_those_that_they_were() -> None:
    assert [abs(line) for line in line_map(OUTLINED, TRAINED)[1:5]] == [3, 4, 1, 2]

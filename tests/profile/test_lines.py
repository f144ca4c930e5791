"""Lines are noted with the time that was spent at them, and where they were called from."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from perflint.profile.agent.lines import Lines, Users


def stalls() -> None:
    time.sleep(0.01)


def generates() -> Iterator[int]:
    yield 1
    time.sleep(0.01)
    yield 2


def fails() -> None:
    raise ValueError


def program(lines: Lines) -> None:
    assert lines.start(sys._getframe())
    stalls()
    for _ in generates():
        pass
    try:
        fails()
    except ValueError:
        time.sleep(0.01)
    lines.stop()


def test_time_goes_to_the_lines_where_it_is_spent() -> None:
    lines = Lines(Users(()))
    program(lines)
    spent: dict[tuple[str, str], int] = {}
    for node, begin, end in zip(lines.at, lines.times, lines.times[1:], strict=False):
        _, path, line, function = lines.nodes[node]
        text = open(path).read().splitlines()[line - 1].strip() if path == __file__ else ""  # noqa: SIM115, PTH123
        spent[function, text] = spent.get((function, text), 0) + end - begin
    slow = {place for place, nanoseconds in spent.items() if nanoseconds >= 9_000_000}
    assert slow == {(name, "time.sleep(0.01)") for name in ("stalls", "generates", "program")}


def test_a_line_knows_where_it_was_called() -> None:
    lines = Lines(Users(()))
    program(lines)
    (node,) = (
        each for each in lines.nodes if each.function == "stalls" and each.line == stalls.__code__.co_firstlineno + 1
    )
    assert lines.nodes[node.parent].function == "program"


def test_libraries_are_not_noted() -> None:
    lines = Lines(Users((__file__,)))
    program(lines)
    assert not any(node.path == __file__ for node in lines.nodes)


def test_another_tracer_is_left_alone() -> None:
    if hasattr(sys, "monitoring"):
        return  # there is room for several
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert not Lines(Users(())).start(None)
    finally:
        sys.settrace(before)

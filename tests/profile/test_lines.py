"""Lines are noted with the time that was spent at them, and where they were called from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

from perflint.profile import lines as agent
from perflint.profile.lines import Lines, Users

CLOCK: list[int] = []  # the time is their sum: it goes on where the program says so


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "time", SimpleNamespace(time_ns=lambda: sum(CLOCK)))


def stalls() -> None:
    CLOCK.append(10)


def generates() -> Iterator[int]:
    yield 1
    CLOCK.append(10)
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
        CLOCK.append(10)
    lines.stop()


def test_time_goes_to_the_lines_where_it_is_spent() -> None:
    lines = Lines(Users(()))
    program(lines)
    spent: dict[tuple[str, str], int] = {}
    for node, begin, end in zip(lines.at, lines.times, lines.times[1:], strict=False):
        _, path, line, function = lines.nodes[node]
        text = open(path).read().splitlines()[line - 1].strip() if path == __file__ else ""  # noqa: SIM115, PTH123
        spent[function, text] = spent.get((function, text), 0) + end - begin
    assert {place: time for place, time in spent.items() if time} == {
        (name, "CLOCK.append(10)"): 10 for name in ("stalls", "generates", "program")
    }


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


def test_modules_that_load_themselves_when_they_are_asked_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise ImportError(name)

    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    assert __file__ in Users(()).files()


def test_another_tracer_is_left_alone() -> None:
    if hasattr(sys, "monitoring"):
        return  # there is room for several
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert not Lines(Users(())).start(None)
    finally:
        sys.settrace(before)

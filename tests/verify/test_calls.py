"""Calls of functions with fixes are distinguished by how many others they are in: a step is a call that is in none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch  # noqa: F401  # it is there wherever something is recorded

from perflint.verify.agent.join import Agent
from perflint.verify.agent.steps import Steps, calls, unit_of
from perflint.verify.messages import BACKWARD, BATCH, CALLS, OPTIMIZER, Orders
from perflint.verify.protocol import Look, Passage

INNER = calls(1)


class Listening:
    """The verifier's part of this process, with the kinds of calls that it is told, and what they returned."""

    def __init__(self, unit: str = "") -> None:
        self.kinds: list[str] = []
        self.outputs: list[object] = []
        self._agent = Agent(Orders(), Path())
        self._agent.steps = Steps(unit, self.kinds.append)
        recorder: Any = SimpleNamespace(note_output=lambda _, output: self.outputs.append(output))
        self._agent._recorder = recorder

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._agent.counted(function)

    @property
    def unseen(self) -> int:
        return len(self._agent._unseen())


@pytest.fixture
def listening() -> Listening:
    return Listening()


def test_only_the_outermost_call_is_a_step_but_what_all_return_is_noted() -> None:
    listening = Listening(CALLS)
    inner = listening.counted(lambda x: x + 1)
    outer = listening.counted(lambda x: inner(inner(x)))
    assert outer(1) == 3
    assert inner(1) == 2
    assert listening.kinds == [CALLS, CALLS]
    assert listening.outputs == [2, 3, 3, 2]


def test_calls_know_in_how_many_others_they_are(listening: Listening) -> None:
    inner = listening.counted(lambda: None)
    middle = listening.counted(inner)  # the same function: it is not counted twice
    outer = listening.counted(lambda: middle())
    listening.counted(lambda: outer())()
    assert listening.kinds == [calls(2), calls(1), calls(0)]


def test_a_function_that_calls_itself_is_in_one_call(listening: Listening) -> None:
    def factorial(n: int) -> int:
        return n * again(n - 1) if n else leaf()

    def leaf() -> int:
        return 1

    again, leaf = listening.counted(factorial), listening.counted(leaf)
    assert again(4) == 24
    assert listening.kinds == [INNER, CALLS]


def test_a_call_that_fails_is_no_step_and_leaves_nothing_behind(listening: Listening) -> None:
    def fail() -> None:
        raise ValueError

    inner = listening.counted(fail)

    def retry() -> None:
        with suppress(ValueError):
            inner()

    listening.counted(retry)()
    with pytest.raises(ValueError):
        inner()
    listening.counted(lambda: None)()
    assert listening.kinds == [CALLS, CALLS]


def test_what_a_generator_does_once_its_call_is_over_is_in_no_call(listening: Listening) -> None:
    inner = listening.counted(lambda: None)

    def lazily() -> Iterator[None]:
        return (inner() for _ in range(2))

    for _ in listening.counted(lazily)():
        pass
    assert listening.kinds == [CALLS] * 3


def test_threads_are_in_calls_of_their_own(listening: Listening) -> None:
    inner = listening.counted(lambda: None)

    def elsewhere() -> None:
        thread = threading.Thread(target=inner)
        thread.start()
        thread.join()

    listening.counted(elsewhere)()
    assert listening.kinds == [CALLS, CALLS]


def test_the_same_function_counts_in_each_of_two_threads_that_run_it_at_once(listening: Listening) -> None:
    both = threading.Barrier(2, timeout=60.0)
    function = listening.counted(lambda: both.wait())
    threads = [threading.Thread(target=function) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert listening.kinds == [CALLS, CALLS]


def test_a_function_is_unseen_until_a_call_of_it_is_over(listening: Listening) -> None:
    seen: list[int] = []
    function = listening.counted(lambda: seen.append(listening.unseen))
    assert listening.unseen == 0
    function()
    function()
    assert seen == [1, 0]


@pytest.mark.parametrize(
    ("kinds", "unit"),
    [
        ([CALLS, BATCH, OPTIMIZER], OPTIMIZER),
        ([CALLS, INNER, BATCH], BATCH),
        ([INNER, INNER, CALLS] * 6, CALLS),
        ([INNER] * 9 + [CALLS] * 2, INNER),  # as where each epoch calls one that goes through all data
        ([calls(2), INNER, INNER, calls(2), CALLS], INNER),  # as where `main` is called once
        ([calls(2), INNER], INNER),
        ([CALLS], CALLS),
        ([], ""),
    ],
)
def test_the_unit_is_what_happens_again_in_as_few_calls_as_may_be(kinds: list[str], unit: str) -> None:
    assert unit_of(kinds) == unit
    assert Look(0.0, tuple(Passage(kind, 0.1) for kind in kinds), is_whole=False).unit == unit


def test_what_happens_while_a_step_is_captured_is_counted_after_each_replay() -> None:
    kinds: list[str] = []
    steps = Steps("", kinds.append)

    class StepReplay:
        def __init__(self) -> None:
            steps.happened(BACKWARD)
            steps.happened(CALLS)

        def __call__(self) -> str:
            return "loss"

    steps.watch_replays(SimpleNamespace(StepReplay=StepReplay))
    replay = StepReplay()
    assert kinds == []
    assert [replay(), replay()] == ["loss", "loss"]
    assert kinds == [BACKWARD, CALLS, BACKWARD, CALLS]

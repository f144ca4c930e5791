"""A loop is used to a number of steps once several calls in a row took about as many."""

from __future__ import annotations

from perflint.runtime.habit import Habit


def used_to(*calls: int) -> int:
    habit = Habit()
    for taken in calls:
        habit.note(taken)
    return habit.steps


def test_it_takes_several_calls() -> None:
    assert used_to() == used_to(40) == used_to(40, 40) == 0
    assert used_to(40, 40, 40) == 40


def test_a_few_steps_more_or_less_count_as_the_same_and_there_is_room_for_the_most() -> None:
    assert used_to(33, 40, 35) == 40


def test_one_call_that_differs_ends_it() -> None:
    assert used_to(40, 40, 40, 41) == 0
    assert used_to(40, 40, 40, 9, 40, 40) == 0
    assert used_to(40, 9, 40, 40, 40) == 40

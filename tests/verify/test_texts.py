"""What programs print is compared but for what differs from run to run, and for rounding."""

from __future__ import annotations

import pytest

from perflint.verify.judge import parting, parting_in_all


@pytest.mark.parametrize(
    ("before", "again", "after"),
    [
        ("loss 0.5", "loss 0.5", "loss 0.5"),
        ("loss 0.5 after 3.1 s", "loss 0.5 after 31.2 s", "loss 0.5 after 0.7 s"),
        ("2026-11-21 20:59:58,123 loss 0.5", "2026-11-21 20:59:59,456 loss 0.5", "2026-11-21 21:00:01,789 loss 0.5"),
        ("host a", "host b", "host c"),
        ("one\ntwo", "one", "three\nlines\nhere"),
        ("loss 0.51\nloss 0.42", "loss 0.52\nloss 0.42", "loss 0.53\nloss 0.43"),
    ],
)
def test_what_differs_from_run_to_run_is_not_compared(before: str, again: str, after: str) -> None:
    assert parting(before, again, after, exact=True) == ""


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ("loss 0.7 after 1 s", 'line 1 is "loss 0.7 after 1 s" and not "loss 0.5 after 3 s"'),
        ("lost 0.5 after 1 s", 'line 1 is "lost 0.5 after 1 s" and not "loss 0.5 after 3 s"'),
        ("", 'line 1, "loss 0.5 after 3 s", is missing'),
        ("loss 0.5 after 1 s\ndone", 'line 2, "done", is too much'),
    ],
)
def test_what_is_the_same_in_each_run_has_to_stay(after: str, words: str) -> None:
    assert parting("loss 0.5 after 3 s", "loss 0.5 after 30 s", after, exact=False) == words


@pytest.mark.parametrize(
    ("before", "after", "near"),
    [
        ("0.1235", "0.1236", True),
        ("0.1235", "0.1245", False),
        ("1.234e-05", "1.2349e-05", True),
        ("1.234e-05", "1.334e-05", False),
        ("0.0004", "0.0009", False),
        ("step 7", "step 8", False),
        ("9312 right", "9313 right", True),
    ],
)
def test_rounding_may_change_the_last_digits(before: str, after: str, near: bool) -> None:
    assert (parting(before, before, after, exact=False) == "") is near
    assert parting(before, before, after, exact=True)


@pytest.mark.parametrize(
    ("patched", "words"),
    [
        (["loss 0.5312, 2 s", "loss 0.5312, 1 s"], ""),
        (["loss 0.5312, 1 s", "loss 0.5313, 1 s"], ""),  # not each time
        (["loss 0.5313, 1 s", "loss 0.5313, 1 s"], 'line 1 is "loss 0.5313, 1 s" and not "loss 0.5312, 2 s"'),
        (["lost 0.5312, 2 s", "lost 0.5312, 2 s"], 'line 1 is "lost 0.5312, 2 s" and not "loss 0.5312, 2 s"'),
        (["loss 0.5312, 2 s\ndone", "loss 0.5312, 2 s\ndone"], 'line 2, "done", is too much'),
    ],
)
def test_of_a_race_what_the_patch_prints_otherwise_each_time_counts_unless_it_may_be_a_time(
    patched: list[str], words: str
) -> None:
    assert parting_in_all(["loss 0.5312, 2 s"] * 4, patched) == words


def test_of_a_race_what_the_originals_print_otherwise_does_not_count() -> None:
    assert not parting_in_all(["loss 0.5311", "loss 0.5312"], ["loss 0.5313"])
    assert not parting_in_all(["loss 0.5312", ""], ["loss 0.5313"])


def test_of_a_race_rounding_may_change_the_last_digits() -> None:
    assert not parting_in_all(["loss 0.5311"] * 2, ["loss 0.5312"] * 2, exact=False)
    assert parting_in_all(["loss 0.5311"] * 2, ["loss 0.5412"] * 2, exact=False)


@pytest.mark.parametrize(
    ("before", "after"),
    [("peak 1834 MB", "peak 2001 MB"), ("loss: 0.53 max mem: 5432", "loss: 0.53 max mem: 6001"), ("3.2GiB", "4GiB")],
)
def test_how_much_memory_is_in_use_is_no_result(before: str, after: str) -> None:
    assert not parting(before, before, after, exact=True)
    assert parting(before, before, after.replace("0.53", "0.54") + "!", exact=True)


def test_names_that_read_like_huge_numbers_are_compared() -> None:
    assert parting("id 12e400", "id 12e400", "id 12e401", exact=False)


def test_lines_are_told_whole_and_of_a_megabyte_of_data_the_word_that_differs() -> None:
    words = "epoch 3 of 100: " + "a training loss that says a lot, " * 4
    assert parting(f"{words}0.5", f"{words}0.5", f"{words}0.7", exact=True) == (
        f'line 1 is "{words}0.7" and not "{words}0.5"'
    )
    data = "0.25 " * 200_000
    found = parting(f"{data}0.5 {data}", f"{data}0.5 {data}", f"{data}0.7 {data}", exact=True)
    assert found == 'line 1 is "0.7" at character 1000001 and not "0.5" at character 1000001'

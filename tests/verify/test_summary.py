"""The summary on the terminal: what it says, and that it stays on one screen whatever there is to say."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from perflint.engine.rule import Safety
from perflint.report.text import Style
from perflint.verify.statistics import AGAIN, ORIGINAL, PATCHED, Samples, Window
from perflint.verify.summary import sentence, spent, summary
from perflint.verify.verdict import MORE_TIME, NO_TIME, Grade, Likeness, Side, Spent, Stranger, Verdict
from tests.verify.verdicts import fix, verdict

FORTY = tuple(fix(number) for number in range(40))
ODD = fix(name="odd", path="\u202e<b>\udcff\x1b[31m/" + "very/long/" * 40 + "train.py", title="\n\n", activations=0)


def test_a_summary_says_what_came_of_it_what_was_measured_and_which_fixes_earned_it() -> None:
    lines = summary(verdict(), Style()).splitlines()
    assert lines == [
        "Apply the fix: perflint fix --apply --verified",
        "Faster: the patched program gives bitwise the same results and is 1.50x (1.48 to",
        "1.52) as fast.",
        "train.py --epochs 1",
        "on NVIDIA H200, torch 2.11.0, 2026-11-21",
        "",
        "  step         20.0 ms -> 13.4 ms  1.50x (1.48 to 1.52), noise 0.5 %",
        "  set-up        12.0 s -> 14.0 s   won back after 301 steps",
        "  GPU memory   2.03 GB -> 1.49 GB  at its peak",
        "  host memory  3.10 GB -> 3.20 GB  at its peak",
        "  GPU busy        31 % -> 96 %     of the time",
        "",
        "1 of 2 fixes kept",
        "  +  1.50x  item-in-loop train.py:10  bitwise",
        "  -  0.99x  item-in-loop train.py:11  no gain was measured: 0.99x (0.99 to 1.00)",
        "",
        "remarks",
        "  2 of 40 windows, in which the patched program captured a graph",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize(
    "made",
    [
        verdict(),
        verdict(12.0),
        verdict(fixes=()),
        verdict(fixes=FORTY, excluded=tuple("another program used the GPU " * 9 for _ in range(9))),
        verdict(fixes=(ODD, fix(1)), program="\u202e\x1b[2J\n" + "x" * 400),
        verdict(failure="the original program ends with exit code 1: " + "語" * 400),
        verdict(samples=Samples(), before=Side(0.0), after=Side(0.0), again=None),
    ],
    ids=["won", "12x", "unfixed", "forty", "odd", "failed", "nothing measured"],
)
def test_a_summary_fits_one_screen_and_never_breaks_it(made: Verdict, width: int) -> None:
    for color in (False, True):
        text = summary(made, Style(color=color, width=width))
        text.encode()
        lines = re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()
        assert len(lines) <= 22
        assert all(cell_len(line) <= width for line in lines), lines
        assert all(line.isprintable() for line in lines)


def test_nothing_is_cut_in_a_file() -> None:
    long = fix(path="/" + "very/long/" * 40 + "train.py", reason="no gain " * 40)
    told = tuple(f"{number} other programs used the GPU " * 9 for number in range(9))
    made = replace(verdict(excluded=told, failure="the words " + "are many " * 90), fixes=(*FORTY, long))
    text = summary(made, Style())
    assert "..." not in text and "more in the report" not in text
    assert all(each.strip() in text for each in (*told, long.reason))
    assert " ".join(text.split()).count("are many") == 90


def noisy() -> Samples:
    """A race in which the original took 3.15 times as long as itself, and the patch as long as both on average."""
    times = {ORIGINAL: 3.15, AGAIN: 1.0, PATCHED: 3.15**0.5}
    return Samples(tuple(Window(name, round_, 0, times[name], 1) for round_ in range(3) for name in times))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            replace(verdict(), fixes=(fix(kept=True), fix(1, kept=True))),
            "Apply the 2 fixes: perflint fix --apply --verified",
        ),
        (verdict(0.7), "Keep the program as it is."),
        (verdict(1.0, longer=240.0), "Keep the program as it is."),
        (verdict(samples=Samples(), longer=240.0), "Verify again with --budget 4m."),
        (
            verdict(samples=noisy(), longer=240.0),
            "Verify again while nothing else runs on this machine: identical runs differ by 215 %.",
        ),
        (
            verdict(samples=Samples(), longer=240.0, load=0.98),
            "Verify again while nothing else runs on this machine: other programs keep 98 % of the cores busy.",
        ),
        (
            verdict(likeness=Likeness(Grade.UNKNOWN, (NO_TIME,)), longer=90.0, load=0.5),
            "Verify again while nothing else runs on this machine: other programs keep 50 % of the cores busy.",
        ),
        (verdict(failure="it came to no step", longer=90.0, load=0.5), "Verify again with --budget 90s, or less data."),
        (verdict(1.0, longer=240.0, load=0.98), "Keep the program as it is."),
        (
            verdict(strangers=(Stranger("", "12", "python"),), longer=240.0),
            "Verify again when nobody else uses the GPU.",
        ),
        (verdict(likeness=Likeness(Grade.DIFFERENT), longer=240.0), "Keep the program as it is."),
        (verdict(likeness=Likeness(Grade.UNKNOWN, (NO_TIME,)), longer=90.0), "Verify again with --budget 90s."),
        (
            verdict(likeness=Likeness(Grade.UNKNOWN, (f"6 seeds take 9 s: {MORE_TIME}",)), longer=90.0),
            "Verify again with --budget 90s.",
        ),
        (verdict(likeness=Likeness(Grade.UNKNOWN), longer=90.0), "Keep the program as it is."),
        (verdict(failure="it came to no step", longer=90.0), "Verify again with --budget 90s, or less data."),
        (verdict(failure="it ended with exit code 1"), "Have the program run by itself first."),
    ],
)
def test_the_first_line_says_what_to_do_now(made: Verdict, told: str) -> None:
    assert summary(made, Style()).splitlines()[0] == told


def test_the_times_of_a_step_and_their_ratio_tell_the_same() -> None:
    """Its windows come in pairs: between the first of them and the last, others made the machine four times as slow."""
    slow = ((1, 1.0), (2, 1.0), (3, 1.0), (4, 4.0), (5, 4.0))
    windows = [
        Window(name, round_, number, pace * (0.5 if name == PATCHED else 1.0), 1)
        for round_ in range(3)
        for number, pace in slow
        for name in (ORIGINAL, AGAIN, *([PATCHED] if round_ or number > 3 else []))
    ]
    made = verdict(samples=Samples(tuple(windows)))
    assert made.speed is not None and made.step_seconds is not None
    before, after = made.step_seconds
    assert before / after == pytest.approx(made.speed.ratio)


def test_where_the_time_went_is_told_by_its_parts() -> None:
    made = verdict(spent=(Spent("finding fixes", 1.23), Spent("race", 30.0, 9, 4.5)))
    assert [*spent(made)] == ["finding fixes: 1.2 s", "race: 30.0 s, 4.5 s of it for 9 starts"]


def test_where_there_is_no_room_the_fixes_that_are_kept_come_first() -> None:
    text = summary(verdict(fixes=FORTY), Style(width=80))
    assert re.search(r"1 of 40 fixes kept\n  \+  1\.\d\dx  item-in-loop train.py:10  bitwise\n", text)
    assert re.search(r"and 3\d more in the report\n", text)


def test_the_end_of_a_long_path_is_shown() -> None:
    assert "train.py:10  it never ran" in summary(verdict(fixes=(ODD, fix(1))), Style(width=80))


def test_the_rule_is_shown_beside_a_long_path() -> None:
    long = fix(path="/" + "very/long/" * 40 + "train.py")
    text = summary(verdict(fixes=(long, fix(1))), Style(width=80))
    assert re.search(r"item-in-loop \.\.\.\S*/train\.py:10  bitwise", text)


def test_ten_fixes_fit_on_a_screen() -> None:
    made = verdict(fixes=tuple(fix(number) for number in range(10)))
    assert len(summary(made, Style(width=80)).splitlines()) <= 22


def test_what_is_cut_says_so_at_the_end_of_a_word() -> None:
    made = verdict(program=f"train.py {'--word ' * 20}", failure="the words " + "are many " * 40, fixes=(fix(1),))
    _, *words, program, _ = summary(made, Style(width=80)).split("\n\n")[0].splitlines()
    assert re.fullmatch(r"train\.py( --word)+ \.\.\.", program)
    assert len(words) == 4
    assert re.search(r" (are|many) \.\.\.$", words[-1])
    path = verdict(failure="failed", fixes=(fix(1),), program=f"--file {'/folder' * 20}")
    assert re.fullmatch(r"--file (/folder)+\S*\.\.\.", summary(path, Style(width=80)).splitlines()[2])


def test_a_dropped_fix_says_why() -> None:
    wrong = Likeness(Grade.DIFFERENT, ("the loss is nan",))
    text = summary(verdict(fixes=(fix(0), fix(1, safety=Safety.ROUNDING, likeness=wrong))), Style(width=120))
    assert "-      -  item-in-loop train.py:11  it promised rounding results, but the loss is nan\n" in text


def test_what_was_not_measured_is_not_spoken_of() -> None:
    text = summary(verdict(before=Side(1.0), after=Side(1.0)), Style())
    assert "GPU" not in text
    assert "memory" not in text


def test_color_tells_a_gain_from_a_loss() -> None:
    assert "\x1b[1;32mApply" in summary(verdict(), Style(color=True))
    assert "\x1b[1;31mKeep" in summary(verdict(0.7), Style(color=True))


@pytest.mark.parametrize(("ratio", "noise"), [(1.001, "which may be noise of "), (0.84, "which may be noise.")])
def test_a_change_beyond_the_noise_floor_is_not_said_to_be_within_it(ratio: float, noise: str) -> None:
    made = verdict()
    assert made.speed is not None
    vars(made)["speed"] = replace(made.speed, ratio=ratio, low=0.02, high=46.5)
    assert noise in sentence(made)

"""The HTML report: it shows everything, needs nothing, and no text of the user's breaks it."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from perflint.verify.agent.timeline import DEVICE, HOST, Span, Timeline
from perflint.verify.agent.timeline import timeline as observed
from perflint.verify.report import page
from perflint.verify.statistics import Samples
from perflint.verify.summary import sentence
from perflint.verify.verdict import Grade, Hunk, Likeness, Side, Verdict
from tests.verify.verdicts import DIFF, fix, losses, timeline, verdict

EVIL = "</title><script>alert(1)</script>\udcff\u202e\x1b[2J<img src=x onerror=alert(1)>'\"&amp;"
FORTY = tuple(fix(number) for number in range(40))
NO_NUMBERS = (2.0, math.nan, math.inf, 1.0, -math.inf)
VERDICTS = {
    "won": verdict(),
    "12x": verdict(12.0),
    "slower": verdict(0.7),
    "level": verdict(1.0),
    "unfixed": verdict(fixes=(), hunks=(), samples=Samples()),
    "forty": verdict(fixes=FORTY, hunks=tuple(Hunk("train.py", DIFF, (each.name,)) for each in FORTY)),
    "failed": verdict(failure="the original program hangs"),
    "different": verdict(likeness=Likeness(Grade.DIFFERENT, ("the loss of step 3 is nan",))),
    "no numbers": verdict(after=Side(1.0, losses=NO_NUMBERS)),
    "no GPU": verdict(before=Side(1.0), after=Side(1.0), again=None),
    "two rounds": replace(verdict(), samples=Samples(tuple(w for w in verdict().samples.windows if w.round < 2))),
    "evil": verdict(
        fixes=(fix(name=EVIL, title=EVIL, path=EVIL, likeness=Likeness(Grade.DIFFERENT, (EVIL,))), fix(1)),
        hunks=(Hunk(EVIL, f"@@ -1 +1 @@ {EVIL}\n-\t{EVIL}\n+\x0c\u2028{EVIL}\n", (EVIL,)),),
        program=EVIL,
        device=EVIL,
        unit=EVIL,
        date=EVIL,
        environment={EVIL: EVIL},
        excluded=(EVIL,),
    ),
}


class _Elements(HTMLParser):
    """The elements of a page with their attributes, and all its text; fails where a tag closes what isn't open."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def close(self) -> None:
        super().close()
        assert not self._open


def _elements(text: str) -> _Elements:
    elements = _Elements()
    elements.feed(text)
    elements.close()
    return elements


@pytest.mark.parametrize("made", VERDICTS.values(), ids=VERDICTS)
def test_a_report_is_one_well_formed_page_that_needs_no_network_and_runs_nothing(made: Verdict) -> None:
    text = page(made)
    text.encode()
    elements = _elements(text)
    assert not {name for name, _ in elements.found} & {"script", "link", "img", "iframe", "object", "base", "a"}
    assert not [key for _, given in elements.found for key in given if key.startswith("on") or key in ("src", "href")]
    assert "default-src 'none'" in text
    assert not re.search(r"url\(|@import|https?:", text)


@pytest.mark.parametrize("made", VERDICTS.values(), ids=VERDICTS)
def test_every_position_in_a_drawing_is_a_number_on_it(made: Verdict) -> None:
    for name, given in _elements(page(made)).found:
        for key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"):
            if name != "meta" and (value := given.get(key)):
                number = float(value.removesuffix("%"))
                assert 0 <= number <= (100.01 if value.endswith("%") else 1000) or (name, key) == ("text", "y")


def test_the_report_says_what_the_verdict_says() -> None:
    made = verdict()
    text = " ".join(_elements(page(made)).text.split())
    assert sentence(made) in text
    assert "1 of 2 fixes kept" in text
    for value in ("NVIDIA H200", "31 % →to 96 %", "2.03 GB →to 1.49 GB", "won back after 301 steps"):
        assert value in text
    assert "2 of 40 windows, in which the patched program captured a graph." in text


def test_what_is_quoted_with_its_full_stop_gets_no_second_one() -> None:
    text = _elements(page(verdict(failure="it failed: out of memory.", excluded=("it has no room.", "a window")))).text
    assert "No verdict: it failed: out of memory." in text
    assert "it has no room." in text and "a window." in text
    assert ".." not in text


def test_the_gain_of_the_only_fix_is_drawn_once() -> None:
    bars = [
        given for _, given in _elements(page(verdict(fixes=(fix(0),)))).found if "bar" in (given.get("class") or "")
    ]
    assert [each["class"] for each in bars] == ["bar alone gain"]


def test_beside_each_hunk_stands_what_its_fix_gained() -> None:
    made = verdict()
    text = _elements(page(made)).text
    hunk = text[text.index("The patch") :]
    assert re.search(r"1\.50x \(1\.48 to 1\.52\) item-in-loop: add `total` up on the device\s+@@ -15,4 \+15,4 @@", hunk)
    assert "-        total += loss.item()\n" in hunk


def test_text_of_the_user_is_shown_as_text() -> None:
    text = _elements(page(VERDICTS["evil"])).text
    shown = EVIL.replace("\udcff", "\\udcff").replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
    assert text.count(shown) >= 10


def test_before_and_after_are_drawn_on_one_scale_of_time() -> None:
    made = verdict(2.0)
    lanes = [given for name, given in _elements(page(made)).found if name == "rect" and given.get("class") == "lane"]
    assert [each["width"] for each in lanes] == ["100.00%"] * 3 + ["50.00%"] * 3


def test_work_too_fine_to_be_seen_is_drawn_as_one_block_as_pale_as_it_is_sparse() -> None:
    busy = Side(1.0, timeline=Timeline(0.06, (Span(DEVICE, 0.0, 0.06, 0.25),), (0.06,)))
    text = page(verdict(before=busy, after=busy))
    blocks = [given for _, given in _elements(text).found if given.get("class") == "lane0"]
    assert [each["fill-opacity"] for each in blocks] == ["0.25", "0.25"]
    assert "GPU busy 25 %" in text


def test_lanes_that_were_not_observed_are_not_drawn() -> None:
    side = Side(1.0, timeline=replace(timeline(0.02, 0.5), lanes=(HOST,)))
    text = page(verdict(before=side, after=side))
    assert text.count('class="lane"') == 4  # two names, two bars
    assert "GPU busy" not in text


def test_how_much_longer_steps_took_while_they_were_observed_is_said() -> None:
    side = Side(1.0, timeline=timeline(0.03, 0.5).scaled(0.02))
    text = page(verdict(before=side, after=side))
    assert "Before: 3 steps in 60.0 ms, 50 % longer while observed" in text
    assert "GPU busy 75 %" in text  # of a timed step


def test_losses_that_are_the_same_are_said_to_be_and_not_drawn_twice() -> None:
    side = Side(1.0, losses=losses(0))
    text = page(verdict(before=side, after=side, again=side))
    assert "There is none at any step." in text
    assert "Differences of losses" not in text


def test_a_trace_has_a_gap_where_a_loss_is_no_number() -> None:
    side = Side(1.0, losses=NO_NUMBERS)
    text = page(verdict(before=side, after=side, again=None))
    assert "6 of 10 losses are not finite, and not drawn." in text
    assert text.count('class="trace before lone"') == 2


def test_a_loss_that_is_a_number_in_one_of_the_programs_only_is_a_difference() -> None:
    before, after = Side(1.0, losses=(2.0, 1.0, math.nan)), Side(1.0, losses=(2.0, math.nan, math.nan))
    text = page(verdict(before=before, after=after, again=before))
    assert "There is none at any step." not in text
    assert "Patched: at most 0, and not finite at 1 step. Original again: at most 0." in text


def test_losses_that_one_of_the_programs_lacks_are_counted() -> None:
    text = page(verdict(before=Side(1.0, losses=(2.0, 1.0)), after=Side(1.0, losses=(2.0,)), again=None))
    assert "There are 2 losses before, 1 after." in text


def test_what_was_not_measured_has_no_place() -> None:
    text = page(verdict(samples=Samples(), before=Side(0.0), after=Side(0.0), again=None, hunks=(), excluded=()))
    headings = re.findall("<h2>(.*)</h2>", text)
    assert headings == ["Fixes", "Same results", "Environment", "Remarks"]
    assert "None." in text


def test_a_report_of_forty_fixes_and_long_timelines_stays_small() -> None:
    kernels = [(number * 1e-5, number * 1e-5 + 5e-6) for number in range(6000)]
    side = Side(1.0, timeline=observed(0.0, [0.02, 0.04, 0.06], kernels, kernels, kernels))
    assert len(page(verdict(fixes=FORTY, before=side, after=side))) < 200_000


def test_only_the_report_needs_the_optional_packages() -> None:
    code = (
        "import sys, perflint.cli.commands, perflint.verify.summary, perflint.verify.verdicts\n"
        "import perflint.verify.contest\n"
        "assert not {'jinja2', 'numpy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

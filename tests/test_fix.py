"""The fixer: what it applies together, what it leaves and why, and how it survives rules that are wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import pytest

from perflint.analysis.program import Program
from perflint.engine.edits import apply_fixes, fitted
from perflint.engine.fix import DefectError, FixResult, fix_text, settle
from perflint.engine.rule import Edit, Finding, Fix, Options, Rule, Safety, Severity

Find = Callable[[str], Sequence[Finding]]
Change = Callable[[re.Match[str]], Sequence[Edit]]


def finding(match: re.Match[str], *fixes: Fix, rule: str = "rule", blocked: str = "") -> Finding:
    return Finding(rule, *match.span(), "message", "kind", Severity.WARNING, fixes, blocked)


def fix(*edits: Edit, safety: Safety = Safety.EXACT, title: str = "Mend it") -> Fix:
    return Fix(title, safety, edits)


def finder(pattern: str, change: Change, safety: Safety = Safety.EXACT) -> Find:
    """Finds `pattern` and mends it by `change`."""
    return lambda text: [finding(m, fix(*change(m), safety=safety)) for m in re.finditer(pattern, text)]


def replacer(pattern: str, replacement: str, safety: Safety = Safety.EXACT) -> Find:
    return finder(pattern, lambda m: [Edit(*m.span(), m.expand(replacement))], safety)


def both(*finders: Find) -> Find:
    return lambda text: [item for find in finders for item in find(text)]


def reasons(result: FixResult) -> list[str]:
    return [left.reason for left in result.remaining]


def test_every_finding_is_fixed_and_the_rest_is_untouched() -> None:
    text = "# a\nx = old(1)  # b\nif x:\n\ty = old( 2 )\f\n"
    result = settle(text, replacer(r"\bold\b", "new"))
    assert result.text == text.replace("old", "new")
    assert len(result.applied) == 2
    assert not result.remaining


def test_findings_that_one_edit_fixes_are_fixed_together() -> None:
    edit = (Edit(0, 1, "x"),)
    at_both = [replace(item, fixes=(replace(item.fixes[0], change=edit),)) for item in replacer("a", "b")("aa\n")]
    result = settle("aa\n", lambda text: at_both if text == "aa\n" else [])
    assert (result.text, len(result.applied), result.applied[0].others) == ("xa\n", 1, (at_both[1],))


def test_a_fix_may_bring_the_next_one_to_light() -> None:
    result = settle("a()\n", both(replacer("a", "b"), replacer("b", "c"), replacer("c", "d")))
    assert result.text == "d()\n"
    assert len(result.applied) == 3


def test_overlapping_fixes_are_applied_in_later_passes_if_they_are_still_due() -> None:
    outer = replacer(r"f\((.*)\)", r"\1")
    result = settle("f(g(x))\n", both(outer, replacer("g", "h")))
    assert result.text == "h(x)\n"


def test_of_fixes_of_two_rules_that_collide_the_larger_goes_first_and_the_smaller_within_it() -> None:
    def find(text: str) -> Sequence[Finding]:
        large = [finding(m, fix(Edit(0, 4, "wrapped(a(b))")), rule="large") for m in re.finditer(r"^a\(b\)", text)]
        return [*replacer(r"\ba\b", "c")(text), *large]

    assert settle("a(b)\n", find).text == "wrapped(c(b))\n"


def test_a_fix_that_rewrites_a_whole_goes_before_one_of_many_small_edits_within_it() -> None:
    def find(text: str) -> Sequence[Finding]:
        small = fix(*(Edit(at, at + 1, "many") for at in (2, 4, 6)))
        whole = re.match(r"f\(a,b,c\)", text)
        return [finding(whole, small), finding(whole, fix(Edit(0, 8, "g")), rule="whole")] if whole else []

    assert settle("f(a,b,c)\n", find).text == "g\n"


def test_the_same_insertion_by_several_fixes_is_made_once() -> None:
    def change(match: re.Match[str]) -> list[Edit]:
        found = [Edit(*match.span(), "new")]
        return found if "import new" in match.string else [Edit(0, 0, "import new\n"), *found]

    result = settle("x = 1\na = old\nb = old\n", finder(r"\bold\b", change))
    assert result.text == "import new\nx = 1\na = new\nb = new\n"


def test_different_insertions_at_one_place_are_all_made() -> None:
    def change(match: re.Match[str]) -> list[Edit]:
        return [Edit(0, 0, f"{match[1]} = 0\n"), Edit(*match.span(), match[1])]

    result = settle("f(old_a, old_b)\n", finder(r"old_(\w)", change))
    assert result.text == "b = 0\na = 0\nf(a, b)\n"


@pytest.mark.parametrize("replaced", [0, 1], ids=["inserted", "replaced"])
def test_lines_are_added_to_a_block_after_it_was_indented(replaced: int) -> None:
    def guard(match: re.Match[str]) -> list[Edit]:
        before = Edit(match.start() - replaced, match.start(), "\n" * replaced + "if main:\n    ")
        return [before, Edit(match.start(1), match.start(1), "    ")]

    def split(match: re.Match[str]) -> list[Edit]:
        return [Edit(match.end(), match.end(), ",\n" + " " * (match.end() - match.string.rindex("\n", 0, match.end())))]

    result = settle("x = 1\nf(x)\ng(1)\n", both(finder(r"(?m)^f\(x\)\n(g)", guard), finder(r"g\(1(?!,)", split)))
    assert result.text == "x = 1\nif main:\n    f(x)\n    g(1,\n        )\n"


def test_two_insertions_of_one_fix_at_one_place_are_both_made() -> None:
    one = fix(Edit(1, 1, ")"), Edit(1, 1, ")"), Edit(0, 0, "f("), Edit(0, 0, "g("))
    assert apply_fixes("x", [one]) == "f(g(x))"


def test_a_fix_that_adds_a_dependency_waits_for_unsafe() -> None:
    def find(text: str) -> list[Finding]:
        mend = partial(Fix, "Mend it", Safety.EXACT, requires="helper")
        return [finding(m, mend((Edit(*m.span(), "new"),))) for m in re.finditer("old", text)]

    assert reasons(settle("old\n", find)) == ["its fix adds a dependency, helper: --unsafe applies it"]
    assert settle("old\n", find, unsafe=True).text == "new\n"


def test_code_that_few_would_write_by_hand_waits_for_unsafe_where_anybody_reads_it() -> None:
    def find(text: str) -> list[Finding]:
        mend = partial(Fix, "Mend it", Safety.ROUNDING, is_awkward=True)
        return [finding(m, mend((Edit(*m.span(), "new"),))) for m in re.finditer("old", text)]

    assert reasons(settle("old\n", find)) == ["its fix is code that few would write by hand: --unsafe applies it"]
    assert settle("old\n", find, unsafe=True).text == settle("old\n", find, unread=True).text == "new\n"


def test_that_nobody_reads_it_makes_no_fix_safe_that_adds_a_dependency() -> None:
    def find(text: str) -> list[Finding]:
        mend = partial(Fix, "Mend it", Safety.EXACT, requires="helper", is_awkward=True)
        return [finding(m, mend((Edit(*m.span(), "new"),))) for m in re.finditer("old", text)]

    assert settle("old\n", find, unread=True).text == "old\n"


def test_fixes_that_change_behaviour_wait_for_unsafe() -> None:
    find = replacer("old", "new", Safety.BEHAVIOUR)
    safe = settle("old\n", find)
    assert safe.text == "old\n"
    assert reasons(safe) == ["its fix changes behaviour: --unsafe applies it"]
    assert settle("old\n", find, unsafe=True).text == "new\n"


def test_the_first_candidate_that_may_be_applied_is() -> None:
    def find(text: str) -> list[Finding]:
        candidates = [("a", Safety.BEHAVIOUR), ("b", Safety.ROUNDING), ("c", Safety.EXACT)]
        matches = re.finditer("old", text)
        return [
            finding(m, *(fix(Edit(*m.span(), name), safety=safety) for name, safety in candidates)) for m in matches
        ]

    assert settle("old\n", find).text == "b\n"
    assert settle("old\n", find, unsafe=True).text == "a\n"


def test_what_blocks_a_fix_is_said() -> None:
    result = settle(
        "a\nb\n", lambda text: [finding(m, blocked="it is read" * (m[0] == "a")) for m in re.finditer("[ab]", text)]
    )
    assert reasons(result) == ["it is read", "there is no fix for it"]


def test_a_fix_that_is_not_accepted_is_left_with_the_reason() -> None:
    result = settle("old\nold\n", replacer("old", "new"), accept=lambda text, f, _: "unwelcome" if f.start < 3 else "")
    assert result.text == "old\nnew\n"
    assert reasons(result) == ["unwelcome"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_new_lines_end_as_those_of_the_text_do(newline: str) -> None:
    text = newline.join(["a = 1", "b = old", "c = 3", ""])
    result = settle(text, replacer("old", "[\n  1,\n]"))
    assert result.text == newline.join(["a = 1", "b = [", "  1,", "]", "c = 3", ""])


def test_a_fitted_fix_has_the_line_breaks_of_the_text_and_no_idle_edit() -> None:
    one = fix(Edit(0, 1, "a"), Edit(3, 3, "b\nc\r\n"))
    assert fitted("a\r\n", one).edits == (Edit(3, 3, "b\r\nc\r\n"),)


@pytest.mark.parametrize(
    ("offset", "newline"), [(0, "\r\n"), (3, "\r\n"), (4, "\r\n"), (5, "\n"), (7, "\r"), (8, "\r")]
)
def test_where_line_breaks_differ_a_new_line_ends_as_the_one_in_front(offset: int, newline: str) -> None:
    assert fitted("a\r\nb\nc\rd", fix(Edit(offset, offset, "x\n"))).edits == (Edit(offset, offset, f"x{newline}"),)


# Rules that are wrong


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ([Edit(4, 7, "(")], "not valid Python"),
        ([Edit(0, 0, "import os\n")], "not valid Python"),
        ([Edit(4, 7, "f(a=1, a=2)")], "not valid Python"),
        ([Edit(0, 0, "return\n")], "not valid Python"),
        ([Edit(4, 99, "x")], "outside the text"),
        ([Edit(5, 4, "x")], "outside the text"),
        ([Edit(4, 6, "x"), Edit(5, 7, "y")], "overlap"),
        ([Edit(4, 7, "old")], "changes nothing"),
        ([Edit(15, 15, ", y")], "lacks the comment"),
        ([Edit(4, 7, '"""'), Edit(15, 15, '"""')], "lacks the comment"),
    ],
)
def test_a_fix_that_breaks_the_program_is_our_bug_and_names_its_rule(edits: list[Edit], reason: str) -> None:
    future = "from __future__ import annotations\n" if edits[0].text.startswith("import") else ""
    text = f"{future}x = old  # note\ny = other\n"
    shifted = [Edit(e.start + len(future) * (e.start > 0), e.end + len(future) * (e.end > 0), e.text) for e in edits]
    with pytest.raises(DefectError, match=f"^a fix of rule fails: .*{reason}"):
        settle(text, both(finder("old", lambda m: shifted), replacer("other", "new")))


def test_of_fixes_that_break_the_program_only_together_the_first_is_applied() -> None:
    def find(text: str) -> list[Finding]:
        return [] if "k" in text else [finding(m, fix(Edit(*m.span(), "k"))) for m in re.finditer("[ab]", text)]

    result = settle("f(a=1, b=2)\n", find)  # a repeated keyword
    assert result.text == "f(k=1, b=2)\n"


@pytest.mark.parametrize(
    "find",
    [
        both(replacer("a", "b"), replacer("b", "a")),
        replacer("a", "aa"),
        finder("a", lambda m: [Edit(0, 0, "import torch\n")]),
    ],
    ids=["back and forth", "growing", "without effect"],
)
def test_fixes_without_an_end_are_our_bug_and_name_their_rule(find: Find) -> None:
    with pytest.raises(DefectError, match="rule"):
        settle("a\n", find)


# Comments


def test_a_fix_that_would_lose_a_comment_is_left_with_the_reason() -> None:
    text = "x = f(\n    1,  # type: ignore\n    2,\n)\n"
    result = settle(text, replacer(r"f\([^)]*\)", "g(1, 2)"))
    assert result.text == text
    assert reasons(result) == ["its fix would lose the comment '# type: ignore'"]


def test_a_fix_that_carries_the_comment_along_is_applied() -> None:
    text = "x = f(\n    1,  # one\n)\n"
    assert settle(text, replacer(r"f\([^)]*\)", "g(1)  # one")).text == "x = g(1)  # one\n"


def test_every_one_of_several_equal_comments_is_kept() -> None:
    text = "f(\n1,  # noqa\n2,  # noqa\n)\n"
    result = settle(text, replacer(r"f\([^)]*\)", "g(1, 2)  # noqa"))
    assert result.text == text


def test_a_number_sign_in_a_string_is_no_comment() -> None:
    assert settle("x = f('# a')\n", replacer(r"f\([^)]*\)", "g()")).text == "x = g()\n"


def test_a_fix_of_a_finding_about_a_comment_may_remove_it() -> None:
    text = "x = 1  # gone\ny = 2  # kept\n"
    result = settle(text, finder(r"# gone", lambda m: [Edit(m.start() - 2, m.end(), "")]))
    assert result.text == "x = 1\ny = 2  # kept\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", "\f\n"])
def test_comments_are_found_whatever_ends_their_line(newline: str) -> None:
    text = newline.join(["é = 1", "x = f(  # note", ")", ""])
    assert settle(text, replacer(r"f\([^)]*\)", "g()")).text == text


# With real rules


class Renaming(Rule):
    """Calls `new` instead of `old`."""

    group: ClassVar[str] = "compute"

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for match in re.finditer(r"\bold\b", program.text):
            edit = Edit(*match.span(), str(options.get("to", "new")))
            yield self.finding(match.span(), "old", kind="old", fixes=(Fix("Rename", Safety.EXACT, (edit,)),))


def test_rules_run_with_their_options_and_comments_hold_them_off() -> None:
    text = "import torch\nold()\nold()  # perflint: ignore[test-fix] on purpose\n"
    result = fix_text(text, [Renaming()], {"test-fix": {"to": "newer"}})
    assert result.text == "import torch\nnewer()\nold()  # perflint: ignore[test-fix] on purpose\n"
    assert not result.remaining


def test_a_text_that_is_no_program_raises() -> None:
    with pytest.raises(SyntaxError):
        fix_text("import torch; old(", [Renaming()], {})

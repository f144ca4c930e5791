"""Comments that suppress findings: what each covers, and what is said of those that cover nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflint.engine import catalogue
from perflint.engine.rule import GROUPS, Finding, Options, Rule
from perflint.engine.suppress import UnusedIgnore, add_ignores, apply

if TYPE_CHECKING:
    from perflint.analysis.program import Program


class _Marked(Rule):
    """Stands for any rule: it finds the word that is its name with underscores."""

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        return iter(())

    def in_text(self, text: str) -> list[Finding]:
        word = self.name.replace("-", "_")
        return [self.finding(m.span(), "found", kind="x") for m in re.finditer(rf"\b{word}\b(?!\])", text)]


def _rule(name: str, group: str) -> _Marked:
    rule = _Marked()
    rule.name, rule.group, rule.page = name, group, ""  # type: ignore[misc]
    return rule


SLOW, COPY, UNUSED = _rule("slow", "sync"), _rule("big-copy", "memory"), UnusedIgnore()
RULES = (SLOW, COPY, UNUSED)


@pytest.fixture(autouse=True)
def _known_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "rules_by_name", lambda: {rule.name: rule for rule in RULES})


def _findings(text: str) -> list[Finding]:
    code = "".join(line.partition("#")[0].ljust(len(line)) for line in text.splitlines(keepends=True))
    return SLOW.in_text(code) + COPY.in_text(code)


def _left(text: str, rules: tuple[Rule, ...] = RULES) -> list[str]:
    names = {rule.name for rule in rules}
    found = [finding for finding in _findings(text) if finding.rule in names]
    return [finding.rule for finding in apply(text, found, rules)]


def _fixed(text: str) -> str:
    edits = [edit for f in apply(text, _findings(text), RULES) for fix in f.fixes for edit in fix.edits]
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


@pytest.mark.parametrize(
    "text",
    [
        "a = slow()  # perflint: ignore[slow]\n",
        "a = slow()  # perflint: ignore[slow] it runs once\n",
        "a = slow()  # perflint: ignore[ big-copy , slow ]; big_copy\n",
        "a = slow()  # perflint:ignore[sync]\n",
        "a = slow()  # perflint: ignore[all]\n",
        "a = slow()  # perflint: ignore it runs once\n",
        "a = slow()  # perflint: ignore",
        "a = slow()  # noqa: E501 # perflint: ignore[slow]\n",
        "a = slow()  # type: ignore[x]  # perflint: ignore[slow] see #12  # noqa\n",
        "x = 1; slow()  # perflint: ignore[slow]\n",
        "slow(\n    1,\n    2,\n)  # perflint: ignore[slow]\n",
        "f(  # perflint: ignore[slow]\n    1,\n    slow(),\n)\n",
        "f(\n    1,\n    # perflint: ignore[slow]\n    slow(),\n)\n",
        "x = 1\n# perflint: ignore[slow] the next statement\nslow()\n",
        "if x:\n    y = slow()  # perflint: ignore[slow]\n",
        "for x in slow():  # perflint: ignore[slow]\n    pass\n",
        "if x:\n    pass\nelse: slow()  # perflint: ignore[slow]\n",
        "x = '\\\n' + slow()  # perflint: ignore[slow]\n",
        "x = '''\n''', slow()  # perflint: ignore[slow]\r\n",
    ],
)
def test_a_comment_ignores_the_findings_of_its_statement(text: str) -> None:
    assert "slow" not in _left(text)


@pytest.mark.parametrize(
    "text",
    [
        "def f(  # perflint: ignore[slow] whole\n    a,\n):\n    if a:\n        slow()\n\n    return slow()\n",
        "def f(\n    a,\n):  # perflint: ignore[slow] whole\n    if a:\n        return slow()\n",
        "async def f():  # perflint: ignore[slow]\n    slow()\n",
        "class A:  # perflint: ignore[slow]\n    def f(self):\n        slow()\n\n    def g(self):\n        slow()\n",
        "x = 1\n# perflint: ignore[slow]\ndef f():\n    return slow()\n",
        "x = 1\n# perflint: ignore[slow]\n@wrap\n@wrap\ndef f():\n    return slow()\n",
        "def f(): return slow()  # perflint: ignore[slow]\n",
    ],
)
def test_a_comment_on_a_definition_ignores_all_of_its_body(text: str) -> None:
    assert _left(text) == []
    assert _left(text + "slow()\n") == ["slow"]


def test_a_comment_in_a_body_does_not_reach_the_rest_of_the_function() -> None:
    assert _left("def f():\n    slow()  # perflint: ignore[slow]\n    slow()\n") == ["slow"]


def test_a_comment_on_a_loop_covers_its_header_and_not_its_body() -> None:
    assert _left("for x in slow():  # perflint: ignore[slow]\n    slow()\n") == ["slow"]


@pytest.mark.parametrize(
    "text",
    [
        "# perflint: ignore[slow] an example\nimport x\nslow()\n\ndef f():\n    slow()\n",
        "#!/usr/bin/env python\n# perflint: ignore[slow]\n'''Doc.'''\nslow()\nslow()\n",
        "import x\nslow()\n# perflint: ignore-file[slow] an example\nslow()\n",
        "import x  # perflint: ignore-file\nslow()\n",
    ],
)
def test_a_comment_on_the_file_ignores_everything_in_it(text: str) -> None:
    assert _left(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "slow('# perflint: ignore[slow]')\n",
        "slow('''\n# perflint: ignore[slow]\n''')\n",
        "slow()  # perflint: ignore[big-copy]\n",
        "slow()  # about perflint: ignore[slow]\n",
        "slow()  # perflint: ignore[slow\n",
        "slow()  # perflint: ignore [slow\n",
        "slow()  # perflint: ignore(slow)\n",
        "slow()  # perflint: ignored\n",
        "slow()  # perflint: ignore[]\n",
        "x = 1  # perflint: ignore[slow]\nslow()\n",
        "slow(  # perflint: ignore[slow]\n",
    ],
)
def test_what_is_no_comment_for_the_finding_leaves_it(text: str) -> None:
    assert "slow" in _left(text)


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("a = 1  # perflint: ignore[slow] once\n", "a = 1\n"),
        ("a = 1  # perflint: ignore[slow]   ", "a = 1"),
        ("a = 1  # perflint: ignore\r\nb = 2\r\n", "a = 1\r\nb = 2\r\n"),
        ("a = slow()  # perflint: ignore[big-copy, slow] why\n", "a = slow()  # perflint: ignore[slow] why\n"),
        ("a = 1  # perflint: ignore[slow]  # noqa: E501\n", "a = 1  # noqa: E501\n"),
        ("a = 1  # noqa: E501  # perflint: ignore[slow]\n", "a = 1  # noqa: E501\n"),
        ("def f():\n    # perflint: ignore[slow]\n    pass\n", "def f():\n    pass\n"),
        ("slow(\n    # perflint: ignore[big-copy]\n    1,\n)\n", "slow(\n    1,\n)\n"),
        ("# perflint: ignore-file\nimport x\n", "import x\n"),
        ("a = 1  # perflint: ignore[]\n", "a = 1\n"),
    ],
)
def test_an_unused_comment_is_reported_and_its_fix_removes_just_that(text: str, fixed: str) -> None:
    assert "unused-ignore" in _left(text)
    assert _fixed(text) == fixed
    assert "unused-ignore" not in _left(fixed)


def test_an_outer_comment_is_unused_where_an_inner_one_does_the_work() -> None:
    text = "def f():  # perflint: ignore[slow]\n    slow()  # perflint: ignore[slow]\n"
    (unused,) = apply(text, _findings(text), RULES)
    assert text[unused.start : unused.end] == "# perflint: ignore[slow]"
    assert unused.start < text.index("\n")


def test_a_rule_that_did_not_run_is_not_called_unused() -> None:
    for comment in ("ignore[slow]", "ignore[sync]", "ignore[all]", "ignore"):
        assert _left(f"a = 1  # perflint: {comment}\n", (COPY, UNUSED)) == []
        assert _left(f"a = 1  # perflint: {comment}\n", RULES) == ["unused-ignore"]


def test_a_comment_that_ignores_what_other_files_could_bring_about_is_used() -> None:
    text = "a = 1  # perflint: ignore[slow, big-copy]\nb = 1  # perflint: ignore[slo]\n"
    could = SLOW.finding((0, 1), "found", kind="x")
    messages = [finding.message for finding in apply(text, [], RULES, lambda: [could])]
    assert messages == ["there is no big-copy to ignore here", "no rule or group is called 'slo'; did you mean slow?"]


def test_nothing_is_said_of_comments_when_unused_ignore_is_off() -> None:
    assert _left("a = 1  # perflint: ignore[slow, nonsense]\n", (SLOW, COPY)) == []


def test_an_unknown_name_is_reported_with_the_nearest_one_and_left_to_its_author() -> None:
    text = "a = slow()  # perflint: ignore[slow, big_cpy]\n"
    (finding,) = apply(text, _findings(text), RULES)
    assert (finding.rule, finding.kind, text[finding.start : finding.end]) == ("unused-ignore", "unknown", "big_cpy")
    assert "did you mean big-copy?" in finding.message
    assert not finding.fixes
    assert finding.blocked


def test_a_comment_that_cannot_be_read_is_reported() -> None:
    for comment in ("ignore[slow", "ignore(slow)", "disable=slow", ""):
        text = f"slow()  # perflint: {comment}\n"
        assert [f.kind for f in apply(text, [], RULES)] == ["unreadable"]


def test_unused_comments_can_be_ignored_by_name_only() -> None:
    assert _left("# perflint: ignore-file[unused-ignore]\na = 1  # perflint: ignore[slow]\n") == []
    assert _left("a = 1  # perflint: ignore[slow, unused-ignore] for later\n") == []
    assert _left("# perflint: ignore-file\nslow()\na = 1  # perflint: ignore[slow]\n") == ["unused-ignore"]


def test_a_text_that_is_not_python_keeps_its_findings() -> None:
    text = "def (:\n  '''# perflint: ignore\n"
    finding = SLOW.finding((0, 3), "found", kind="x")
    assert apply(text, [finding], RULES) == (finding,)


def test_the_rule_about_comments_is_as_whole_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rule = catalogue.rules_by_name()[UNUSED.name]
    assert (rule.name, rule.group in GROUPS) == ("unused-ignore", True)
    assert all(f"\n## {heading}\n" in rule.page for heading in catalogue.PAGE_HEADINGS)


def test_findings_come_back_sorted() -> None:
    text = "slow()\na = 1  # perflint: ignore[slow]\nbig_copy()\n"
    assert _left(text) == ["slow", "unused-ignore", "big-copy"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slow()\n", "slow()  # perflint: ignore[slow]\n"),
        ("slow(); big_copy()   \r\n", "slow(); big_copy()  # perflint: ignore[big-copy, slow]\r\n"),
        ("slow(\n    1,\n)\n", "slow(\n    1,\n)  # perflint: ignore[slow]\n"),
        ("x = '''\n''' + slow()", "x = '''\n''' + slow()  # perflint: ignore[slow]"),
        ("slow()  # type: ignore\n", "slow()  # type: ignore  # perflint: ignore[slow]\n"),
        ("slow(  # why\n)\n", "slow(  # why\n)  # perflint: ignore[slow]\n"),
        (
            "slow(), big_copy()  # perflint: ignore[slow] why\n",
            "slow(), big_copy()  # perflint: ignore[slow, big-copy] why\n",
        ),
        (
            "if slow():\n    big_copy()\n",
            "if slow():  # perflint: ignore[slow]\n    big_copy()  # perflint: ignore[big-copy]\n",
        ),
        ("a = 1\n", "a = 1\n"),
    ],
)
def test_added_comments_ignore_what_was_found(text: str, expected: str) -> None:
    left = apply(text, _findings(text), RULES)
    assert add_ignores(text, left) == expected
    assert _left(expected) == []


STATEMENTS = st.sampled_from(
    [
        "slow()",
        "big_copy(slow())",
        "x = 1",
        "f(\n  slow(),\n  big_copy(),\n)",
        "x = '''\n# perflint: ignore\n'''; slow()",
        "def f(a):\n    return slow()",
        "@slow\nclass A:\n    x = big_copy()",
        "if slow(): pass",
        "# perflint: ignore[slow] why",
        "while slow():\n    # perflint: ignore[sync]\n    big_copy()",
        "slow()  # perflint: ignore[slow, sync] x",
        "",
        "é = slow()  # 漢字",
    ]
)


@given(st.lists(STATEMENTS, max_size=8), st.sampled_from(["\n", "\r\n", "\r"]))
def test_whatever_is_found_can_be_ignored_and_its_comments_removed_again(statements: list[str], newline: str) -> None:
    text = "\n".join([*statements, ""]).replace("\n", newline)
    ignored = add_ignores(text, apply(text, _findings(text), (SLOW, COPY)))
    assert [rule for rule in _left(ignored) if rule != "unused-ignore"] == []
    assert _left(_settled(ignored)) == []


def _settled(text: str) -> str:
    while any(f.fixes for f in apply(text, _findings(text), RULES)):
        fix = next(f.fixes[0] for f in apply(text, _findings(text), RULES) if f.fixes)
        (edit,) = fix.edits
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text

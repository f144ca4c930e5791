"""Every rule is held against its fixtures: what it reports, what its fix makes of them, what they compute."""

from __future__ import annotations

import ast
import re
import tokenize
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from perflint.engine import catalogue
from perflint.engine.catalogue import all_rules
from perflint.engine.fix import fix_text
from perflint.engine.rule import Safety
from tests.fixture_cases import FIXTURES, Case, cases, default_options, load

BEFORE, OK = cases("before"), cases("ok")


def _id(case: Case) -> str:
    return f"{case.path.parent.name}/{case.path.stem}"


RULES = [rule for rule in all_rules() if type(rule).__module__.startswith("perflint.rules.")]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_examples_of_both_sorts(rule: Any) -> None:
    assert any(case.rule is rule for case in BEFORE) and any(case.rule is rule for case in OK)


@pytest.mark.parametrize("case", BEFORE, ids=_id)
def test_findings_stand_at_exactly_the_marked_lines(case: Case) -> None:
    text = case.text
    found = [(text.count("\n", 0, finding.start) + 1, finding.kind) for finding in case.findings()]
    expected = case.expected
    assert [line for line, _ in found] == [line for line, _ in expected]
    assert [kind for (_, kind), (_, wanted) in zip(found, expected, strict=True) if wanted] == [
        kind for _, kind in expected if kind
    ]


@pytest.mark.parametrize("case", OK, ids=_id)
def test_look_alikes_are_silent(case: Case) -> None:
    assert [case.text[finding.start : finding.end] for finding in case.findings()] == []


@pytest.mark.parametrize("unsafe", [False, True], ids=["safe", "unsafe"])
@pytest.mark.parametrize("case", BEFORE, ids=_id)
def test_the_fix_gives_exactly_the_file_beside_it(case: Case, unsafe: bool) -> None:
    after = case.after(unsafe)
    if unsafe and not after.exists():
        after = case.after(False)
    result = case.fixed(unsafe)
    assert result.text == (after.read_bytes().decode("utf-8") if after.exists() else case.text)


@pytest.mark.parametrize("case", BEFORE, ids=_id)
def test_what_has_no_fix_says_what_blocks_it(case: Case) -> None:
    for finding in case.findings():
        assert bool(finding.fixes) != bool(finding.blocked), f"line of {case.text[finding.start : finding.end]!r}"


@pytest.mark.parametrize("case", BEFORE, ids=_id)
def test_what_may_change_results_says_when(case: Case) -> None:
    titles = [fix.title for each in case.findings() for fix in each.fixes if fix.safety is Safety.BEHAVIOUR]
    assert [title for title in titles if not re.search(r", (if|where|which|whose|as|whatever)\b|; | \(", title)] == []


@pytest.mark.parametrize("case", BEFORE, ids=_id)
def test_a_fixed_program_parses_is_settled_and_keeps_its_comments(case: Case) -> None:
    unsafe = case.fixed(True).text
    for text in {case.fixed(False).text, unsafe} - {case.text}:
        ast.parse(text)
        assert _comments(text) == _comments(case.text)
        assert fix_text(text, [case.rule], default_options(case.rule), unsafe=text == unsafe).text == text


def _comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    return sorted(token.string for token in tokens if token.type == tokenize.COMMENT)


@pytest.mark.parametrize("case", [case for case in BEFORE if "\ndef run(" in case.text], ids=_id)
def test_a_fixed_program_computes_what_it_did(case: Case, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    safeties = {fix.safety for finding in case.findings() for fix in finding.fixes}
    # behaviour promises no equal results
    texts = {case.fixed(unsafe).text for unsafe in ([False] if Safety.BEHAVIOUR in safeties else [False, True])}
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if Safety.ROUNDING in safeties else {"rtol": 0, "atol": 0}
    torch.manual_seed(0)
    expected = load(case.path, f"before_{case.path.stem}").run()
    for number, text in enumerate(texts - {case.text}):
        fixed = tmp_path / f"fixed_{number}.py"
        fixed.write_text(text, encoding="utf-8", newline="")
        torch.manual_seed(0)
        actual = load(fixed, f"after_{case.path.stem}").run()
        assert type(actual) is type(expected)
        torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)


def test_no_fixture_is_left_out() -> None:
    endings = re.compile(r"(before|after|after_unsafe|ok)$")
    rule_folders = [FIXTURES / rule.name.replace("-", "_") for rule in RULES]
    stray = [
        path
        for folder in rule_folders
        if folder.is_dir()
        for path in folder.glob("*.py")
        if not endings.search(path.stem)
    ]
    assert stray == []


def test_the_engine_names_no_rule() -> None:
    engine = Path(catalogue.__file__).parent
    names = [
        name
        for rule in RULES
        for name in (rule.name, rule.name.replace("-", "_"))
        if not rule.__module__.startswith("perflint.unused")
    ]
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in engine.rglob("*.py")
        if "rules" not in path.relative_to(engine).parts
    }
    assert [
        (path.name, name) for path, text in texts.items() for name in names if re.search(rf"\b{name}\b", text)
    ] == []
    whole = {path: path.read_text(encoding="utf-8") for path in engine.parent.rglob("*.py")}
    assert [
        (path.name, rule.name) for path, text in whole.items() for rule in RULES if f'"{rule.name}"' in text
        if not rule.__module__.startswith("perflint.unused")
    ] == []  # fmt: skip

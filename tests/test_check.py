"""One program: findings in order, diagnostics with frames, and problems that name what is wrong."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest

from perflint.documents.disk import Unreadable, read_bytes
from perflint.engine.catalogue import rules_by_name
from perflint.engine.check import FRAME_CONTEXT, FRAME_LIMIT, check_bytes, check_text
from perflint.engine.results import FileResult, RuleCrash
from perflint.engine.rule import Rule
from perflint.project.cache import decode, encode
from tests.fixture_cases import FIXTURES
from tests.stub_rules import BOTTOMLESS, CRASH, EVAL, MISSPELT

HEAD = "import torch\n"


def checked(text: str, *rules: Rule, path: str = "a.py") -> FileResult:
    result, _ = check_bytes(path, text.encode("utf-8", "surrogatepass"), rules or (EVAL,), {})
    assert decode(path, encode(result)) == result
    return result


def problem(text: str, *rules: Rule, path: str = "a.py") -> tuple[str, int | None]:
    found = checked(text, *rules, path=path).problem
    assert found is not None
    return found.message, found.line


def test_findings_are_in_order_and_none_is_there_twice() -> None:
    text = HEAD + "eval(b)\nf(eval(eval(a)))\n"
    findings = check_text(text, [EVAL, EVAL], {"eval": {"message": "no"}})
    assert [text[each.start : each.end] for each in findings] == ["eval(b)", "eval(eval(a))", "eval(a)"]
    assert {each.message for each in findings} == {"no"}


def test_a_diagnostic_says_where_it_is_and_shows_the_lines_around() -> None:
    text = HEAD + "\n\nx = 'ä', eval(y)  # z\n\nlast\nunseen\n"
    (found,) = check_bytes("a.py", text.encode(), (EVAL,), {}, edits=True)[0].diagnostics
    assert (found.path, found.rule, found.start.line, found.start.column, found.end.column) == (
        "a.py",
        "eval",
        4,
        10,
        17,
    )
    assert found.frame == ("", "", "x = 'ä', eval(y)  # z", "", "last")
    assert found.frame_line == 2
    (edit,) = found.fixes[0].edits
    assert (edit.start, edit.end, edit.text) == (found.start, found.start, "literal_")


def test_a_long_finding_is_shown_by_its_beginning() -> None:
    (found,) = checked(HEAD + "eval(\n" + "    1 +\n" * 50 + "    1)\n").diagnostics
    assert found.end.line == 53
    assert len(found.frame) == 1 + FRAME_LIMIT + FRAME_CONTEXT


def test_fingerprints_follow_the_code_and_tell_equal_findings_apart() -> None:
    def fingerprints(text: str) -> list[str]:
        return [each.fingerprint for each in checked(HEAD + text).diagnostics]

    first, second, third = fingerprints("eval(a)\neval(a)\neval(b)\n")
    assert len({first, second, third}) == 3
    assert fingerprints("x = 1\n\nif x:\n    eval( a)\n    eval(b)\n")[1] == third
    assert fingerprints("if x:\n    eval(a)\n") == [first]


def test_a_comment_suppresses_a_finding() -> None:
    assert checked(HEAD + "eval(a)  # perflint: ignore[eval] trusted\n") == FileResult("a.py")


def test_a_comment_on_a_later_read_of_a_value_is_used_though_only_the_first_is_reported() -> None:
    text = (
        "import torch\n\n\ndef train(model, loader, writer):\n    model.cuda()\n    for x in loader:\n"
        "        loss = model(x.cuda()).mean()\n        loss.backward()\n        if loss.item() > 3:\n"
        "            raise ValueError\n"
        "        print(loss.item())  # perflint: ignore[item-in-loop]\n"
        "        print(f'{loss}')  # perflint: ignore[sync-in-loop]\n"
        "        print(len(x))  # perflint: ignore[sync-in-loop]\n"
    )
    rules = [rules_by_name()[name] for name in ("item-in-loop", "sync-in-loop", "unused-ignore")]
    found = checked(text, *rules).diagnostics
    assert [(each.rule, each.start.line) for each in found] == [("item-in-loop", 9), ("unused-ignore", 13)]


def test_a_notebook_is_placed_by_cell_and_shown_as_it_is_written() -> None:
    cells = [[HEAD, "%matplotlib inline\n"], ["!ls\n", "x = 1\n", "eval(x)"]]
    content = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": lines} for lines in cells]
    notebook = json.dumps({"cells": content, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    (found,) = checked(notebook, path="a.ipynb").diagnostics
    assert (found.start.cell, found.start.line, found.start.column, found.start.offset) == (1, 3, 1, 10)
    assert found.frame == ("!ls", "x = 1", "eval(x)")


@pytest.mark.parametrize("rules", [(EVAL,), ()], ids=["with a rule", "without"])
def test_a_syntax_error_is_a_problem_with_its_line_whatever_the_rules(rules: tuple[Rule, ...]) -> None:
    result, _ = check_bytes("a.py", (HEAD + "eval(\n").encode(), rules, {})
    assert result.problem is not None
    assert (result.problem.message, result.problem.line) == ("is not valid Python: '(' was never closed", 2)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python reads it")
def test_syntax_of_a_newer_python_is_recognised() -> None:
    assert "(is it for Python 3.14?" in problem("x = t'a{b}'\n")[0]


def test_what_is_nested_too_deeply_is_a_problem() -> None:
    long = ("a" + ".b" * 50_000, "1" + "+1" * 50_000) if sys.version_info >= (3, 11) else ()  # 3.10 parses these
    for text in ("-" * 100_000 + "1", "(" * 500 + ")" * 500, *long):
        assert problem(HEAD + text)[0].startswith(("is nested too deeply", "is not valid Python: too many nested"))
    assert problem(HEAD + "bottomless = True\n", BOTTOMLESS)[0].startswith("is nested too deeply")


@pytest.mark.parametrize("data", [b"\xff\n", b"a = 1\0\n", b"# coding: nonsense\n", "x = 1".encode("utf-16")])
def test_what_is_no_text_is_a_problem(data: bytes) -> None:
    result, _ = check_bytes("a.py", data, (EVAL,), {})
    assert result.problem is not None
    assert result.problem.traceback is None


def test_what_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.py", tmp_path):
        with pytest.raises(Unreadable):
            read_bytes(path)


def test_code_that_a_rule_itself_wrote_wrongly_is_not_blamed_on_the_file() -> None:
    with pytest.raises(RuleCrash):
        check_text(HEAD + "misspelt = True\n", [MISSPELT], {})


@pytest.mark.parametrize("path", ["missing_main_guard/command", "repeat_not_broadcast/expand", "blocking_copy/batches"])
def test_where_torch_may_be_too_old_for_fixes_there_are_findings_without_any(path: str) -> None:
    text = (FIXTURES / f"{path}_before.py").read_text()
    rules = [rules_by_name()[path.partition("/")[0].replace("_", "-")]]
    found, old = (check_text(text + end, rules, {}) for end in ("", "Variable(x, volatile=True)\n"))
    assert [each.message for each in old] == [each.message for each in found] and any(each.fixes for each in found)
    assert ["before 0.4" in each.blocked for each in old] == [bool(each.fixes) for each in found]
    assert not any(each.fixes for each in old)


def test_a_crash_is_ours_and_names_the_rule_and_the_place() -> None:
    text = HEAD + "crash = True\n"
    with pytest.raises(RuleCrash, match="crash") as caught:
        check_text(text, [CRASH], {})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    found = checked(text, CRASH).problem
    assert found is not None and found.traceback
    assert found.message.startswith("internal error in the rule crash, which is a bug: ZeroDivisionError")
    assert "stub_rules.py" in found.traceback


def test_the_compiler_s_warnings_are_not_ours_to_give() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked(HEAD + "x = '\\d' is 'd'\n") == FileResult("a.py")
        assert checked("x = '\\d' is 'd'\n") == FileResult("a.py")


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "\ufeffimport torch\n", "import torch\r\neval(x)\r\n"])
def test_small_and_odd_files_are_checked(text: str) -> None:
    assert checked(text).problem is None


def test_a_write_to_a_copy_by_keywords_alone_is_out_of_sight() -> None:
    text = (
        "import torch\nfrom torch.nn import init\n\n\ndef forward(x, s):\n    r = s[:, None].repeat(1, 3, 1)\n"
        "    init.constant_(tensor=r, val=3)\n    return x + r\n"
    )
    rule = rules_by_name()["repeat-not-broadcast"]
    assert list(check_text(text, [rule], {rule.name: {}})) == []


def test_a_state_that_a_with_binds_in_parts_is_no_choice() -> None:
    text = (
        "import torch\n\n\nclass M(torch.nn.Module):\n    def forward(self, x, h):\n        out = []\n"
        "        for t in range(x.size(1)):\n            with self.held(h) as (z, _):\n"
        "                h, z = self.choose(x[:, t], h, z)\n            out.append(h)\n"
        "        return torch.stack(out)\n"
    )
    rule = rules_by_name()["decode-loop"]
    assert [finding.rule for finding in check_text(text, [rule], {rule.name: {}})] == ["decode-loop"]

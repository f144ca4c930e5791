"""Programs that are parsed once, and looked at in several contexts."""

from __future__ import annotations

import ast
import gc
import weakref

import pytest

from perflint.analysis.links import ALONE, Context, HotCall
from perflint.analysis.program import Program
from perflint.project import run
from perflint.project.run import Parsed

TEXT = "def f(x):\n    return x\n"
HOT = Context(calls=(HotCall("f", 1, "D"),))


def returned(program: Program) -> str:
    (statement,) = program.of_type(ast.Return)
    assert statement.value is not None
    return program.value(statement.value).kind.value


def test_a_text_is_parsed_once_for_all_its_contexts() -> None:
    programs = Parsed()
    first = programs(TEXT, ALONE)
    tree, nodes = first.tree, first.of_type(ast.Name)
    again = programs(TEXT, HOT)
    assert again.tree is tree
    assert again.of_type(ast.Name) is nodes


def test_each_context_has_values_of_its_own() -> None:
    programs = Parsed()
    kinds = [returned(programs(TEXT, context)) for context in (ALONE, HOT, ALONE)]
    assert kinds == ["unknown", "tensor", "unknown"]


def test_what_was_made_of_a_text_is_freed_without_the_garbage_collector() -> None:
    programs, text = Parsed(), "class C:\n    def f(self):\n        return lambda: self.f()\n"
    gc.disable()
    try:
        program = programs(text, ALONE)
        facts = [weakref.ref(program.class_of(each)) for each in program.of_type(ast.FunctionDef)]
        assert facts[0]() is not None
        del program
        programs("", ALONE)
        assert facts[0]() is None
    finally:
        gc.enable()


def test_what_was_parsed_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_MOST_PARSED", 2 * len(TEXT))
    programs = Parsed()
    first, last = (programs(text, ALONE).tree for text in (TEXT, TEXT.replace("x", "z")))
    programs(TEXT.replace("x", "y"), ALONE)
    programs("", ALONE)
    assert programs(TEXT.replace("x", "z"), ALONE).tree is last
    assert programs(TEXT, ALONE).tree is not first


def test_a_text_that_is_no_program_does_not_matter_to_others() -> None:
    programs = Parsed()
    tree = programs(TEXT, ALONE).tree
    with pytest.raises(SyntaxError):
        programs("def", ALONE)
    assert programs(TEXT, ALONE).tree is tree

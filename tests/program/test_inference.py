"""What the Program infers, told by `reveal(...)` and `heat()` in fixtures/program."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from perflint.analysis.program import Heat, Place, Program, Value

FOLDER = Path(__file__).parent.parent.parent / "fixtures" / "program"
FILES = sorted(FOLDER.glob("*.py"))


def describe(value: Value) -> str:
    """A value in words: `likely tensor device bool`, `module torch.nn.Linear`."""
    words = ["" if value.sure else "likely", value.kind.value]
    if value.kind.value == "tensor":
        words += [value.place.value if value.place is not Place.UNKNOWN else "", value.dtype]
    if value.kind.value in ("module", "library", "optimizer", "loader"):
        words.append(value.name)
    return " ".join(word for word in words if word)


def expectations(program: Program, function: str) -> list[tuple[ast.Call, str]]:
    """The calls of `function`, each with the comment after it."""
    calls = [node for node in program.of_type(ast.Call) if isinstance(node.func, ast.Name) and node.func.id == function]
    comments = [re.search(r"#\s*(.+?)\s*$", program.source.line_text(node.lineno)) for node in calls]
    return [(node, comment[1] if comment else "no comment") for node, comment in zip(calls, comments, strict=True)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_values_are_what_the_comments_say(path: Path) -> None:
    program = Program(path.read_text(encoding="utf-8"))
    found = [(node.lineno, describe(program.value(node.args[0]))) for node, _ in expectations(program, "reveal")]
    assert found == [(node.lineno, expected) for node, expected in expectations(program, "reveal")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_heat_is_what_the_comments_say(path: Path) -> None:
    program = Program(path.read_text(encoding="utf-8"))
    found = [(node.lineno, program.heat(node).name.lower()) for node, _ in expectations(program, "heat")]
    assert found == [(node.lineno, expected) for node, expected in expectations(program, "heat")]


def test_no_fixture_is_empty() -> None:
    programs = [Program(path.read_text(encoding="utf-8")) for path in FILES]
    assert all(expectations(program, "reveal") or expectations(program, "heat") for program in programs)


def test_heat_is_ordered() -> None:
    assert Heat.ONCE < Heat.STEP < Heat.TIME


@pytest.mark.parametrize("lines", ["x = []\ny = x.append\ny(3)", "x = {}\ny = x.update\ny(a=3)"])
def test_a_method_that_has_a_name_of_its_own_changes_no_other_variable(lines: str) -> None:
    program = Program(f"{lines}\nz = 3\nreveal(z)\n")
    assert [describe(program.value(node.args[0])) for node, _ in expectations(program, "reveal")] == ["number"]


def test_a_class_that_takes_the_place_of_its_base_is_none_of_its_bases() -> None:
    program = Program(
        "import torch.nn as nn\nclass Linear(nn.Linear): pass\nnn.Linear = Linear\nreveal(Linear(3, 4).n)\n"
    )
    assert [describe(program.value(node.args[0])) for node, _ in expectations(program, "reveal")]
    assert program.base_names(next(iter(program.of_type(ast.ClassDef))))[:1] != ("@Linear",)


def test_the_calls_of_a_function_stand_in_source_order_whichever_was_reached_first() -> None:
    lines = ["def helper(x): return x", "def unused(x): return helper(x)", "def used(x): return helper(x)", "used(1)"]
    program = Program("\n".join(lines))
    helper = next(iter(program.of_type(ast.FunctionDef)))
    assert [each.lineno for each in program.call_sites(helper)] == [2, 3]

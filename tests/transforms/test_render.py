"""Rewrites are written out: what is kept stays byte for byte, what is new is laid out as the file is."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import libcst as cst
import pytest

from perflint.analysis.program import Program
from perflint.engine.edits import apply_fixes
from perflint.engine.rule import Edit, Fix, Safety, Unrenderable
from perflint.syntax.source import Source
from perflint.transforms.operations import (
    AddKeywords,
    AddName,
    Decorate,
    InsertAfter,
    InsertBefore,
    Operation,
    Replace,
    ReplaceStatements,
    expression,
    standing_for,
    statement,
    statements,
)
from perflint.transforms.rewrite import Codemod, Rewrite, importing

Make = Callable[[ast.Module], list[Operation]]


def rewritten(text: str, make: Make) -> str:
    program = Program(text)
    change = Rewrite(program, tuple(make(program.tree)))
    return apply_fixes(text, [Fix("change", Safety.EXACT, change)])


def first(tree: ast.AST, kind: type[ast.expr]) -> ast.expr:
    return next(node for node in ast.walk(tree) if isinstance(node, kind))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("f()", "f(n=4, p=True)"),
        ("f(**k)", "f(n=4, p=True, **k)"),
        ("f(a, b,)", "f(a, b, n=4, p=True,)"),
        ("f(a, b = c)", "f(a, b = c, n = 4, p = True)"),
        (f"f({'a' * 70},\n     b, {'c' * 70})", f"f({'a' * 70},\n     b, {'c' * 70},\n     n=4, p=True)"),
        ("f(\n    a,\n    b,  # c\n)", "f(\n    a,\n    b,  # c\n    n=4,\n    p=True,\n)"),
        ("f(\n    a,\n    b  # c\n)", "f(\n    a,\n    b,  # c\n    n=4,\n    p=True\n)"),
        ("f(a, b,\n  c)", "f(a, b,\n  c, n=4, p=True)"),
        (
            f"if x:\n\tf({'a' * 70}, {'b' * 50})\n",
            f"if x:\n\tf({'a' * 70}, {'b' * 50},\n\t  n=4, p=True)\n",
        ),
        ("f(a,\n  b, **k)", "f(a,\n  b,\n  n=4,\n  p=True, **k)"),
        ("f(\r\n\ta,\r\n)", "f(\r\n\ta,\r\n\tn=4,\r\n\tp=True,\r\n)"),
        (f"f(\n    {'a' * 70}, {'c' * 9}\n)", f"f(\n    {'a' * 70},\n    {'c' * 9},\n    n=4,\n    p=True,\n)"),
        (
            f"{'x' * 20} = f({'a' * 60}, c)\ng(\n    b\n)",
            f"{'x' * 20} = f(\n    {'a' * 60}, c, n=4, p=True\n)\ng(\n    b\n)",
        ),
    ],
)
def test_keywords_are_added_in_the_layout_of_the_call(call: str, expected: str) -> None:
    def add(tree: ast.Module) -> list[Operation]:
        node = first(tree, ast.Call)
        assert isinstance(node, ast.Call)
        return [AddKeywords(node, (("n", expression("4")), ("p", expression("True"))))]

    text = rewritten(call, add)
    assert text.replace("\r\n", "\n") == expected.replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{x}.detach()", "y = (a\n  + b).detach()  # why\n"),
        ("f({x})", "y = f(a\n  + b)  # why\n"),
        ("{x} * 2", "y = (a\n  + b) * 2  # why\n"),
        ("[2, {x}]", "y = [2, a\n  + b]  # why\n"),
    ],
)
def test_kept_operands_stand_in_brackets_where_they_must(template: str, expected: str) -> None:
    def replace(tree: ast.Module) -> list[Operation]:
        node = first(tree, ast.Call)
        return [Replace(node, expression(template, x=first(node, ast.BinOp)))]

    assert rewritten("y = (a\n  + b).item()  # why\n", replace) == expected


@pytest.mark.parametrize(
    ("old", "template", "expected"),
    [
        ("x = y[0]", "{a} if c else d", "x = a if c else d"),
        ("x = y[0].z", "{a} if c else d", "x = (a if c else d).z"),
        ("x = y[0] * 2", "{a} + 1", "x = (a + 1) * 2"),
        ("f(y[0])", "{a} + 1", "f(a + 1)"),
        ('x = y[0], "s"', "g('t')", 'x = g("t"), "s"'),
        ("x = y[0], 's'", "g('t')", "x = g('t'), 's'"),
        ("x = y[0]", "z[:, n : n + 1, 1:3]", "x = z[:, n : n + 1, 1:3]"),
    ],
)
def test_new_code_is_written_as_people_write_it(old: str, template: str, expected: str) -> None:
    new = expression(template, a="a") if "{a}" in template else expression(template)
    assert rewritten(old, lambda tree: [Replace(first(tree, ast.Subscript), new)]) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a" * 20, "        f({0}, {0}, n=4)  # why\n"),
        ("a" * 33, "        f(\n            {0}, {0}, n=4\n        )  # why\n"),
    ],
)
def test_a_new_call_is_broken_into_lines_as_the_old_one_where_it_does_not_fit(name: str, expected: str) -> None:
    text = f"if a:\n    x = [\n        f(\n            {name}, {name}\n        )  # why\n    ]\n"
    new = expression(f"f({name}, {name}, n=4)")
    result = rewritten(text, lambda tree: [Replace(first(tree, ast.Call), new)])
    assert result == f"if a:\n    x = [\n{expected.format(name)}    ]\n"


def test_a_block_moves_with_its_comments_blank_lines_and_strings() -> None:
    text = "import a\n\n# why\nfor x in y:  # head\n    '''doc\n  more'''\n\n    # last\n    f(x,\n      1)\n# end\n"
    moved = rewritten(
        text, lambda tree: [ReplaceStatements((tree.body[1],), (statement("if z:\n    {*b}", b=[tree.body[1]]),))]
    )
    assert moved == (
        "import a\n\nif z:\n    # why\n    for x in y:  # head\n        '''doc\n  more'''\n\n        # last\n"
        "        f(x,\n          1)\n# end\n"
    )


def test_blanks_in_blank_lines_of_what_stays_are_left_alone() -> None:
    text = "for x in y:\n    \n    a(x)\n        \n    b(x)\n\n    \nc()\n"
    added = rewritten(text, lambda tree: [InsertAfter(tree.body[0], (statement("d()"),))])
    assert added == "for x in y:\n    \n    a(x)\n        \n    b(x)\n\n    \nd()\nc()\n"


def test_a_statement_stands_in_a_block_of_a_template() -> None:
    text = "for x in y:  # each\n    f(x)\n"

    def wrap(tree: ast.Module) -> list[Operation]:
        (loop,) = tree.body
        return [ReplaceStatements((loop,), (statement("with g():\n    {loop}", loop=loop),))]

    assert rewritten(text, wrap) == "with g():\n    for x in y:  # each\n        f(x)\n"


def test_comments_of_what_is_replaced_go_to_what_stands_for_it() -> None:
    text = "for x in y:  # head\n    # one\n    a(x)  # two\n    b(x)  # three\nc()\n"

    def lift(tree: ast.Module) -> list[Operation]:
        loop = tree.body[0]
        assert isinstance(loop, ast.For)
        new = [standing_for(statement(f"{name}(y)"), old) for name, old in zip("ab", loop.body, strict=True)]
        return [ReplaceStatements((loop,), tuple(new))]

    assert rewritten(text, lift) == "# head\n# one\na(y)  # two\nb(y)  # three\nc()\n"


def test_comments_of_what_is_removed_stay() -> None:
    text = "if x:\n    a()\n    # why\n    b()  # what\ny = 1\n"

    def remove(tree: ast.Module) -> list[Operation]:
        test = tree.body[0]
        assert isinstance(test, ast.If)
        return [ReplaceStatements((test.body[1],), ())]

    assert rewritten(text, remove) == "if x:\n    a()\n    # why\n    # what\ny = 1\n"


def test_statements_are_inserted_beside_others() -> None:
    text = "#!/usr/bin/env python\n# about\nx = 1\n\n\n@a\ndef f():\n  return x"

    def insert(tree: ast.Module) -> list[Operation]:
        function = tree.body[1]
        assert isinstance(function, ast.FunctionDef)
        return [
            InsertBefore(tree.body[0], (statement("import y"),)),
            InsertAfter(function.body[0], tuple(statements("if z:\n    w = 1"))),
            Decorate(function, expression("b")),
        ]

    assert rewritten(text, insert) == (
        "#!/usr/bin/env python\n# about\nimport y\nx = 1\n\n\n@a\n@b\ndef f():\n  return x\n  if z:\n    w = 1"
    )


@pytest.mark.parametrize("head", ["0#~~~~~~~~\n", '"""What it does."""\n', "0#~~~~~~~~\nimport os\n0#~~~~~~~~\n"])
def test_an_import_stands_below_the_magics_of_a_notebook(head: str) -> None:
    text = f"{head}import torch\nx = 1\n"
    _, operations = importing(Program(text), "perflint.runtime.reports", "later")
    new = rewritten(text, lambda _: [*operations])
    assert new == f"{head}import torch\nfrom perflint.runtime.reports import later\nx = 1\n"


def test_names_join_an_import() -> None:
    def add(tree: ast.Module) -> list[Operation]:
        node = tree.body[0]
        assert isinstance(node, ast.ImportFrom)
        return [AddName(node, "c")]

    assert rewritten("from a import b  # why\n", add) == "from a import b, c  # why\n"
    assert rewritten("from a import (\n    b,\n)\n", add) == "from a import (\n    b,\n    c,\n)\n"


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_and_form_feeds_stay(end: str) -> None:
    text = end.join(["x = 1", "\fif x:", "\ty = x.item()", "\fz = 2", ""])
    changed = rewritten(text, lambda tree: [Replace(first(tree, ast.Call), expression("x"))])
    assert changed == text.replace(".item()", "")


def test_a_codemod_changes_what_it_likes() -> None:
    text = "x = 1  # one\n\n\ny = eval(z)\n"
    module = Codemod(Source(text), lambda old: cst.parse_module(old.code.replace("eval", "literal_eval")))
    assert apply_fixes(text, [Fix("change", Safety.EXACT, module)]) == text.replace("eval", "literal_eval")
    (edit,) = module()
    assert text[edit.start : edit.end] == "eval"


def test_a_statement_that_shares_its_line_is_left_alone() -> None:
    with pytest.raises(Unrenderable, match="line 1: it shares a line"):
        rewritten("a(); b()\n", lambda tree: [ReplaceStatements((tree.body[0],), ())])


def test_checking_writes_no_fix(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "from torch.utils.data import DataLoader\n\n\ndef f(data, model):\n"
        "    for x in DataLoader(data, batch_size=4):\n        model(x.cuda()).sum().backward()\n"
    )
    code = (
        "import sys\nfrom perflint.cli.commands import cli\n"
        "try:\n    cli.main(sys.argv[1:])\nfinally:\n    assert 'libcst' not in sys.modules"
    )
    command = [sys.executable, "-c", code, "check", "--no-cache", str(program)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "dataloader-defaults" in run.stdout and "AssertionError" not in run.stderr, run.stderr


def test_a_fix_takes_its_edits_to_other_processes() -> None:
    edits = (Edit(0, 1, "x"),)
    assert pickle.loads(pickle.dumps(Fix("say x", Safety.EXACT, edits))).edits == edits

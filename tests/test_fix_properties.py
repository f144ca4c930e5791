"""Whatever program it is given, the fixer leaves a program that parses, is settled, and has kept its comments."""

from __future__ import annotations

import ast
import io
import json
import re
import textwrap
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflint.analysis.program import Program
from perflint.documents.document import decode
from perflint.engine.catalogue import all_rules
from perflint.engine.fix import DefectError, FixResult, fix_text
from perflint.engine.results import FILE_FAULTS
from perflint.engine.rule import Edit, Finding, Fix, Options, Rule, Safety
from perflint.project.patch import patch_document


class Odd(Rule):
    """Rewrites calls of every shape in ways that are easy to get wrong: over lines, comments and each other."""

    group = "compute"

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        source = program.source
        for node in ast.walk(program.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                span = source.span(node)
                edits = self.edits(node.func.attr, source.segment(node.func.value), span)
                if edits:
                    yield self.finding(span, "odd", kind=node.func.attr, fixes=(Fix("Rewrite", Safety.EXACT, edits),))

    def edits(self, method: str, value: str, span: tuple[int, int]) -> tuple[Edit, ...]:
        whole = {"item": f"float({value})", "cpu": value, "repeat": f"({value}).expand(-1)"}
        if method in whole:
            return (Edit(*span, whole[method]),)
        if method == "tolist":  # an insertion that several make, and two at the ends
            return Edit(0, 0, "import math\n"), Edit(span[0], span[0], "list("), Edit(span[1] - 9, span[1], ")")
        if method == "numpy":  # breaks the program
            return (Edit(*span, "("),)
        return ()


REAL = all_rules()
OPTIONS = {rule.name: {name: option.default for name, option in rule.options.items()} for rule in REAL}

HEADER = """\
import torch, numpy as np
import torch.nn as nn
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.LSTM(8, 8).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(dataset, batch_size=4, shuffle=True)
"""

EXPRESSIONS = st.sampled_from(
    [
        "loss.item()",
        "out.mean().item()",
        "float(loss)",
        "loss.cpu().numpy()",
        "(loss\n    .detach()  # why\n    .item())",
        "x.repeat(1, 4, 1) * y",
        "x.repeat(\n    1,  # one\n    4, # noqa\n)",
        "torch.cat([x] * 3)",
        "loss.item( ) if loss.item() > 0 else 0.0",
        "f'{loss.item():.3f} # no comment'",
        '"""é\n\t# text\n"""',
        "x.tolist()[0]",
        "[t.item() for t in out]",
        "DataLoader(data, 4,  # batch\n    True, **kwargs)",
        "DataLoader(\n    data,\n    batch_size=4,\n)",
        "model(x)[0]",
    ]
)
SIMPLE = st.one_of(
    st.builds("total += {}".format, EXPRESSIONS),
    st.builds("losses.append({})".format, EXPRESSIONS),
    st.builds("x = y = {}; n += 1".format, EXPRESSIONS),
    st.builds("print('loss', {})".format, EXPRESSIONS),
    st.builds("value: float = {}  # type: ignore".format, EXPRESSIONS),
    st.builds("assert {}, \\\n    'message'".format, EXPRESSIONS),
    st.sampled_from(
        [
            "total = 0.0",
            "losses = []",
            "pass",
            "opt.zero_grad(); loss.backward(); opt.step()",
            "loss = model(x)[0].sum()",
        ]
    ),
)
COMMENTS = st.sampled_from(
    ["", "", "  # note", "\t# type: float", "  # noqa: E501 é", "  # x.item()", ";", " ;  # fmt: skip"]
)
OWN_LINE = st.sampled_from(["", "", "# alone", "\f", "    # indented", "# type: ignore", '"""text"""'])
HEADS = st.sampled_from(
    [
        "for x, y in loader:",
        "for step, (x, y) in enumerate(loader):  # steps",
        "for epoch in range(3):",
        "for t in range(x.size(1)):",
        "while not done:",
        "if step % 10 == 0:",
        "with torch.no_grad():",
        "@torch.no_grad()\ndef evaluate(model, loader=loader):",
        "class Net(nn.Module):",
        "def forward(self, x):",
        "async def run():",
        "try:\n    pass\nfinally:",
        "if __name__ == '__main__':",
    ]
)


def block(head: str, body: str, indent: str) -> str:
    return f"{head}\n{indented(body, indent)}"


def indented(text: str, indent: str) -> str:
    """`text` one level deeper; lines inside strings and brackets move too, as nothing here depends on them."""
    return textwrap.indent(text, indent, lambda line: True)


def statements(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(children, min_size=1, max_size=4).map("\n".join)


LINES = st.builds(lambda own, line, end: f"{own}\n{line}{end}" if own else line + end, OWN_LINE, SIMPLE, COMMENTS)
BODIES = st.recursive(
    statements(LINES),
    lambda inner: statements(st.one_of(LINES, st.builds(block, HEADS, inner, st.sampled_from(["    ", "\t", "  "])))),
    max_leaves=6,
)
PROGRAMS = st.builds(
    lambda body, newline, end: newline.join((HEADER + body + end).split("\n")),
    BODIES,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", "\n", "\n\n# end"]),
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A program with a few lines or characters taken away, doubled or swapped."""
    text: str = draw(PROGRAMS)
    for _ in range(draw(st.integers(1, 3))):
        pieces = draw(st.sampled_from([text.splitlines(keepends=True), list(text)]))
        at, other = (draw(st.integers(0, len(pieces) - 1)) for _ in range(2))
        change = draw(st.sampled_from(["drop", "double", "swap"]))
        if change == "swap":
            pieces[at], pieces[other] = pieces[other], pieces[at]
        else:
            pieces[at] *= 2 * (change == "double")
        text = "".join(pieces) or "\n"
    return text


def comments(text: str) -> Counter[str]:
    lines = io.StringIO(re.sub(r"\r\n|\r", "\n", text))
    tokens = tokenize.generate_tokens(lines.readline)
    return Counter(token.string.rstrip() for token in tokens if token.type == tokenize.COMMENT)


def fixed(text: str, rules: Sequence[Rule], unsafe: bool) -> FixResult | None:
    try:
        return fix_text(text, rules, OPTIONS, unsafe=unsafe)
    except FILE_FAULTS:
        with pytest.raises(FILE_FAULTS):
            ast.parse(text)
        return None
    except DefectError:
        assert any(isinstance(rule, Odd) for rule in rules)
        return None


def assert_sound(text: str, rules: Sequence[Rule], unsafe: bool) -> FixResult | None:
    result = fixed(text, rules, unsafe)
    if result is None:
        return None
    ast.parse(result.text)
    again = fix_text(result.text, rules, OPTIONS, unsafe=unsafe)
    assert again.text == result.text
    assert not again.applied
    assert not comments(text) - comments(result.text)
    breaks = re.compile(r"\r\n|\r|\n")
    if text != result.text:
        assert set(breaks.findall(result.text)) <= set(breaks.findall(text))
    else:
        assert not result.applied
    return result


@given(st.one_of(PROGRAMS, mutated()))
def test_clumsy_rules_leave_a_sound_program_or_are_told_of(text: str) -> None:
    assert_sound(text, [Odd()], unsafe=False)


@given(st.one_of(PROGRAMS, mutated()), st.booleans())
def test_the_real_rules_leave_a_sound_program_and_make_no_fix_that_breaks_one(text: str, unsafe: bool) -> None:
    assert_sound(text, REAL, unsafe)


@given(PROGRAMS, st.sampled_from(["utf-8", "utf-8-sig", "latin-1"]))
def test_a_patched_file_keeps_its_encoding_and_mark(text: str, encoding: str) -> None:
    cookie = "# coding: latin-1\n" if encoding == "latin-1" else ""
    document = decode("train.py", (cookie + text).encode(encoding))
    patch = patch_document(document, [*REAL, Odd()], OPTIONS, unsafe=True)
    after = document.changed_to(patch.after)
    assert (after.encoding, after.bom, after.text) == (document.encoding, document.bom, patch.after)


@given(
    st.lists(
        st.one_of(BODIES, st.sampled_from(["!ls\nx = x.item()", "%%time\ny = x.cpu()", "%%bash\nls", "f("])), max_size=4
    )
)
def test_a_patched_notebook_keeps_everything_but_its_code(bodies: list[str]) -> None:
    sources = [[line + "\n" for line in body.split("\n")[:-1]] + [body.split("\n")[-1]] for body in [HEADER, *bodies]]
    cells = [{"cell_type": "code", "outputs": [{"text": "x.item()"}], "source": source} for source in sources]
    raw = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}, indent=1, ensure_ascii=False)
    document = decode("a.ipynb", raw.encode())
    patch = patch_document(document, [*REAL, Odd()], OPTIONS, unsafe=True)
    after = json.loads(document.encode(patch.after))
    for cell, source in zip(after["cells"], sources, strict=True):
        magics = [line for line in source if line.startswith(("!", "%"))]
        assert [line for line in cell["source"] if line.startswith(("!", "%"))] == magics
        cell["source"] = source
    assert after == json.loads(raw)
    assert patch_document(document.changed_to(patch.after), [*REAL, Odd()], OPTIONS, unsafe=True).applied == ()

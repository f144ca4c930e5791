"""Notebooks as programs: what becomes of magics, positions, and every byte that is not a changed line of code."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflint.documents import notebook
from perflint.documents.disk import PlacedEdit, Position, Unreadable, Unwritable
from perflint.documents.document import Document, decode
from perflint.engine.edits import fitted
from perflint.engine.rule import Edit, Fix, Safety

OUTPUT = {"output_type": "stream", "name": "stdout", "text": ["x = 1\n", "é\u2028"]}


def code(source: str | list[str], **fields: Any) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": 3, "metadata": {}, "outputs": [OUTPUT], "source": source, **fields}


def markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def as_notebook(*cells: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **fields}


def opened(*cells: dict[str, Any], indent: int | None = 1, **fields: Any) -> Document:
    return decode("a.ipynb", json.dumps(as_notebook(*cells, **fields), indent=indent, ensure_ascii=False).encode())


def sources(data: bytes) -> list[Any]:
    return [cell["source"] for cell in json.loads(data)["cells"]]


def test_what_is_no_python_is_told_by_cell_and_line() -> None:
    cells = ["%%time\n%time f()\nx = 1", "!ls \\\n -l\n0\n_ = 0\nx = _\nnames = !ls\n%cd x\ntorch?"]
    document = opened(*map(code, cells))
    assert document.notebook is not None
    assert [*document.notebook.left_out] == [
        "cell 1:1 `!ls \\`",
        "cell 1:6 `names = !ls`",
        "cell 1:7 `%cd x`",
        "cell 1:8 `torch?`",
    ]


def test_code_cells_are_one_program_in_order_behind_markers() -> None:
    document = opened(markdown("# Title"), code("import torch"), code(["x = 1\n", "y = 2\n"]), code(""))
    assert document.text == (
        "# %% perflint cell 1\nimport torch\n# %% perflint cell 2\nx = 1\ny = 2\n\n# %% perflint cell 3\n\n"
    )
    ast.parse(document.text)


def test_positions_name_the_cell_of_the_notebook_and_the_line_in_it() -> None:
    document = opened(markdown("text"), code("a = 1"), markdown("text"), code("b = 2\nloss.item()"))
    assert document.position(document.text.index("a = 1")) == Position(1, 0, 1, 1)
    assert document.position(document.text.index("loss.item")) == Position(3, 6, 2, 1)
    assert document.position(len(document.text)) == Position(3, 17, 2, 12)
    assert document.position(0) == Position(1, 0, 1, 1)
    assert document.at_line(document.position(document.text.index("loss.item")).program_line).cell == 3
    assert document.unit(3).text == "b = 2\nloss.item()"


def test_a_reason_names_the_cell_of_a_line_and_its_number_there() -> None:
    document = opened(code("a = 1"), markdown("text"), code("b = 2\nc = 3"))
    assert document.cited("line 5 reads `b`, and line 2 `a`") == "line 2 of cell 2 reads `b`, and line 1 of cell 0 `a`"
    assert document.cited("`f` reads `line 99`") == "`f` reads `line 99`"
    assert decode("a.py", b"a = 1\n").cited("line 1 reads `a`") == "line 1 reads `a`"


def test_a_marker_in_a_cell_is_not_taken_for_one_of_ours() -> None:
    document = opened(code("# %% perflint cell 7\nx = 1"), code("y = 2"))
    assert document.position(document.text.index("y = 2")) == Position(1, 0, 1, 1)
    assert sources(document.encode(document.text.replace("y = 2", "y = 3"))) == ["# %% perflint cell 7\nx = 1", "y = 3"]


@pytest.mark.parametrize(
    ("source", "masked"),
    [
        ("%matplotlib inline", "0#~~~~~~~~~~~~~~~~"),
        ("!ls", "0#~"),
        ("!", "0"),
        ("?", "0"),
        ("torch.nn.LSTM?", "0#~~~~~~~~~~~~"),
        ("?torch", "0#~~~~"),
        ("%%time\nx = 1", "0#~~~~\nx = 1"),
        ("files = !ls *.py", "files = _#~~~~~~"),
        ("a, b = %sql x", "a, b = _#~~~~"),
        ("if x:\n    !ls\n", "if x:\n    0#~\n"),
        ("!pip install \\\n    torch \\\n\nx = 1", "0#~~~~~~~~~~~~\n#~~~~~~~~~~\n\nx = 1"),
        ("%time y = model(x)", "if 1: y = model(x)"),
        ("%time for x in y: z", "0#~~~~~~~~~~~~~~~~~"),
        ("!echo 'it''s\nx = 1", "0#~~~~~~~~~~\nx = 1"),
        ("!cd x\r\ny = 1\r\n", "0#~~~\r\ny = 1\r\n"),
    ],
)
def test_what_ipython_adds_is_masked_at_the_same_length(source: str, masked: str) -> None:
    assert notebook.mask(source) == masked
    assert notebook.unmask(masked, source) == source
    ast.parse(masked)


@pytest.mark.parametrize(
    "source",
    [
        "x = (7\n% 3)",
        "x = 7 \\\n% 3",
        's = """\n!ls\n%time\nwhat?\n"""',
        "s = '\\'\\\n!ls'",
        "x = 'a' # it's\ny = 1 # what?",
        "print('x = %d' % 3)",
        "if a != b: pass",
        "x = 0\ny = _\n#\n",
        "x = [7\n% 3\n]",
        "await model(x)\nasync for y in z: pass",
        "model(x);",
    ],
)
def test_python_that_looks_like_ipython_is_left_alone(source: str) -> None:
    assert notebook.mask(source) == source
    ast.parse(source)


@given(
    st.lists(st.sampled_from([*"%!?,;/=x_0#~ \t\n\r\\\"'([{}])", "%time ", "x = !ls", "%%", "'''", "if 1: "])).map(
        "".join
    )
)
def test_any_text_is_masked_at_its_length_and_comes_back(source: str) -> None:
    masked = notebook.mask(source)
    assert len(masked) == len(source)
    assert notebook.unmask(masked, source) == source


@pytest.mark.parametrize(
    "magic", ["%%bash", "%%html", "%%writefile model.py", "%%javascript", "%%cython -a", "\n\n%%R"]
)
def test_cells_in_other_languages_are_left_out(magic: str) -> None:
    document = opened(code(f"{magic}\nx = 1"), code("y = 2"))
    assert document.text == "# %% perflint cell 1\ny = 2\n"


def test_cells_that_an_editor_marks_as_another_language_are_left_out() -> None:
    document = opened(code("x = 1", metadata={"vscode": {"languageId": "sql"}}), code("y = 2"))
    assert document.text == "# %% perflint cell 1\ny = 2\n"


def test_a_broken_cell_is_a_problem_that_names_it_and_the_rest_is_checked() -> None:
    document = opened(code("x = 1"), code("x = 1\nprint 'a'"), code("f(\n"), code("y = 2"))
    assert document.text == "# %% perflint cell 0\nx = 1\n# %% perflint cell 3\ny = 2\n"
    assert document.problem is not None
    assert document.problem.message.startswith("cell 1, line 2: ")
    assert "; cell 2, line 1: " in document.problem.message


def test_a_lone_surrogate_breaks_its_own_cell_only() -> None:
    document = decode("a.ipynb", json.dumps(as_notebook(code("s = '\ud83d'"), code("y = 2"))).encode())
    assert document.text == "# %% perflint cell 1\ny = 2\n"
    assert document.problem is not None


@pytest.mark.parametrize(
    "metadata",
    [{"kernelspec": {"language": "R", "name": "ir"}}, {"language_info": {"name": "julia"}}],
)
def test_a_notebook_of_another_kernel_is_skipped_with_the_reason(metadata: dict[str, Any]) -> None:
    document = opened(code("x <- 1"), metadata=metadata)
    assert document.text == ""
    assert "not Python" in document.skipped


@pytest.mark.parametrize(
    "raw",
    ["", " \n", '{"worksheets": [{}], "nbformat": 3}', '{"cells": []}', '{"cells": [], "metadata": 7, "nbformat": 4}'],
)
def test_an_empty_notebook_is_fine(raw: str) -> None:
    document = decode("a.ipynb", raw.encode())
    assert (document.text, document.skipped, document.problem) == ("", "", None)
    assert document.encode("") == raw.encode()
    assert document.position(0) == Position(None, 0, 1, 1)


@pytest.mark.parametrize(
    ("raw", "message", "line"),
    [
        ('{\n "cells": [,]\n}', "not valid JSON", 2),
        ("[1, 2]", "has no cells", None),
        ('{"metadata": {}}', "has no cells", None),
        ('{"cells": 7}', "not a list", None),
        ('{"cells": [7]}', "not an object", None),
        ('{"cells": [{"cell_type": "code", "source": 7}]}', "neither text", None),
        ('{"worksheets": [7]}', "not an object", None),
        ("[" * 100_000, "not a notebook", None),
    ],
)
def test_what_is_no_notebook_is_refused_with_its_reason(raw: str, message: str, line: int | None) -> None:
    with pytest.raises(Unreadable, match=message) as caught:
        decode("a.ipynb", raw.encode())
    assert caught.value.problem.line == line


def test_format_3_is_read_and_written_too() -> None:
    cell = {"cell_type": "code", "language": "python", "input": ["x = 1\n", "y = 2"], "outputs": []}
    raw = json.dumps({"worksheets": [{"cells": [{"cell_type": "heading", "source": "a"}, cell]}], "nbformat": 3})
    document = decode("a.ipynb", raw.encode())
    assert document.text == "# %% perflint cell 1\nx = 1\ny = 2\n"
    assert document.encode(document.text.replace("y = 2", "y = 3")).decode() == raw.replace("y = 2", "y = 3")


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("ensure_ascii", [True, False])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_fix_changes_the_changed_lines_and_not_one_other_byte(
    indent: int | None, ensure_ascii: bool, end: str
) -> None:
    cells = code(["s = 'é'\n", "x = 1\n", "!ls\n", "y = 2"]), code("a = 'ü'\nz = 3"), markdown("x = 1"), code(["x = 1"])
    content = as_notebook(*cells, zeta=1.0e5, alpha="\u2028</script>")
    raw = json.dumps(content, indent=indent, ensure_ascii=ensure_ascii) + end
    document = decode("a.ipynb", raw.encode())
    fixed = document.text.replace("y = 2", "y = 'ö'")
    expected = raw.replace("y = 2", "y = '" + json.dumps("ö", ensure_ascii=ensure_ascii)[1:-1] + "'")
    assert document.encode(fixed).decode() == expected
    assert document.encode(document.text).decode() == raw


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("before", [["x = 1"], ["x = 1\n", "y = 2"], [], "", "x = 1\ny = 2"])
@pytest.mark.parametrize("after", ["", "x = 1", "a\nx = 1\nb\n\ny = 2\n", "y = 2"])
def test_lines_can_be_added_and_removed_anywhere(before: list[str] | str, after: str, indent: int | None) -> None:
    document = opened(code(before), code("z = 3"), indent=indent)
    text = f"# %% perflint cell 0\n{after}\n# %% perflint cell 1\nz = 3\n"
    first, second = sources(document.encode(text))
    assert "".join(first) == after
    assert second == "z = 3"
    if isinstance(before, list):
        written = json.dumps(as_notebook(code(first), code("z = 3")), indent=indent, ensure_ascii=False)
        if first and before:
            assert document.encode(text).decode() == written


def test_masked_lines_come_back_where_a_fix_moved_them() -> None:
    document = opened(code("!ls\nx = 1\n%cd .."))
    moved = document.text.replace("0#~\nx", "import torch\nif x:\n    0#~\n    x")
    assert sources(document.encode(moved)) == ["import torch\nif x:\n    !ls\n    x = 1\n%cd .."]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("0#~\n", "", "magic, shell or help line of cell 0"),
        ("0#~\n", "0#~\n0#~\n", "magic, shell or help line of cell 0"),
        ("# %% perflint cell 1\n", "", "border of a cell"),
        ("# %% perflint cell 1", "    # %% perflint cell 1", "border of a cell"),
        ("# %% perflint cell 1", "# %% perflint cell 1\n# %% perflint cell 1", "border of a cell"),
    ],
)
def test_a_change_that_loses_what_is_masked_is_refused(old: str, new: str, reason: str) -> None:
    document = opened(code("!ls\nx = 1"), code("y = 2"))
    changed = document.text.replace(old, new)
    assert reason in document.refusal(changed)
    with pytest.raises(Unwritable):
        document.encode(changed)


def test_text_above_the_first_cell_joins_it_unless_a_cell_magic_must_stay_first() -> None:
    plain, timed = opened(code("x = 1")), opened(code("%%time\nx = 1"))
    assert sources(plain.encode("import torch\n" + plain.text)) == ["import torch\nx = 1"]
    assert "cell magic" in timed.refusal("import torch\n" + timed.text)


def test_nothing_is_put_between_a_cell_magic_and_the_start_of_its_cell() -> None:
    document = opened(code("a = 1"), code("%%time\nx = 1"))
    assert "cell magic" in document.refusal(document.text.replace("0#~~~~", "import torch\n0#~~~~"))


@pytest.mark.parametrize(
    "at", ["# %% perflint cell 0", "x = 1", "y = 2", "\n# %% perflint cell 1", "# %% perflint cell 1", "z = 3"]
)
@pytest.mark.parametrize("inserted", ["import torch\n", "\nimport torch"])
def test_a_placed_insertion_makes_of_the_cell_what_the_fix_makes_of_it(at: str, inserted: str) -> None:
    document = opened(code("x = 1\ny = 2"), code("z = 3"))
    offset = document.text.index(at)
    changed = document.text[:offset] + inserted + document.text[offset:]
    if document.refusal(changed):
        return
    placed = document.placed(Edit(offset, offset, inserted))
    assert placed.start.cell is not None
    before = document.unit(placed.start.cell).text
    after = before[: placed.start.offset] + placed.text + before[placed.end.offset :]
    assert sources(document.encode(changed))[placed.start.cell] == after


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("at", ["# %% perflint cell 0", "x = 1", "y = 2", "# %% perflint cell 1"])
def test_inserted_lines_end_as_those_of_their_own_cell(at: str, newline: str) -> None:
    other = {"\n": "\r\n", "\r\n": "\n"}[newline]
    document = opened(code(f"x = 1{newline}y = 2"), code(f"z = 3{other}z = 4{other}z = 5{other}z = 6"))
    offset = document.text.index(at)
    (edit,) = fitted(document.text, Fix("add", Safety.EXACT, (Edit(offset, offset, "import torch\n"),))).edits
    first, second = sources(document.encode(document.text[:offset] + edit.text + document.text[offset:]))
    assert sorted(first.split(newline)) == ["import torch", "x = 1", "y = 2"]
    assert second == document.unit(1).text
    placed, before = document.placed(edit), document.unit(0).text
    assert before[: placed.start.offset] + placed.text + before[placed.end.offset :] == first


def test_a_placed_edit_names_its_cell() -> None:
    document = opened(markdown("a"), code("x = 1\ny = 2"))
    start = document.text.index("y = 2")
    expected = PlacedEdit(Position(1, 6, 2, 1), Position(1, 11, 2, 6), "y = 3")
    assert document.placed(Edit(start, start + 6, "y = 3\n")) == expected
    assert document.placed(Edit(start, start + 5, "y = 3")) == expected

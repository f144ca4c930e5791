"""The hunks of a patch, and which fix each belongs to."""

from __future__ import annotations

from perflint.verify.verdict import Hunk

BEFORE = "import torch\n\n" + "".join(f"line {number}\n" for number in range(3, 40))


def _with(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert text.count(f"{old}\n") == 1
        text = text.replace(f"{old}\n", new)
    return text


FIRST = (("import torch", "import torch\nimport graphs\n"), ("line 20", "with graphs:\n    line 20\n"))
SECOND = (("line 35", ""),)
NEAR = (("line 22", "line twenty-two\n"),)


def test_each_hunk_names_the_fixes_that_it_is_made_of() -> None:
    alone = {"first": _with(BEFORE, *FIRST), "second": _with(BEFORE, *SECOND), "near": _with(BEFORE, *NEAR)}
    found = list(Hunk.between("train.py", BEFORE, _with(BEFORE, *FIRST, *SECOND, *NEAR), alone))
    assert [hunk.fixes for hunk in found] == [("first",), ("first", "near"), ("second",)]
    assert {hunk.path for hunk in found} == {"train.py"}


def test_a_hunk_reads_as_in_a_unified_diff() -> None:
    (hunk,) = Hunk.between("train.py", BEFORE, _with(BEFORE, *SECOND), {})
    assert hunk.text == "@@ -32,7 +32,6 @@\n line 32\n line 33\n line 34\n-line 35\n line 36\n line 37\n line 38\n"
    assert hunk.fixes == ()


def test_what_is_added_at_the_end_has_its_fix_too() -> None:
    after = BEFORE + "more\n"
    (hunk,) = Hunk.between("train.py", BEFORE, after, {"end": after, "start": f"# first\n{BEFORE}"})
    assert hunk.fixes == ("end",)


def test_a_file_that_stays_has_no_hunks() -> None:
    assert not list(Hunk.between("train.py", BEFORE, BEFORE, {"first": _with(BEFORE, *FIRST)}))

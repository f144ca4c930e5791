"""`perflint fix`: the diff that it shows, the files that it writes, and what it says of both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perflint.cli.session import fix_report
from perflint.documents.disk import Position
from perflint.project.patch import Patch, Unfixed
from perflint.report.text import Style
from tests.call_rules import Project, project

__all__ = ["project"]


def _without_blanks(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_diff_is_shown_and_nothing_is_written(project: Project) -> None:
    project.program("a.py", "slow()")
    result = project.run("fix")
    assert result.exit_code == 1
    assert result.stdout == "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n import torch\n-slow()\n+fast()\n"
    assert "`perflint fix --apply` with the same paths" in result.stderr
    assert project.read("a.py") == "import torch\nslow()\n"


def test_a_diff_can_be_asked_for_by_name_and_without_an_exit_code(project: Project) -> None:
    project.program("a.py", "slow()")
    shown = project.run("fix")
    named = project.run("fix", "--diff", "--exit-zero")
    assert (named.exit_code, named.stdout) == (0, shown.stdout)


def test_git_applies_the_diff_also_where_lines_end_otherwise(project: Project) -> None:
    project.write("a.py", "import torch\r\nslow()\r\nslow()")
    project.write("b.py", "import torch\nslow('é')")
    diff = project.run("fix").stdout_bytes
    subprocess.run(["git", "apply", "-"], cwd=project.root, input=diff, check=True)
    assert project.read("a.py") == "import torch\r\nfast()\r\nfast()"
    assert project.read("b.py") == "import torch\nfast('é')"


def test_color_is_only_added_to_the_diff(project: Project) -> None:
    project.program("a.py", "slow()")
    plain = project.run("fix").stdout
    colored = project.run("fix", "--color", "always").stdout
    assert "\x1b[32m+fast()\x1b[0m" in colored
    for code in ("1", "31", "32", "36", "0"):
        colored = colored.replace(f"\x1b[{code}m", "")
    assert colored == plain


def test_without_a_fix_there_is_no_diff_and_the_exit_code_is_zero(project: Project) -> None:
    project.program("a.py", "stuck()")
    result = project.run("fix")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "slow-call 1 it is stuck (a.py:2:1)" in _without_blanks(result.stderr)


def test_apply_writes_and_says_by_rule_what_it_fixed_and_what_it_left_and_why(project: Project) -> None:
    project.program("a.py", "slow()", "slow()", "risky()")
    project.program("b.py", "stuck()", "slow()")
    result = project.run("fix", "--apply")
    assert (result.exit_code, result.stdout) == (0, "")
    assert project.read("a.py") == "import torch\nfast()\nfast()\nrisky()\n"
    assert project.read("b.py") == "import torch\nstuck()\nfast()\n"
    lines = _without_blanks(result.stderr)
    assert lines[:2] == ["Fixed 3 findings in 2 files:", "slow-call 3 call fast instead"]
    assert lines[2] == "Left 2 findings:"
    assert "slow-call 1 it is stuck (b.py:2:1)" in lines
    assert any("--unsafe" in line and "(a.py:4:1)" in line for line in lines)


def test_a_second_run_changes_nothing(project: Project) -> None:
    project.program("a.py", "slow()")
    project.run("fix", "--apply")
    again = project.run("fix", "--apply")
    assert again.exit_code == 0
    assert "Nothing to fix in 1 file" in again.stderr


def test_unsafe_fixes_are_written_only_when_asked_for_there_or_in_the_configuration(project: Project) -> None:
    project.program("a.py", "risky()")
    assert "+bold()" not in project.run("fix").stdout
    assert "+bold()" in project.run("fix", "--unsafe").stdout
    project.write("perflint.toml", "unsafe = true")
    assert "+bold()" in project.run("fix").stdout


def test_what_is_not_selected_is_not_fixed(project: Project) -> None:
    project.program("a.py", "slow()")
    project.program("tests/a.py", "slow()")
    assert project.run("fix", "--select", "memory").exit_code == 0
    assert project.run("fix", "--ignore", "slow-call").exit_code == 0
    diff = project.run("fix", "--per-file-ignores", "tests/*:sync").stdout
    assert "a/a.py" in diff
    assert "tests" not in diff


def test_what_a_comment_ignores_is_not_fixed_and_a_comment_for_nothing_goes(project: Project) -> None:
    project.program("a.py", "slow()  # perflint: ignore[slow-call] wanted", "fast()  # perflint: ignore[slow-call] old")
    assert project.run("fix", "--apply").exit_code == 0
    assert project.read("a.py") == "import torch\nslow()  # perflint: ignore[slow-call] wanted\nfast()\n"


def test_many_places_left_for_one_reason_are_one_line_unless_verbose(project: Project) -> None:
    project.program("a.py", *["stuck()"] * 5)
    brief = project.run("fix").stderr
    assert "a.py:4:1 and 2 more" in brief
    assert "a.py:6:1" not in brief
    assert "a.py:6:1" in project.run("fix", "--verbose").stderr


def test_quiet_shows_nothing_but_the_diff_and_mistakes(project: Project) -> None:
    project.program("a.py", "slow()", "stuck()")
    result = project.run("fix", "--quiet")
    assert (result.exit_code, result.stderr) == (1, "")
    project.write("b.py", "import torch\n(\n")
    assert "b.py:2" in project.run("fix", "--quiet").stderr


def test_one_file_that_is_no_python_is_named_and_the_others_are_fixed(project: Project) -> None:
    project.program("a.py", "slow()")
    project.write("b.py", "import torch\nprint 'é'\n")
    result = project.run("fix", "--apply")
    assert result.exit_code == 2
    assert "b.py:2: is not valid Python" in result.stderr
    assert project.read("a.py") == "import torch\nfast()\n"


def test_a_file_that_cannot_be_written_is_an_error_and_the_others_are_fixed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perflint.documents.disk import Unwritable
    from perflint.documents.document import Document

    write = Document.write

    def failing(document: Document, text: str) -> None:
        if document.path == "a.py":
            raise Unwritable("a.py: not written: it is read-only")
        write(document, text)

    monkeypatch.setattr(Document, "write", failing)
    project.program("a.py", "slow()")
    project.program("b.py", "slow()")
    result = project.run("fix", "--apply")
    assert result.exit_code == 2
    assert "a.py: not written: it is read-only" in result.stderr
    assert "Fixed 1 finding in 1 file" in result.stderr
    assert project.read("b.py") == "import torch\nfast()\n"
    assert project.run("fix", "--apply").stderr.endswith("\nNothing to fix in 1 other file.\n")
    assert project.run("fix", "--apply", "a.py").stderr.endswith("\nNo file was fixed.\n")


def test_the_last_line_does_not_count_a_file_that_is_no_python_among_those_with_nothing_to_fix(
    project: Project,
) -> None:
    project.write("a.py", "import torch\nprint 1\n")
    assert project.run("fix").stderr.endswith("\nNo file was fixed.\n")
    project.program("b.py", "fast()")
    assert project.run("fix").stderr.endswith("\nNothing to fix in 1 other file.\n")


def test_a_fix_that_would_break_the_program_is_reported_and_not_written(project: Project) -> None:
    project.write("perflint.toml", "rules.slow-call.replacement = 'not ('")
    project.program("a.py", "slow()")
    result = project.run("fix", "--apply")
    assert result.exit_code == 2
    assert "a fix of slow-call fails" in result.stderr
    assert project.read("a.py") == "import torch\nslow()\n"


def test_a_defect_of_a_rule_shows_its_traceback(project: Project) -> None:
    project.program("a.py", "crash()")
    result = project.run("fix", "--extend-select", "perhaps-call")
    assert result.exit_code == 2
    assert "LookupError: nothing here" in result.stderr


def test_many_files_are_fixed_the_same_in_several_processes(project: Project) -> None:
    for number in range(12):
        project.program(f"a{number:02}.py", "slow()")
    alone, together = (project.run("fix", "--jobs", jobs) for jobs in ("1", "2"))
    assert alone.stdout == together.stdout
    assert alone.stdout.count("+fast()") == 12


def test_standard_input_is_filtered(project: Project) -> None:
    result = project.run("fix", "-", stdin="\ufeffimport torch\r\nslow()  # é\r\nstuck()".encode())
    assert result.exit_code == 0
    assert result.stdout_bytes == "\ufeffimport torch\r\nfast()  # é\r\nstuck()".encode()
    assert "it is stuck (<stdin>:3:1)" in result.stderr


@pytest.mark.parametrize("data", [b"import torch\nprint 1\nslow()\n", b"\xff\xfe\x00slow()", b"", b"x = 1"])
def test_a_filter_gives_back_what_it_cannot_fix(project: Project, data: bytes) -> None:
    result = project.run("fix", "-", stdin=data)
    assert result.stdout_bytes == data
    assert result.exit_code == (2 if b"slow" in data else 0)


def test_a_filter_obeys_the_settings_for_the_name_it_is_given(project: Project) -> None:
    project.write("perflint.toml", "exclude = ['old']\nper-file-ignores = {'tests/*' = ['all']}")
    project.program("old/a.py", "slow()")
    program = project.read("old/a.py")
    assert "fast" in project.run("fix", "-", "--stdin-filename", "src/a.py", stdin=program).stdout
    assert "fast" not in project.run("fix", "-", "--stdin-filename", "tests/a.py", stdin=program).stdout


@pytest.mark.parametrize("name", ["old/a.py", "old/new.py", ".venv/lib/new.py"])
def test_a_filter_leaves_out_what_is_excluded_whether_or_not_there_is_such_a_file(project: Project, name: str) -> None:
    project.write("perflint.toml", "exclude = ['.venv', 'old']")
    project.program("old/a.py", "slow()")
    program = project.read("old/a.py")
    excluded = project.run("fix", "-", "--stdin-filename", name, "--force-exclude", stdin=program)
    assert (excluded.exit_code, excluded.stdout) == (0, program)
    assert "fast" in project.run("fix", "-", "--stdin-filename", name, stdin=program).stdout
    assert "fast" in project.run("fix", "-", "--force-exclude", stdin=program).stdout


def test_a_notebook_is_fixed_as_a_file_and_in_a_filter(project: Project) -> None:
    def notebook(call: str) -> str:
        cell: dict[str, object] = {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": [],
        }
        cells = [{**cell, "source": ["import torch\n", "%time x = 1\n"]}, {**cell, "source": [f"{call}()"]}]
        content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        return json.dumps(content, indent=1) + "\n"

    project.write("a.ipynb", notebook("slow"))
    filtered = project.run("fix", "-", "--stdin-filename", "a.ipynb", stdin=notebook("slow"))
    assert filtered.stdout == notebook("fast")
    assert "a.ipynb" in project.run("fix").stdout
    assert project.run("fix", "--apply").exit_code == 0
    assert project.read("a.ipynb") == notebook("fast")


def test_the_module_runs_as_the_command_does(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("import torch\nx = 1  # perflint: ignore[item-in-loop] no longer\n")
    command = [sys.executable, "-m", "perflint", "fix", "--apply", "--isolated", "--select", "unused-ignore,sync", "."]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert file.read_text() == "import torch\nx = 1\n"


def test_only_what_was_verified_needs_verdicts_that_can_be_read(project: Project) -> None:
    project.program("a.py", "slow()")
    project.write(".perflint/verdicts.json", "{")
    result = project.run("fix", "--verified")
    (line,) = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (2, "")
    assert line.endswith("verdicts.json: it holds no verdicts that can be read: delete it or verify again")
    assert project.run("fix", "--apply").exit_code == 0


def test_obstacles_that_differ_by_lines_or_names_alone_are_told_together() -> None:
    reasons = ("line 3: it waits", "line 9 of cell 2: it waits", "line 5: `a` goes", "line 5: `b` goes", "goes")
    left = tuple(Unfixed("slow", Position(None, 0, line, 1), "", reason) for line, reason in enumerate(reasons, 1))
    told = fix_report([Patch("a.py", left=left)], Style(False, None, False, False), applied=False)
    assert _without_blanks(told)[2:] == [
        "slow 2 line 5: `a` goes (a.py:3:1; alike: a.py:4:1)",
        "slow 2 it waits (a.py:1:1, a.py:2:1)",
        "slow 1 goes (a.py:5:1)",
    ]

"""`perflint check`: what it says, what it writes, and the code that it exits with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import perflint
from perflint.cli import console, session
from perflint.engine import UserError
from tests.call_rules import Project, project

__all__ = ["project"]


def _codes(output: str) -> list[tuple[str, int]]:
    return [(item["code"], item["line"]) for item in json.loads(output)]


def test_findings_are_shown_with_their_code_and_exit_with_one(project: Project) -> None:
    project.program("a.py", "slow()")
    result = project.run("check")
    assert result.exit_code == 1
    for part in ("slow-call", "slow is slow", "a.py:2:1", "slow()", "call fast instead", "1 finding in 1 of 1 file"):
        assert part in result.stdout
    assert result.stderr == ""


def test_a_clean_project_exits_with_zero(project: Project) -> None:
    project.program("a.py", "fast()")
    assert project.run("check", ".").exit_code == 0


def test_exit_zero_forgives_findings_but_no_unreadable_file(project: Project) -> None:
    project.program("a.py", "slow()")
    assert project.run("check", "--exit-zero").exit_code == 0
    project.write("b.py", "import torch\nprint 1\n")
    assert project.run("check", "--exit-zero").exit_code == 2


def test_one_file_that_is_no_python_is_named_and_the_others_are_checked(project: Project) -> None:
    project.program("a.py", "slow()")
    project.write("b.py", "import torch\ndef f(:\n")
    result = project.run("check", "--output-format", "concise")
    assert result.exit_code == 2
    assert "a.py:2:1: slow-call" in result.stdout
    assert "b.py:2: error" in result.stdout


@pytest.mark.parametrize("arguments", [["absent.py"], ["a.py", "absent"], ["empty"]])
def test_a_missing_path_and_a_folder_without_files_are_mistakes(project: Project, arguments: list[str]) -> None:
    project.program("a.py")
    (project.root / "empty").mkdir()
    result = project.run("check", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("perflint: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--select", "slow-cal"], "--select: no rule or group is called 'slow-cal'; did you mean slow-call?"),
        (["--select", ","], "names no rule"),
        (["--select", "slow-call", "--ignore", "sync,slow-call"], "no rule is on"),
        (["--output-format", "ful"], "'ful' is not one of"),
        (["--jobs", "0"], "0 is not in the range"),
        (["--slect", "all"], "No such option"),
        (["--per-file-ignores", "tests"], "expected PATTERN:RULE, got 'tests'"),
        (["--config", "absent.toml"], "absent.toml: No such file"),
        (["--baseline", "absent.json"], "absent.json"),
        (["--output-file", "absent/report.json"], "absent/report.json: No such file"),
        (["--add-ignore", "--write-baseline", "b.json"], "choose one"),
        (["--stdin-filename", "b.py"], "needs - for PATHS"),
        (["a.py", "-"], "stands alone"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exits_with_two(
    project: Project, arguments: list[str], message: str
) -> None:
    project.program("a.py", "slow()")
    result = project.run("check", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_advice_is_off_until_it_is_selected(project: Project) -> None:
    project.program("a.py", "perhaps()")
    assert project.run("check").exit_code == 0
    assert project.run("check", "--extend-select", "memory").exit_code == 1


def test_rules_are_selected_and_ignored_by_name_and_group_with_commas_and_repeated(project: Project) -> None:
    project.program("a.py", "slow()", "perhaps()")
    for arguments, expected in [
        (["--select", "slow-call,perhaps-call"], [("slow-call", 2), ("perhaps-call", 3)]),
        (["--select", "sync", "--select", "memory"], [("slow-call", 2), ("perhaps-call", 3)]),
        (["--select", "memory"], [("perhaps-call", 3)]),
        (["--ignore", "sync"], []),
    ]:
        result = project.run("check", "--output-format", "json", *arguments)
        assert _codes(result.stdout) == expected


def test_a_rule_can_be_ignored_in_the_files_of_a_pattern(project: Project) -> None:
    project.program("tests/a.py", "slow()")
    project.program("src/a.py", "slow()")
    result = project.run("check", "--output-format", "concise", "--per-file-ignores", "tests/*:sync")
    assert "src/a.py:2" in result.stdout
    assert "tests/a.py" not in result.stdout


def test_the_nearest_configuration_is_that_of_the_files_and_not_of_the_working_directory(project: Project) -> None:
    project.write("pyproject.toml", "[tool.perflint]\nignore = ['sync']")
    project.write("inner/pyproject.toml", "[tool.perflint]\nper-file-ignores = {'b.py' = ['all']}")
    project.program("inner/a.py", "slow()")
    project.program("inner/b.py", "slow()")
    result = project.run("check", "inner/a.py", "inner/b.py", "--output-format", "json")
    assert _codes(result.stdout) == [("slow-call", 2)]
    assert project.run("check", ".").exit_code == 0
    assert project.run("check", ".", "--isolated").exit_code == 1


def test_options_of_a_rule_reach_it(project: Project) -> None:
    project.write("perflint.toml", "rules.slow-call.replacement = 'quick'")
    project.program("a.py", "slow()")
    assert "call quick instead" in project.run("check").stdout


def test_a_mistake_in_the_configuration_is_one_line(project: Project) -> None:
    project.write("pyproject.toml", "[tool.perflint]\nslect = ['sync']")
    project.program("a.py")
    result = project.run("check")
    assert result.exit_code == 2
    assert result.stderr == "perflint: pyproject.toml: tool.perflint.slect: unknown key 'slect'; did you mean select?\n"


@pytest.mark.parametrize("name", ["full", "concise", "json", "json-lines", "sarif", "github", "gitlab", "junit"])
def test_every_format_goes_to_a_file_as_to_standard_output(project: Project, name: str) -> None:
    project.program("é.py", "slow()")
    shown = project.run("check", "--output-format", name, "--quiet")
    written = project.run("check", "--output-format", name, "--quiet", "-o", "report")
    assert shown.exit_code == written.exit_code == 1
    assert written.stdout == written.stderr == ""
    assert (project.root / "report").read_bytes() == shown.stdout_bytes != b""
    assert project.run("check", "--output-format", name, "-o", "report").stderr == "1 finding: report\n"


def test_statistics_count_the_findings_of_each_rule(project: Project) -> None:
    project.program("a.py", "slow()", "slow()", "perhaps()")
    first, second = project.run("check", "--statistics", "--extend-select", "all", "-q").stdout.splitlines()
    assert first.split()[:2] == ["2", "slow-call"]
    assert second.split()[:2] == ["1", "perhaps-call"]


def test_quiet_leaves_the_summary_out_and_verbose_says_what_was_left_out(project: Project) -> None:
    project.program("a.py", "fast()")
    project.program("old/a.py", "slow()")
    project.write("perflint.toml", "extend-exclude = ['old']\nignore = ['slow-call']")
    assert project.run("check", "--quiet").stdout == ""
    verbose = project.run("check", "--verbose").stdout
    assert "old: excluded by" in verbose
    assert "slow-call is off: it is ignored, as slow-call" in verbose
    assert "perhaps-call is off: it is advice, which must be selected" in verbose


def test_color_is_forced_or_forbidden(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.program("a.py", "slow()")
    assert "\x1b[" not in project.run("check").stdout
    assert "\x1b[" in project.run("check", "--color", "always").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in project.run("check").stdout
    assert "\x1b[" not in project.run("check", "--color", "never").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in project.run("check").stdout


def test_standard_input_is_checked_under_its_name(project: Project) -> None:
    project.write("perflint.toml", "per-file-ignores = {'tests/*' = ['all']}")
    program = "import torch\nslow()\n"
    result = project.run("check", "-", "--output-format", "concise", stdin=program)
    assert result.exit_code == 1
    assert "<stdin>:2:1: slow-call" in result.stdout
    assert project.run("check", "-", "--stdin-filename", "tests/a.py", stdin=program).exit_code == 0
    named = project.run("check", "-", "--stdin-filename", "src/a.py", "--output-format", "json", stdin=program)
    assert json.loads(named.stdout)[0]["path"] == "src/a.py"


def test_an_excluded_file_is_taken_when_named_unless_exclusion_is_forced(project: Project) -> None:
    project.write("perflint.toml", "exclude = ['old']")
    project.program("old/a.py", "slow()")
    program = project.read("old/a.py")
    assert project.run("check", "old/a.py").exit_code == 1
    assert project.run("check", "old/a.py", "--force-exclude").exit_code == 0
    assert project.run("check", "-", "--stdin-filename", "old/a.py", stdin=program).exit_code == 1
    assert project.run("check", "-", "--stdin-filename", "old/a.py", "--force-exclude", stdin=program).exit_code == 0


def test_findings_in_a_baseline_are_accepted_and_new_ones_are_not(project: Project) -> None:
    project.program("a.py", "slow()")
    written = project.run("check", "--write-baseline", "known.json")
    assert (written.exit_code, written.stdout) == (0, "Accepted 1 finding: known.json\n")
    accepted = project.run("check", "--baseline", "known.json")
    assert accepted.exit_code == 0
    assert "1 finding accepted by the baseline known.json" in accepted.stdout
    project.program("a.py", "pass", "slow()", "stuck()")
    result = project.run("check", "--baseline", "known.json", "--output-format", "json")
    assert _codes(result.stdout) == [("slow-call", 4)]


def test_a_baseline_from_the_configuration_forgets_what_is_gone(project: Project) -> None:
    project.write("perflint.toml", "baseline = 'known.json'")
    project.program("a.py", "slow()")
    assert project.run("check", "--write-baseline", "known.json").exit_code == 0
    project.program("a.py", "fast()")
    assert "no longer occur" in project.run("check").stdout
    assert project.run("check", "--write-baseline", "known.json").exit_code == 0
    assert "no longer occur" not in project.run("check").stdout


def test_add_ignore_accepts_findings_by_comments_and_changes_nothing_else(project: Project) -> None:
    project.program("a.py", "slow()  # why", "fast()", "stuck(slow())")
    result = project.run("check", "--add-ignore")
    assert (result.exit_code, result.stdout) == (0, "Added comments for 3 findings to 1 file.\n")
    lines = project.read("a.py").splitlines()
    assert lines[1].startswith("slow()  # why")
    assert lines[2] == "fast()"
    assert lines[3] == "stuck(slow())  # perflint: ignore[slow-call]"
    assert project.run("check").exit_code == 0


def test_add_ignore_leaves_what_the_baseline_accepts_as_it_is(project: Project) -> None:
    project.program("a.py", "slow()")
    project.run("check", "--write-baseline", "known.json")
    project.program("a.py", "slow()", "stuck()")
    project.run("check", "--baseline", "known.json", "--add-ignore")
    assert project.read("a.py") == "import torch\nslow()\nstuck()  # perflint: ignore[slow-call]\n"


def test_accepting_findings_does_not_hide_a_file_that_could_not_be_checked(project: Project) -> None:
    project.program("a.py", "slow()")
    project.write("b.py", "import torch\n(\n")
    for arguments in (["--write-baseline", "known.json"], ["--add-ignore"]):
        result = project.run("check", *arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith("perflint: b.py:2: ")


def test_findings_in_standard_input_cannot_be_accepted(project: Project) -> None:
    assert project.run("check", "-", "--add-ignore").exit_code == 2


def test_a_defect_of_a_rule_shows_its_traceback_and_the_other_files_are_checked(project: Project) -> None:
    project.program("a.py", "crash()")
    project.program("b.py", "slow()")
    result = project.run("check", "--extend-select", "perhaps-call", "--output-format", "concise")
    assert result.exit_code == 2
    assert "b.py:2:1: slow-call" in result.stdout
    assert "Traceback" in result.stderr
    assert "LookupError: nothing here" in result.stderr


def test_the_cache_goes_where_it_is_told_and_nowhere_if_so_told(project: Project) -> None:
    project.program("a.py", "slow()")
    assert project.run("check", "--no-cache").exit_code == 1
    assert [path.name for path in project.root.iterdir()] == ["a.py"]
    for _ in range(2):
        assert project.run("check", "--cache-dir", "kept").exit_code == 1
    assert sorted(path.name for path in project.root.iterdir()) == ["a.py", "kept"]


def test_an_interrupted_run_is_quiet_and_exits_as_shells_expect(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "discover", interrupted)
    result = project.run("check")
    assert (result.exit_code, result.output) == (130, "")


def test_without_a_command_the_help_is_shown_and_nothing_is_clean(project: Project) -> None:
    result = project.run()
    assert result.exit_code == 2
    for command in ("check", "fix", "explain", "rules", "config", "completion"):
        assert command in result.stdout


def test_config_shows_each_setting_with_its_origin_and_is_toml(project: Project) -> None:
    project.write(
        "pyproject.toml",
        "[tool.perflint]\nper-file-ignores = {'a.py' = ['sync']}\n[tool.perflint.rules.slow-call]\nreplacement = 'é'",
    )
    result = project.run("config", "--jobs", "3", "--select", "all")
    assert result.exit_code == 0
    lines = {line.partition(" ")[0]: line for line in result.stdout.splitlines()}
    assert lines["jobs"].split() == "jobs = 3 # command line".split()
    assert lines["select"].split() == 'select = ["all"] # command line'.split()
    assert lines["cache"].split() == "cache = true # default".split()
    assert lines["replacement"].endswith("# pyproject.toml: tool.perflint.rules.slow-call.replacement")
    project.write("perflint.toml", result.stdout)
    again = project.run("config").stdout
    assert [line.partition("#")[0].strip() for line in again.splitlines()] == [
        line.partition("#")[0].strip() for line in result.stdout.splitlines()
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(project: Project, shell: str) -> None:
    result = project.run("completion", shell)
    assert result.exit_code == 0
    assert "_PERFLINT_COMPLETE" in result.stdout


def _spawn(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, stdout: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "perflint", *arguments]
    return subprocess.Popen(command, cwd=cwd, env={**os.environ, **(env or {})}, stdout=stdout, stderr=subprocess.PIPE)


def _complete(words: str, cwd: Path) -> list[str]:
    env = {"_PERFLINT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    output, _ = _spawn(cwd=cwd, env=env).communicate()
    return [line.partition(",")[2] for line in output.decode().splitlines()]


def test_commands_formats_rules_and_groups_complete(tmp_path: Path) -> None:
    assert _complete("perflint com", tmp_path) == ["completion"]
    assert _complete("perflint check --output-format json", tmp_path) == ["json", "json-lines"]
    assert _complete("perflint explain unused", tmp_path) == ["unused-ignore"]
    assert _complete("perflint check --select sync,unus", tmp_path) == ["sync,unused-ignore"]


def test_the_version_is_told_without_importing_what_only_commands_need(tmp_path: Path) -> None:
    code = "import sys; from perflint.cli.commands import cli\ntry: cli(['--version'])\nfinally: print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    version, modules = output.stdout.splitlines()
    assert version.endswith(f" {perflint.__version__}")
    unneeded = {"torch", "libcst", "rich", "pathspec", "perflint.engine.catalogue", "perflint.project.settings"}
    assert not unneeded & set(modules.split())


def test_a_terminal_that_knows_only_ascii_is_no_reason_to_crash(tmp_path: Path) -> None:
    (tmp_path / "é.py").write_text("import torch\nx = 1  # perflint: ignore[unused-ignroe] é☃\n", encoding="utf-8")
    for name in ("full", "json", "junit", "sarif"):
        env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        process = _spawn("check", "--output-format", name, "--isolated", cwd=tmp_path, env=env)
        output, errors = process.communicate()
        assert (process.returncode, errors) == (1, b"")
        assert b"unused-ignore" in output


def test_a_reader_that_goes_away_ends_the_run_quietly(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n" + "x = 1  # perflint: ignore[unused-ignroe]\n" * 2000)
    process = _spawn("check", "--isolated", cwd=tmp_path)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (1, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe with a name is POSIX's")
def test_ctrl_c_ends_the_run_quietly(tmp_path: Path) -> None:
    pipe = tmp_path / "perflint.toml"
    os.mkfifo(pipe)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a runner in the background may ignore
    process = _spawn("check", "--config", str(pipe), cwd=tmp_path)
    signal.signal(signal.SIGINT, before)
    with pipe.open("wb"):  # which waits until the process reads from it, as that does until this is closed
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
    assert (process.returncode, output, errors) == (130, b"", b"")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_entered_is_one_line(project: Project) -> None:
    closed = Path(project.program("closed/a.py", "slow()")).parent
    closed.chmod(0)
    said = [project.run("check", name).stderr for name in ("closed", "closed/a.py")]
    closed.chmod(0o700)
    assert said == ["perflint: closed: Permission denied\n", "perflint: closed/a.py: Permission denied\n"]


def test_a_working_directory_that_is_gone_is_one_line(tmp_path: Path) -> None:
    script = (
        "import os, sys; from perflint.__main__ import main\n"
        "os.rmdir(os.getcwd()); sys.argv = ['perflint', 'check']; main()"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, "perflint: the working directory does not exist any more\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("format_", ["full", "json"])
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, format_: str) -> None:
    (tmp_path / "a.py").write_text("import torch\n")
    command = [sys.executable, "-m", "perflint", "check", "--output-format", format_, "."]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, "perflint: the output can't be written: No space left on device\n")


def test_links_in_a_circle_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    command = [sys.executable, "-m", "perflint", "check", "loop.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, "perflint: loop.py: Symlink loop from 'loop.py'\n")


def test_fix_writes_the_fixes_and_reports_the_rest(project: Project) -> None:
    project.program("a.py", "slow()", "stuck()")
    result = project.run("check", "--fix", "--output-format", "json")
    assert _codes(result.stdout) == [("slow-call", 3)]
    assert project.read("a.py") == "import torch\nfast()\nstuck()\n"
    assert "Fixed 1 finding in 1 file" in result.stderr


def test_what_check_can_not_do_at_once_is_a_mistake(project: Project) -> None:
    project.program("a.py", "slow()")
    for arguments in (["--unsafe"], ["--fix", "--add-ignore"], ["--watch", "--write-baseline", "x"]):
        result = project.run("check", *arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
    assert project.read("a.py") == "import torch\nslow()\n"


def test_all_rules_can_be_asked_for_as_ruff_spells_it(project: Project) -> None:
    project.program("a.py", "slow()")
    assert project.run("check", "-q", "--select", "ALL").stdout == project.run("check", "-q", "--select", "all").stdout


def test_those_who_come_from_ruff_are_told_what_to_type(project: Project) -> None:
    project.program("a.py", "slow()")
    assert "Here: --unsafe" in project.run("check", "--unsafe-fixes").stderr
    shown = project.run("check", "--diff", "a.py")
    assert (shown.stdout, shown.exit_code) == (project.run("fix", "a.py").stdout, 1) and "-slow()" in shown.stdout
    assert project.run("check", "--diff", "--exit-zero", "a.py").exit_code == 0
    assert "nothing else" in project.run("check", "--diff", "--fix", "a.py").stderr
    assert "perflint check a.py" in project.run("a.py").stderr
    assert "Here: perflint explain" in project.run("rule", "slow-call").stderr
    assert "Here: --apply" in project.run("fix", "--fix", "a.py").stderr
    assert "Here: `perflint check` has it" in project.run("fix", "--baseline", "b.json", "a.py").stderr
    assert "Here: --watch" in project.run("check", "-w", "a.py").stderr
    assert "--statistics has no sarif" in project.run("check", "--statistics", "--output-format", "sarif").stderr


def test_a_watch_goes_by_the_settings_as_they_are_now(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.program("a.py", "slow()")
    seen: list[list[str]] = []

    def changes(find: Callable[[], Sequence[Path]]) -> Iterator[None]:
        for text in ('ignore = ["slow-call"]', 'ignore = ["slw-call"]', ""):
            project.write("perflint.toml", text)
            seen.append(sorted(each.name for each in find()))
            yield

    monkeypatch.setattr(console, "changes", changes)
    result = project.run("check", "--watch", "-q", "--output-format", "concise")
    assert result.stdout.count("slow-call") == 2
    assert result.stderr.count("did you mean slow-call?") == 1
    assert seen[0][:2] == ["a.py", "perflint.toml"] and "perflint.toml" in seen[1] and seen[2] == seen[0]


def test_a_watch_sees_each_change(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.touch()
    looks: list[int] = []

    def find() -> list[Path]:
        looks.append(len(looks))
        if looks[-1] == 3:
            raise UserError("no Python files or notebooks found")
        return sorted(tmp_path.glob("*.py"))

    later = console.changes(find, every=0)
    os.utime(file, ns=(1, 1))
    next(later)
    (tmp_path / "new.py").touch()
    next(later)
    next(later)  # all is gone
    next(later)
    assert len(looks) == 5

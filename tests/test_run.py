"""Many files: the same results on one core and on several, with and without a cache, whatever happens to a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from perflint.analysis.links import Context, Links
from perflint.analysis.program import Program
from perflint.engine import check
from perflint.engine.results import FileResult, RunResult
from perflint.engine.rule import Rule
from perflint.project import available_cores, run, workers
from perflint.project.files import Discovery, discover, in_project
from perflint.project.settings import Settings
from tests.stub_rules import BOTTOMLESS, CRASH, EVAL, KILLED

HEAD = "import torch\n"


@pytest.fixture(autouse=True)
def _rules(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, EVAL, CRASH, KILLED, BOTTOMLESS)


@pytest.fixture
def _always_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_BYTES_PER_WORKER", 1)


def use(monkeypatch: pytest.MonkeyPatch, *rules: Rule) -> None:
    monkeypatch.setattr("perflint.project.files.selected_rules", lambda _: rules)


def project(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (root / f"{name}.py").write_text(HEAD + text)
    return root


def checked(root: Path, **settings: object) -> RunResult:
    resolved = Settings(root=root, **{"cache": False, "jobs": 2, **settings})  # type: ignore[arg-type]
    return run.check_files(discover([root], resolved), resolved)


def by_name(result: RunResult) -> dict[str, FileResult]:
    return {Path(file.path).stem: file for file in result.files}


MIXED = {
    "bad": "x = (\n",
    "clean": "x = 1\n",
    "crash": "crash = True\n",
    "deep": "bottomless = True\n",
    "eval": "eval(x)\neval(y)\n",
}


def test_files_come_sorted_with_findings_and_problems(tmp_path: Path) -> None:
    result = checked(project(tmp_path, **MIXED))
    assert [Path(file.path).stem for file in result.files] == ["bad", "clean", "crash", "deep", "eval"]
    assert [file.problem is not None for file in result.files] == [True, False, True, True, False]
    assert [each.start.line for each in result.diagnostics] == [2, 3]
    crashed = by_name(result)["crash"].problem
    assert crashed is not None and crashed.traceback


CALLER = "import bad\nfrom other import f\nfor x in y:\n    eval(f(x))\n"


@pytest.mark.parametrize("failing", ["outline_of", "_links"], ids=["outline", "links"])
def test_a_fault_of_ours_at_a_file_around_the_checked_one_is_told_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    project(tmp_path, bad="x = (\n", other="def f(x): pass\n", eval=CALLER)
    resolved = Settings(root=tmp_path, cache=True, jobs=1)
    ours: Callable[..., Links] = getattr(check, failing)

    def fails(program: Program, *rest: Context) -> Links:
        if "eval(" not in program.text:
            raise KeyError("ours")
        return ours(program, *rest)

    for _ in range(2):  # nothing is remembered of it
        monkeypatch.setattr(check, failing, fails)
        found = in_project(discover([tmp_path / "eval.py"], resolved), tmp_path, resolved)
        result = by_name(run.check_files(found, resolved))
        assert [*result] == ["eval", "other"]
        assert [each.start.line for each in result["eval"].diagnostics] == [5]
        assert result["other"].problem is not None
        assert "in fails" in (result["other"].problem.traceback or "")
    monkeypatch.setattr(check, failing, ours)
    assert [*by_name(run.check_files(found, resolved))] == ["eval"]


def test_the_results_do_not_depend_on_who_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, **MIXED)
    alone = checked(tmp_path, jobs=1)
    monkeypatch.setattr(run, "_BYTES_PER_WORKER", 1)
    shared = checked(tmp_path, jobs=3)
    assert [(file.path, file.diagnostics) for file in shared.files] == [(f.path, f.diagnostics) for f in alone.files]
    assert [str(file.problem and file.problem.message) for file in shared.files] == [
        str(file.problem and file.problem.message) for file in alone.files
    ]


@pytest.mark.usefixtures("_always_workers")
def test_work_is_spread_over_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    hire = workers.Crew.hire

    def counting(crew: workers.Crew[run.Task, run.Checked], count: int) -> None:
        started.append(count)
        hire(crew, count)

    monkeypatch.setattr(workers.Crew, "hire", counting)
    checked(project(tmp_path, **{f"f{number}": "" for number in range(8)}), jobs=3)
    assert started == [3]


@pytest.mark.usefixtures("_always_workers")
def test_a_worker_that_is_killed_costs_one_file(tmp_path: Path) -> None:
    texts = {f"f{number}": "eval(x)\n" for number in range(12)}
    result = checked(project(tmp_path, killed="killed = True\n", also="killed = True\n", **texts))
    assert [name for name, file in by_name(result).items() if file.problem] == ["also", "killed"]
    assert "was killed" in result.problems[0].problem.message  # type: ignore[union-attr]
    assert len(result.diagnostics) == 12


@pytest.mark.usefixtures("_always_workers")
def test_where_no_process_can_be_started_the_run_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(workers, "_Worker", refuse)
    assert len(checked(project(tmp_path, a="eval(x)\n", b="eval(x)\n")).diagnostics) == 2


@pytest.mark.usefixtures("_always_workers")
def test_beside_other_threads_workers_are_spawned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert len(checked(project(tmp_path, a="eval(x)\n", b="eval(x)\n")).diagnostics) == 2


def test_progress_counts_every_file(tmp_path: Path) -> None:
    settings = Settings(root=project(tmp_path, **MIXED), cache_dir=tmp_path / "cache")
    for _ in range(2):
        calls = Mock()
        run.check_files(discover([tmp_path], settings), settings, progress=calls)
        seen = [call.args for call in calls.call_args_list]
        assert seen == sorted(seen)
        assert seen[-1] == (5, 5)


def test_a_folder_that_could_not_be_read_is_a_problem_of_the_run(tmp_path: Path) -> None:
    discovery = Discovery((), unreadable=((Path("closed"), "cannot read this folder: Permission denied"),))
    (file,) = run.check_files(discovery, Settings(root=tmp_path, cache=False)).problems
    assert (file.path, file.problem and file.problem.message) == (
        "closed",
        "cannot read this folder: Permission denied",
    )


def test_a_file_that_is_gone_by_now_is_a_problem(tmp_path: Path) -> None:
    for cache in (True, False):
        settings = Settings(root=tmp_path, cache=cache, cache_dir=tmp_path / "cache")
        result = run.check_files(Discovery((tmp_path / "gone.py",)), settings)
        assert "cannot be read" in result.problems[0].problem.message  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("pattern", "selector", "left"),
    [
        ("a.py", "eval", ["b"]),
        ("sub/", "eval", ["a"]),
        ("sub/*.py", "compute", ["a"]),
        ("*.py", "all", []),
        ("other/", "eval", ["a", "b"]),
        ("a.py", "crash", ["a", "b"]),
    ],
)
def test_rules_are_off_for_the_files_of_a_pattern(
    tmp_path: Path, pattern: str, selector: str, left: Sequence[str]
) -> None:
    (tmp_path / "sub").mkdir()
    project(tmp_path, a="eval(x)\n")
    project(tmp_path / "sub", b="eval(x)\n")
    for _ in range(2):
        result = checked(tmp_path, cache=True, per_file_ignores=((pattern, (selector,)),))
        assert [Path(each.path).stem for each in result.diagnostics] == left


def test_a_second_run_only_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = checked(project(tmp_path, **MIXED), cache=True)
    again: list[str] = []
    check = run.Checker.__call__

    def noting(self: run.Checker, task: run.Task) -> run.Checked:
        again.append(Path(task.path).stem)
        return check(self, task)

    monkeypatch.setattr(run.Checker, "__call__", noting)
    second = checked(tmp_path, cache=True)
    assert [(file.path, file.diagnostics) for file in second.files] == [(f.path, f.diagnostics) for f in first.files]
    assert sorted(again) == ["bad", "crash", "deep"], "what could not be checked may be checked the next time"


def test_a_changed_file_is_checked_again(tmp_path: Path) -> None:
    checked(project(tmp_path, a="eval(x)\n", b="eval(x)\n"), cache=True)
    project(tmp_path, a="x\n")
    assert [Path(each.path).stem for each in checked(tmp_path, cache=True).diagnostics] == ["b"]


def test_equal_files_each_have_their_own_path(tmp_path: Path) -> None:
    project(tmp_path, a="eval(x)\n", b="eval(x)\n")
    for _ in range(2):
        assert [Path(each.path).stem for each in checked(tmp_path, cache=True).diagnostics] == ["a", "b"]


def test_options_and_rules_are_not_confused_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, a="eval(x)\n")

    def messages(**rules: dict[str, str]) -> list[str]:
        return [each.message for each in checked(tmp_path, cache=True, rules=rules).diagnostics]

    assert messages() == ["eval"]
    assert messages(eval={"message": "no"}) == ["no"]
    assert messages() == ["eval"]
    use(monkeypatch, CRASH)
    assert messages() == []


def test_the_cache_is_beside_the_configuration_unless_a_folder_is_given(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    project(root, a="")
    checked(root)
    assert not (root / ".perflint_cache").exists()
    checked(root, cache=True, cache_dir=tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere").exists()
    checked(root, cache=True)
    assert (root / ".perflint_cache" / ".gitignore").read_text() == "*\n"


def test_the_cores_are_those_that_this_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint.project._CGROUP_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert available_cores() == 8
    for content, cores in (("max 100000", 8), ("150000 100000", 2), ("1000 100000", 1), ("nonsense", 8)):
        (tmp_path / "cpu.max").write_text(content)
        assert available_cores() == cores


SCRIPT = """
    import os, sys
    from perflint.project.workers import work

    def task(number):
        return os.getpid()

    try:
        for _, pid in work(task, range(6), 3):
            print(pid, flush=True)
        print("here the workers wait for more", flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are another matter there")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent_and_say_nothing(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "script.py"
    # The parent stops at its first result, with workers that are idle or at work; all of them hold its output open.
    script.write_text(textwrap.dedent(SCRIPT).replace("flush=True)\n", "flush=True); sys.stdin.read()\n", 1))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, script], text=True, start_new_session=True, **pipes) as parent:  # type: ignore[call-overload]
        parent.stdout.readline()
        if how == signal.SIGINT:
            os.killpg(parent.pid, how)  # as a terminal does
        else:
            os.kill(parent.pid, how)
        _, errors = parent.communicate(timeout=60)
    assert errors == ""
    assert parent.returncode == (130 if how == signal.SIGINT else -how)


LARGE = """
from perflint.project.workers import work

def task(content: bytes) -> bytes:
    return content * 2

if __name__ == "__main__":
    print(sum(len(result) for _, result in work(task, [bytes(4_000_000)] * 6, 2)))
"""


def test_large_tasks_and_results_pass_each_other(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(LARGE)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["48000000"], done.stderr


UNREADABLE = """
from perflint.project.workers import work

class Unreadable:
    def __reduce__(self):
        return (divmod, (1, 0))

def task(content: object) -> str:
    return "done"

if __name__ == "__main__":
    print([result for _, result in sorted(work(task, [Unreadable(), 1, 2], 1))])
"""


def test_a_task_that_cannot_be_read_costs_that_task(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNREADABLE)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[None, 'done', 'done']", done.stderr

"""What `perflint run` promises around the program: the switch, the summary, and its own faults."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perflint.shim.compiling import compiled
from perflint.shim.plan import PatchedFile
from tests.shim.runs import patched, project, python

CELL = """import torch
from torch import nn


class Walk(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x: torch.Tensor):
        h, states = torch.zeros(x.size(0), 4), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            states.append(h)
        return torch.stack(states, dim=1)


Walk()(torch.rand(2, 3, 3))
"""


def test_the_off_switch_runs_the_program_unchanged(tmp_path: Path) -> None:
    run = patched(project(tmp_path, "crashes.py"), "crashes.py", PERFLINT_DISABLE="1")
    assert run.stderr == python(tmp_path, "crashes.py").stderr
    assert not (tmp_path / ".perflint_cache").exists()


@pytest.mark.parametrize(
    "line", ["step = 1; total += step", "if step: total += 1", "def add(): return 1", "for each in (1,): total += each"]
)
def test_a_change_of_a_line_of_several_statements_is_counted_once(line: str) -> None:
    text = f"total = 0\nfor step in range(3):\n    {line}\n"
    file, counted = PatchedFile("", text, (1, 2, 3), (), ((3, 1),)), list[int]()
    exec(compiled(file, "train.py"), {file.counter: counted.append})
    assert counted == [1, 1, 1]


def test_a_dry_run_says_what_would_be_applied_and_runs_nothing(tmp_path: Path) -> None:
    run = patched(project(tmp_path, "crashes.py"), "--dry-run", "crashes.py")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == [
        "crashes.py:16 decode-loop: compute all steps at once (rounding)",
        "loaders: decided on as they are made",
    ]


def test_code_that_few_would_write_is_applied_in_memory(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CELL)
    run = patched(tmp_path, "--dry-run", "train.py")
    assert "train.py:12 decode-loop: compute all steps at once (rounding)" in run.stdout.splitlines()
    shown = subprocess.run(
        [sys.executable, "-m", "perflint", "fix", "--isolated", "--no-cache", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "its fix is code that few would write by hand: --unsafe applies it" in shown.stdout + shown.stderr


def test_a_dry_run_says_what_is_left_and_why(tmp_path: Path) -> None:
    project(tmp_path, "loads.py")
    (tmp_path / "broken.py").write_text("import torch\nfor:\n")
    imports(tmp_path / "loads.py", "broken")
    run = patched(tmp_path, "--dry-run", "loads.py")
    assert "loads.py:24 loader: num_workers and pin_memory, if its samples allow it\n" in run.stdout
    assert "loads.py:28 loader: left; no workers: `zip(source, target)` may draw its order earlier\n" in run.stdout
    assert "loads.py:25 sync-in-loop: left: its fix adds a dependency" in run.stdout
    assert "broken.py:2: left: " in run.stdout
    unsafe = patched(tmp_path, "--dry-run", "--unsafe", "loads.py")
    assert "loads.py:24 loader: tried out\n" in unsafe.stdout
    assert "loads.py:28 loader: tried out; for its text alone, no workers: `zip" in unsafe.stdout
    assert "loads.py:25 sync-in-loop: report the value when it has arrived" in unsafe.stdout


def test_loaders_of_one_line_are_not_told_apart_and_are_left(tmp_path: Path) -> None:
    path = project(tmp_path, "loads.py") / "loads.py"
    for loaders in (1, 2):
        path.write_text(path.read_text().replace("device = ", "DataLoader(Slow()); device = "))
        assert ("loads.py:23 loader: " in patched(tmp_path, "--dry-run", "loads.py").stdout) == (loaders == 1)


def test_a_fix_that_never_runs_is_said_so(tmp_path: Path) -> None:
    project(tmp_path, "decoders.py")
    (tmp_path / "main.py").write_text("import decoders\n")
    run = patched(tmp_path, "main.py")
    assert "perflint: 0 fixes took effect" in run.stderr
    assert "decoders.py:16 decode-loop: compute all steps at once (never took effect)" in run.stderr


def imports(script: Path, names: str) -> None:
    """Have a script import modules in a case that doesn't arise."""
    script.write_text(f"{script.read_text()}\n\ndef never():\n    import {names}\n")


def test_a_dry_run_lists_nothing_of_scripts_that_the_program_does_not_import(tmp_path: Path) -> None:
    run = patched(project(tmp_path, "identity.py", "decoders.py"), "--dry-run", "identity.py")
    assert "decoders" not in run.stdout


def test_fixes_in_files_that_nothing_loads_are_counted(tmp_path: Path) -> None:
    folder = project(tmp_path, "identity.py", "decoders.py", "crashes.py")
    imports(folder / "identity.py", "decoders, crashes")
    run = patched(folder, "identity.py")
    assert "  not applied: 2 fixes in files that were not loaded, or were changed meanwhile\n" in run.stderr


def test_selected_rules_alone_are_applied(tmp_path: Path) -> None:
    run = patched(project(tmp_path, "workers.py", "decoders.py"), "--ignore", "decode-loop", "workers.py", "fork")
    assert run.stdout == "SourceFileLoader True 0\n"


def test_a_rule_that_there_is_none_of_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    run = patched(project(tmp_path, "identity.py"), "--select", "decode-lop", "identity.py")
    assert (run.returncode, run.stdout) == (2, "")
    assert len(run.stderr.splitlines()) == 1


def test_without_a_cache_nothing_is_written_to_the_project(tmp_path: Path) -> None:
    project(tmp_path, "workers.py", "decoders.py")
    before = sorted(tmp_path.iterdir())
    run = patched(tmp_path, "--no-cache", "workers.py", "spawn")
    assert run.stdout == "PatchedLoader True 0\n", run.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"{}\n{}"])
def test_a_damaged_cache_costs_time_and_nothing_else(tmp_path: Path, content: bytes) -> None:
    project(tmp_path, "crashes.py")
    first = patched(tmp_path, "crashes.py")
    for file in (tmp_path / ".perflint_cache" / "run").iterdir():
        file.write_bytes(content)
    again = patched(tmp_path, "crashes.py")
    assert (again.stdout, again.stderr, again.returncode) == (first.stdout, first.stderr, first.returncode)


def test_files_of_an_environment_inside_the_project_are_left_alone(tmp_path: Path) -> None:
    project(tmp_path, "decoders.py")
    library = tmp_path / "env" / "site-packages"
    library.mkdir(parents=True)
    (tmp_path / "decoders.py").rename(library / "decoders.py")
    (tmp_path / "main.py").write_text("import decoders\nprint(type(decoders.__loader__).__name__)\n")
    run = patched(tmp_path, "main.py", PYTHONPATH=f"{Path(__file__).parents[2]}{os.pathsep}{library}")
    assert run.stdout == "SourceFileLoader\n"


def test_a_user_s_own_sitecustomize_is_run_in_children_too(tmp_path: Path) -> None:
    project(tmp_path, "workers.py", "decoders.py")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('custom', flush=True)\n")
    paths = f"{Path(__file__).parents[2]}{os.pathsep}{tmp_path / 'site'}"
    run = patched(tmp_path, "workers.py", "spawn", PYTHONPATH=paths)
    assert run.stdout.count("custom") >= 2
    assert "PatchedLoader True 0" in run.stdout


def test_ranks_of_a_launcher_run_patched_and_the_first_of_a_host_tells_of_all(tmp_path: Path) -> None:
    project(tmp_path, "ranks.py", "decoders.py")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run = python(tmp_path, *launcher, sys.executable, "-m", "perflint", "run", "ranks.py", TMPDIR=str(scratch))
    assert run.stdout.count("PatchedLoader") == 2, run.stderr
    assert run.stderr.count("perflint: 1 fix took effect in 2 processes\n") == 1
    assert "compute all steps at once (2 times: 1 in rank 0, 1 in rank 1)" in run.stderr
    assert not list(scratch.glob("perflint-*"))


def test_compiled_functions_are_compiled_whole(tmp_path: Path) -> None:
    run = patched(project(tmp_path, "compiled.py"), "compiled.py")
    assert run.stdout == "1 graph\n", run.stderr
    assert "compiled.py:9 repeat-not-broadcast" in run.stderr


def test_patched_code_can_be_exported(tmp_path: Path) -> None:
    run = patched(project(tmp_path, "compiled.py", "exports.py"), "exports.py")
    assert (run.stdout, run.returncode) == ("1 graph\n2\n", 0), run.stderr


def test_a_run_inside_of_a_run_counts_for_itself(tmp_path: Path) -> None:
    project(tmp_path, "decoders.py", "identity.py", "crashes.py")
    inner = "import decoders, torch\n\nprint(tuple(decoders.Decoder()(torch.ones(2, 3, 4)).shape))\n"
    (tmp_path / "inner.py").write_text(inner)
    outer = "[sys.executable, '-m', 'perflint', 'run', '-q', '--ignore', 'decode-loop', 'inner.py']"
    (tmp_path / "outer.py").write_text(f"import subprocess, sys\n\nsubprocess.run({outer}, check=True)\n")
    run = patched(tmp_path, "outer.py")
    assert (run.stdout, run.returncode) == ("(2, 3, 4)\n", 0), run.stderr


def test_what_the_cache_holds_for_long_makes_room_for_a_new_plan(tmp_path: Path) -> None:
    store = project(tmp_path, "identity.py") / ".perflint_cache" / "run"
    store.mkdir(parents=True)
    for name, age in (("old", 40 * 86_400), ("new", 60)):
        (store / name).touch()
        os.utime(store / name, (time.time() - age,) * 2)
    for _ in range(2):  # the first may come too soon after the program was written for its plan to be kept
        patched(tmp_path, "identity.py")
    assert {"new"} == {file.name for file in store.iterdir()} & {"old", "new"}


@pytest.mark.parametrize("leaves", ["os.chdir(os.sep)", "os.chdir(folder); os.rmdir(folder)"])
def test_the_summary_names_files_as_seen_from_where_the_run_began(tmp_path: Path, leaves: str) -> None:
    project(tmp_path, "decoders.py")
    (tmp_path / "gone").mkdir()
    (tmp_path / "moves.py").write_text(f"import os, decoders\nfolder = os.path.abspath('gone')\n{leaves}\n")
    run = patched(tmp_path, "moves.py")
    assert "\n  decoders.py:16 decode-loop: compute all steps at once (never took effect)\n" in run.stderr


def test_a_module_is_run_from_a_folder_without_programs(tmp_path: Path) -> None:
    assert patched(tmp_path, "-m", "platform").stdout == python(tmp_path, "-m", "platform").stdout

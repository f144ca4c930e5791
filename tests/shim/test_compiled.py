"""Modules that are called again and again are compiled on demand, and everything else about them stays as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.shim.runs import patched, project, python


@pytest.mark.parametrize("compiler", ["fast", "failing"])
def test_a_program_with_compiled_modules_prints_the_same(tmp_path: Path, compiler: str) -> None:
    project(tmp_path, "modules.py")
    alone, run = python(tmp_path, "modules.py", compiler), patched(tmp_path, "--compile", "modules.py", compiler)
    assert (run.stdout, run.returncode) == (alone.stdout, alone.returncode), run.stderr
    if compiler == "fast":
        assert re.search(r"  compile Net: compiling took \d+\.\d s \(6 calls\)\n", run.stderr)
    else:
        assert "  compile Net: left eager: OSError('there is no compiler') (1 call)\n" in run.stderr
        assert run.stderr.count("Warning: perflint leaves Net eager") == 1
    assert "compile RecursiveScriptModule: left eager: it is scripted (0 calls)\n" in run.stderr
    assert "MSELoss" not in run.stderr


def test_nothing_is_compiled_unasked(tmp_path: Path) -> None:
    assert "compile" not in patched(project(tmp_path, "modules.py"), "modules.py", "fast").stderr


def test_where_modules_are_called_too_seldom_that_is_said(tmp_path: Path) -> None:
    run = patched(project(tmp_path, "identity.py"), "--compile", "identity.py")
    assert run.stderr.endswith("  compile: never took effect: no module was called often enough\n")


def test_a_program_that_differentiates_gradients_is_left_eager(tmp_path: Path) -> None:
    project(tmp_path, "modules.py")
    (tmp_path / "penalty.py").write_text("import torch\n\ntorch.autograd.grad(1, 1, create_graph=True)\n")
    program = tmp_path / "modules.py"
    program.write_text(f"{program.read_text()}\n\ndef never():\n    import penalty\n")
    reason = "it may differentiate gradients: create_graph"
    told = f"  penalty.py:3 compile: never took effect: {reason}\n"
    assert told in patched(tmp_path, "--compile", "modules.py", "failing").stderr
    assert f"penalty.py:3 compile: left: {reason}\n" in patched(tmp_path, "--compile", "--dry-run", "modules.py").stdout

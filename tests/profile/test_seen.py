"""What a profile has seen makes candidates of blocked fixes, for as long as the file is as it was."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perflint.analysis.links import Seen
from perflint.documents import digest
from perflint.engine.rule import Safety
from perflint.profile.lines import Facts
from perflint.profile.result import Fact, keep
from perflint.project.figures import seen_in
from perflint.project.files import discover
from perflint.project.patch import patch_files
from perflint.project.run import check_files
from perflint.project.settings import Settings, load
from perflint.shim.planning import Project, plan_for
from perflint.verify.variants import Variants
from tests.profile.test_costs import profile

TEXT = b"""\
import torch


def scores(x, w):
    out = []
    for t in range(x.shape[1]):
        out.append(torch.tanh(x[:, t] @ w))
    return torch.stack(out, dim=1)
"""
GRAPH = "run `scores` as one CUDA graph"  # which needs no facts
RANKS = {"x": ("float32 tensor of rank 3 on cuda:0",), "w": ("float32 tensor of rank 2 on cuda:0",)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that was profiled."""
    (tmp_path / "perflint.toml").touch()
    path = tmp_path / "scores.py"
    path.write_bytes(TEXT)
    facts = tuple(Fact(str(path), "scores", name, seen) for name, seen in RANKS.items())
    keep(tmp_path, replace(profile(path), lines=(), made=(), facts=facts, files={str(path): digest(TEXT)}))
    return path


def settings(folder: Path, *, unsafe: bool = False, cache: bool = False) -> Settings:
    found = load(folder, isolated=False, config_path=None, overrides={"select": ["decode-loop"]}).settings
    return replace(found, unsafe=unsafe, cache=cache)


def titles(file: Path, *, cache: bool = False) -> list[str]:
    used = settings(file.parent, cache=cache)
    (result,) = check_files(discover([file], used), used).files
    return [fix.title for each in result.diagnostics for fix in each.fixes]


def test_a_profile_makes_a_candidate_of_a_blocked_fix(file: Path) -> None:
    (title,) = titles(file)
    assert title.endswith("`x` is a tensor of 3 axes, as seen in the run (train.py, 2026-11-22)")
    for unsafe in (False, True):
        used = settings(file.parent, unsafe=unsafe)
        (patch,) = patch_files(discover([file], used), used)
        assert ("x.dim() == 3" in patch.after) is unsafe


def test_a_run_has_candidates_if_asked_to_and_verify_tries_them(file: Path) -> None:
    for unsafe in (False, True):
        project = Project(file.parent, file.parent, settings(file.parent, unsafe=unsafe))
        assert bool(plan_for(project).plan.files) is unsafe
        seen, graph = Variants(project).fixes
        assert seen.title == titles(file)[0] and seen.safety is Safety.ROUNDING
        assert graph.title == GRAPH


def test_what_was_seen_counts_until_the_file_changes_also_in_the_cache(file: Path) -> None:
    assert len(titles(file, cache=True)) == len(titles(file, cache=True)) == 1
    assert titles(file, cache=True) != [GRAPH]
    file.write_bytes(TEXT + b"# changed\n")
    assert titles(file, cache=True) == [GRAPH]
    file.write_bytes(TEXT)
    (file.parent / ".perflint" / "profiles.json").unlink()
    assert titles(file, cache=True) == [GRAPH]


def test_values_of_several_kinds_are_no_fact(file: Path) -> None:
    kept = file.parent / ".perflint" / "profiles.json"
    content = json.loads(kept.read_text())
    content["profiles"][0]["facts"][0]["seen"].append("float32 tensor of rank 2 on cuda:0")
    content["profiles"][0]["facts"][1]["seen"].append("bfloat16 tensor of rank 2 on cuda:0")
    kept.write_text(json.dumps(content))
    (found,) = seen_in(file.parent).values()
    assert found == (Seen("scores", "w", "torch.Tensor", 2, "train.py, 2026-11-22"),)
    kept.write_text("{")
    assert seen_in(file.parent) == {}


def test_what_a_method_is_given_is_noted_with_the_modules_in_its_own_one() -> None:
    torch = pytest.importorskip("torch")
    facts = Facts()

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            facts.note(sys._getframe())
            return self.head(x)

    Net()(torch.ones(3, 4))
    noted = {name: said for (_, function, name), said in facts.seen.items() if function == "forward"}
    assert noted["self.head"] == {"torch.nn.modules.linear.Linear"}
    assert noted["x"] == {"float32 tensor of rank 2 on cpu"}

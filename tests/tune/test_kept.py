"""What tuning has kept is what `run --tuned` applies, as long as the program is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from perflint.engine import UserError
from perflint.engine.rule import Safety
from perflint.profile.result import Code, Profile
from perflint.profile.result import keep as keep_profile
from perflint.profile.roofline import Regime, Roofline
from perflint.project.settings import load
from perflint.shim.planning import Project
from perflint.shim.running import preview, summary
from perflint.shim.settings import KNOWN, watch
from perflint.tune import fresh, keep, ladder, plan_of, trials
from perflint.verify.agent.steps import host
from perflint.verify.verdict import FixVerdict, Grade, Likeness, Verdict

PROGRAM = """import torch

total = torch.zeros(())
for batch in range(100):
    loss = (torch.ones(3, device="cuda") * batch).sum()
    print(loss.item())
"""

STEP = """import torch

model = torch.nn.Linear(3, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in range(100):
    x = torch.ones(2, 3, device="cuda")
    optimizer.zero_grad()
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    print(batch, loss.item())
"""


def fix(rule: str, path: Path, line: int, title: str, safety: Safety, *, kept: bool = True) -> FixVerdict:
    likeness = Likeness(Grade.BITWISE)
    return FixVerdict(rule, rule, str(path), line, title, safety, "", likeness, 1, kept=kept, at_run_time=True)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "train.py").write_text(PROGRAM)
    return Project(tmp_path, tmp_path, load(tmp_path).settings)


def settings_fix(root: Path, name: str, *, kept: bool = True) -> FixVerdict:
    return fix(name, root, 0, KNOWN[name].title, Safety(KNOWN[name].safety), kept=kept)


def test_settings_that_won_are_applied(project: Project) -> None:
    won = [settings_fix(project.root, "tf32"), settings_fix(project.root, "compile", kept=False)]
    keep(project.root, "train.py", won)
    assert plan_of(project, "train.py").settings == ("tf32",)
    assert not plan_of(project, "train.py").files


def test_a_program_that_was_not_tuned_is_an_error(project: Project) -> None:
    with pytest.raises(UserError, match="was not tuned"):
        plan_of(project, "train.py")
    keep(project.root, "other.py", [])
    with pytest.raises(UserError, match="was not tuned"):
        plan_of(project, "train.py")


def test_a_program_that_has_changed_is_an_error(project: Project) -> None:
    gone = fix("item-in-loop", project.root / "train.py", 99, "read it later", Safety.EXACT)
    keep(project.root, "train.py", [replace(gone, at_run_time=False)])
    with pytest.raises(UserError, match="has changed since it was tuned"):
        plan_of(project, "train.py")


@pytest.fixture
def _a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint.tune.gpu_names", lambda: frozenset({"NVIDIA H100 80GB HBM3"}))


@pytest.mark.usefixtures("_a_gpu")
def test_precision_is_tried_only_if_it_is_allowed() -> None:
    some = trials({Safety.EXACT, Safety.ROUNDING}).settings
    assert "tf32" not in some and "fused-optimizer" in some
    assert set(trials(frozenset(Safety)).settings) - {*some} == {"tf32", "bfloat16"}


def a_profile(project: Project, regime: Regime) -> Profile:
    """A profile of train.py whose steps are bound by `regime`."""
    path = project.root / "train.py"
    files = {str(path): Code.of(path).digest}
    roofline = Roofline((), None, {}, 0.0, 0.0)
    shares = {regime.value: 1.0}
    return Profile(
        "train.py",
        "2026-11-23T10:00",
        host(),
        True,
        {"torch": str(torch.__version__)},
        "step",
        20,
        3.0,
        1.1,
        shares,
        (),
        (),
        roofline,
        files,
    )


def test_the_regime_of_a_profile_says_what_is_tried_and_what_is_tried_first(project: Project) -> None:
    keep_profile(project.root, a_profile(project, Regime.OVERHEAD))
    small = trials(frozenset(Safety), fresh(project.root, "train.py"))
    keep_profile(project.root, a_profile(project, Regime.COMPUTE))
    busy = trials(frozenset(Safety), fresh(project.root, "train.py"))
    assert small.first == small.rules == ("launch-bound-step", "optimizer-not-fused")
    assert busy.first == busy.rules == ("precision-left",)
    assert busy.instead == {"tf32": ["precision-left"]}
    assert not trials(frozenset(Safety), replace(a_profile(project, Regime.OVERHEAD), is_gpu=False)).rules
    graph, fused = ["launch-bound-step"], ["optimizer-not-fused"]
    assert small.instead == {"fused-optimizer": fused, "compile": graph, "compile-graphs": graph}
    assert "bfloat16" in busy.settings and "bfloat16" not in small.settings and "compile" in small.settings
    assert busy.note.startswith(
        "a step is compute 100% (2026-11-23); not tried, as it shortens what takes less than 10%"
    )
    assert "launch-bound-step" in busy.note and "more-workers" in busy.note and "tf32" not in busy.note


def test_advice_that_won_is_applied_though_nobody_selects_it(project: Project) -> None:
    program = project.root / "train.py"
    program.write_text(STEP)
    (place,) = (number for number, line in enumerate(STEP.splitlines(), 1) if "backward" in line)
    won = fix("launch-bound-step", program, place, "run the training step as one CUDA graph", Safety.EXACT)
    keep(project.root, "train.py", [replace(won, at_run_time=False)])
    (file,) = plan_of(project, "train.py").files.values()
    assert "@graphed_step\ndef step():" in file.text


def test_without_a_gpu_nothing_is_tried_that_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint.tune.gpu_names", frozenset)
    tried = trials(frozenset(Safety))
    assert "compile" in tried.settings and "cudnn-benchmark" not in tried.settings and not tried.rules


@pytest.mark.usefixtures("_a_gpu")
def test_a_profile_of_what_has_changed_prunes_nothing(project: Project) -> None:
    keep_profile(project.root, a_profile(project, Regime.COMPUTE))
    (project.root / "train.py").write_text("print()\n")
    assert fresh(project.root, "train.py") is None and fresh(project.root, "other.py") is None
    assert trials(frozenset(Safety)).rules == ("launch-bound-step", "optimizer-not-fused", "precision-left")


def test_the_ladder_names_every_class() -> None:
    lines = list(ladder(Verdict("train.py", "2026-11-23"), {Safety.EXACT, Safety.ROUNDING}))
    assert lines == [
        "exact: nothing gained",
        "rounding: nothing gained",
        "precision: not tried (--allow precision)",
        "behaviour: not tried (--allow behaviour)",
    ]


def test_the_ladder_of_a_program_that_failed_claims_nothing() -> None:
    (first, *_) = ladder(Verdict("train.py", "2026-11-23", failure="it hangs"), {Safety.EXACT})
    assert first == "exact: can't tell"


def test_a_run_says_which_settings_took_effect(project: Project, tmp_path: Path) -> None:
    keep(project.root, "train.py", [settings_fix(project.root, "fused-optimizer")])
    plan = plan_of(project, "train.py")
    assert "fused-optimizer: fused=True for optimizers (rounding)" in list(preview(plan))
    undo = watch(tmp_path, plan.settings, torch)
    torch.optim.Adam([torch.zeros(2, requires_grad=True)])
    undo()
    assert "  fused-optimizer: fused=True for optimizers (1 time)" in list(summary(plan, tmp_path))

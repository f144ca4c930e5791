"""Findings cost what a profile has measured at their lines, for as long as their file is as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perflint.cli.sessions import measurable
from perflint.documents import digest
from perflint.engine.catalogue import all_rules
from perflint.engine.check import check_bytes
from perflint.engine.results import FileResult, RunResult
from perflint.engine.rule import Severity
from perflint.profile.result import Code, Fact, LineCost, Profile, keep, read, with_costs, with_known_costs
from perflint.profile.running import profile_of
from perflint.profile.summary import Report
from perflint.project.files import discover
from perflint.project.run import check_files
from perflint.project.settings import load
from tests.fixture_cases import FIXTURES
from tests.profile.records import Recorder

TEXT = b"""\
import torch
from torch.utils.data import DataLoader


def train(model, data, optimizer, device):
    loader = DataLoader(data, batch_size=8)
    total = 0.0
    for batch in loader:
        loss = model(batch.to(device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def later(model, loader):
    total = 0.0
    for batch in loader:
        total += model(batch.cuda()).sum().item()
    return total
"""

READ = next(number for number, line in enumerate(TEXT.splitlines(), 1) if b"loss.item()" in line)
LOADER = next(number for number, line in enumerate(TEXT.splitlines(), 1) if b"DataLoader(data" in line)


def profile(path: Path) -> Profile:
    """A profile of that file, in which the read's line costs 2 ms, and its loader 3 ms, of a step of 10."""
    recorder = Recorder(10_000)
    recorder.at(0, 1)
    made = profile_of("train.py --epochs 3", [recorder.done], [])
    assert made is not None
    line = LineCost(str(path), READ, "train", {}, {"host reads": 2.0, "overhead": 1.0})
    loader = LineCost(str(path), LOADER, "", {"input": 3.0, "overhead": 0.5})
    return replace(made, lines=(line,), made=(loader,), files={str(path): digest(TEXT)}, date="2026-11-22")


def checked(path: Path, data: bytes = TEXT) -> RunResult:
    options = {rule.name: {name: each.default for name, each in rule.options.items()} for rule in all_rules()}
    return RunResult((check_bytes(str(path), data, all_rules(), options)[0],), 0.0)


def costs(result: RunResult) -> dict[str, str]:
    return {f"{each.rule}:{each.start.line}": str(each.cost) for each in result.diagnostics if each.cost}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(TEXT)
    return path


def test_reads_cost_their_stalls_and_loaders_their_waits(file: Path) -> None:
    found = costs(with_costs(checked(file), [profile(file)]))
    assert found[f"item-in-loop:{READ}"] == "2 ms of a 10 ms step (train.py, 2026-11-22)"
    assert found[f"dataloader-defaults:{LOADER}"] == "3 ms of a 10 ms step (train.py, 2026-11-22)"
    assert len(found) == 2  # what did not run has no cost


NEEDING_A_GPU = [rule.name for rule in all_rules() if rule.needs_gpu]


@pytest.mark.parametrize("rule", NEEDING_A_GPU)
def test_a_profile_of_the_cpu_tells_no_cost_of_what_only_a_gpu_waits_for(file: Path, rule: str) -> None:
    (read_,) = (each for each in checked(file).diagnostics if each.start.line == READ)
    found = RunResult((FileResult(str(file), (replace(read_, rule=rule),)),), 0.0)
    assert costs(with_costs(found, [profile(file)]))
    assert not costs(with_costs(found, [replace(profile(file), is_gpu=False)]))
    assert costs(with_costs(found, [replace(profile(file), is_gpu=False), profile(file)]))


@pytest.mark.parametrize("rule", NEEDING_A_GPU)
def test_a_profile_of_the_cpu_lists_no_finding_that_costs_nothing_there(file: Path, rule: str) -> None:
    examples = (FIXTURES / rule.replace("-", "_")).glob("*_before.py")
    example = min(examples, key=lambda each: each.stat().st_size)
    settings = replace(load(file.parent, isolated=True).settings, jobs=1, cache=False)

    def rules(known: Profile, *select: str) -> set[str]:
        chosen = measurable(replace(settings, select=select), known)
        return {each.rule for each in check_files(discover([example], chosen), chosen).diagnostics}

    assert rule in rules(profile(file))
    assert rule not in rules(replace(profile(file), is_gpu=False))
    assert rule not in rules(replace(profile(file), is_gpu=False), "all")


def test_the_dearest_come_first(file: Path) -> None:
    result = with_costs(checked(file), [profile(file)])
    rules = [each.rule for part in result.by_cost for each in part.diagnostics]
    assert rules[:2] == ["dataloader-defaults", "item-in-loop"]
    assert sorted(rules) == sorted(each.rule for each in result.diagnostics)


def test_a_changed_file_has_no_costs_on_the_disk_nor_in_an_editor(file: Path) -> None:
    keep(file.parent, profile(file))
    changed = b"# changed\n" + TEXT
    assert costs(with_known_costs(checked(file), file.parent))
    assert not costs(with_known_costs(checked(file, changed), file.parent, {str(file): changed}))
    file.write_bytes(changed)
    assert not costs(with_known_costs(checked(file), file.parent))


def test_what_was_seen_in_the_code_of_a_finding_is_known(file: Path) -> None:
    seen = Fact(str(file), "train", "loss", ("float32 tensor of rank 0 on cuda:0",))
    others = (Fact(str(file), "later", "loss", ("int",)), Fact(str(file), "train", "data", ("list",)))
    known = replace(profile(file), facts=(seen, *others))
    result = checked(file)
    (read_,) = (each for each in result.diagnostics if each.start.line == READ)
    report = Report(known, result, {str(file): Code.of(file)})
    assert report.seen(read_) == ["loss: float32 tensor of rank 0 on cuda:0"]


def test_advice_that_nothing_applies_by_itself_is_not_what_to_do_first(file: Path) -> None:
    found = with_costs(checked(file), [profile(file)])
    first = Report(profile(file), found, {}).first
    assert first.command.startswith("perflint verify") and first.why == "fixes save at most 5 ms of a step"
    advice = tuple(replace(each, severity=Severity.ADVICE) for each in found.diagnostics)
    files = tuple(replace(each, diagnostics=advice) for each in found.files)
    assert "save" not in Report(profile(file), replace(found, files=files), {}).first.why


def test_profiles_are_kept_by_program_and_read_as_they_were(tmp_path: Path, file: Path) -> None:
    known, other = profile(file), replace(profile(file), program="other.py")
    for each in (known, other, known):
        keep(tmp_path, each)
    assert read(tmp_path / ".perflint" / "profiles.json") == (known, other)

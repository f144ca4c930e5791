"""Each loader that lacks something is a fix of its own, made as the program runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from perflint.engine.rule import Safety
from perflint.project.settings import load
from perflint.runtime.loader import cores
from perflint.shim.hooks import change
from perflint.shim.planning import Project
from perflint.verify.messages import OPTIMIZER, Recording
from perflint.verify.variants import FixKey, Variants
from tests.verify.courses import PROGRAMS, course


def variants_of(folder: Path, *, compiles: bool = False) -> Variants:
    return Variants(Project(folder, folder, load(folder).settings, whole=("compile",) if compiles else ()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the programs of these tests."""
    (tmp_path / "perflint.toml").touch()
    for program in (PROGRAMS / "loads.py", PROGRAMS.parent / "run" / "tunes.py"):
        (tmp_path / program.stem).mkdir()
        shutil.copy(program, tmp_path / program.stem)
    return tmp_path


@pytest.fixture
def variants(folder: Path) -> Variants:
    return variants_of(folder / "loads")


def lines(key: FixKey, text: str) -> str:
    return text.splitlines()[key.line - 1]


def test_a_variant_has_the_loaders_that_are_wanted_and_no_others(variants: Variants) -> None:
    text = (PROGRAMS / "loads.py").read_text("utf-8")
    first, second = variants.fixes
    assert "Curve(64)" in lines(first, text) and "Curve(16)" in lines(second, text)
    for wanted in ([first, second], [first], [second], []):
        loaders = variants.with_fixes("some", wanted).plan.loaders.values()
        assert [each.line for known in loaders for each in known] == [key.line for key in wanted]


def test_what_a_run_makes_of_a_loader_is_told_of_that_loader(variants: Variants, tmp_path: Path) -> None:
    first, second = variants.fixes
    folder = Path(first.path).parent
    variant = variants.with_fixes("second", [second])
    with course(str(folder / "loads.py")) as races:
        recording = Recording(str(tmp_path / "run"), (1,), ())
        (run,) = races.record([(variant, recording)], OPTIMIZER, 100, 60.0)
    assert not variants.effect(first, variant, run).is_reached
    effect = variants.effect(second, variant, run)
    assert effect.is_reached
    assert effect.times or effect.obstacle


def test_compiling_modules_is_a_fix_of_its_own_where_it_is_asked_for(folder: Path) -> None:
    variants = variants_of(folder / "loads", compiles=True)
    (key,) = (key for key in variants.fixes if not key.line)
    assert (key.rule, key.safety) == ("compile", Safety.ROUNDING)
    assert variants.with_fixes("compiled", [key]).plan.settings
    assert not variants.with_fixes("the rest", set(variants.fixes) - {key}).plan.settings


def test_each_candidate_of_a_finding_can_be_had_by_itself_and_both_where_one_leaves_the_loop(tmp_path: Path) -> None:
    (tmp_path / "perflint.toml").touch()
    shutil.copy(PROGRAMS.parent / "decode_loop" / "lift_elif_before.py", tmp_path)
    variants = variants_of(tmp_path)
    line = min(key.line for key in variants.fixes)
    graphed, lifted = sorted((key for key in variants.fixes if key.line == line), key=lambda key: key.title)
    assert (graphed.title, lifted.title) == (
        "run `forward` as one CUDA graph",
        "where `forced`, compute all steps at once",
    )
    assert variants.fingerprint(lifted) == variants.fingerprint(graphed) != ""
    for key in (lifted, graphed):
        assert variants.holds(variants.with_fixes("alone", [key]), key)
    both = variants.with_fixes("both", [lifted, graphed])
    assert all(variants.holds(both, key) for key in (lifted, graphed))


def test_what_a_first_look_at_all_fixes_has_seen_is_known_of_some_as_well(tmp_path: Path) -> None:
    (tmp_path / "perflint.toml").touch()
    path = shutil.copy(PROGRAMS / "evaluates.py", tmp_path)
    variants = variants_of(tmp_path)
    _, *seen = variants.watched().plan.files[str(path)].probes
    ran = {change(str(path), number) for number in (0, *(number for _, number in seen))}
    assert variants.late(ran) == variants.fixes[:1]
    assert variants.only(variants.fixes[1:]).late(ran) == ()


def test_workers_are_as_many_as_were_tuned(folder: Path) -> None:
    if cores() < 2:
        pytest.skip("there are no cores for workers")
    project = folder / "tunes"
    tuning = variants_of(project).tuning()
    assert tuning is not None
    with course(str(project / "tunes.py")) as races:
        notes = races.tune(tuning, 60.0)
    assert re.search(r"tunes\.py:32: 1 worker", "\n".join(notes))
    loaders = variants_of(project).whole.loaders[str(project / "tunes.py")]
    assert loaders[0].measured is not None

"""The wheel and the sdist behave as the checkout does, and the README's commands are the ones that CI runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from perflint.cli.commands import cli
from tests.fixture_cases import cases

Findings = list[dict[str, object]]

ROOT = Path(__file__).parent.parent
CHECK = ("check", "--isolated", "--no-cache", "--select", "ALL", "--output-format", "json")
TOP_LEVEL = {"pyproject.toml", "README.md", "LICENSE", "perflint", "rules", "tests", "fixtures"}


def run(*command: str, cwd: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        env["PYTHONPATH"] = str(path)
    return subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    result = run("-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = built.glob("*.whl")
    result = run("-m", "pip", "install", "--no-deps", "--no-index", "--target", str(folder), str(wheel), cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def expected(examples: Path) -> Findings:
    """What the checkout finds in the examples: something by every rule."""
    result = CliRunner().invoke(cli, [*CHECK, str(examples)], catch_exceptions=False)
    findings: Findings = json.loads(result.stdout)
    assert {finding["code"] for finding in findings} == {path.name for path in examples.iterdir()}
    return findings


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shortest program of each rule's fixtures."""
    folder = tmp_path_factory.mktemp("examples")
    programs: dict[str, list[Path]] = defaultdict(list)
    for case in cases("before"):
        programs[case.rule.name].append(case.path)
    for name, paths in programs.items():
        (folder / name).mkdir()
        shutil.copy(min(paths, key=lambda path: path.stat().st_size), folder / name)
    return folder


def check(cwd: Path, examples: Path, path: Path) -> Findings:
    result = run("-m", "perflint", *CHECK, str(examples), cwd=cwd, path=path)
    assert result.returncode == 1, result.stderr
    findings: Findings = json.loads(result.stdout)
    return findings


def test_an_installed_wheel_finds_what_the_checkout_finds(
    installed: Path, examples: Path, expected: Findings, tmp_path: Path
) -> None:
    where = run(
        "-c", "import perflint.rules; print(perflint.__file__, *perflint.rules.__path__)", cwd=tmp_path, path=installed
    )
    assert all(Path(place).is_relative_to(installed) for place in where.stdout.split())
    assert check(tmp_path, examples, installed) == expected


def test_an_installed_wheel_runs_inside_the_checkout(installed: Path, examples: Path, expected: Findings) -> None:
    assert check(ROOT, examples, installed) == expected


def test_a_wheel_holds_every_rule_and_template_and_nothing_of_the_tests(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    rules = {f"perflint/{path.relative_to(ROOT)}" for path in (ROOT / "rules").rglob("*.py")}
    assert rules <= set(names)
    assert {f"perflint/verify/{name}" for name in ("page.html", "macros.html")} <= set(names)
    ours = ("/generate/", ".svg", "api.md")  # the table's generator, the README's picture and the guide for rules
    assert not [name for name in names if name.startswith(("tests/", "fixtures/", "rules/"))]
    assert not [name for name in names if any(each in name for each in ours)]


def test_a_wheel_can_be_built_from_the_sdist(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    result = run(
        "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(source), cwd=tmp_path
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (original,) = built.glob("*.whl")
    assert zipfile.ZipFile(wheel).namelist() == zipfile.ZipFile(original).namelist()


def test_continuous_integration_runs_the_command_of_the_readme() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines() if "pytest" in line]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(commands) == 1
    assert f"    {commands[0]}\n" in readme or f"\n{commands[0]}\n" in readme


def test_the_top_level_holds_what_the_design_names() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode != 0:
        pytest.skip("not a checkout of git")
    assert {name.partition("/")[0] for name in tracked.stdout.split() if not name.startswith(".")} <= TOP_LEVEL


def test_every_file_can_be_read_in_one_sitting() -> None:
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for folder in ("perflint", "rules")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert max(lengths.values()) <= 400, {path.name: length for path, length in lengths.items() if length > 400}
    assert 100 <= sorted(lengths.values())[len(lengths) // 2] <= 250


def test_every_dependency_says_why_it_is_there_and_has_bounds() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"\ndependencies = \[\n(.*?)\n\]", text, re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        assert re.search(r'">?[a-z]+>=[\d.]+,<\d', line) or re.search(r'"[a-z]+>=[\d.]+,<\d', line), line
        assert "  # " in line, line

"""Settings come from the nearest file and the command line, and every mistake in them is one clear line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from perflint.engine import UserError, catalogue
from perflint.engine.rule import Finding, Option, Options, Rule
from perflint.project.settings import Settings, load


class _Example(Rule):
    """A rule with an option of each type."""

    page = "Example.\n"
    group = "data"
    options: ClassVar = {
        "workers": Option(4, "How many.", least=1),
        "pin": Option(True, "Whether to pin."),
        "device": Option("cuda", "Which device."),
    }

    def check(self, program: object, options: Options) -> Iterator[Finding]:
        return iter(())


_Example.name = "dataloader-example"


class _Plain(_Example):
    page = "Plain.\n"
    group = "sync"
    options: ClassVar = {}


_Plain.name = "plain-example"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, in a catalogue of two rules."""
    monkeypatch.setattr(catalogue, "all_rules", lambda: (_Example(), _Plain()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _loaded(text: str, name: str = "pyproject.toml") -> Settings:
    _write(Path(name), text)
    return load(Path()).settings


def _mistake(text: str, name: str = "pyproject.toml") -> str:
    with pytest.raises(UserError) as caught:
        _loaded(text, name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_file_every_setting_is_the_default(here: Path) -> None:
    resolved = load(here)
    assert resolved.settings.root == here
    assert resolved.settings.rules == {"dataloader-example": {"workers": 4, "pin": True, "device": "cuda"}}
    assert set(resolved.origins.values()) == {"default"}


def test_every_key_of_a_file_is_read_and_paths_start_from_its_folder(here: Path) -> None:
    settings = _loaded("""
        [tool.perflint]
        select = ["sync", "all"]
        extend-select = ["data"]
        ignore = ["plain-example"]
        per-file-ignores = { "tests/*" = ["data", "sync"] }
        exclude = ["old"]
        extend-exclude = ["older"]
        include = ["*.py"]
        respect-gitignore = false
        force-exclude = true
        jobs = 3
        cache = false
        cache-dir = "caches/perflint"
        unsafe = true
        output-format = "concise"
        baseline = "known.json"
        [tool.perflint.rules.dataloader-example]
        workers = 8
    """)
    assert settings == Settings(
        select=("sync", "all"),
        extend_select=("data",),
        ignore=("plain-example",),
        per_file_ignores=(("tests/*", ("data", "sync")),),
        exclude=("old",),
        extend_exclude=("older",),
        include=("*.py",),
        respect_gitignore=False,
        force_exclude=True,
        jobs=3,
        cache=False,
        cache_dir=here / "caches/perflint",
        unsafe=True,
        output_format="concise",
        baseline=here / "known.json",
        rules={"dataloader-example": {"workers": 8, "pin": True, "device": "cuda"}},
        root=here,
    )


def test_the_nearest_file_upwards_is_the_one(here: Path) -> None:
    _write(here / "pyproject.toml", "[tool.perflint]\njobs = 1")
    _write(here / "inner/pyproject.toml", "[tool.perflint]\njobs = 2")
    _write(here / "inner/deep/none.py", "")
    settings = load(here / "inner/deep").settings
    assert (settings.jobs, settings.root) == (2, here / "inner")


def test_a_pyproject_without_our_table_is_passed_by(here: Path) -> None:
    _write(here / "pyproject.toml", "[tool.perflint]\njobs = 1")
    _write(here / "inner/pyproject.toml", "[project]\nname = 'x'\n[tool.other]\njobs = 5")
    assert load(here / "inner").settings.jobs == 1


def test_perflint_toml_wins_over_pyproject_in_the_same_folder(here: Path) -> None:
    _write(here / "pyproject.toml", "[tool.perflint]\njobs = 1")
    assert _loaded("jobs = 2\n[rules.dataloader-example]\npin = false", "perflint.toml").jobs == 2
    assert load(here).settings.rules["dataloader-example"]["pin"] is False


def test_isolated_reads_no_file(here: Path) -> None:
    _write(here / "pyproject.toml", "[tool.perflint]\nnonsense = 1")
    assert load(here, isolated=True).settings.jobs is None


def test_a_file_that_is_named_is_read_and_patterns_start_from_the_working_directory(here: Path) -> None:
    file = _write(here / "shared/ci.toml", 'jobs = 7\nbaseline = "known.json"')
    settings = load(here, config_path=file).settings
    assert (settings.jobs, settings.root, settings.baseline) == (7, here, here / "known.json")


def test_a_byte_order_mark_in_a_file_is_no_mistake(here: Path) -> None:
    assert _loaded("\ufeffjobs = 2", "perflint.toml").jobs == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slect = []", "tool.perflint.slect: unknown key 'slect'; did you mean select?"),
        ("extend_select = []", "tool.perflint.extend_select: unknown key 'extend_select'; did you mean extend-select?"),
        ('jobs = "four"', "tool.perflint.jobs: expected a whole number above 0, got 'four'"),
        ("jobs = true", "tool.perflint.jobs: expected a whole number above 0, got true"),
        ("jobs = 0", "tool.perflint.jobs: expected a whole number above 0, got 0"),
        ("cache = 1", "tool.perflint.cache: expected true or false, got 1"),
        ('exclude = "x"', "tool.perflint.exclude: expected a list of strings, got 'x'"),
        ("exclude = [1]", "tool.perflint.exclude: expected a list of strings, got a list"),
        ("baseline = 3", "tool.perflint.baseline: expected a path, got 3"),
        ('select = ["plain-exampel"]', "'plain-exampel'; did you mean plain-example?"),
        ('per-file-ignores = ["x"]', "tool.perflint.per-file-ignores: expected a table"),
        ('per-file-ignores = { "a.py" = ["nope"] }', "tool.perflint.per-file-ignores: no rule or group"),
        ("rules = 1", "tool.perflint.rules: expected a table"),
        ("rules.dataloader-example = 1", "tool.perflint.rules.dataloader-example: expected a table"),
        ("rules.dataloader-exampel = {}", "unknown rule 'dataloader-exampel'; did you mean dataloader-example?"),
        ("rules.dataloader-example.worker = 1", "unknown option 'worker'; did you mean workers?"),
        ("rules.plain-example.worker = 1", "unknown option 'worker'; there are none"),
        ('rules.dataloader-example.workers = "2"', "workers: expected a whole number from 1 up, got '2'"),
        ("rules.dataloader-example.workers = true", "workers: expected a whole number from 1 up, got true"),
        ("rules.dataloader-example.workers = 0", "workers: expected a whole number from 1 up, got 0"),
        ("rules.dataloader-example.pin = 1", "pin: expected true or false, got 1"),
        ("rules.dataloader-example.device = 1", "device: expected a string, got 1"),
        ("jobs = = 3", "pyproject.toml: not valid TOML: "),
    ],
)
def test_a_mistake_names_the_file_the_key_and_what_was_expected(text: str, message: str) -> None:
    found = _mistake(f"[tool.perflint]\n{text}")
    assert found.startswith("pyproject.toml: ")
    assert message in found


def test_keys_are_not_prefixed_in_perflint_toml() -> None:
    assert _mistake("jobs = -1", "perflint.toml").startswith("perflint.toml: jobs: expected")


def test_a_file_that_is_not_text_is_a_mistake_in_one_line(here: Path) -> None:
    (here / "perflint.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not valid TOML"):
        load(here)


@pytest.mark.parametrize("text", ["tool = 1", "[tool]\nperflint = 1"])
def test_a_tool_that_is_not_a_table_is_a_mistake(text: str) -> None:
    assert "expected a table" in _mistake(text)


def test_a_named_file_must_exist_and_hold_our_table(here: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.toml: No such file"):
        load(here, config_path=here / "absent.toml")
    with pytest.raises(UserError, match=r"there is no table \[tool.perflint\]"):
        load(here, config_path=_write(here / "pyproject.toml", "[project]"))


def test_the_command_line_wins_and_says_so(here: Path) -> None:
    _write(here / "pyproject.toml", "[tool.perflint]\njobs = 1\ncache = false")
    resolved = load(here, overrides={"jobs": 5})
    assert resolved.settings.jobs == 5
    assert resolved.origins["jobs"] == "command line"
    assert resolved.origins["cache"] == "pyproject.toml: tool.perflint.cache"


def test_what_is_ignored_on_the_command_line_comes_on_top_of_the_file(here: Path) -> None:
    _write(here / "perflint.toml", 'ignore = ["sync"]\nper-file-ignores = { "a.py" = ["data"] }')
    resolved = load(here, overrides={"ignore": ["plain-example"], "per-file-ignores": {"b.py": ["all"]}})
    assert resolved.settings.ignore == ("sync", "plain-example")
    assert resolved.settings.per_file_ignores == (("a.py", ("data",)), ("b.py", ("all",)))
    assert resolved.origins["ignore"] == "perflint.toml: ignore, and command line"


def test_select_on_the_command_line_sets_the_selection_of_the_file_aside(here: Path) -> None:
    _write(here / "perflint.toml", 'select = ["data"]\nextend-select = ["data"]\nignore = ["sync"]')
    selection = load(here, overrides={"select": ["sync"]}).settings.selection
    assert [rule.name for rule in catalogue.selected_rules(selection)] == ["plain-example"]


def test_extend_select_on_the_command_line_takes_back_what_the_file_ignores(here: Path) -> None:
    _write(here / "perflint.toml", 'ignore = ["plain-example", "dataloader-example"]')
    selection = load(here, overrides={"extend-select": ["plain-example"]}).settings.selection
    assert [rule.name for rule in catalogue.selected_rules(selection)] == ["plain-example"]


def test_a_mistake_on_the_command_line_names_the_option(here: Path) -> None:
    with pytest.raises(UserError, match=r"^--select: no rule or group is called 'plan-example'; did you mean plain"):
        load(here, overrides={"select": ["plan-example"]})


def test_a_path_on_the_command_line_starts_from_the_working_directory(here: Path, tmp_path: Path) -> None:
    _write(here / "inner/perflint.toml", "")
    settings = load(here / "inner", overrides={"baseline": Path("known.json")}).settings
    assert (settings.root, settings.baseline) == (here / "inner", here / "known.json")

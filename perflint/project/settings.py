"""Settings: the defaults, the nearest configuration file, the command line, and which of these each came from."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perflint.analysis.data.loaders import OPTION
from perflint.engine import UserError
from perflint.engine.catalogue import Selection, check_selectors, rules_by_name, selected_rules
from perflint.engine.rule import OptionValue, Rule, Severity
from perflint.project import figures
from perflint.project.stored import LOADERS, nearest
from perflint.report import FORMATS

DEFAULT = "default"
COMMAND_LINE = "command line"
ADDED_TO = ("extend-select", "ignore", "per-file-ignores")  # the command line's come on top of the file's


@dataclass(frozen=True)
class Resolved:
    """Settings, and for each by its key (`jobs`, `rules.<rule>.workers`) where it came from."""

    settings: Settings
    origins: Mapping[str, str]


@dataclass(frozen=True)
class _File:
    path: Path
    table: Mapping[str, object]
    prefix: str = ""

    def where(self, key: str) -> str:
        return f"{_displayed(self.path)}: {self.prefix}{key}"

    def subtable(self, *keys: str) -> Mapping[str, object]:
        table: object = self.table
        for key in keys:
            table = table.get(key, {}) if isinstance(table, dict) else None
        if isinstance(table, dict):
            return table
        raise UserError(f"{self.where('.'.join(keys))}: expected a table")


def load(
    start: Path,
    *,
    isolated: bool = False,
    config_path: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Resolved:
    """The settings for files in the folder `start`: the nearest file's upwards from it, then `overrides` by key.

    `isolated` reads no file; `config_path` reads that one, with patterns and paths relative to the working directory.
    Raises UserError for a file that can't be read and for any key or value that is not a setting's.
    """
    found = None if isolated else _read_file(config_path, required=True) if config_path else _nearest(start)
    file = found or _File(Path.cwd(), {})
    root = file.path.parent if found and not config_path else Path.cwd()
    from_file = _file_values(file, root)
    from_line = {key: _checked(f"--{key}", key, value, Path.cwd()) for key, value in (overrides or {}).items()}
    values, origins = _merge(from_file, from_line, file)
    options, option_origins = _rule_options(file, None if isolated else nearest(start.resolve(), LOADERS))
    fields: dict[str, Any] = {key.replace("-", "_"): value for key, value in values.items()}
    return Resolved(Settings(**fields, rules=options, root=root), origins | option_origins)


def _nearest(start: Path) -> _File | None:
    return next(filter(None, map(_read_file, files_above(start))), None)


def files_above(start: Path) -> list[Path]:
    """The files that may hold the settings of the folder `start`, the nearest first."""
    start = start.resolve()
    above = (folder / name for folder in (start, *start.parents) for name in ("perflint.toml", "pyproject.toml"))
    return [each for each in above if each.is_file()]


def _read_file(path: Path, *, required: bool = False) -> _File | None:
    """The settings in the file at `path`; None for a pyproject.toml that has none and that nobody asked for."""
    table = _parse(path)
    if path.name != "pyproject.toml":
        return _File(path.resolve(), table)
    file = _File(path.resolve(), table)
    if "perflint" not in file.subtable("tool"):
        if required:
            raise UserError(f"{_displayed(path)}: there is no table [tool.perflint]")
        return None
    return _File(file.path, file.subtable("tool", "perflint"), "tool.perflint.")


def _parse(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{_displayed(path)}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{_displayed(path)}: not valid TOML: {error}") from error


def _file_values(file: _File, root: Path) -> dict[str, object]:
    for key in file.table:
        if key not in (*READERS, "rules"):
            raise UserError(f"{file.where(key)}: {unknown('key', key, (*READERS, 'rules'))}")
    return {key: _checked(file.where(key), key, file.table[key], root) for key in READERS if key in file.table}


def _checked(where: str, key: str, value: object, base: Path) -> object:
    try:
        checked = read(key, value)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    return base / checked.expanduser() if isinstance(checked, Path) else checked


def _merge(
    from_file: dict[str, object], from_line: dict[str, object], file: _File
) -> tuple[dict[str, object], dict[str, str]]:
    """Values and origins. What is selected on the command line sets the file's whole selection aside."""
    if "select" in from_line:
        from_file = {key: value for key, value in from_file.items() if key not in ("extend-select", "ignore")}
    elif "extend-select" in from_line and "ignore" in from_file:
        asked_for = _sequence(from_line["extend-select"])
        kept = tuple(name for name in _sequence(from_file["ignore"]) if name not in asked_for)
        from_file = {**from_file, "ignore": kept}
    values = dict(from_file)
    origins = dict.fromkeys(READERS, DEFAULT) | {key: file.where(key) for key in from_file}
    for key, value in from_line.items():
        added = key in ADDED_TO and key in from_file
        values[key] = _sequence(from_file[key]) + _sequence(value) if added else value
        origins[key] = f"{origins[key]}, and {COMMAND_LINE}" if added else COMMAND_LINE
    return values, origins


def _sequence(value: object) -> tuple[object, ...]:
    assert isinstance(value, tuple)
    return value


def _rule_options(file: _File, measured: Path | None) -> tuple[dict[str, dict[str, OptionValue]], dict[str, str]]:
    """The options of each rule that has any, those `measured` in runs too, and where each of these came from."""
    rules = rules_by_name()
    for name in file.subtable("rules"):
        if name not in rules:
            raise UserError(f"{file.where('rules')}: {unknown('rule', name, rules)}")
    values = {name: {key: option.default for key, option in rule.options.items()} for name, rule in rules.items()}
    origins = {f"rules.{name}.{key}": DEFAULT for name, options in values.items() for key in options}
    for name in values if measured else ():
        if OPTION in values[name]:
            values[name][OPTION] = figures.as_option(figures.load(measured))
            origins[f"rules.{name}.{OPTION}"] = _displayed(measured) if measured else DEFAULT
    for name in file.subtable("rules"):
        for key, value in file.subtable("rules", name).items():
            path = f"rules.{name}.{key}"
            origins[path] = file.where(path)
            try:
                values[name][key] = read_option(rules[name], key, value)
            except ValueError as error:
                raise UserError(f"{file.where(path)}: {error}") from error
    return {name: options for name, options in values.items() if options}, origins


def _displayed(path: Path) -> str:
    path = Path.cwd() / path
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _strings(value: object) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError(f"expected a list of strings, got {_shown(value)}")


def _selectors(value: object) -> tuple[str, ...]:
    selectors = tuple("all" if each == "ALL" else each for each in _strings(value))  # as ruff spells it
    check_selectors(selectors)
    return selectors


def _per_file(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a table of patterns and the rules to ignore there, got {_shown(value)}")
    return tuple((str(pattern), _selectors(selectors)) for pattern, selectors in value.items())


def _which(holds: Callable[[Any], bool], expected: str) -> Callable[[object], object]:
    def read(value: object) -> object:
        if holds(value):
            return value
        raise ValueError(f"expected {expected}, got {_shown(value)}")

    return read


_boolean = _which(lambda value: isinstance(value, bool), "true or false")
_count = _which(lambda value: type(value) is int and value > 0, "a whole number above 0")
_format = _which(lambda value: value in FORMATS, f"one of {', '.join(FORMATS)}")


def _path(value: object) -> Path:
    if isinstance(value, (str, Path)) and str(value):
        return Path(value)
    raise ValueError(f"expected a path, got {_shown(value)}")


READERS: Mapping[str, Callable[[object], object]] = {
    "select": _selectors,
    "extend-select": _selectors,
    "ignore": _selectors,
    "per-file-ignores": _per_file,
    "exclude": _strings,
    "extend-exclude": _strings,
    "include": _strings,
    "respect-gitignore": _boolean,
    "force-exclude": _boolean,
    "jobs": _count,
    "cache": _boolean,
    "cache-dir": _path,
    "unsafe": _boolean,
    "output-format": _format,
    "baseline": _path,
}


def read(key: str, value: object) -> object:
    return READERS[key](value)


def read_option(rule: Rule, name: str, value: object) -> bool | int | str:
    """The value of an option of `rule`; ValueError for an option it does not have, or a value of another type."""
    if name not in rule.options:
        raise ValueError(unknown("option", name, rule.options))
    option = rule.options[name]
    wanted = type(option.default)
    if (
        isinstance(value, (bool, int, str))
        and type(value) is wanted
        and not (wanted is int and int(value) < option.least)
    ):
        return value
    expected = {bool: "true or false", int: f"a whole number from {option.least} up", str: "a string"}[wanted]
    raise ValueError(f"expected {expected}, got {_shown(value)}")


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message for a `name` that is none of the `known` ones, with the nearest of them."""
    known, asked = list(known), name.lower().replace("_", "-")
    near = sorted((each for each in known if asked in each), key=lambda each: not each.startswith(asked))
    near = near or difflib.get_close_matches(asked, known, n=1, cutoff=0.7)
    if near:
        return f"unknown {what} {name!r}; did you mean {near[0]}?"
    return f"unknown {what} {name!r}; " + (f"there are {', '.join(known)}" if known else "there are none")


def _shown(value: object) -> str:
    names = {bool: str(value).lower(), dict: "a table", list: "a list"}
    text = names.get(type(value)) or repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_INCLUDE = ("*.py", "*.pyw", "*.ipynb")
_EXCLUDE = (
    *(".git/", ".hg/", ".svn/", ".bzr/", ".jj/", ".venv/", "venv/", "site-packages/", "__pypackages__/"),
    *("__pycache__/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".pytype/", ".hypothesis/", ".perflint_cache/"),
    *(".tox/", ".nox/", ".eggs/", "*.egg-info/", ".direnv/", ".pants.d/", "buck-out/", "build/", "_build/", "dist/"),
    *("node_modules/", ".ipynb_checkpoints/"),
)


@dataclass(frozen=True)
class Settings:
    """Every setting; `root` is the folder that patterns and relative paths start from.

    `rules` holds the options of each rule that has any, with the defaults filled in.
    """

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = _EXCLUDE
    extend_exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = _INCLUDE
    respect_gitignore: bool = True
    force_exclude: bool = False
    jobs: int | None = None
    cache: bool = True
    cache_dir: Path | None = None
    unsafe: bool = False
    unread: bool = False  # for the patches of a run, which nobody reads
    output_format: str = "full"
    baseline: Path | None = None
    rules: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    root: Path = field(default_factory=Path.cwd)

    @property
    def selection(self) -> Selection:
        return Selection(self.select, self.extend_select, self.ignore)


def reasons_off(settings: Settings) -> Iterator[str]:
    on = {rule.name for rule in selected_rules(settings.selection)}
    for rule in rules_by_name().values():
        if rule.name not in on:
            yield f"{rule.name} is off: {_reason(rule, settings)}"


def _reason(rule: Rule, settings: Settings) -> str:
    words = ("all", rule.group, rule.name)
    asked_for = any(word in (*settings.select, *settings.extend_select) for word in words)
    if not asked_for and settings.select:
        return "it is not selected"
    if not asked_for and rule.severity is Severity.ADVICE:
        return "it is advice, which must be selected"
    return f"it is ignored, as {next(word for word in reversed(words) if word in settings.ignore)}"

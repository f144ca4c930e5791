"""What each setting accepts, and how one that it does not accept is reported."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from perflint.engine.rule import Rule


def _strings(value: object) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError(f"expected a list of strings, got {_shown(value)}")


def _selectors(value: object) -> tuple[str, ...]:
    from perflint.engine.catalogue import check_selectors

    selectors = tuple("all" if each == "ALL" else each for each in _strings(value))  # as ruff spells it
    check_selectors(selectors)
    return selectors


def _per_file(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a table of patterns and the rules to ignore there, got {_shown(value)}")
    return tuple((str(pattern), _selectors(selectors)) for pattern, selectors in value.items())


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"expected true or false, got {_shown(value)}")


def _count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError(f"expected a whole number above 0, got {_shown(value)}")


def _path(value: object) -> Path:
    if isinstance(value, (str, Path)) and str(value):
        return Path(value)
    raise ValueError(f"expected a path, got {_shown(value)}")


def _format(value: object) -> str:
    from perflint.report import FORMATS

    if isinstance(value, str) and value in FORMATS:
        return value
    raise ValueError(f"expected one of {', '.join(FORMATS)}, got {_shown(value)}")


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
    """The value of the setting `key`; ValueError says what was expected instead."""
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
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"unknown {what} {name!r}; did you mean {near[0]}?"
    return f"unknown {what} {name!r}; " + (f"there are {', '.join(known)}" if known else "there are none")


def _shown(value: object) -> str:
    names = {bool: str(value).lower(), dict: "a table", list: "a list"}
    text = names.get(type(value)) or repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

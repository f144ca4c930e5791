"""What runs have measured of a project, kept in its folder `.perflint`: JSON files of records, each with a version.

Records are dataclasses and named tuples. The cache of results keeps some, too, in a shorter form, without the names of
their fields.
"""

from __future__ import annotations

import json
import math
import os
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

FOLDER = ".perflint"
LOADERS = "loaders.json"  # what `run --tune-loader` has found
VERDICTS = "verdicts.json"  # what `verify` has
PROFILES = "profiles.json"  # what `profile` has
# What reading raises where a file is damaged, or holds something else:
DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class OtherVersion(ValueError):
    """A file is of another version than this perflint reads."""


def nearest(start: Path, name: str) -> Path | None:
    """The file of that name with what is known of a program in the folder `start`: the nearest one upwards."""
    files = (folder / FOLDER / name for folder in (start, *start.parents))
    return next(filter(os.path.exists, files), None)  # a Path would raise where it may not look


def made(project: Path | str) -> Path:
    """The folder of what was measured in `project`, which git ignores unless told otherwise; raises OSError."""
    folder = Path(project, FOLDER)
    folder.mkdir(exist_ok=True)
    if not any(folder.iterdir()):
        (folder / ".gitignore").write_text("*\n")
    return folder


def project_of(file: Path) -> Path:
    """The project that a kept file is about, to which paths in it are relative: it may be copied."""
    return Path(os.path.realpath(file.parent.parent))


def load(file: Path, version: int, name: str, kind: Any) -> tuple[Any, ...]:
    """The records of a `kind` that a file holds by a `name`; none where there is no file, and raises DAMAGED."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return ()
    if content["version"] != version:
        raise OtherVersion(content["version"])
    return tuple(map(reader(kind), content[name]))


def store(file: Path, version: int, name: str, records: Iterable[object], indent: int | None = None) -> None:
    """Write what `load` reads; raises OSError."""
    from perflint.documents.disk import write_text  # a start does without it

    write_text(file, as_json({"version": version, name: tuple(records)}, indent))


def as_json(value: object, indent: int | None = None) -> str:
    separators = (",", ":") if indent is None else None
    return json.dumps(encoded(value), allow_nan=False, indent=indent, separators=separators) + "\n"


def encoded(value: object) -> Any:
    """`value` as JSON types; numbers that are not finite as the strings "nan", "inf" and "-inf"."""
    if is_dataclass(value):
        return {field.name: encoded(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        names = getattr(value, "_fields", ())
        parts = [encoded(each) for each in value]
        return dict(zip(names, parts, strict=True)) if names else parts
    if isinstance(value, Mapping):
        return {name: encoded(each) for name, each in value.items()}
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@cache
def reader(kind: Any) -> Callable[[Any], Any]:
    """What makes a value of the type `kind` of its JSON types; unknown fields are passed over.

    Records may have their fields by their places.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple and parts[1:] == (...,):
        read = reader(parts[0])
        return tuple if read is _as_it_is else lambda content: tuple(map(read, content))
    if origin is tuple:
        in_order = [reader(part) for part in parts]
        return lambda content: tuple(read(each) for read, each in zip(in_order, content, strict=True))
    if origin in (Union, types.UnionType):
        known = next(reader(part) for part in parts if part is not type(None))
        return lambda content: None if content is None else known(content)
    if origin is not None and issubclass(origin, Mapping):
        read = reader(parts[1])
        return lambda content: {name: read(each) for name, each in content.items()}
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _reader_of_fields(kind)
    return kind if isinstance(kind, type) and issubclass(kind, Enum | int | float | str) else _as_it_is


def _reader_of_fields(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
    readers = {name: reader(hints[name]) for name in names}
    plain = (_as_it_is, str, int, bool)
    changing = [(at, part) for at, part in enumerate(readers.values()) if part not in plain]

    def read(content: Any) -> Any:
        if isinstance(content, list):
            for at, part in changing:
                content[at] = part(content[at])
            return kind(*content)
        return kind(**{name: part(content[name]) for name, part in readers.items() if name in content})

    return read


def _as_it_is(content: Any) -> Any:
    return content

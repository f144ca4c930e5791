"""Serialises results, links and contexts of files to compact JSON, for the cache and the worker processes."""

from __future__ import annotations

import ast
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from perflint.analysis.links import NONE, Context, Links
from perflint.analysis.values.device_use import imported_names
from perflint.documents.places import Problem
from perflint.engine.problems import InternalProblem
from perflint.engine.results import FileResult

_WORDS = re.compile(r"\.?[^\W\d]\w*")
_CLASSES = re.compile(r"^\s*class\s+(\w+)\s*\(", re.MULTILINE)
_IMPORTS = re.compile(r"^\s*(?:from\b[^\n(]*\([^)]*\)|(?:from|import)\b[^\n]*(?:\\\n[^\n]*)*)", re.MULTILINE)


def encode(result: FileResult, links: Links = NONE) -> str:
    """`result` without its path, which the reader knows, and the file's links; empty where there is nothing to tell."""
    if result == FileResult(result.path) and links == NONE:
        return ""
    return _told(result, links)


def _told(result: FileResult, links: Links) -> str:
    told = "" if result == FileResult(result.path) else _dumps(replace(result, path=""))
    return f"{told}\n{_dumps(links)}"


def decode_links(payload: str) -> Links:
    """The links that `encode` was given; raises as `decode` does."""
    links: Links = _reader(Links)(json.loads(payload.split("\n")[1])) if payload else NONE
    return links


class Outline(NamedTuple):
    """What is seen of a file at once: its links as far as they need no values, and the names in its text.

    That is the classes that derive from others, all that is imported, by dotted names, and all words, those of
    attributes with a dot.
    """

    links: Links
    classes: frozenset[str] = frozenset()
    imported: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()


def encode_outline(result: FileResult, links: Links, text: str) -> str:
    """What `encode` makes of `result` and `links`, with the outline of a file that has this text."""
    found = _CLASSES.findall(text), _imported(text), _WORDS.findall(text)
    return "\n".join((_told(result, links), *(" ".join(sorted({*names})) for names in found)))


def _imported(text: str) -> Iterator[str]:
    """The dotted names of all that is imported, in functions, too."""
    for lines in _IMPORTS.findall(text):
        try:
            (statement,) = ast.parse(lines.strip()).body
        except (SyntaxError, ValueError):
            continue  # a line of a longer text
        yield from imported_names(statement)


def decode_outline(payload: str) -> Outline:
    """What `encode_outline` was given; raises as `decode` does."""
    if not payload:
        return Outline(NONE)
    _, links, *names = payload.split("\n")
    return Outline(_reader(Links)(json.loads(links)), *(frozenset(each.split()) for each in names))


def decode(path: str, payload: str) -> FileResult:
    """The result of the file at `path` that `encode` made `payload` of.

    Raises ValueError, TypeError or KeyError where `payload` is nothing of the sort.
    """
    told = payload.partition("\n")[0]
    if not told:
        return FileResult(path)
    result: FileResult = _reader(FileResult)(json.loads(told))
    return replace(result, path=path, diagnostics=tuple(replace(each, path=path) for each in result.diagnostics))


def encode_contexts(contexts: Mapping[str, Context]) -> str:
    """The contexts of the files of a run, by path."""
    return _dumps(contexts)


def decode_contexts(payload: str) -> dict[str, Context]:
    """The contexts that `encode_contexts` was given; raises as `decode` does."""
    return {path: _reader(Context)(content) for path, content in json.loads(payload).items()}


def _dumps(content: object) -> str:
    return json.dumps(content, separators=(",", ":"), default=_values)


def _values(each: Any) -> list[Any]:
    """The fields of a dataclass, in their order; a place in a file is not told twice."""
    return ["" if field.name == "path" else getattr(each, field.name) for field in fields(each)]


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What makes a value of this type of what `_dumps` made of one."""
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if parts[1:] == (...,):
            read = _reader(parts[0])
            return lambda content: tuple(map(read, content))
        return lambda content: tuple(_reader(part)(each) for part, each in zip(parts, content, strict=True))
    if get_origin(kind) in (Union, types.UnionType):
        known = next(_reader(part) for part in get_args(kind) if part is not type(None))
        return lambda content: None if content is None else known(content)
    if kind is Problem:
        return lambda content: (InternalProblem if len(content) > 2 else Problem)(*content)
    if is_dataclass(kind):
        make: Any = kind
        hints = get_type_hints(kind)
        readers = [_reader(hints[field.name]) for field in fields(kind)]
        return lambda content: make(*(read(each) for read, each in zip(readers, content, strict=True)))
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else lambda content: content

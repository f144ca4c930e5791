"""Locates values in JSON text, and edits strings there without touching another byte."""

from __future__ import annotations

import json
import re

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_NON_ASCII_ESCAPE = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")

Span = tuple[int, int]


def members(raw: str, start: int) -> dict[str, Span]:
    """The spans of the values of the JSON object that begins at `start` of valid JSON; the last of equal keys."""
    spans: dict[str, Span] = {}
    at = _skip(raw, start + 1)
    while raw[at] != "}":
        key, at = _DECODER.raw_decode(raw, at)
        at = _skip(raw, _skip(raw, at) + 1)
        _, end = _DECODER.raw_decode(raw, at)
        spans[key] = at, end
        at = _skip_comma(raw, end)
    return spans


def elements(raw: str, start: int) -> list[Span]:
    """The spans of the elements of the JSON array that begins at `start` of valid JSON."""
    spans: list[Span] = []
    at = _skip(raw, start + 1)
    while raw[at] != "]":
        _, end = _DECODER.raw_decode(raw, at)
        spans.append((at, end))
        at = _skip_comma(raw, end)
    return spans


def with_text(raw: str, span: Span, text: str) -> str:
    """The JSON of the string, or list of lines, at `span` changed to say `text`, laid out as it was."""
    ascii_only = raw.isascii() and _NON_ASCII_ESCAPE.search(raw) is not None
    start, end = span
    if raw[start] == '"':
        return json.dumps(text, ensure_ascii=ascii_only)
    lines = [json.dumps(line, ensure_ascii=ascii_only) for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
    old = elements(raw, start)
    if not old:
        return f"[{', '.join(lines)}]"
    lead = raw[start + 1 : old[0][0]]
    between = raw[old[0][1] : old[1][0]] if len(old) > 1 else "," + (lead if "\n" in lead else " ")
    return f"[{lead}{between.join(lines)}{raw[old[-1][1] : end]}"


def _skip(raw: str, at: int) -> int:
    blank = _BLANK.match(raw, at)
    assert blank is not None
    return blank.end()


def _skip_comma(raw: str, at: int) -> int:
    at = _skip(raw, at)
    return _skip(raw, at + 1) if raw[at] == "," else at

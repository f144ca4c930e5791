"""Writes a copy as a view: the edits, and what in the text stands in their way."""

from __future__ import annotations

import ast

from perflint import api
from perflint.api import Edit, Kind, Program

from .copies import Copy


def rewritten(program: Program, copy: Copy, cast: ast.Call | None, rank: int | None) -> tuple[tuple[Edit, ...], str]:
    """The edits that make it `expand`, behind the cast, or what blocks them."""
    if copy.counts is None:
        return (), "the counts are in a list"
    start, end = program.span(copy.call)
    if cast is not None and meets_comment(program, end, program.span(cast)[1]):
        return (), "there is a comment inside the call"
    is_repeat = copy.is_method and copy.form == "repeat"
    asks_for_shape = copy.form == "stack" and copy.axis == 0 and isinstance(copy.source, ast.Name)
    if rank is None and not is_repeat and not asks_for_shape:
        return (), "how many axes the tensor has is not known here"
    if is_repeat or (copy.form == "tile" and copy.is_method and rank is not None and rank <= len(copy.counts)):
        renamed = _renamed(program, copy, len(copy.counts) if rank is None else rank)
        return (*renamed, *put_in_front(program, copy.call, cast)), ""
    if "#" in program.text[start:end]:
        return (), "there is a comment inside the call"
    text = _spelled(program, copy, _written(program, cast), rank)
    if not text:
        return (), "it is not known that the count is a number and which axis is meant"
    return (Edit(start, end, text), *without(program, cast)), ""


def _renamed(program: Program, copy: Copy, rank: int) -> tuple[Edit, ...]:
    """`repeat(1, n)` -> `expand(-1, n)`; axes that the source lacks keep their 1."""
    assert copy.counts is not None and isinstance(copy.call.func, ast.Attribute)
    end = program.span(copy.call.func)[1]
    edits = [Edit(end - len(copy.call.func.attr), end, "expand")]
    for position, count in enumerate(copy.counts):
        if api.integer(count) == 1 and position >= len(copy.counts) - rank:
            edits.append(Edit(*program.span(count), "-1"))
    return tuple(edits)


def _spelled(program: Program, copy: Copy, cast: str, rank: int | None) -> str:
    assert copy.counts is not None
    source = program.segment(copy.source)
    if not isinstance(copy.source, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
        source = f"({source})"
    shape = f"{source}.shape"
    source += cast
    if copy.form == "tile":
        assert rank is not None
        sizes = ["-1"] * max(0, rank - len(copy.counts))
        new = len(copy.counts) - rank
        sizes += ["-1" if api.integer(c) == 1 and i >= new else program.segment(c) for i, c in enumerate(copy.counts)]
        return f"{source}.expand({', '.join(sizes)})"
    if program.value(copy.counts[0]).kind is not Kind.NUMBER or copy.axis is None:
        return ""
    count = program.segment(copy.counts[0])
    if rank is None:
        return f"{source}.expand({count}, *{shape})"
    axes = rank + (copy.form == "stack")
    if not -axes <= copy.axis < axes:
        return ""
    sizes = ["-1"] * axes
    sizes[copy.axis] = count
    unsqueezed = f".unsqueeze({copy.axis})" if copy.form == "stack" else ""
    return f"{source}{unsqueezed}.expand({', '.join(sizes)})"


def put_in_front(program: Program, call: ast.Call, cast: ast.Call | None) -> tuple[Edit, ...]:
    """The move or cast, which stands behind it, goes in front of the method that `call` calls."""
    start = method_start(program, call)
    return (Edit(start, start, _written(program, cast)), *without(program, cast)) if cast is not None else ()


def without(program: Program, call: ast.Call | None) -> tuple[Edit, ...]:
    """Drop `.method(...)`, and none of the parentheses around what it is called on."""
    return (Edit(method_start(program, call), program.span(call)[1], ""),) if call is not None else ()


def _written(program: Program, call: ast.Call | None) -> str:
    """`.method(...)`, with the blanks and line breaks in front of its dot."""
    return program.text[method_start(program, call) : program.span(call)[1]] if call is not None else ""


def method_start(program: Program, call: ast.Call) -> int:
    """Where `.method(...)` begins, with the blanks and line breaks in front of its dot."""
    start = _dot(program, call)
    while program.text[start - 1].isspace() or program.text[start - 1] == "\\":
        start -= 1
    return start


def _dot(program: Program, call: ast.Call) -> int:
    """Where `.method(...)` begins."""
    assert isinstance(call.func, ast.Attribute)
    return program.text.rindex(".", 0, program.span(call.func)[1] - len(call.func.attr))


def meets_comment(program: Program, start: int, end: int) -> bool:
    """Is there a comment in the text to delete, or one before it on its line, that would swallow what follows?"""
    line = program.source.position(start)[0]
    return "#" in program.text[program.source.line_start(line) : end]

"""Writes a copy as a view: what changes, and what stands in the way of that."""

from __future__ import annotations

import ast

from perflint import api
from perflint.api import CodeChange, Kind, Program, Replace

from .copies import Copy

Operations = tuple[CodeChange, ...]


def rewritten(program: Program, copy: Copy, cast: ast.Call | None, rank: int | None) -> tuple[Operations, str]:
    """What makes it `expand`, behind the cast, or what blocks that."""
    if copy.counts is None:
        return (), "the counts are in a list"
    if cast is not None and comments_behind(program, copy.call, cast):
        return (), "there is a comment inside the call"
    is_repeat = copy.is_method and copy.form == "repeat"
    asks_for_shape = copy.form == "stack" and copy.axis == 0 and isinstance(copy.source, ast.Name)
    if rank is None and not is_repeat and not asks_for_shape:
        return (), "how many axes the tensor has is not known here"
    if is_repeat or (copy.form == "tile" and copy.is_method and rank is not None and rank <= len(copy.counts)):
        return (*_renamed(copy, cast, len(copy.counts) if rank is None else rank), *without(cast)), ""
    if api.comments(program, *program.span(copy.call)):
        return (), "there is a comment inside the call"
    view = _spelled(program, copy, _cast(copy.source, cast), rank)
    if view is None:
        return (), "it is not known that the count is a number and which axis is meant"
    return (Replace(copy.call, view), *without(cast)), ""


def _renamed(copy: Copy, cast: ast.Call | None, rank: int) -> Operations:
    """`repeat(1, n)` -> `expand(-1, n)`; axes that the source lacks keep their 1."""
    assert copy.counts is not None and isinstance(copy.call.func, ast.Attribute)
    new = len(copy.counts) - rank
    ones = [count for position, count in enumerate(copy.counts) if api.integer(count) == 1 and position >= new]
    view = api.expression("{x}.expand", x=_cast(copy.call.func.value, cast))
    return Replace(copy.call.func, view), *(Replace(count, api.number(-1)) for count in ones)


def _spelled(program: Program, copy: Copy, source: ast.expr, rank: int | None) -> ast.expr | None:
    assert copy.counts is not None
    if copy.form == "tile":
        assert rank is not None
        new = len(copy.counts) - rank
        sizes = [api.number(-1)] * max(0, -new)
        sizes += [api.number(-1) if api.integer(c) == 1 and i >= new else c for i, c in enumerate(copy.counts)]
        return api.expression("{x}.expand({*sizes})", x=source, sizes=sizes)
    count = copy.counts[0]
    if program.value(count).kind is not Kind.NUMBER or copy.axis is None:
        return None
    if rank is None:
        return api.expression("{x}.expand({n}, *{y}.shape)", x=source, n=count, y=copy.source)
    axes = rank + (copy.form == "stack")
    if not -axes <= copy.axis < axes:
        return None
    sizes = [api.number(-1)] * axes
    sizes[copy.axis] = count
    template = "{x}.unsqueeze({axis}).expand({*sizes})" if copy.form == "stack" else "{x}.expand({*sizes})"
    return api.expression(template, x=source, axis=copy.axis, sizes=sizes)


def put_in_front(call: ast.Call, cast: ast.Call) -> Operations:
    """The move or cast, which stands behind it, goes in front of the method that `call` calls."""
    source = receiver(call)
    return Replace(source, _cast(source, cast)), *without(cast)


def without(call: ast.Call | None) -> Operations:
    """Drop `.method(...)`."""
    return (Replace(call, receiver(call)),) if call is not None else ()


def receiver(call: ast.Call) -> ast.expr:
    """What `call` calls a method of."""
    assert isinstance(call.func, ast.Attribute)
    return call.func.value


def _cast(source: ast.expr, cast: ast.Call | None) -> ast.expr:
    """`source`, moved or cast as `cast` does it."""
    if cast is None:
        return source
    assert isinstance(cast.func, ast.Attribute)
    return api.call_like(cast, api.expression("{x}.{name}", x=source, name=cast.func.attr))


def comments_behind(program: Program, inner: ast.expr, outer: ast.expr) -> bool:
    """Is there a comment between the ends of two expressions?"""
    return bool(api.comments(program, program.span(inner)[1], program.span(outer)[1]))

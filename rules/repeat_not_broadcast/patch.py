"""Decides what is done about a copy, and what that promises."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from perflint import api
from perflint.api import (
    Blocked,
    CodeChange,
    Fix,
    Kind,
    Program,
    Reading,
    Replace,
    Role,
    Safety,
    Shapes,
    Write,
    converts,
)

from .copies import Copy
from .layout import lays_out_differently
from .proof import Repeated, is_reshaped, unproved_rank
from .readers import is_caught, may_have_gradient

Operations = tuple[CodeChange, ...]


@dataclass(frozen=True)
class Patch:
    """What to do about a copy: a fix, or what stands in its way."""

    fixes: tuple[Fix, ...] = ()
    blocked: str = ""


def blocked_by(write: Write) -> Patch:
    """No rewriting, since code that can't be looked into may write to the source while the copy is in use."""
    return Patch(blocked=str(Blocked("the repeated tensor may be written to here, which a view shows", write.node)))


def patch(program: Program, shapes: Shapes, copy: Copy, reading: Reading, repeated: Repeated) -> Patch:
    if lays_out_differently(program, copy, reading):
        return Patch(
            blocked="a tensor here is transposed, or may be: the result would be laid out in memory in another way, "
            "which `.view()` after it may not take"
        )
    if is_caught(program, copy):
        return Patch(blocked="a negative count raises an error here, which is handled; a view has another use for it")
    if reading.shown:
        return Patch(blocked="other files may get hold of it, and write to it or reshape it")
    if reading.converted and any(consumer.role is not Role.ELEMENTWISE for consumer in reading.consumers):
        return Patch(blocked="a move or cast after it writes it out all the same: move or cast it before, then repeat")
    if is_reshaped(program, copy):
        return Patch(blocked="a tensor is given another shape in place on the way, so that its axes are not sure")
    if not repeated.sure:
        return Patch(blocked="whether the tensor lacks these axes, or has them with size 1, is not known here")
    safety = _safety(program, shapes, copy, reading, repeated)
    cast = _cast(program, copy)
    if cast is not None:
        safety = max(safety, _safety_of_cast(program, copy, cast), key=list(Safety).index)
    if copy.form == "expanded":
        return _unmade(program, copy, cast, safety)
    needed = unproved_rank(program, shapes, copy, reading)
    proviso = f", where the tensor has {needed} axes" if needed else ""
    # The operation may repeat other axes, too: the gradient is then summed over all of them at once.
    if dropped := _dropped(program, copy, reading):
        safety = Safety.ROUNDING if may_have_gradient(program, copy) else safety
        title = f"leave the repeating to the operation, which broadcasts{proviso}"
        return Patch((Fix(title, Safety.BEHAVIOUR if needed else safety, api.rewrite(program, *dropped)),))
    operations, blocked = _rewritten(program, copy, cast, shapes.shape(copy.source).rank)
    first = "move or cast first, then " if cast is not None else ""
    fix = Fix(
        f"{first}use expand, which makes a view{proviso}",
        Safety.BEHAVIOUR if needed else safety,
        api.rewrite(program, *operations),
    )
    return Patch((fix,)) if operations else Patch(blocked=blocked)


def _cast(program: Program, copy: Copy) -> ast.Call | None:
    """The move or cast, in the same expression, of what is repeated: that writes it out in any case."""
    if copy.form == "expanded" and converts(_method(copy.call)):
        return copy.call
    method = program.parent(copy.call)
    around = program.parent(method) if isinstance(method, ast.Attribute) and converts(method.attr) else None
    return around if isinstance(around, ast.Call) and around.func is method else None


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _dropped(program: Program, copy: Copy, reading: Reading) -> Operations:
    """Without the repeating, where one operation writes into another tensor, whose shape holds."""
    only = reading.consumers[0]
    if (
        len(reading.consumers) > 1
        or not only.in_place
        or only.role is not Role.ELEMENTWISE
        or reading.measured
        or not copy.is_method
        or isinstance(program.parent(copy.call), ast.Assign)  # whose name, and comments, tell its shape
    ):
        return ()
    return () if _comments_behind(program, _receiver(copy.call), copy.call) else _without(copy.call)


def _unmade(program: Program, copy: Copy, cast: ast.Call | None, safety: Safety) -> Patch:
    """`x.expand(...).contiguous()` -> `x.expand(...)`; `x.expand(...).to(d)` -> `x.to(d).expand(...)`."""
    assert isinstance(copy.source, ast.Call)
    if _comments_behind(program, _receiver(copy.call), cast or copy.call):
        return Patch(blocked="there is a comment inside the call")
    if cast is None:
        return Patch((Fix("keep the view", safety, api.rewrite(program, *_without(copy.call))),))
    if program.statement_of(copy.source) is not program.statement_of(cast):
        return Patch(blocked="it is expanded in another statement: move or cast it there, before it is expanded")
    written_out = _without(copy.call) if cast is not copy.call else ()
    change = api.rewrite(program, *written_out, *_put_in_front(copy.source, cast))
    return Patch((Fix("move or cast before it is expanded", safety, change),))


def _safety(program: Program, shapes: Shapes, copy: Copy, reading: Reading, repeated: Repeated) -> Safety:
    """Exact, unless sums (of the gradient, a reduction or a product) may be taken in another order."""
    if any(consumer.role is Role.REDUCTION for consumer in reading.consumers):
        return Safety.ROUNDING
    for consumer in reading.consumers:
        if consumer.role is Role.MATMUL and (
            repeated.positions != (0,) or not shapes.shape(consumer.operand).size(0).startswith("x")
        ):
            return Safety.ROUNDING
    reordered = copy.form in ("cat", "stack") or (repeated.new and len(repeated.positions) > 1)
    return Safety.ROUNDING if reordered and may_have_gradient(program, copy) else Safety.EXACT


def _safety_of_cast(program: Program, copy: Copy, cast: ast.Call) -> Safety:
    """The gradient of the repeating is summed after the cast, which may be to a narrower type."""
    if not may_have_gradient(program, copy):
        return Safety.EXACT
    return Safety.BEHAVIOUR if _may_narrow(program, cast, _method(cast)) else Safety.ROUNDING


def _may_narrow(program: Program, call: ast.Call, name: str) -> bool:
    if name not in ("to", "type"):
        return name == "type_as" or api.torch_does(name, "narrowing")
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg in ("dtype", "other"))]
    return any(not _is_device(program, each) for each in given if not isinstance(each, ast.Constant))


def _is_device(program: Program, node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return program.value(node).kind is Kind.STRING or any(word in name.lower() for word in ("dev", "cuda", "gpu"))


def _rewritten(program: Program, copy: Copy, cast: ast.Call | None, rank: int | None) -> tuple[Operations, str]:
    if copy.counts is None:
        return (), "the counts are in a list"
    if cast is not None and _comments_behind(program, copy.call, cast):
        return (), "there is a comment inside the call"
    is_repeat = copy.is_method and copy.form == "repeat"
    asks_for_shape = copy.form == "stack" and copy.axis == 0 and isinstance(copy.source, ast.Name)
    if rank is None and not is_repeat and not asks_for_shape:
        return (), "how many axes the tensor has is not known here"
    if is_repeat or (copy.form == "tile" and copy.is_method and rank is not None and rank <= len(copy.counts)):
        return (*_renamed(copy, cast, len(copy.counts) if rank is None else rank), *_without(cast)), ""
    if api.comments(program, *program.span(copy.call)):
        return (), "there is a comment inside the call"
    view = _spelled(program, copy, _as_cast(copy.source, cast), rank)
    if view is None:
        return (), "it is not known that the count is a number and which axis is meant"
    return (Replace(copy.call, view), *_without(cast)), ""


def _renamed(copy: Copy, cast: ast.Call | None, rank: int) -> Operations:
    """`repeat(1, n)` -> `expand(-1, n)`; axes that the source lacks keep their 1."""
    assert copy.counts is not None and isinstance(copy.call.func, ast.Attribute)
    new = len(copy.counts) - rank
    ones = [count for position, count in enumerate(copy.counts) if api.integer(count) == 1 and position >= new]
    view = api.expression("{x}.expand", x=_as_cast(copy.call.func.value, cast))
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


def _put_in_front(call: ast.Call, cast: ast.Call) -> Operations:
    source = _receiver(call)
    return Replace(source, _as_cast(source, cast)), *_without(cast)


def _without(call: ast.Call | None) -> Operations:
    return (Replace(call, _receiver(call)),) if call is not None else ()


def _receiver(call: ast.Call) -> ast.expr:
    assert isinstance(call.func, ast.Attribute)
    return call.func.value


def _as_cast(source: ast.expr, cast: ast.Call | None) -> ast.expr:
    if cast is None:
        return source
    assert isinstance(cast.func, ast.Attribute)
    return api.call_like(cast, api.expression("{x}.{name}", x=source, name=cast.func.attr))


def _comments_behind(program: Program, inner: ast.expr, outer: ast.expr) -> bool:
    return bool(api.comments(program, program.span(inner)[1], program.span(outer)[1]))

"""Decides what is done about a copy, and what that promises."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from perflint import api
from perflint.api import Blocked, Fix, Flow, Kind, Program, Reading, Role, Safety, Shapes, Write, converts

from .copies import Copy
from .gradients import may_have_gradient
from .layout import lays_out_differently
from .proof import Repeated, unproved_rank
from .rewriting import Operations, comments_behind, put_in_front, receiver, rewritten, without


@dataclass(frozen=True)
class Patch:
    """What to do about a copy: a fix, or what stands in its way."""

    fixes: tuple[Fix, ...] = ()
    blocked: str = ""


def blocked_by(write: Write) -> Patch:
    """No rewriting, since code that can't be looked into may write to the source while the copy is in use."""
    return Patch(blocked=str(Blocked("what is repeated may be written to here, and a view would show it", write.node)))


def patch(program: Program, shapes: Shapes, flow: Flow, copy: Copy, reading: Reading, repeated: Repeated) -> Patch:
    """The rewriting of `copy`."""
    if lays_out_differently(program, flow, copy, reading):
        return Patch(
            blocked="next to a transposed tensor, the result would be laid out in memory in another way, "
            "which `.view()` behind it may not take"
        )
    if reading.shown:
        return Patch(blocked="other files may get hold of it, and write to it or reshape it")
    if reading.converted and any(consumer.role is not Role.ELEMENTWISE for consumer in reading.consumers):
        return Patch(blocked="a move or cast behind it writes it out all the same: move or cast it before, then repeat")
    if not repeated.sure:
        return Patch(blocked="whether the tensor lacks these axes, or has them with size 1, is not known here")
    safety = _safety(program, flow, shapes, copy, reading, repeated)
    cast = _cast(program, copy)
    if cast is not None:
        safety = max(safety, _safety_of_cast(program, flow, copy, cast), key=list(Safety).index)
    if copy.form == "expanded":
        return _unmade(program, copy, cast, safety)
    needed = unproved_rank(program, shapes, flow, copy, reading)
    proviso = f", where the tensor has {needed} axes" if needed else ""
    # The operation may repeat other axes, too: the gradient is then summed over all of them at once.
    if dropped := _dropped(program, copy, reading):
        safety = Safety.ROUNDING if may_have_gradient(program, flow, copy) else safety
        title = f"leave the repeating to the operation, which broadcasts{proviso}"
        return Patch((Fix(title, Safety.BEHAVIOUR if needed else safety, api.rewrite(program, *dropped)),))
    operations, blocked = rewritten(program, copy, cast, shapes.shape(copy.source).rank)
    title = "move or cast, and then repeat as a view: expand" if cast is not None else "repeat as a view: expand"
    fix = Fix(f"{title}{proviso}", Safety.BEHAVIOUR if needed else safety, api.rewrite(program, *operations))
    return Patch((fix,)) if operations else Patch(blocked=blocked)


def _cast(program: Program, copy: Copy) -> ast.Call | None:
    """The move or cast of what is repeated, in the same expression: that writes it out, whatever is done before."""
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
        or _is_kept_by_its_name(program, copy)
    ):
        return ()
    return () if comments_behind(program, receiver(copy.call), copy.call) else without(copy.call)


def _is_kept_by_its_name(program: Program, copy: Copy) -> bool:
    """Is it `x = x.repeat(...)`, of which nothing would be left but `x = x`?"""
    statement = program.parent(copy.call)
    return (
        isinstance(statement, ast.Assign)
        and isinstance(copy.source, ast.Name)
        and any(isinstance(each, ast.Name) and each.id == copy.source.id for each in statement.targets)
    )


def _unmade(program: Program, copy: Copy, cast: ast.Call | None, safety: Safety) -> Patch:
    """`x.expand(...).contiguous()` -> `x.expand(...)`; `x.expand(...).to(d)` -> `x.to(d).expand(...)`."""
    assert isinstance(copy.source, ast.Call)
    if comments_behind(program, receiver(copy.call), cast or copy.call):
        return Patch(blocked="there is a comment inside the call")
    if cast is None:
        return Patch((Fix("keep the view", safety, api.rewrite(program, *without(copy.call))),))
    if program.statement_of(copy.source) is not program.statement_of(cast):
        return Patch(blocked="it is expanded in another statement: move or cast it there, before it is expanded")
    written_out = without(copy.call) if cast is not copy.call else ()
    change = api.rewrite(program, *written_out, *put_in_front(copy.source, cast))
    return Patch((Fix("move or cast before it is expanded", safety, change),))


def _safety(program: Program, flow: Flow, shapes: Shapes, copy: Copy, reading: Reading, repeated: Repeated) -> Safety:
    """Exact, unless sums (of the gradient, a reduction or a product) may be taken in another order."""
    if any(consumer.role is Role.REDUCTION for consumer in reading.consumers):
        return Safety.ROUNDING
    for consumer in reading.consumers:
        if consumer.role is Role.MATMUL and (
            repeated.positions != (0,) or not shapes.shape(consumer.operand).size(0).startswith("x")
        ):
            return Safety.ROUNDING
    reordered = copy.form in ("cat", "stack") or (repeated.new and len(repeated.positions) > 1)
    return Safety.ROUNDING if reordered and may_have_gradient(program, flow, copy) else Safety.EXACT


def _safety_of_cast(program: Program, flow: Flow, copy: Copy, cast: ast.Call) -> Safety:
    """The gradient of the repeating is summed behind the cast, which may be to a narrower type."""
    if not may_have_gradient(program, flow, copy):
        return Safety.EXACT
    return Safety.BEHAVIOUR if _may_narrow(program, cast, _method(cast)) else Safety.ROUNDING


def _may_narrow(program: Program, call: ast.Call, name: str) -> bool:
    """May the cast be one to a type of fewer bits?"""
    if name not in ("to", "type"):
        return name == "type_as" or api.torch_does(name, "narrowing")
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg in ("dtype", "other"))]
    return any(not _is_device(program, each) for each in given if not isinstance(each, ast.Constant))


def _is_device(program: Program, node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return program.value(node).kind is Kind.STRING or any(word in name.lower() for word in ("dev", "cuda", "gpu"))

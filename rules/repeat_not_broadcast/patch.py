"""Rewrites a copy as a view."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.program.consumers import Flow, Reading, Role
from perflint.program.shapes.infer import Shapes
from perflint.program.shapes.shape import integer
from perflint.program.values import Kind
from perflint.rule import Edit, Fix, Safety

from .copies import MATERIALISING, Copy
from .gradients import may_have_gradient
from .layout import lays_out_differently
from .proof import Repeated, unproved_rank

if TYPE_CHECKING:
    from perflint.program import Program


@dataclass(frozen=True)
class Patch:
    """What to do about a copy: a fix, or what stands in its way."""

    fixes: tuple[Fix, ...] = ()
    blocked: str = ""


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
    if copy.form == "expanded":
        return _unmade(program, copy, safety)
    needed = unproved_rank(program, shapes, flow, copy, reading)
    proviso = f", where the tensor has {needed} axes" if needed else ""
    edits = _dropped(program, copy, reading)
    if edits:  # the operation may repeat other axes, too: the gradient is then summed over all of them at once
        safety = Safety.ROUNDING if may_have_gradient(program, flow, copy) else safety
        title = f"leave the repeating to the operation, which broadcasts{proviso}"
        return Patch((Fix(title, Safety.BEHAVIOUR if needed else safety, edits),))
    rank = shapes.shape(copy.source).rank
    edits, blocked = _rewritten(program, copy, rank)
    fix = Fix(f"repeat as a view: expand{proviso}", Safety.BEHAVIOUR if needed else safety, edits)
    return Patch((fix,)) if edits else Patch(blocked=blocked)


def _dropped(program: Program, copy: Copy, reading: Reading) -> tuple[Edit, ...]:
    """Without the repeating, where one operation writes into another tensor, whose shape holds."""
    only = reading.consumers[0]
    if (
        len(reading.consumers) > 1
        or not only.in_place
        or only.role is not Role.ELEMENTWISE
        or reading.measured
        or not copy.is_method
    ):
        return ()
    end = program.span(copy.call)[1]
    start = _method_start(program, copy.call)
    return () if _meets_comment(program, start, end) else (Edit(start, end, ""),)


def _dot(program: Program, call: ast.Call) -> int:
    """Where `.method(...)` begins."""
    assert isinstance(call.func, ast.Attribute)
    return program.text.rindex(".", 0, program.span(call.func)[1] - len(call.func.attr))


def _method_start(program: Program, call: ast.Call) -> int:
    """Where `.method(...)` begins, with the blanks and line breaks in front of its dot."""
    start = _dot(program, call)
    while program.text[start - 1].isspace() or program.text[start - 1] == "\\":
        start -= 1
    return start


def _meets_comment(program: Program, start: int, end: int) -> bool:
    """Is there a comment in the text to delete, or one before it on its line, that would swallow what follows?"""
    line = program.source.position(start)[0]
    return "#" in program.text[program.source.line_start(line) : end]


def _rewritten(program: Program, copy: Copy, rank: int | None) -> tuple[tuple[Edit, ...], str]:
    """The edits that make it `expand`, or what blocks them."""
    if copy.counts is None:
        return (), "the counts are in a list"
    if copy.is_method and copy.form == "repeat":
        return _renamed(program, copy, len(copy.counts) if rank is None else rank), ""
    if rank is None and not (copy.form == "stack" and copy.axis == 0 and isinstance(copy.source, ast.Name)):
        return (), "how many axes the tensor has is not known here"
    if copy.form == "tile" and copy.is_method and rank is not None and rank <= len(copy.counts):
        return _renamed(program, copy, rank), ""
    start, end = program.span(copy.call)
    if "#" in program.text[start:end]:
        return (), "there is a comment inside the call"
    text = _spelled(program, copy, rank)
    return (
        ((Edit(start, end, text),), "")
        if text
        else ((), "it is not known that the count is a number and which axis is meant")
    )


def _renamed(program: Program, copy: Copy, rank: int) -> tuple[Edit, ...]:
    """`repeat(1, n)` -> `expand(-1, n)`; axes that the source lacks keep their 1."""
    assert copy.counts is not None and isinstance(copy.call.func, ast.Attribute)
    end = program.span(copy.call.func)[1]
    edits = [Edit(end - len(copy.call.func.attr), end, "expand")]
    for position, count in enumerate(copy.counts):
        if integer(count) == 1 and position >= len(copy.counts) - rank:
            edits.append(Edit(*program.span(count), "-1"))
    return tuple(edits)


def _spelled(program: Program, copy: Copy, rank: int | None) -> str:
    assert copy.counts is not None
    source = program.segment(copy.source)
    if not isinstance(copy.source, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
        source = f"({source})"
    if copy.form == "tile":
        assert rank is not None
        sizes = ["-1"] * max(0, rank - len(copy.counts))
        new = len(copy.counts) - rank
        sizes += ["-1" if integer(c) == 1 and i >= new else program.segment(c) for i, c in enumerate(copy.counts)]
        return f"{source}.expand({', '.join(sizes)})"
    if program.value(copy.counts[0]).kind is not Kind.NUMBER or copy.axis is None:
        return ""
    count = program.segment(copy.counts[0])
    if rank is None:
        return f"{source}.expand({count}, *{source}.shape)"
    axes = rank + (copy.form == "stack")
    sizes = ["-1"] * axes
    sizes[copy.axis] = count
    unsqueezed = f".unsqueeze({copy.axis})" if copy.form == "stack" else ""
    return f"{source}{unsqueezed}.expand({', '.join(sizes)})"


def _unmade(program: Program, copy: Copy, safety: Safety) -> Patch:
    """`x.expand(...).contiguous()` -> `x.expand(...)`; `x.expand(...).to(d)` -> `x.to(d).expand(...)`."""
    call = copy.call
    assert isinstance(call.func, ast.Attribute) and isinstance(copy.source, ast.Call)
    start, end = _method_start(program, call), program.span(call)[1]
    if _meets_comment(program, start, end):
        return Patch(blocked="there is a comment inside the call")
    if call.func.attr in MATERIALISING:
        return Patch((Fix("keep the view", safety, (Edit(start, end, ""),)),))
    if call.func.value is not copy.source:
        return Patch(blocked="it is expanded in another statement: move or cast it there, before it is expanded")
    expansion = _dot(program, copy.source)
    moved = Edit(expansion, expansion, program.text[_dot(program, call) : end])
    return Patch((Fix("move or cast before it is expanded", safety, (moved, Edit(start, end, ""))),))


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
    if copy.form == "expanded" and isinstance(copy.call.func, ast.Attribute):
        reordered = copy.call.func.attr not in MATERIALISING
        if _may_narrow(program, copy.call, copy.call.func.attr) and may_have_gradient(program, flow, copy):
            return Safety.BEHAVIOUR  # the gradient of the expansion is summed in the narrower type
    return Safety.ROUNDING if reordered and may_have_gradient(program, flow, copy) else Safety.EXACT


def _may_narrow(program: Program, call: ast.Call, name: str) -> bool:
    """May the cast be one to a type of fewer bits?"""
    if name not in ("to", "type"):
        return name in ("half", "bfloat16", "type_as")
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg in ("dtype", "other"))]
    return any(not _is_device(program, each) for each in given if not isinstance(each, ast.Constant))


def _is_device(program: Program, node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return program.value(node).kind is Kind.STRING or any(word in name.lower() for word in ("dev", "cuda", "gpu"))

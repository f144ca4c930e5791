"""The fix that makes a loop, with what computes around it, a function of its own that runs as one CUDA graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.program import Program
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import FUNCTIONS, LOOPS, PlainLoop
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.blocks import is_often_run
from perflint.transforms.capture.captured import DISTRIBUTION, RUNTIME
from perflint.transforms.capture.outline import Outline
from perflint.transforms.capture.region import region_with
from perflint.transforms.capture.training_step import around_of
from perflint.transforms.imports import importing
from perflint.transforms.names import taken_around
from perflint.transforms.rewrite import rewrite


def outlined(program: Program, loop: PlainLoop) -> Fix:
    """The fix for a loop in another one or in a function, with as little around it as will do; raises Blocked."""
    first: Blocked | None = None
    for inner in _statements(program, loop):
        found = _try(program, inner)
        if isinstance(found, Fix):
            return found
        first = first or found
    assert first is not None
    raise first


def _statements(program: Program, loop: PlainLoop) -> Iterator[ast.stmt]:
    """The loop, and the statements around it in its function, from the inside out."""
    yield loop
    for each in program.ancestors(loop):
        if isinstance(each, FUNCTIONS):
            break
        if isinstance(each, ast.stmt):
            yield each


def _try(program: Program, inner: ast.stmt) -> Fix | Blocked:
    try:
        return _outlined(program, inner)
    except Blocked as reason:
        return reason


def _outlined(program: Program, inner: ast.stmt) -> Fix:
    around = around_of(program, program.block_of(inner))
    if isinstance(around, LOOPS) and not is_often_run(program, inner):
        raise Blocked("it runs once, and a graph is of use from the third time on", inner)
    region = region_with(program, inner, around)
    if region.recorded and isinstance(around, LOOPS):
        reason = "gradients may be recorded, and a replay would record none: put it under `torch.no_grad()`"
        raise Blocked(reason, inner)
    for distribution in region.unchecked:
        raise Blocked("it checks its arguments on the host: pass `validate_args=False`", distribution)
    name, imported = importing(program, RUNTIME, "cuda_graph" if region.recorded else "graphed_step")
    operations = Outline(program, region, taken_around(program, region.scope)).operations(name)
    safety = Safety.ROUNDING if region.recorded else Safety.EXACT  # of gradients that several uses add up
    return Fix("run the loop as one CUDA graph", safety, rewrite(program, *imported, *operations), DISTRIBUTION)

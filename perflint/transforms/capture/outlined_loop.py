"""The fix that makes a loop, with what computes around it, a function of its own that runs as one CUDA graph."""

from __future__ import annotations

from perflint.analysis.program import GradMode, Program
from perflint.syntax.edits import Fix, Safety
from perflint.syntax.walk import LOOPS, PlainLoop
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.captured import DISTRIBUTION, RUNTIME
from perflint.transforms.capture.outline import Outline
from perflint.transforms.capture.region import is_often_run, region_with
from perflint.transforms.capture.training_step import around_of
from perflint.transforms.imports import importing
from perflint.transforms.names import taken_around
from perflint.transforms.rewrite import rewrite


def outlined(program: Program, loop: PlainLoop) -> Fix:
    """The fix for a loop that records no gradients, in another one or in a function; raises Blocked."""
    around = around_of(program, program.block_of(loop))
    if program.grad_mode(loop) is not GradMode.OFF:
        raise Blocked("gradients may be recorded, and a replay would record none: put it under `torch.no_grad()`", loop)
    if isinstance(around, LOOPS) and not is_often_run(program, loop):
        raise Blocked("it runs once, and a graph is of use from the third time on", loop)
    name, imported = importing(program, RUNTIME, "graphed_step")
    region = region_with(program, loop, around)
    for distribution in region.unchecked:
        raise Blocked("it checks its arguments on the host: pass `validate_args=False`", distribution)
    operations = Outline(program, region, taken_around(program, region.scope)).operations(name)
    return Fix("run the loop as one CUDA graph", Safety.EXACT, rewrite(program, *imported, *operations), DISTRIBUTION)

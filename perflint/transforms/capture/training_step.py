"""The fix that runs each whole step of a training loop as one CUDA graph."""

from __future__ import annotations

import ast

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.program import Program
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import FUNCTIONS, LOOPS
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.blocks import training_blocks
from perflint.transforms.capture.calls import MODES, called
from perflint.transforms.capture.captured import DISTRIBUTION, RUNTIME, is_captured
from perflint.transforms.capture.host_part import Around
from perflint.transforms.capture.outline import Outline
from perflint.transforms.capture.parts import steps
from perflint.transforms.capture.region import Region, regions, shortened
from perflint.transforms.imports import importing
from perflint.transforms.names import taken_around
from perflint.transforms.remedy import TrainingStep
from perflint.transforms.rewrite import rewrite

_DECORATOR = "graphed_step"
_EXACT = frozenset({"torch.optim.SGD", "torch.optim.sgd.SGD"})


def training_steps(program: Program) -> list[TrainingStep]:
    """The hot training steps of a program that may use a device, each with its fix or what stands in the way."""
    found = []
    for block, backward in training_blocks(program):
        if is_captured(program, backward):
            continue
        try:
            found.append(TrainingStep(backward, (_fix(program, block, backward),), ""))
        except Blocked as reason:
            found.append(TrainingStep(backward, (), str(reason)))
    return found


def _fix(program: Program, block: list[ast.stmt], backward: ast.Call) -> Fix:
    """The fix of one block; raises Blocked."""
    _check_order(program, block, backward)
    _check_given(program, backward)
    found = regions(program, block, around_of(program, block))
    name, imported = importing(program, RUNTIME, _DECORATOR)
    outlines = _outlines(program, found)
    found = [each.region for each in outlines]
    changes = [each for outline in outlines for each in outline.operations(name)]
    optimizers = {program.value(each.func.value).name for region in found for each in region.steps
                  if isinstance(each.func, ast.Attribute)}  # fmt: skip
    is_exact = optimizers <= _EXACT and not any(region.kept for region in found)
    safety = Safety.EXACT if is_exact else Safety.ROUNDING  # of an optimizer in its capturable form, say
    if any(each.scales for region in found for each in region.fetched):
        safety = Safety.PRECISION  # the numbers have the bits of torch's default type
    title = "run the training step as one CUDA graph"
    if eager := found[0].eager:
        title = f"run the forward and backward passes as one CUDA graph, but not the optimizer's step ({eager})"
    if any(region.unchecked for region in found):
        safety, title = Safety.BEHAVIOUR, f"{title}, with distributions that no longer check their arguments"
    return Fix(title, safety, rewrite(program, *imported, *changes), DISTRIBUTION)


def around_of(program: Program, block: list[ast.stmt]) -> Around:
    """The loop around a step in its function, or else that function; raises Blocked."""
    around = next(each for each in program.ancestors(block[0]) if isinstance(each, (*LOOPS, *FUNCTIONS, ast.Module)))
    if isinstance(around, LOOPS):
        return around
    if not isinstance(around, ast.FunctionDef):
        raise Blocked("the step isn't in a loop, and in no function of its own", block[0])
    for each in around.decorator_list:
        if program.qualified(called(each)) not in MODES:
            raise Blocked("what decorates the function may do more than call it: decorate its step by hand", each)
    return around


def _outlines(program: Program, found: list[Region]) -> list[Outline]:
    """The regions that can be functions, or as much of them as can be one; raises Blocked where there is none."""
    outlines, reasons = [], []
    taken = taken_around(program, found[0].scope)  # by the functions of one block, too
    for region in found:
        for part in shortened(program, region):
            try:
                outlines.append(Outline(program, part, taken))
                break
            except Blocked as reason:
                reasons.append(reason)
    if not outlines:
        raise reasons[0]
    return outlines


def _check_given(program: Program, backward: ast.Call) -> None:
    """Raise Blocked where callers compute what is differentiated."""
    loss = backward.func.value if isinstance(backward.func, ast.Attribute) else None
    if isinstance(loss, ast.Name):
        given = program.get(Flow).graph(loss).definitions(loss)
        if given and all(isinstance(each, Definition) and isinstance(each.node, ast.arg) for each in given):
            reason = (
                "is computed by callers, and a step begins with a forward pass: compute it in the function that steps"
            )
            raise Blocked(f"`{loss.id}` {reason}", backward)


def _check_order(program: Program, block: list[ast.stmt], backward: ast.Call) -> None:
    """Raise Blocked where the optimizer steps in the next iteration: in front of the backward pass, in its loop."""
    nodes = [backward, *program.ancestors(backward)]
    at = next(each for each in block if each in nodes)
    if isinstance(at, LOOPS) and not any(steps(program, each) for each in block[block.index(at) + 1 :]):
        raise Blocked("the optimizer steps in front of it, for the next time: step behind it, in its block", backward)

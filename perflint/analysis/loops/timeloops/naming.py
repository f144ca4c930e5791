"""What the names in a loop header suggest: a time axis, or something else."""

from __future__ import annotations

import ast

from perflint.analysis.loops.dataflow import LoopFlow
from perflint.analysis.loops.found import Header
from perflint.analysis.loops.timeloops.extents import sizes
from perflint.analysis.loops.timeloops.words import OTHER_AXES, TIME, any_of


def counts_time(header: Header) -> bool:
    """Does the program call what it counts, or the bound, steps of time?"""
    bounds = _counted(header) - header.indices
    return "t" in header.indices or any_of(bounds, TIME)


def names_another_axis(header: Header, flow: LoopFlow) -> bool:
    """Does the program call what it counts or walks through batches, iterations or layers?"""

    lists = {each.base.rpartition(".")[2] for each in flow.slices if not each.is_tensor and _is_name(each.base)}
    return any_of(_counted(header) | _walked(header) | lists, OTHER_AXES)


def counts_rounds(header: Header) -> bool:
    """Does the program call what it counts batches, iterations of an optimisation or layers?"""
    return any_of(_counted(header), OTHER_AXES)


def _counted(header: Header) -> set[str]:
    """The names of what counts the iterations, and of what bounds them."""
    bounds = (part for bound in header.bounds for part in sizes(bound))
    return {*header.indices, *(part.attr if isinstance(part, ast.Attribute) else part.id for part in bounds)}


def _walked(header: Header) -> set[str]:
    """The names of the elements that are walked through, and of what they are elements of."""
    targets = (*(each.target for each in header.elements), *header.members)
    names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names | {each.base.rpartition(".")[2] for each in header.elements if _is_name(each.base)}


def _is_name(base: str) -> bool:
    return base.replace(".", "").isidentifier()

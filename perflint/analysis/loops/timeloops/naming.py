"""What the names in a loop header suggest: a time axis, or something else."""

from __future__ import annotations

import ast
import re

from perflint.analysis.loops.dataflow import LoopFlow
from perflint.analysis.loops.found import Header
from perflint.analysis.loops.timeloops.extents import sizes
from perflint.analysis.loops.timeloops.words import COUNTED, ROUNDS, TIME, WALKED, any_of

_TIME_INDEX = re.compile(r"^(t|ti|ts|tt|time\w*|(\w+_)?step(_?(i|id|idx|index))?|frame\w*)$")
_SURELY_TIME = re.compile(r"^(t|time\w*)$")
_TIME_SIZE = re.compile(r"^T(_|$)")
_TIME_ELEMENT = re.compile(r"^(\w+_t|word|char|tok(en)?|reward)$")
_REWARDS = re.compile(r"(^|[._])rewards?$")


def counts_time(header: Header) -> bool:
    """Does the program call what it counts, or the bound, steps of time?"""
    bounds = _counted(header) - header.indices
    return any(map(_TIME_INDEX.search, header.indices)) or any(map(_TIME_SIZE.search, bounds)) or any_of(bounds, TIME)


def takes_named_steps(header: Header) -> bool:
    """Does the program call the elements that it walks through steps of time, tokens or rewards?"""
    names = {part.id for each in header.elements for part in ast.walk(each.target) if isinstance(part, ast.Name)}
    return any(_TIME_INDEX.search(name) or _TIME_ELEMENT.search(name) for name in names)


def walks_rewards(flow: LoopFlow) -> bool:
    """Does the program call what it walks through rewards, of which there is one for each step of an episode?"""
    return any(_REWARDS.search(each.base) for each in flow.slices)


def names_another_axis(header: Header, flow: LoopFlow) -> bool:
    """Does the program call what it counts or walks through batches, classes, layers or the like?"""
    if any(map(_SURELY_TIME.search, header.indices)):
        return False
    lists = {each.base.rpartition(".")[2] for each in flow.slices if not each.is_tensor and _is_name(each.base)}
    return any_of(_counted(header), COUNTED) or any_of(_walked(header) | lists, WALKED)


def counts_rounds(header: Header) -> bool:
    """Does the program call what it counts iterations of an optimisation, epochs, layers or windows?"""
    return any_of(_counted(header), ROUNDS)


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

"""Signs, in the names and bounds of a loop, that it walks a time axis, or that it walks something else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.program.axis_words import COUNTED, ROUNDS, TIME, WALKED, any_of
from perflint.program.dataflow import LoopFlow, TimeSlice
from perflint.program.time_header import RANGES, Header, called, split_size
from perflint.program.walk import Loop, own_nodes, path_of

if TYPE_CHECKING:
    from perflint.program import Program

_GRIDS = frozenset({"linspace", "arange", "logspace"})
_GRID_NAME = re.compile(
    r"^(time_?(steps|points|grid|span|range)|t_?(span|grid)|sigmas?|betas(_\w+)?|noise_levels?|(noise_)?schedule(s|r)?)$"
)
_SOLVER_NAME = re.compile(
    r"^(time_?(steps|points|grid|span|range)|t_span|(sigmas|betas)(_\w+)?|noise_levels|noise_schedule)$"
)
_TIME_INDEX = re.compile(r"^(t|ti|ts|tt|time\w*|(\w+_)?step(_?(i|id|idx|index))?|frame\w*)$")
_SURELY_TIME = re.compile(r"^(t|time\w*)$")
_TIME_ELEMENT = re.compile(r"^(\w+_t|word|char|tok(en)?|reward)$")
_REWARDS = re.compile(r"(^|[._])rewards?$")
_TIME_SIZE = re.compile(r"^T(_|$)")


def walks_time(program: Program, loop: Loop, header: Header, flow: LoopFlow) -> bool:
    """Is there a sign that the axis is time: a name, or a sequence that was built from its end?"""
    if any(_is_prepended(program, loop, each.base) for each in flow.slices):
        return True
    if names_another_axis(header) or not any(each.is_tensor for each in flow.slices):
        return False
    return counts_time(header)


def counts_time(header: Header) -> bool:
    """Does the program call what it counts, or the bound, steps of time?"""
    bounds = _counted(header) - header.indices
    return any(map(_TIME_INDEX.search, header.indices)) or any(map(_TIME_SIZE.search, bounds)) or any_of(bounds, TIME)


def is_named_time(program: Program, loop: Loop, header: Header, flow: LoopFlow) -> bool:
    """Does the program call what it walks through time, or build it from its end?"""
    targets = {part.id for each in header.elements for part in ast.walk(each.target) if isinstance(part, ast.Name)}
    if counts_time(header) or any(_TIME_INDEX.search(name) or _TIME_ELEMENT.search(name) for name in targets):
        return True
    return walks_rewards(flow) or any(_is_prepended(program, loop, each.base) for each in flow.slices)


def walks_rewards(flow: LoopFlow) -> bool:
    """Does the program call what it walks through rewards, of which there is one for each step of an episode?"""
    return any(_REWARDS.search(each.base) for each in flow.slices)


def mentions(node: ast.expr, header: Header) -> bool:
    """Does it depend on what the loop counts?"""
    return any(path_of(part) in header.indices for part in ast.walk(node) if isinstance(part, ast.Name))


def spans_sequence(program: Program, loop: Loop, header: Header, flow: LoopFlow) -> bool:
    """Does the loop run over the whole of an axis of what it walks through, backwards over it, or over named time?"""
    if is_named_time(program, loop, header, flow):
        return True
    if isinstance(loop, ast.For) and any(
        called(part) == "reversed" for part in ast.walk(loop.iter) if isinstance(part, ast.Call)
    ):
        return True
    scope = program.function_of(loop) or program.tree
    bounds = [loop.test] if isinstance(loop, ast.While) else [*header.bounds]
    for name in [name for bound in header.bounds for name in _named(bound)]:
        bounds.extend(bound_values(scope, path_of(name)))
    axes = {axis for bound in bounds for part in ast.walk(bound) if (axis := _sized_axis(part)) is not None}
    axes |= {axis for bound in header.bounds for name in _named(bound) for axis in _unpacked_axes(scope, path_of(name))}
    return bool(axes & {each.axis for each in flow.slices if each.axis is not None})


def _sized_axis(node: ast.AST) -> int | None:
    """The axis whose size `x.size(1)`, `x.shape[1]` or `len(x)` is."""
    if isinstance(node, ast.Call) and called(node) in ("size", "len", "numel"):
        if called(node) != "size" or not node.args:
            return None if called(node) == "size" else 0
        index = node.args[0]
    elif isinstance(node, ast.Subscript) and (
        called(node.value) == "size" or (isinstance(node.value, ast.Attribute) and node.value.attr == "shape")
    ):
        index = node.slice
    else:
        return None
    return index.value if isinstance(index, ast.Constant) and isinstance(index.value, int) else None


def _unpacked_axes(scope: ast.AST, path: str) -> Iterator[int]:
    """The axes whose size the variable is, where `batch, length, width = x.shape` or `x.size()` binds it."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            shape = called(node.value) == "size" or getattr(node.value, "attr", "") == "shape"
            yield from (axis for axis, part in enumerate(node.targets[0].elts) if shape and path_of(part) == path)


def names_another_axis(header: Header, flow: LoopFlow | None = None) -> bool:
    """Does the program call what it counts or walks through batches, classes, layers or the like?"""
    if any(map(_SURELY_TIME.search, header.indices)):
        return False
    walked = _walked(header)
    if flow is not None:
        walked |= {each.base.rpartition(".")[2] for each in flow.slices if not each.is_tensor and _is_name(each.base)}
    return any_of(_counted(header), COUNTED) or any_of(walked, WALKED)


def walks_chunks(program: Program, loop: Loop, header: Header) -> bool:
    """Are the elements that it walks through pieces of many steps, split off before the loop?"""
    bases = {each.base for each in header.elements}
    for node in own_nodes(program.function_of(loop) or program.tree):
        if isinstance(node, ast.Assign) and called(node.value) == "split" and isinstance(node.value, ast.Call):
            targets = {path_of(part) for each in node.targets for part in ast.walk(each) if isinstance(part, ast.expr)}
            size = split_size(node.value)
            if bases & targets - {""} and not (isinstance(size, ast.Constant) and size.value == 1):
                return True
    return False


def counts_rounds(header: Header) -> bool:
    """Does the program call what it counts iterations of an optimisation, epochs, layers or windows?"""
    return any_of(_counted(header), ROUNDS)


def is_grid(program: Program, step: TimeSlice) -> bool:
    """Is the sequence a grid of numbers, such as the times or the noise levels of a solver, rather than data?"""
    if _GRID_NAME.search(step.base.rpartition(".")[2]):
        return True
    scope = program.function_of(step.node) or program.tree
    if any(
        isinstance(node, ast.Attribute) and node.attr in ("expand", "repeat") and node.value is step.node
        for node in own_nodes(scope)
    ):
        return True  # one number, repeated for the batch
    return any(called(value) in _GRIDS for value in bound_values(scope, step.base))


def solves(loop: Loop) -> bool:
    """Does the loop step through the times or the noise levels of a sampler or a solver of differential equations?"""
    walked = [] if isinstance(loop, ast.While) else _sequences(loop.iter)
    parts = (node for root in loop.body for node in own_nodes(root) if isinstance(node, ast.Subscript))
    read = [node.value for node in parts if isinstance(node.ctx, ast.Load)]
    if any(_SOLVER_NAME.search(path_of(node).rpartition(".")[2]) for node in (*walked, *read)):
        return True
    calls = (node for root in loop.body for node in own_nodes(root) if isinstance(node, ast.Call))
    return any(called(node).startswith("odeint") or "solver" in path_of(node.func).split(".") for node in calls)


def numbers_noise(loop: Loop, header: Header) -> bool:
    """Does each step fill a tensor with its number, as samplers tell a denoiser the level of the noise?"""
    numbers = header.indices | {path_of(each.target) for each in header.elements} | set(map(path_of, header.members))
    return any(
        called(node) in ("full", "full_like", "new_full") and any(path_of(each) in numbers for each in node.args)
        for root in loop.body
        for node in own_nodes(root)
        if isinstance(node, ast.Call)
    )


def _sequences(node: ast.expr) -> list[ast.expr]:
    """What `zip(x[1:], enumerate(y))` walks through: x and y; not the bound of a range."""
    if isinstance(node, ast.Call):
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        given = [] if called(node) in RANGES else [*owner, *node.args]
        return [part for each in given for part in _sequences(each)]
    return _sequences(node.value) if isinstance(node, ast.Subscript) else [node]


def _counted(header: Header) -> set[str]:
    """The names of what counts the iterations, and of what bounds them."""
    names = set(header.indices)
    for bound in header.bounds:
        names |= {part.attr if isinstance(part, ast.Attribute) else part.id for part in _named(bound)}
    return names


def _walked(header: Header) -> set[str]:
    """The names of the elements that are walked through, and of what they are elements of."""
    names = {each.base.rpartition(".")[2] for each in header.elements if _is_name(each.base)}
    for target in (*(each.target for each in header.elements), *header.members):
        names |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names


def _is_name(base: str) -> bool:
    return base.replace(".", "").isidentifier()


def _named(node: ast.expr) -> Iterator[ast.Name | ast.Attribute]:
    """The variables that a bound is computed from, not those whose size it is."""
    if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and path_of(node)):
        yield node
    elif isinstance(node, ast.BinOp):
        yield from _named(node.left)
        yield from _named(node.right)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        yield node.value
    elif isinstance(node, ast.Call) and called(node) in ("int", "min", "max"):
        for argument in node.args:
            yield from _named(argument)


def bound_values(scope: ast.AST, path: str) -> Iterator[ast.expr]:
    """What is assigned to the path anywhere in the scope."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and any(path_of(target) == path for target in node.targets):
            yield node.value


def _is_prepended(program: Program, loop: Loop, base: str) -> bool:
    """Was it built from its end to its beginning, as returns are: by `insert(0, x)` or `appendleft`?"""
    scope = program.function_of(loop) or program.tree
    names = {base}
    for value in list(bound_values(scope, base)):
        names |= {path_of(part) for part in ast.walk(value) if isinstance(part, ast.Name)}
    for node in own_nodes(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and path_of(node.func.value) in names:
            first = node.args[0] if node.args else None
            if node.func.attr == "appendleft" or (
                node.func.attr == "insert" and isinstance(first, ast.Constant) and first.value == 0
            ):
                return True
    return False

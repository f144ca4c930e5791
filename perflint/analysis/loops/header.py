"""Reads a loop header: its induction variables, the sequences that it walks, and what else rules out a time axis."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Set
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.autograd.effects import differentiates
from perflint.analysis.call_graph import CallGraph
from perflint.analysis.facts import Program
from perflint.analysis.loops.calls import sort_of
from perflint.analysis.loops.flow import Element, Header
from perflint.analysis.values.values import Kind, element_of
from perflint.syntax.scopes import Bound, bind
from perflint.syntax.walk import (
    Function,
    Loop,
    elements_of,
    integer,
    name_called,
    nodes_below,
    nodes_of_body,
    own_nodes,
    path_of,
    receiver_of,
    spans_an_axis,
    stores,
)


def picks_one(index: ast.expr, is_indexed: Callable[[ast.expr], bool]) -> bool:
    """Does an index pick single steps: `t`, `:, t`, `t:t + 1`, and not a prefix such as `:t`?"""
    for part in elements_of(index):
        if isinstance(part, ast.Slice):
            if part.lower is not None and part.upper is not None and is_next(part.lower, part.upper):
                return True
        elif is_indexed(part):
            return True
    return False


def is_rest(index: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Slice) and part.lower is not None and part.upper is None for part in elements_of(index)
    )


def is_next(lower: ast.expr, upper: ast.expr) -> bool:
    return (
        isinstance(upper, ast.BinOp)
        and isinstance(upper.op, ast.Add)
        and isinstance(upper.right, ast.Constant)
        and upper.right.value == 1
        and ast.dump(upper.left) == ast.dump(lower)
    ) or (
        isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Sub) and isinstance(lower.right, ast.Constant)
        and lower.right.value == 1 and ast.dump(lower.left) == ast.dump(upper)
    )  # fmt: skip


class Place(NamedTuple):
    """Where an index picks: as text, and, as far as it says, the axis that the loop walks, and how far ahead of it."""

    text: str
    axis: int | None = None
    offset: int | None = None

    def is_same_step(self, other: Place) -> bool:
        """Do both pick the same step, if to different depths: `t` and `t, :, 0`?"""
        return self.text == other.text or (self.offset is not None and self[1:] == other[1:])

    @property
    def is_fixed(self) -> bool:
        """Is it the same place in each iteration, such as `0` or `:, -1`?"""
        return bool(self.text) and set(self.text) <= set("0123456789-:, ()")


WHOLE = Place("")


def place(index: ast.expr, indices: Set[str]) -> Place:
    text = ast.unparse(index)
    for axis, part in enumerate(elements_of(index)):
        if isinstance(part, ast.Slice) and part.lower is not None:
            part = part.lower
        offset = _offset(part, indices)
        if offset is not None or any(isinstance(each, ast.Name) and each.id in indices for each in ast.walk(part)):
            return Place(text, axis, offset)
    return Place(text)


def _offset(node: ast.expr, indices: Set[str]) -> int | None:
    if path_of(node) in indices:
        return 0
    if (
        isinstance(node, ast.BinOp)
        and path_of(node.left) in indices
        and isinstance(node.right, ast.Constant)
        and isinstance(node.right.value, int)
    ):
        return (
            node.right.value
            if isinstance(node.op, ast.Add)
            else -node.right.value
            if isinstance(node.op, ast.Sub)
            else None
        )
    return None


def proven_tensors(program: Program, loop: Loop) -> frozenset[str]:
    """The paths that the function around `loop` treats as only a tensor, or a list of tensors, can be."""
    found = set()
    for node in own_nodes(program.scope_of(loop)):
        if isinstance(node, ast.Subscript):
            if spans_an_axis(node.slice):
                found.add(path_of(node.value))
        elif isinstance(node, ast.Call):
            name = name_called(node)
            if name.endswith("_like") and node.args:
                if program.qualified(node.func).startswith("torch."):
                    found.add(_sequence(node.args[0]))
            elif torch_ops.does(name, "unmistakable") and isinstance(node.func, ast.Attribute):
                found.add(_sequence(node.func.value))
    return frozenset(found - {""})


def _sequence(node: ast.expr) -> str:
    return path_of(node.value if isinstance(node, ast.Subscript) else node)


_WRAPPERS = frozenset({"reversed", "list", "tuple", "iter", "tqdm", "trange", "islice"})
_MEMBERS = frozenset(
    "parameters named_parameters buffers named_buffers modules named_modules children named_children items keys"
    " param_groups unique nonzero".split()
)
RANGES = frozenset({"range", "trange", "xrange"})
_NOT_SEQUENCES = frozenset(
    {Kind.MODULE, Kind.MAPPING, Kind.STRING, Kind.NUMPY, Kind.LOADER, Kind.DATASET, Kind.OPTIMIZER, Kind.NUMBER}
)
FEW = 3  # iterations by a constant: too few to be a sequence


def read_header(program: Program, loop: Loop) -> Header:
    header = Header(is_other=isinstance(loop, ast.AsyncFor))
    if isinstance(loop, ast.While):
        header.indices.update(filter(None, map(_counted, own_nodes(loop))))
    else:
        _read(program, loop.target, loop.iter, header)
    return header


def _counted(node: ast.AST) -> str:
    if isinstance(node, ast.AugAssign):
        target, operator, step = path_of(node.target), node.op, node.value
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        target, operator, step = path_of(node.targets[0]), node.value.op, node.value.right
        if path_of(node.value.left) != target:
            return ""
    else:
        return ""
    return target if isinstance(operator, ast.Add | ast.Sub) and isinstance(step, ast.Constant) else ""


def _read(program: Program, target: ast.expr, iterated: ast.expr, header: Header) -> None:
    name = name_called(iterated)
    if isinstance(iterated, ast.Subscript) and isinstance(iterated.slice, ast.Slice) and _is_flip(iterated.slice):
        _read(program, target, iterated.value, header)
    elif (made := _range_called(program, iterated)) is not None:
        _read_range(program, made, target, header)
    elif isinstance(iterated, ast.Call) and name == "enumerate" and iterated.args:
        parts = target.elts if isinstance(target, ast.Tuple) and len(target.elts) == 2 else [target, target]
        header.indices.update(filter(None, [path_of(parts[0])]))
        _read(program, parts[1], iterated.args[0], header)
    elif isinstance(iterated, ast.Call) and name == "zip":
        is_unpacked = isinstance(target, ast.Tuple) and len(target.elts) == len(iterated.args)
        parts = target.elts if isinstance(target, ast.Tuple) and is_unpacked else [target] * len(iterated.args)
        for part, source in zip(parts, iterated.args, strict=True):
            _read(program, part, source, header)
    elif isinstance(iterated, ast.Call) and name in _WRAPPERS and iterated.args:
        _read(program, target, iterated.args[0], header)
    elif isinstance(iterated, ast.Call) and (name == "arange" or _wraps_range(iterated)):
        _read_range(program, _innermost(iterated), target, header)
    elif isinstance(iterated, ast.Call) and name == "count":
        header.indices.update(filter(None, [path_of(target)]))
    else:
        _read_sequence(program, target, iterated, header)


def _wraps_range(node: ast.Call) -> bool:
    """Is it a function that is given a range, which it passes on while it shows progress or the like?"""
    return bool(node.args) and name_called(node.args[0]) in RANGES and name_called(node) not in _MEMBERS


def _innermost(node: ast.Call) -> ast.Call:
    return node.args[0] if name_called(node) != "arange" and isinstance(node.args[0], ast.Call) else node


def _range_called(program: Program, node: ast.expr) -> ast.Call | None:
    """The call of `range`, reversed or not, that is `node`, or what this name is bound to, and to nothing else."""
    bound = stores(program.scope_of(node), node.id) if isinstance(node, ast.Name) else ()
    statement = program.statement_of(bound[0]) if len(bound) == 1 else None
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        node = statement.value
        while isinstance(node, ast.Call) and name_called(node) in _WRAPPERS and node.args:
            node = node.args[0]
    return node if isinstance(node, ast.Call) and name_called(node) in RANGES else None


def _read_range(program: Program, node: ast.Call, target: ast.expr, header: Header) -> None:
    header.indices.update(filter(None, [path_of(target)]))
    header.bounds.extend(node.args[:2])
    calls = (each for each in node.args if isinstance(each, ast.Call) and each.args)
    sized = [each.args[0] for each in calls if name_called(each) == "len"]
    header.is_other |= any(program.value(each).kind is Kind.MODULE for each in sized)  # counts layers
    header.strides |= len(node.args) == 3 and not _is_unit(node.args[2])
    literals = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, int)]
    if len(literals) == len(node.args) and literals and len(range(*literals[:3])) <= FEW:
        header.is_other = True


def _is_unit(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and node.value == 1


def _is_flip(node: ast.Slice) -> bool:
    return node.step is not None and isinstance(node.step, ast.UnaryOp) and _is_unit(node.step)


def _read_sequence(program: Program, target: ast.expr, iterated: ast.expr, header: Header) -> None:
    value = program.value(iterated)
    name = name_called(iterated)
    if (
        name in _MEMBERS
        or value.kind in (Kind.LOADER, Kind.MODULE, Kind.MAPPING)
        or element_of(value).kind is Kind.MODULE
    ):
        header.is_other = True
        return
    base = iterated
    axis: int | None = 0
    if torch_ops.does(name, "parting") and isinstance(iterated, ast.Call):
        size = split_size(iterated)
        if isinstance(size, ast.Constant):
            is_chunk = name != "unbind" and (name == "chunk" or size.value != 1)
        else:
            is_chunk = name in ("split", "tensor_split")
        if is_chunk:
            header.is_other |= value.kind is not Kind.STRING  # micro-batches
        base, axis = split_base(iterated), split_axis(iterated)
    if value.kind in _NOT_SEQUENCES or (value.kind is Kind.SEQUENCE and element_of(value).kind in _NOT_SEQUENCES):
        header.members.append(target)
        return
    is_tensor = value.kind is Kind.TENSOR or (torch_ops.does(name, "parting") and element_of(value).kind is Kind.TENSOR)
    header.elements.append(Element(target, path_of(base) or ast.unparse(base), iterated, is_tensor, axis))


def _parting(node: ast.Call) -> Bound:
    is_method = isinstance(node.func, ast.Attribute) and path_of(node.func.value) != "torch"
    sizes = () if name_called(node) == "unbind" else ("split_size" if is_method else "split_size_or_sections",)
    return bind(node, (*sizes, "dim") if is_method else ("input", *sizes, "dim"))


def split_base(node: ast.Call) -> ast.expr:
    return _parting(node).get("input") or receiver_of(node) or node


def split_size(node: ast.Call) -> ast.expr | None:
    return _parting(node).get("split_size", "split_size_or_sections")


def split_axis(node: ast.Call) -> int | None:
    axis = _parting(node).get("dim")
    return 0 if axis is None else integer(axis)


_GRID_NAME = re.compile(r"^(time_?(steps|points|grid|span|range)|(sigmas|betas)(_\w+)?)$")
_ENVIRONMENT = re.compile(r"(^|_)envs?($|_)|environment", re.IGNORECASE)
_SETUP = frozenset({"__init__", "__getitem__"})


def never_over_time(program: Program, loop: Loop, header: Header) -> bool:
    """Does the loop train, differentiate or step an environment, or stand in setup code or a test?"""
    function = program.function_of(loop)
    if program.imports_test_framework or (function is not None and _is_setup(program, function)):
        return True
    return any(_has_another_end(program, node, header) for node in nodes_of_body(loop))


def _is_setup(program: Program, function: Function) -> bool:
    owner, name = program.class_of(function), getattr(function, "name", "")
    return name in _SETUP or (owner is not None and (owner.is_a("dataset") or owner.is_a("optimizer")))


def _has_another_end(program: Program, node: ast.AST, header: Header) -> bool:
    if isinstance(node, ast.Assign):
        return _fills_array(program, node)
    if not isinstance(node, ast.Call):
        return False
    graph = program.get(CallGraph)
    if graph.has(node, differentiates) or graph.has(node, _steps_environment):
        return True
    return _steps(program, node) and not _is_told_the_step(node, header)


def _steps(program: Program, node: ast.Call) -> bool:
    stepped = receiver_of(node, "step")
    if stepped is None or program.value(stepped).kind is Kind.MODULE:
        return False
    callee = program.callee(node)
    return callee is None or program.class_of(callee) is not None


def _steps_environment(program: Program, node: ast.Call) -> bool:
    stepped = receiver_of(node, "step")
    return stepped is not None and _ENVIRONMENT.search(path_of(stepped).rpartition(".")[2]) is not None


def _is_told_the_step(node: ast.Call, header: Header) -> bool:
    """Is it `search.step(t, scores, ...)`: given the number and more, as no environment, optimizer or scheduler is?"""
    return len(node.args) > 2 and path_of(node.args[0]) in header.indices


def _fills_array(program: Program, node: ast.Assign) -> bool:
    """Is an array of numpy given what nothing brings to the host, and what is there already, therefore?"""
    targets = [each.value for each in node.targets if isinstance(each, ast.Subscript)]
    calls = {name_called(each) for each in nodes_below(node.value) if isinstance(each, ast.Call)}
    return any(program.value(each).kind is Kind.NUMPY for each in targets) and not any(
        torch_ops.does(name, "to_host") for name in calls
    )


def solves(loop: Loop) -> bool:
    """Does it iterate over, or read, what is named after the times or noise levels of a solver?"""
    walked = [] if isinstance(loop, ast.While) else _sequences(loop.iter)
    read = [
        each.value for each in nodes_of_body(loop) if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Load)
    ]
    return any(_GRID_NAME.search(path_of(node).rpartition(".")[2]) for node in (*walked, *read))


def may_compute(program: Program, loop: Loop) -> bool:
    nodes = nodes_below(loop)
    sorts = (sort_of(program, node) for node in nodes if isinstance(node, ast.Call))
    if any(sort.model or sort.launches for sort in sorts):
        return True
    kinds = {program.value(node).kind for node in nodes if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare)}
    return Kind.TENSOR in kinds or (Kind.UNKNOWN in kinds and bool(proven_tensors(program, loop)))


def _sequences(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        given = [] if name_called(node) in RANGES else [*owner, *node.args]
        return [part for each in given for part in _sequences(each)]
    return _sequences(node.value) if isinstance(node, ast.Subscript) else [node]

"""Evidence, outside the flow of values, that a loop walks a time axis or that it does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.program.dataflow import LoopFlow, TimeSlice
from perflint.program.time_header import Header, called
from perflint.program.values import Kind
from perflint.program.walk import Function, Loop, own_nodes, path_of

if TYPE_CHECKING:
    from perflint.program import Program

_TRAINS = frozenset({"backward", "manual_backward", "zero_grad"})
_STEPS = frozenset({"step", "async_step", "reset"})
_SETUP = frozenset(
    {
        "__init__",
        "reset_parameters",
        "init_weights",
        "_init_weights",
        "__getitem__",
        "collate_fn",
        "collate",
        "_reset_parameters",
    }
)
_GRIDS = frozenset({"linspace", "arange", "logspace"})
_TIME_INDEX = re.compile(r"^(t|ti|ts|tt|time\w*|(\w+_)?step(_?(i|id|idx|index))?|frame\w*)$")
_TIME_BOUND = re.compile(
    r"(^|_)(time|step|seq|sequence|len|length|frame|horizon|window)s?(\d|_|$)|timestep|seq_?len|^T(_|$)"
)
_ROUND_WORDS = re.compile(r"iter(s|ation|ations)?($|_)|epoch|layer|optimi[sz]", re.IGNORECASE)
_OTHER_WORDS = re.compile(
    r"batch|bs|class|head|layer|scale|level|image|img|sample|anchor|chan|group|view|expert|stage|epoch|iter|dim|feature"
    r"|part_|agent|box|train|test|data|sentence|doc|file",
    re.IGNORECASE,
)


def never_over_time(program: Program, loop: Loop) -> bool:
    """Does the loop train, differentiate or step an environment or a scheduler, or stand where a program is set up?"""
    function = program.function_of(loop)
    if function is not None:
        owner = program.class_of(function)
        if getattr(function, "name", "") in _SETUP or (
            owner is not None and (owner.is_a("dataset") or owner.is_a("optimizer"))
        ):
            return True
    has_operations = False
    for statement in loop.body:
        for node in own_nodes(statement):
            if isinstance(node, ast.Call):
                has_operations = True
                callee = program.callee(node)
                if callee is not None and _trains(program, callee, 3):
                    return True
                if isinstance(node.func, ast.Attribute) and (
                    node.func.attr in _TRAINS or _steps(program, node, node.func)
                ):
                    return True
                if called(node) in ("grad", "DataLoader") and path_of(getattr(node.func, "value", node.func)) in (
                    "torch.autograd",
                    "autograd",
                    "DataLoader",
                ):
                    return True
            elif isinstance(node, ast.BinOp | ast.AugAssign):
                has_operations = True
    return not has_operations


def _steps(program: Program, node: ast.Call, function: ast.Attribute) -> bool:
    """Does it step an environment, an optimizer or a scheduler, rather than a module of this file?"""
    return (
        function.attr in _STEPS
        and program.callee(node) is None
        and program.value(function.value).kind is not Kind.MODULE
    )


def is_parameter(program: Program, node: ast.expr) -> bool:
    """Is it an attribute that the class sets to a torch.nn.Parameter?"""
    function = program.function_of(node)
    owner = program.class_of(function) if function is not None else None
    path = path_of(node)
    if owner is None or not path.startswith("self."):
        return False
    assigned = (
        each
        for each in own_nodes_of_class(owner.node)
        if isinstance(each, ast.Assign) and any(path_of(target) == path for target in each.targets)
    )
    return any(
        called(part).endswith("Parameter")
        for each in assigned
        for part in ast.walk(each.value)
        if isinstance(part, ast.Call)
    )


def own_nodes_of_class(node: ast.ClassDef) -> Iterator[ast.AST]:
    """The nodes of a class's methods."""
    for statement in node.body:
        yield from own_nodes(statement)


def _trains(program: Program, function: Function, depth: int) -> bool:
    for node in own_nodes(function):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("backward", "manual_backward", "zero_grad"):
                return True
            inner = program.callee(node)
            if inner is not None and inner is not function and depth and _trains(program, inner, depth - 1):
                return True
    return False


def is_grid(program: Program, step: TimeSlice) -> bool:
    """Is the sequence a grid of numbers, such as the times or the noise levels of a solver, rather than data?"""
    scope = program.function_of(step.node) or program.tree
    if any(
        isinstance(node, ast.Attribute) and node.attr in ("expand", "repeat") and node.value is step.node
        for node in own_nodes(scope)
    ):
        return True  # one number, repeated for the batch
    return any(called(value) in _GRIDS for value in _bindings(scope, step.base))


def _bindings(scope: ast.AST, path: str) -> Iterator[ast.expr]:
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and any(path_of(target) == path for target in node.targets):
            yield node.value


def is_collected(program: Program, loop: Loop, flow: LoopFlow) -> bool:
    """Do the steps' results become one tensor: by slots, yields, a growing cat, or a stack or cat behind the loop?"""
    kept = {each.name for each in flow.collected if each.how == "append" and each.trace.varies}
    if any(each.how in ("slot", "cat", "yield") and each.trace.varies for each in flow.collected):
        return True
    scope = program.function_of(loop) or program.tree
    return any(_joins(program, scope, name, 2) for name in kept)


_JOINS = frozenset({"stack", "cat", "concat", "hstack", "vstack", "pad_sequence", "column_stack"})


def _joins(program: Program, scope: ast.AST, name: str, depth: int) -> bool:
    """Is the list called `name` made into a tensor in `scope`, or in a function that gets it?"""
    for node in own_nodes(scope):
        if not isinstance(node, ast.Call):
            continue
        for position, argument in enumerate(node.args):
            if any(path_of(part) == name for part in ast.walk(argument) if isinstance(part, ast.Name | ast.Attribute)):
                if called(node) in _JOINS:
                    return True
                callee = program.callee(node)
                parameter = (
                    _parameter(program, callee, position) if callee is not None and path_of(argument) == name else ""
                )
                if callee is not None and parameter and depth and _joins(program, callee, parameter, depth - 1):
                    return True
    return False


def _parameter(program: Program, callee: Function, position: int) -> str:
    names = [parameter.arg for parameter in (*callee.args.posonlyargs, *callee.args.args)]
    position += program.class_of(callee) is not None
    return names[position] if position < len(names) else ""


def walks_time(program: Program, loop: Loop, header: Header, flow: LoopFlow) -> bool:
    """Where nothing is carried, a map over time looks like one over anything else: is there a sign that it is time?"""
    if any(_is_prepended(program, loop, each.base) for each in flow.slices):
        return True
    if names_another_axis(header) or not any(each.is_tensor for each in flow.slices):
        return False
    return any(map(_TIME_INDEX.search, header.indices)) or any(map(_TIME_BOUND.search, _words(header) - header.indices))


def names_another_axis(header: Header) -> bool:
    """Does the program call what it counts batches, classes, layers or the like?"""
    return any(_OTHER_WORDS.search(word) for word in _words(header))


def counts_rounds(header: Header) -> bool:
    """Does the program call what it counts iterations of an optimisation, epochs or layers?"""
    return any(_ROUND_WORDS.search(word) for word in _words(header))


def _words(header: Header) -> set[str]:
    words = set(header.indices)
    for bound in header.bounds:
        words |= {part.attr if isinstance(part, ast.Attribute) else part.id for part in _named(bound)}
    return words


def _named(node: ast.expr) -> Iterator[ast.Name | ast.Attribute]:
    """The variables that a bound is computed from, not those whose size it is."""
    if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and path_of(node)):
        yield node
    elif isinstance(node, ast.BinOp):
        yield from _named(node.left)
        yield from _named(node.right)
    elif isinstance(node, ast.Call) and called(node) in ("int", "min", "max"):
        for argument in node.args:
            yield from _named(argument)


def _is_prepended(program: Program, loop: Loop, base: str) -> bool:
    """Was it built from its end to its beginning, as returns are: by `insert(0, x)` or `appendleft`?"""
    scope = program.function_of(loop) or program.tree
    names = {base}
    for value in list(_bindings(scope, base)):
        names |= {path_of(part) for part in ast.walk(value) if isinstance(part, ast.Name)}
    for node in own_nodes(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and path_of(node.func.value) in names:
            first = node.args[0] if node.args else None
            if node.func.attr == "appendleft" or (
                node.func.attr == "insert" and isinstance(first, ast.Constant) and first.value == 0
            ):
                return True
    return False

"""Evidence, in what surrounds a loop and what it calls, that it walks a time axis or that it does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.program import torch_table
from perflint.program.dataflow import LoopFlow
from perflint.program.loop_calls import is_metadata
from perflint.program.time_answers import awaits_an_answer
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


_TO_HOST = frozenset({"item", "cpu", "numpy", "tolist", "float", "int"})


def never_over_time(program: Program, loop: Loop) -> bool:
    """Does the loop train, differentiate, step an environment, or wait for one, or stand where a program is set up?"""
    if any(map(_imports_tests, program.tree.body)):
        return True
    function = program.function_of(loop)
    if function is not None:
        owner = program.class_of(function)
        name = getattr(function, "name", "")
        if (
            name in _SETUP
            or (name.startswith("test_") and not _is_used(program, function) and not _returns(function))
            or (owner is not None and (owner.is_a("dataset") or owner.is_a("optimizer")))
        ):
            return True
    has_operations = False
    for statement in loop.body:
        for node in own_nodes(statement):
            if isinstance(node, ast.Call):
                has_operations = True
                callee = program.callee(node)
                if (callee is not None and _trains(program, callee, 3)) or _steps_env(node):
                    return True
                if awaits_an_answer(program, node):
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
            elif isinstance(node, ast.Assign) and _fills_array(program, node):
                return True
    return not has_operations


def _fills_array(program: Program, node: ast.Assign) -> bool:
    """Is an array of numpy given what nothing brings to the host, and what is there already, therefore?"""
    targets = [each.value for each in node.targets if isinstance(each, ast.Subscript)]
    calls = {called(each) for each in ast.walk(node.value) if isinstance(each, ast.Call)}
    return any(program.value(each).kind is Kind.NUMPY for each in targets) and calls.isdisjoint(_TO_HOST)


def _is_used(program: Program, function: Function) -> bool:
    """Does the program evaluate with it: is it called by a function that is no test itself?"""
    callers = (program.function_of(site) for site in program.call_sites(function))
    return any(not getattr(caller, "name", "").startswith("test_") for caller in callers if caller is not None)


def _returns(function: Function) -> bool:
    """Does it return a value, which no test does?"""
    return any(isinstance(node, ast.Return) and node.value is not None for node in own_nodes(function))


def _imports_tests(statement: ast.stmt) -> bool:
    """Does it import a test framework, which makes the program a test?"""
    names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
    names += [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
    return any(name.partition(".")[0] in ("unittest", "pytest") for name in names)


def _steps_env(node: ast.Call) -> bool:
    """Is it `env.step_async(x)` or `step_env(env, x)`: what steps a thing that is called an environment?"""
    owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    names = {path_of(each).rpartition(".")[2].strip("_s") for each in (*owner, *node.args)}
    return "step" in called(node) and bool(names & {"env", "environment"})


def _steps(program: Program, node: ast.Call, function: ast.Attribute) -> bool:
    """Does it step an environment, an optimizer or a scheduler, rather than a module of this file?"""
    if function.attr not in _STEPS or program.value(function.value).kind is Kind.MODULE:
        return False
    callee = program.callee(node)
    owner = program.class_of(callee) if callee is not None else None
    return callee is None or (owner is not None and path_of(function.value) != "self" and not owner.is_a("module"))


def is_parameter(program: Program, node: ast.expr) -> bool:
    """Is it an attribute that the class sets to a torch.nn.Parameter, or a part of one?"""
    function = program.function_of(node)
    while isinstance(node, ast.Subscript):
        node = node.value
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


def walks_objects(loop: Loop, header: Header) -> bool:
    """Are the elements that it walks through objects with attributes of their own, rather than steps?"""
    names = {path_of(each.target) for each in header.elements if not each.is_tensor}
    return any(
        isinstance(node, ast.Attribute)
        and path_of(node.value) in names
        and not is_metadata(node)
        and torch_table.method(node.attr) is None
        for statement in loop.body
        for node in own_nodes(statement)
    )


def own_nodes_of_class(node: ast.ClassDef) -> Iterator[ast.AST]:
    """The nodes of a class's methods."""
    for statement in node.body:
        yield from own_nodes(statement)


def _trains(program: Program, function: Function, depth: int) -> bool:
    """Does `function` train, differentiate or wait for an answer?"""
    for node in own_nodes(function):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _TRAINS:
                return True
            if path_of(node.func) in ("torch.autograd.grad", "autograd.grad") or awaits_an_answer(program, node):
                return True
            inner = program.callee(node)
            if inner is not None and inner is not function and depth and _trains(program, inner, depth - 1):
                return True
    return False


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

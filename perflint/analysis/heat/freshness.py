"""Decides whether each iteration of a loop gets new data, as mini-batches do and full-batch training does not."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence, Set
from functools import partial

from perflint import torch_ops
from perflint.analysis.call_graph import CallGraph
from perflint.analysis.facts import Program
from perflint.analysis.ir.dependence import computed_of, reads
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import Function, Loop, name_called, own_nodes, receiver_of, variables_in

_DEPTH = 3  # of calls through which the number of an iteration is followed


def brings_data(program: Program, loop: Loop, nodes: Sequence[ast.AST]) -> bool:
    """Does a call that computes on tensors, among the `nodes` of one iteration, get something new each time?"""
    return _computes_on_fresh(program, nodes, _target_names(loop), _DEPTH)


def _computes_on_fresh(program: Program, nodes: Sequence[ast.AST], seeds: set[str], depth: int) -> bool:
    fresh = _fresh_names(program, nodes, seeds)
    return any(isinstance(node, ast.Call) and _call_computes_on_fresh(program, node, fresh, depth) for node in nodes)


def _call_computes_on_fresh(program: Program, node: ast.Call, fresh: Set[str], depth: int) -> bool:
    if not _computes(program, node):
        return False
    callee = program.callee(node)
    given = [argument for argument in arguments_of(node) if _is_fresh(program, argument, fresh)]
    if given and (callee is None or program.value(node.func).kind is Kind.MODULE):
        return True
    if callee is None:
        return any(summary.draws for summary in program.summaries(node))
    if program.get(CallGraph).reaches(callee, draws_data):
        return True
    if any(program.value(argument).kind is not Kind.NUMBER for argument in given):
        return True
    return (
        bool(given)
        and depth > 0
        and _computes_on_fresh(program, list(own_nodes(callee)), _receivers(program, callee, node, given), depth - 1)
    )


def _receivers(program: Program, callee: Function, node: ast.Call, given: Sequence[ast.expr]) -> set[str]:
    """The parameters of `callee` that get one of the arguments `given`: a number of an epoch is no data by itself."""
    return {name for name, argument in program.arguments(node, callee).given.items() if argument in given}


def steps_an_environment(program: Program, node: ast.AST) -> bool:
    """Is it `env.step(action)`?"""
    stepped = receiver_of(node, "step")
    if stepped is None or not isinstance(node, ast.Call) or not node.args:
        return False
    is_stepper = program.value(stepped).kind in (Kind.OPTIMIZER, Kind.MODULE)
    return not (is_stepper or "sched" in ast.unparse(stepped).lower())


def _computes(program: Program, node: ast.Call) -> bool:
    callee = program.value(node.func)
    if any(summary.trains for summary in program.summaries(node)):
        return True
    if callee.kind in (Kind.MODULE, Kind.FUNCTION) or program.value(node).kind is Kind.TENSOR:
        return True
    statement = program.parent(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    bound = (part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
    return any(program.value(name).on_device for name in bound)  # as the use of the name tells


def _fresh_names(program: Program, nodes: Iterable[ast.AST], seeds: set[str]) -> frozenset[str]:
    """The names that are bound to something new in each iteration."""
    fresh = seeds | {name for node in nodes if isinstance(node, ast.Call) for name in _redrawn(program, node)}
    return computed_of(nodes, fresh, partial(_is_drawn, program))


def _redrawn(program: Program, node: ast.Call) -> set[str]:
    """The names in `noise.normal_()` and the like, which fills a tensor with new random numbers."""
    if not isinstance(node.func, ast.Attribute) or program.value(node.func.value).kind is not Kind.TENSOR:
        return set()
    entry = torch_ops.of_method(node.func.attr)
    is_draw = entry is not None and "random" in entry.traits and entry.in_place
    return variables_in(node.func.value) if is_draw else set()


def _target_names(loop: Loop) -> set[str]:
    return set() if isinstance(loop, ast.While) else variables_in(loop.target)


def _is_fresh(program: Program, node: ast.expr, fresh: Set[str]) -> bool:
    return reads(node, fresh) or any(_is_drawn(program, each) for each in ast.walk(node))


def _is_drawn(program: Program, node: ast.AST) -> bool:
    """Is it a call that gives something else each time, other than of a module?"""
    if not isinstance(node, ast.Call) or program.value(node.func).kind is Kind.MODULE:
        return False
    return program.get(CallGraph).has(node, draws_data)


def draws_data(program: Program, node: ast.Call) -> bool:
    """Does the call give something else each time: a random draw, the next of an iterator, a step of an environment?"""
    callee = program.value(node.func)
    if callee.kind is Kind.LIBRARY:
        entry = torch_ops.of_function(callee.name)
        is_random = entry is not None and "random" in entry.traits and "factory" in entry.traits
        return is_random or callee.name == "builtins.next" or callee.name.startswith(("random.", "numpy.random."))
    if program.callee(node) is not None:
        return False
    name = name_called(node)
    return "sample" in name or "next" in name or steps_an_environment(program, node)

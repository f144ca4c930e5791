"""Decides whether each iteration of a loop gets new data: drawn, taken from what it walks, or a batch to evaluate."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence, Set
from functools import partial

from perflint import torch_ops
from perflint.analysis.autograd.effects import runs_module
from perflint.analysis.call_graph import CallGraph, is_abstract, overridden
from perflint.analysis.facts import Program
from perflint.analysis.ir.occurrences import computed_of, reads
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import Function, Loop, assigned_values, name_called, own_nodes, receiver_of, variables_in

_DEPTH = 3  # of calls through which the number of an iteration is followed


def brings_data(program: Program, loop: Loop, nodes: Sequence[ast.AST]) -> bool:
    """Does a call among the `nodes` of one iteration compute on tensors that are new each time?"""
    return _computes_on_fresh(program, nodes, _target_names(loop), _DEPTH)


def _computes_on_fresh(program: Program, nodes: Sequence[ast.AST], seeds: set[str], depth: int) -> bool:
    fresh = _fresh_names(program, nodes, seeds)
    return any(isinstance(node, ast.Call) and _call_computes_on_fresh(program, node, fresh, depth) for node in nodes)


def _call_computes_on_fresh(program: Program, node: ast.Call, fresh: Set[str], depth: int) -> bool:
    if not _computes(program, node):
        return False
    if program.trains_in(node) and any(program.value(each).kind is Kind.LOADER for each in arguments_of(node)):
        return True  # a step that takes its batch itself
    callee = program.callee(node)
    given = [argument for argument in arguments_of(node) if _is_fresh(program, argument, fresh)]
    if given and (callee is None or program.value(node.func).kind is Kind.MODULE):
        return True
    if callee is None:
        return program.value(node.func).kind is not Kind.MODULE and _draws_elsewhere(program, node)
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
    if any(summary.trains or summary.evaluates for summary in program.summaries(node)):
        return True
    if callee.kind in (Kind.MODULE, Kind.FUNCTION) or program.value(node).kind is Kind.TENSOR:
        return True
    statement = program.parent(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    bound = (part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
    return any(program.value(name).on_device for name in bound)  # as the use of the name tells


def _fresh_names(program: Program, nodes: Iterable[ast.AST], seeds: set[str]) -> frozenset[str]:
    return computed_of(nodes, seeds, partial(_is_drawn, program))


def _target_names(loop: Loop) -> set[str]:
    return set() if isinstance(loop, ast.While) else variables_in(loop.target)


def _is_fresh(program: Program, node: ast.expr, fresh: Set[str]) -> bool:
    return reads(node, fresh) or any(_is_drawn(program, each) for each in ast.walk(node))


def _is_drawn(program: Program, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or program.value(node.func).kind is Kind.MODULE:
        return False
    return program.get(CallGraph).has(node, draws_data)


def draws_data(program: Program, node: ast.Call) -> bool:
    """Is it a random draw, the next of an iterator, a step of an environment? What a module draws is noise."""
    callee = program.value(node.func)
    if callee.kind is Kind.MODULE:
        return False
    if callee.kind is Kind.LIBRARY:
        entry = torch_ops.of_function(callee.name)
        is_random = entry is not None and "random" in entry.traits and "factory" in entry.traits
        if getattr(program.function_of(node), "name", "") == "forward":
            return False
        return is_random or callee.name == "builtins.next" or callee.name.startswith(("random.", "numpy.random."))
    if (function := program.callee(node)) is not None:
        return is_abstract(function) and _draws_elsewhere(program, node)
    name = name_called(node)
    is_frame = name == "read" and not node.args  # of a video
    is_named = is_frame or "sample" in name or "next" in name
    return is_named or steps_an_environment(program, node) or _draws_elsewhere(program, node)


def _draws_elsewhere(program: Program, node: ast.Call) -> bool:
    others = (*overridden(program, node),)
    program.asked.draws.update((*program.targets(node), *others))
    return any(summary.draws for summary in program.summaries(node, others))


_BATCH = re.compile(r"(^|_)batch$")
_NUMBERS = frozenset({"builtins.float", "builtins.int"})
_PASSES_ON = re.compile(r"builtins\.enumerate$|tqdm")


def evaluates(program: Program, loop: Loop, nodes: Sequence[ast.AST]) -> bool:
    """Does each iteration run a model on a batch, by its name, or on one of many that it counts or iterates over?

    What counts batches may as well draw a picture: so its results have to come to the host each time.
    """
    if not isinstance(loop, ast.For):
        return False
    if _names_batch(program, loop.target):
        return any(_runs_model(program, node) for node in nodes)
    if not any(_brings_home(program, node) for node in nodes):
        return False
    if _counts_batches(program, loop.iter):
        return any(_runs_model(program, node) for node in nodes)
    return any(_takes_item(program, node, loop.target) and _runs_model(program, node) for node in nodes)


def _names_batch(program: Program, target: ast.expr) -> bool:
    names = [node for node in ast.walk(target) if isinstance(node, ast.Name) and _BATCH.search(node.id)]
    return any(program.value(name).kind is not Kind.NUMBER for name in names)


def _passed_on(program: Program, iterated: ast.expr) -> ast.expr:
    while isinstance(iterated, ast.Call) and iterated.args and _PASSES_ON.match(program.qualified(iterated.func)):
        iterated = iterated.args[0]
    return iterated


def _counts_batches(program: Program, iterated: ast.expr) -> bool:
    """Is it `range(len(data) // batch_size)`, also through a name, or `range(0, len(data), batch_size)`?"""
    counted = program.call_of(_passed_on(program, iterated), "builtins.range")
    if counted is None or not counted.args:
        return False
    bound = counted.args[-1]
    if len(counted.args) == 3:
        return "batch" in ast.unparse(bound)
    values = assigned_values(program.scope_of(bound), bound.id) if isinstance(bound, ast.Name) else ()
    return any(map(_divides, (bound, *values)))


def _divides(bound: ast.expr) -> bool:
    quotients = [node for node in ast.walk(bound) if isinstance(node, ast.BinOp)]
    return any(isinstance(node.op, ast.Div | ast.FloorDiv) for node in quotients)


def _takes_item(program: Program, node: ast.AST, target: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(target, ast.Name)):
        return False
    given = [each for each in node.args if isinstance(each, ast.Name) and each.id == target.id]
    return any(program.value(each).kind not in (Kind.NUMBER, Kind.STRING) for each in given)


def _runs_model(program: Program, node: ast.AST) -> bool:
    return program.get(CallGraph).has(node, runs_module)


def _brings_home(program: Program, node: ast.AST) -> bool:
    """Is it `model(x).cpu()`, `float(model(x))` and the like, of what a model gave?"""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return torch_ops.does(node.func.attr, "to_host") and program.value(node.func.value).on_device
    return bool(node.args) and program.qualified(node.func) in _NUMBERS and program.value(node.args[0]).on_device

"""Decides whether each iteration of a loop gets new data, as mini-batches do and full-batch training does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.values.methods import MODULE_SELF
from perflint.analysis.values.values import UNKNOWN, Kind
from perflint.syntax.arguments import arguments_of
from perflint.syntax.walk import Function, Loop, assigned_values, own_nodes

_HOUSEKEEPING = MODULE_SELF | {
    *("zero_grad", "parameters", "state_dict", "load_state_dict", "named_parameters", "modules"),
}
_NUMBERS = frozenset({"builtins.float", "builtins.int"})
_PASSES_ON = re.compile(r"builtins\.enumerate$|tqdm")
_BATCH = re.compile(r"(^|_)batch$")


def evaluates(program: Program, loop: Loop, nodes: Sequence[ast.AST]) -> bool:
    """Does each iteration run a model on a batch, by the name of it, or on one of many that it counts?

    What counts batches may as well draw a picture: so its results have to come to the host each time.
    """
    if not isinstance(loop, ast.For):
        return False
    names = [node for node in ast.walk(loop.target) if isinstance(node, ast.Name) and _BATCH.search(node.id)]
    if any(program.value(name).kind is not Kind.NUMBER for name in names):
        return any(_runs_model(program, node) for node in nodes)
    if not (_counts_batches(program, loop.iter) and any(_brings_home(program, node) for node in nodes)):
        return False
    return any(_runs_model(program, node) or _may_run_model(program, node) for node in nodes)


def _counts_batches(program: Program, iterated: ast.expr) -> bool:
    """Is it `range(len(data) // batch_size)`, also through a name, or `range(0, len(data), batch_size)`?"""
    while isinstance(iterated, ast.Call) and iterated.args and _PASSES_ON.match(program.qualified(iterated.func)):
        iterated = iterated.args[0]
    if not (isinstance(iterated, ast.Call) and program.qualified(iterated.func) == "builtins.range"):
        return False
    if len(iterated.args) == 3:
        return "batch" in ast.unparse(iterated.args[2])
    bound = iterated.args[-1] if iterated.args else iterated
    scope = program.function_of(iterated) or program.tree
    values = assigned_values(scope, bound.id) if isinstance(bound, ast.Name) else ()
    return any(map(_divides, (bound, *values)))


def _divides(bound: ast.expr) -> bool:
    quotients = [node for node in ast.walk(bound) if isinstance(node, ast.BinOp)]
    return any(isinstance(node.op, ast.Div | ast.FloorDiv) for node in quotients)


def _runs_model(program: Program, node: ast.AST) -> bool:
    """Is it a call of a module, or of a method that may compute with it?"""
    callee = program.value(node.func) if isinstance(node, ast.Call) else UNKNOWN
    if callee.kind in (Kind.MODULE, Kind.TENSOR):  # a tensor can't be called: a model too
        return True
    is_method = callee.owner is not None and callee.owner.kind is Kind.MODULE
    return is_method and getattr(getattr(node, "func", None), "attr", "") not in _HOUSEKEEPING


def _may_run_model(program: Program, node: ast.AST) -> bool:
    """Does a function that is not known give a tensor on the device?"""
    if not isinstance(node, ast.Call) or not program.value(node).on_device:
        return False
    callee = program.value(node.func)
    return callee.kind is Kind.UNKNOWN or bool(program.targets(node))


def _brings_home(program: Program, node: ast.AST) -> bool:
    """Is it `model(x).cpu()`, `float(model(x))` and the like, of what a model gave?"""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return torch_ops.does(node.func.attr, "to_host") and program.value(node.func.value).on_device
    return bool(node.args) and program.qualified(node.func) in _NUMBERS and program.value(node.args[0]).on_device


def brings_data(program: Program, loop: Loop, nodes: Sequence[ast.AST]) -> bool:
    """Does a call that computes on tensors, among the `nodes` of one iteration, get something new each time?"""
    return _computes_on_fresh(program, nodes, set() if isinstance(loop, ast.While) else set(names_in(loop.target)))


def _computes_on_fresh(program: Program, nodes: Sequence[ast.AST], seeds: set[str]) -> bool:
    fresh = _fresh_names(program, nodes, seeds)
    return any(isinstance(node, ast.Call) and _call_computes_on_fresh(program, node, fresh) for node in nodes)


def _call_computes_on_fresh(program: Program, node: ast.Call, fresh: set[str]) -> bool:
    if not _computes(program, node):
        return False
    callee = program.callee(node)
    given = [argument for argument in arguments_of(node) if _is_fresh(program, argument, fresh)]
    if given and (callee is None or program.value(node.func).kind is Kind.MODULE):
        return True
    if callee is None:
        return any(summary.draws for summary in program.summaries(node))
    return draws(program, callee) or any(program.value(argument).kind is not Kind.NUMBER for argument in given)


def steps_an_environment(program: Program, node: ast.AST) -> bool:
    """Is it `env.step(action)`?"""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"):
        return False
    owner = program.value(node.func.value)
    name = ast.unparse(node.func.value).lower()
    is_stepper = owner.kind in (Kind.OPTIMIZER, Kind.MODULE) or "sched" in name
    return bool(node.args) and not is_stepper


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


def _fresh_names(program: Program, nodes: Iterable[ast.AST], seeds: set[str]) -> set[str]:
    """The names that are bound to something new in each iteration."""
    fresh = set(seeds)
    bindings = [
        (targets, value)
        for node in nodes
        if (targets := _targets(node)) and (value := getattr(node, "value", None) or getattr(node, "iter", None))
    ]
    growing = True
    while growing:
        size = len(fresh)
        for targets, value in bindings:
            if _is_fresh(program, value, fresh):
                fresh.update(name for target in targets for name in names_in(target))
        growing = len(fresh) > size
    return fresh


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.For):
        return [node.target]
    return []


def names_in(node: ast.AST) -> list[str]:
    """The names in an expression."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def _is_fresh(program: Program, node: ast.expr, fresh: set[str]) -> bool:
    return any(
        (isinstance(part, ast.Name) and part.id in fresh) or (isinstance(part, ast.Call) and _draws_data(program, part))
        for part in ast.walk(node)
    )


def _draws_data(program: Program, node: ast.Call) -> bool:
    """Does the call give something else each time: a random draw, the next of an iterator, a step of an environment?"""
    callee = program.value(node.func)
    if callee.kind is Kind.LIBRARY:
        entry = torch_ops.of_function(callee.name)
        is_random = entry is not None and "random" in entry.traits and "factory" in entry.traits
        return is_random or callee.name == "builtins.next" or callee.name.startswith(("random.", "numpy.random."))
    function = program.callee(node)
    if function is not None:
        return callee.kind is not Kind.MODULE and draws(program, function, 2)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return "sample" in name or "next" in name or steps_an_environment(program, node)


def draws(program: Program, function: Function, depth: int = 3) -> bool:
    """Does a function of the file draw data itself?"""
    if depth == 0:
        return False
    for node in own_nodes(function):
        if isinstance(node, ast.Call):
            inner = program.callee(node)
            if draws(program, inner, depth - 1) if inner is not None else _draws_data(program, node):
                return True
    return False

"""Lifts torch's RNNs: one call on the sequence."""

from __future__ import annotations

import ast

from perflint.analysis.loops.calls import rnn_kind
from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.template import expression
from perflint.transforms.vectorize.modules import Module
from perflint.transforms.vectorize.purity import called_module
from perflint.transforms.vectorize.scope import Scope, tensor
from perflint.transforms.vectorize.steps import Carried, Parts, Steps


def is_recurrent(scope: Scope, node: ast.expr) -> bool:
    """Is it a call of an RNN or a Cell?"""
    return isinstance(node, ast.Call) and bool(rnn_kind(scope.program, node.func))


def state_argument(node: ast.Call) -> ast.expr | None:
    """What an RNN or a Cell is given as its state."""
    given = [keyword.value for keyword in node.keywords if keyword.arg == "hx"]
    return given[0] if given else node.args[1] if len(node.args) > 1 else None


def known_module(scope: Scope, node: ast.Call) -> Module:
    """The RNN that `node` calls; raises Blocked where it is not known how it was built."""
    module = called_module(scope, node)
    if module is None:
        raise Blocked(f"it is not known how {shown(scope.program, node.func)} was built", node)
    if len(node.args) + len(node.keywords) > 2 or not node.args:
        raise Blocked("the RNN gets more than an input and a state", node)
    return module


def carried_paths(scope: Scope, node: ast.Call) -> tuple[str, ...]:
    """The paths of the state that goes into `node`, which must be what the step before left; raises Blocked."""
    state = state_argument(node)
    if state is None:
        raise Blocked("the RNN starts anew in each step", node)
    value = scope.lift(state)
    values = value.items if isinstance(value, Parts) else (value,)
    if not all(isinstance(each, Carried) for each in values):
        raise Blocked("the state that goes in is not the one that came out", node)
    paths = tuple(each.path for each in values if isinstance(each, Carried))
    scope.draft.consumed.update(paths)
    return paths


def written(paths: tuple[str, ...]) -> ast.expr:
    """The paths as a name or a tuple."""
    return expression(paths[0] if len(paths) == 1 else f"({', '.join(paths)})")


def sequence_call(scope: Scope, node: ast.Call, paths: tuple[str, ...]) -> tuple[ast.expr, Steps, bool]:
    """The call of an RNN on all steps, its outputs (their name still missing), and whether they tell the state."""
    module = known_module(scope, node)
    if _is_true(module.argument("bidirectional", 6)):
        raise Blocked("the RNN is bidirectional: its second direction sees one step only", node)
    batch_first = _flag(module, "batch_first", 4, node)
    axis = 1 if batch_first else 0
    value = tensor(scope.lift(node.args[0]), node.args[0])
    if not isinstance(value, Steps) or not value.kept:
        raise Blocked("the RNN's input has no axis of size 1 for time", node)
    if value.axis != axis or (axis == 1 and value.rank == 2):
        if value.least < 3:
            raise Blocked("the RNN's input is not known to be a batch", node)
        raise Blocked("the RNN's axis for time is another than the steps'", node)
    layers = module.argument("num_layers", 2)
    dropout = module.argument("dropout", 5)
    if dropout is not None and not (isinstance(dropout, ast.Constant) and dropout.value == 0):
        scope.draft.changes.add("dropout between the RNN's layers draws other random numbers")
    if any("[" in path for path in paths):
        raise Blocked("the RNN's state is an item of a list", node)
    state = state_argument(node)
    given = {state: written(paths)} if state is not None else {}
    code = scope.code(node, {node.args[0]: value.code, **given})
    one_layer = (layers is None or integer(layers) == 1) and module.argument("proj_size", 7) is None
    return code, Steps(code, axis, 3 if value.least >= 3 or axis == 1 else 2, 3, kept=True, own=True), one_layer


def _flag(module: Module, name: str, position: int, node: ast.AST) -> bool:
    given = module.argument(name, position)
    if given is None:
        return False
    if isinstance(given, ast.Constant) and isinstance(given.value, bool):
        return given.value
    raise Blocked(f"`{name}` is no constant where the RNN is built", node)


def _is_true(given: ast.expr | None) -> bool:
    return given is not None and not (isinstance(given, ast.Constant) and not given.value)

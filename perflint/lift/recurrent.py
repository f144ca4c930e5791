"""Lifts torch's RNNs and Cells: one call on the sequence, with the same parameters."""

from __future__ import annotations

import ast

from perflint.fixes.blocked import Blocked
from perflint.fixes.shown import shown
from perflint.fixes.text import atom
from perflint.lift.modules import Module, module_of
from perflint.lift.scope import Scope, tensor
from perflint.lift.steps import Carried, Parts, Steps, loosened
from perflint.program.loop_calls import rnn_kind
from perflint.program.shapes.shape import integer
from perflint.program.values import Kind

_FUNCTIONS = {"LSTMCell": "lstm", "GRUCell": "gru", "RNNCell": "rnn_tanh"}
_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def is_recurrent(scope: Scope, node: ast.expr) -> bool:
    """Is it a call of an RNN or a Cell?"""
    return isinstance(node, ast.Call) and bool(rnn_kind(scope.program, node.func))


def state_argument(node: ast.Call) -> ast.expr | None:
    """What an RNN or a Cell is given as its state."""
    given = [keyword.value for keyword in node.keywords if keyword.arg == "hx"]
    return given[0] if given else node.args[1] if len(node.args) > 1 else None


def known_module(scope: Scope, node: ast.Call) -> Module:
    """The RNN that `node` calls; raises Blocked where it is not known how it was built."""
    module = module_of(scope.program, node.func)
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


def written(paths: tuple[str, ...]) -> str:
    """The paths as a name or a tuple."""
    return paths[0] if len(paths) == 1 else f"({', '.join(paths)})"


def sequence_call(scope: Scope, node: ast.Call, paths: tuple[str, ...]) -> tuple[str, Steps, bool]:
    """The call of an RNN on all steps, its outputs (their text still missing), and whether they tell the state."""
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
    state = state_argument(node)
    given = {state: written(paths)} if state is not None else {}
    text = scope.text(node, {node.args[0]: value.text, **given})
    one_layer = (layers is None or integer(layers) == 1) and module.argument("proj_size", 7) is None
    return text, Steps("", axis, 3 if value.least >= 3 or axis == 1 else 2, 3, kept=True, own=True), one_layer


def _flag(module: Module, name: str, position: int, node: ast.AST) -> bool:
    given = module.argument(name, position)
    if given is None:
        return False
    if isinstance(given, ast.Constant) and isinstance(given.value, bool):
        return given.value
    raise Blocked(f"`{name}` is no constant where the RNN is built", node)


def _is_true(given: ast.expr | None) -> bool:
    return given is not None and not (isinstance(given, ast.Constant) and not given.value)


def cell_call(scope: Scope, node: ast.Call, names: tuple[str, ...]) -> tuple[str, int]:
    """The call of torch's own function for the sequence, on the parameters of a Cell, and the axis of its steps.

    `names` are those of its states. That function is what nn.LSTM, nn.GRU and nn.RNN call themselves.
    """
    module = known_module(scope, node)
    if not scope.facts.torch:
        raise Blocked("`torch` is not imported by that name", node)
    value = tensor(scope.lift(node.args[0]), node.args[0])
    if not isinstance(value, Steps):
        raise Blocked("the Cell's input is no step of a sequence", node)
    value = loosened(value)
    if value.least < 2 and not _are_batches(scope, names):
        raise Blocked("the Cell's input is not known to be a batch", node)
    if not _are_tensors(scope, names):
        raise Blocked("the Cell's first state is not known to be a tensor", node)
    cell = atom(scope.text(node.func))
    bias = module.argument("bias", 2)
    if bias is not None and not (isinstance(bias, ast.Constant) and isinstance(bias.value, bool)):
        raise Blocked("`bias` is no constant where the Cell is built", node)
    has_bias = bias is None or bias.value is True
    function = _FUNCTIONS[module.name]
    if module.name == "RNNCell" and (kind := module.argument("nonlinearity", 3)) is not None:
        if not isinstance(kind, ast.Constant) or kind.value not in ("tanh", "relu"):
            raise Blocked("`nonlinearity` is no constant where the Cell is built", node)
        function = f"rnn_{kind.value}"
    if len(names) != (2 if module.name == "LSTMCell" else 1):
        raise Blocked("the Cell's state is no plain name", node)
    value = value if value.axis in (0, 1) else value.at(0)
    weights = ", ".join(f"{cell}.{name}" for name in (_WEIGHTS if has_bias else _WEIGHTS[:2]))
    states = [f"{name}.unsqueeze(0)" for name in names]
    lines = (
        f"{scope.facts.torch}.{function}(",
        f"    {value.text},",
        f"    ({', '.join(states)})," if len(states) > 1 else f"    {states[0]},",
        f"    [{weights}],",
        f"    has_biases={has_bias}, num_layers=1, dropout=0.0, train=True, bidirectional=False,"
        f" batch_first={value.axis == 1},",
        ")",
    )
    return scope.facts.newline.join(lines), value.axis


def _are_batches(scope: Scope, names: tuple[str, ...]) -> bool:
    """Have the first states an axis for the batch, as the inputs must then have too?"""
    starts = [each for name in names for each in scope.starts(name)]
    return bool(starts) and all(isinstance(each, ast.Name) and _value_rank(scope, each) == 2 for each in starts)


def _value_rank(scope: Scope, target: ast.Name) -> int | None:
    statement = scope.program.statement_of(target)
    if not isinstance(statement, ast.Assign) or any(isinstance(each, ast.Tuple) for each in statement.targets):
        return None
    return scope.rank(statement.value)


def _are_tensors(scope: Scope, names: tuple[str, ...]) -> bool:
    starts = [each for name in names for each in scope.starts(name)]
    values = [scope.program.value(each) for each in starts]
    return bool(values) and all(value.kind is Kind.TENSOR and value.sure for value in values)

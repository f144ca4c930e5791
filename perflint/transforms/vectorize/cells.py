"""Lifts torch's Cells: the function that nn.LSTM, nn.GRU and nn.RNN call for a sequence, on the Cell's parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.syntax.scopes import bound_names
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import in_rows
from perflint.transforms.template import assignment, expression, number, reference, statement
from perflint.transforms.vectorize.firsts import check_firsts
from perflint.transforms.vectorize.modules import Module
from perflint.transforms.vectorize.recurrent import carried_paths, known_module
from perflint.transforms.vectorize.scope import Scope, place_of, root_of, tensor
from perflint.transforms.vectorize.seen import is_kept, is_rebound
from perflint.transforms.vectorize.steps import Parts, State, Steps, loosened, picked

_FUNCTIONS = {"LSTMCell": "lstm", "GRUCell": "gru", "RNNCell": "rnn_tanh"}
_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def lift_cell(scope: Scope, node: ast.Call) -> tuple[tuple[ast.stmt, ...], State | Parts]:
    """The statements that take the place of one that calls a Cell, and what it gives; raises Blocked."""
    paths = _whole(scope, carried_paths(scope, node))
    if any("." in path for path in paths):
        raise Blocked("the Cell's state is an attribute", node)
    module = known_module(scope, node)
    is_pair = module.name == "LSTMCell" and len(paths) == 1
    names = (f"{paths[0]}[0]", f"{paths[0]}[1]") if is_pair else paths
    if len(names) != (2 if module.name == "LSTMCell" else 1):
        raise Blocked("the Cell's state is no plain name", node)
    code, axis = _call(scope, node, module, paths, names)
    outputs = Steps(reference(scope.draft.outputs_of(paths[0])), axis, 2, 2, own=True)
    last = expression("{x}.clone()", x=picked(outputs.code, axis, number(-1)))
    first = State(names[0], outputs, is_output=True, last=last)
    unread = reference(_unread(scope))
    lasts = [reference(name) if (name := _last_name(scope, each)) else None for each in names[1:]]
    targets = [outputs.code, unread, *(each or unread for each in lasts)]
    others = [
        State(name, last=None if each is None else expression("{x}.squeeze(0).clone()", x=each))
        for name, each in zip(names[1:], lasts, strict=True)
    ]
    kept = tuple(_kept(scope, paths, [first, *others]))
    made = statement("({*targets},) = {code}", targets=targets, code=code)
    return (made, *kept), Parts((first, *others)) if others else first


def _whole(scope: Scope, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The path of a pair for those of its parts, where the loop replaces it as a whole."""
    base = paths[0].removesuffix("[0]")
    stored = (node for node in scope.facts.inside if isinstance(getattr(node, "ctx", None), ast.Store))
    is_pair = paths == (f"{base}[0]", f"{base}[1]") and any(place_of(node) == base for node in stored)
    return (base,) if is_pair else paths


def _unread(scope: Scope) -> str:
    """A name for what nobody reads."""
    reads = (node for node in scope.program.of_type(ast.Name) if node.id == "_" and isinstance(node.ctx, ast.Load))
    is_global = any("_" in bound_names(each) for each in scope.program.tree.body)
    if "_" not in scope.draft.taken.names or not (is_global or any(reads)):
        return "_"
    if "_" not in scope.draft.outputs:
        scope.draft.outputs["_"] = scope.draft.taken.fresh("unread")
    return scope.draft.outputs["_"]


def _last_name(scope: Scope, path: str) -> str:
    """The name for a state behind the last step that no output tells; empty where nothing needs it."""
    if not is_kept(scope, path):
        return ""
    return path if path.isidentifier() else scope.draft.taken.fresh(f"{root_of(path)}_last")


def _kept(scope: Scope, paths: tuple[str, ...], states: list[State]) -> Iterator[ast.stmt]:
    """What gives the variables, and the items of lists, that are read behind the loop their last values."""
    needed = [path for path in paths if is_kept(scope, path)]
    if len(paths) < len(states) and needed and not ("[" in paths[0] and is_rebound(scope, paths[0])):
        lasts = [state.last for state in states if state.last is not None]
        yield assignment(paths[0], expression("({*lasts},)", lasts=lasts))
        return
    for name, state in zip(paths, states, strict=False):
        is_item = "[" in name and not is_rebound(scope, name)
        is_plain = is_item or (not state.is_output and name.isidentifier())
        if name in needed and is_plain and state.last is not None:
            yield assignment(name, state.last)


def _call(
    scope: Scope, node: ast.Call, module: Module, paths: tuple[str, ...], names: tuple[str, ...]
) -> tuple[ast.expr, int]:
    """The call of torch's function on all steps, and the axis of its outputs' steps."""
    if not scope.facts.torch:
        raise Blocked("`torch` is not imported by that name", node)
    value = tensor(scope.lift(node.args[0]), node.args[0])
    if not isinstance(value, Steps):
        raise Blocked("the Cell's input is no step of a sequence", node)
    value = loosened(value)
    check_firsts(scope, paths, node, needs_rank=value.least < 2)
    cell = scope.code(node.func)
    bias = module.argument("bias", 2)
    if bias is not None and not (isinstance(bias, ast.Constant) and isinstance(bias.value, bool)):
        raise Blocked("`bias` is no constant where the Cell is built", node)
    has_bias = bias is None or bias.value is True
    value = value if value.axis in (0, 1) else value.at(0)
    weights = [expression(f"{{cell}}.{name}", cell=cell) for name in (_WEIGHTS if has_bias else _WEIGHTS[:2])]
    steps, states = value.code, [expression(name) for name in names]
    if module.name == "LSTMCell":  # on a CPU torch.lstm reads other memory where sizes don't fit; the Cell raises
        steps = expression("{x}.unflatten(-1, ({cell}.input_size,))", x=steps, cell=cell)
        states = [expression("{h}.unflatten(-1, ({cell}.hidden_size,))", h=each, cell=cell) for each in states]
    states = [expression("{h}.unsqueeze(0)", h=each) for each in states]
    state = states[0] if len(states) == 1 else in_rows(expression("({*states},)", states=states), *(1 for _ in states))
    call = expression(
        "{torch}.{f}({x}, {state}, [{*weights}], has_biases={biases}, num_layers=1, dropout=0.0, train=True,"
        " bidirectional=False, batch_first={first})",
        torch=scope.facts.torch,
        f=_function(module, node),
        x=steps,
        state=state,
        weights=weights,
        biases=ast.Constant(has_bias),
        first=ast.Constant(value.axis == 1),
    )
    return in_rows(call, 1, 1, 1, 6), value.axis


def _function(module: Module, node: ast.Call) -> str:
    """The function of torch that computes a sequence of such a Cell."""
    kind = module.argument("nonlinearity", 3) if module.name == "RNNCell" else None
    if kind is None:
        return _FUNCTIONS[module.name]
    if not isinstance(kind, ast.Constant) or kind.value not in ("tanh", "relu"):
        raise Blocked("`nonlinearity` is no constant where the Cell is built", node)
    return f"rnn_{kind.value}"

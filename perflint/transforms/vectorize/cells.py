"""Lifts torch's Cells: the function that nn.LSTM, nn.GRU and nn.RNN call for a sequence, on the Cell's parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.syntax.scopes import bound_names
from perflint.transforms.blocked import Blocked
from perflint.transforms.text import atom
from perflint.transforms.vectorize.firsts import check_firsts
from perflint.transforms.vectorize.modules import Module
from perflint.transforms.vectorize.recurrent import carried_paths, known_module
from perflint.transforms.vectorize.scope import Scope, place_of, root_of, tensor
from perflint.transforms.vectorize.seen import is_kept, is_rebound
from perflint.transforms.vectorize.steps import Parts, State, Steps, loosened

_FUNCTIONS = {"LSTMCell": "lstm", "GRUCell": "gru", "RNNCell": "rnn_tanh"}
_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def lift_cell(scope: Scope, node: ast.Call) -> tuple[tuple[str, ...], State | Parts]:
    """The statements that take the place of one that calls a Cell, and what it gives; raises Blocked."""
    paths = _whole(scope, carried_paths(scope, node))
    if any("." in path for path in paths):
        raise Blocked("the Cell's state is an attribute", node)
    module = known_module(scope, node)
    is_pair = module.name == "LSTMCell" and len(paths) == 1
    names = (f"{paths[0]}[0]", f"{paths[0]}[1]") if is_pair else paths
    if len(names) != (2 if module.name == "LSTMCell" else 1):
        raise Blocked("the Cell's state is no plain name", node)
    text, axis = _call(scope, node, module, paths, names)
    outputs = Steps(scope.draft.outputs_of(paths[0]), axis, 2, 2, own=True)
    first = State(names[0], outputs, is_output=True, last=f"{outputs.text}[{':, ' * axis}-1].clone()")
    others = [State(name, last=_last_name(scope, name)) for name in names[1:]]
    unread = _unread(scope)
    targets = [outputs.text, unread, *(other.last or unread for other in others)]
    others = [State(other.path, last=f"{other.last}.squeeze(0).clone()" if other.last else "") for other in others]
    kept = tuple(_kept(scope, paths, [first, *others]))
    return (f"{', '.join(targets)} = {text}", *kept), Parts((first, *others)) if others else first


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


def _kept(scope: Scope, paths: tuple[str, ...], states: list[State]) -> Iterator[str]:
    """What gives the variables, and the items of lists, that are read behind the loop their last values."""
    needed = [path for path in paths if is_kept(scope, path)]
    if len(paths) < len(states) and needed and not ("[" in paths[0] and is_rebound(scope, paths[0])):
        yield f"{paths[0]} = ({', '.join(state.last for state in states)})"
        return
    for path, state in zip(paths, states, strict=False):
        is_item = "[" in path and not is_rebound(scope, path)
        if path in needed and (is_item or not state.is_output) and (is_item or path.isidentifier()):
            yield f"{path} = {state.last}"


def _call(
    scope: Scope, node: ast.Call, module: Module, paths: tuple[str, ...], names: tuple[str, ...]
) -> tuple[str, int]:
    """The call of torch's function on all steps, and the axis of its outputs' steps."""
    if not scope.facts.torch:
        raise Blocked("`torch` is not imported by that name", node)
    value = tensor(scope.lift(node.args[0]), node.args[0])
    if not isinstance(value, Steps):
        raise Blocked("the Cell's input is no step of a sequence", node)
    value = loosened(value)
    check_firsts(scope, paths, node, needs_rank=value.least < 2)
    cell = atom(scope.text(node.func))
    bias = module.argument("bias", 2)
    if bias is not None and not (isinstance(bias, ast.Constant) and isinstance(bias.value, bool)):
        raise Blocked("`bias` is no constant where the Cell is built", node)
    has_bias = bias is None or bias.value is True
    value = value if value.axis in (0, 1) else value.at(0)
    weights = ", ".join(f"{cell}.{name}" for name in (_WEIGHTS if has_bias else _WEIGHTS[:2]))
    steps, states = value.text, list(names)
    if module.name == "LSTMCell":  # on a CPU torch.lstm reads other memory where sizes don't fit; the Cell raises
        steps = f"{atom(steps)}.unflatten(-1, ({cell}.input_size,))"
        states = [f"{name}.unflatten(-1, ({cell}.hidden_size,))" for name in states]
    states = [f"{state}.unsqueeze(0)" for state in states]
    lines = (
        f"{scope.facts.torch}.{_function(module, node)}(",
        f"    {steps},",
        *((f"    {states[0]},",) if len(states) == 1 else _in_brackets(states)),
        f"    [{weights}],",
        f"    has_biases={has_bias}, num_layers=1, dropout=0.0, train=True, bidirectional=False,"
        f" batch_first={value.axis == 1},",
        ")",
    )
    return scope.newline.join(lines), value.axis


def _in_brackets(states: list[str]) -> tuple[str, ...]:
    return ("    (", *(f"        {state}," for state in states), "    ),")


def _function(module: Module, node: ast.Call) -> str:
    """The function of torch that computes a sequence of such a Cell."""
    kind = module.argument("nonlinearity", 3) if module.name == "RNNCell" else None
    if kind is None:
        return _FUNCTIONS[module.name]
    if not isinstance(kind, ast.Constant) or kind.value not in ("tanh", "relu"):
        raise Blocked("`nonlinearity` is no constant where the Cell is built", node)
    return f"rnn_{kind.value}"

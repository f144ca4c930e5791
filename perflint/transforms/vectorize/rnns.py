"""The batching rules of torch's RNNs and Cells: one call on the whole sequence."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from perflint.analysis.ir.graph import Definition
from perflint.analysis.links import Says
from perflint.analysis.loops.calls import rnn_kind
from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import bind, bound_names
from perflint.syntax.walk import path_of
from perflint.transforms.operations import assignment, expression, in_rows, number, reference, statement
from perflint.transforms.rewrite import Blocked, shown
from perflint.transforms.vectorize.modules import Module, called_module
from perflint.transforms.vectorize.scope import Scope, root_of
from perflint.transforms.vectorize.values import Batched, Carried, Parts, State, Value, picked

_FUNCTIONS = {"LSTMCell": "lstm", "GRUCell": "gru", "RNNCell": "rnn_tanh"}  # that nn.LSTM, nn.GRU and nn.RNN call
_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_NO_TENSOR = -1

Made = tuple[tuple[ast.stmt, ...], Batched | None, list[State]]


def is_recurrent(scope: Scope, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and bool(rnn_kind(scope.program, node.func))


def state_argument(node: ast.Call) -> ast.expr | None:
    return bind(node, ("input", "hx")).get("hx")


def _module(scope: Scope, node: ast.Call) -> Module:
    module = called_module(scope, node)
    if module is None:
        raise Blocked(f"it is not known how {shown(scope.program, node.func)} was built", node)
    if scope.program.is_said(Says.TRANSFORMS):
        raise Blocked("whole RNNs can't be differentiated twice, or run below torch.vmap", node)
    if len(node.args) + len(node.keywords) > 2 or not node.args:
        raise Blocked("the RNN gets more than an input and a state", node)
    return module


def _carried_paths(scope: Scope, node: ast.Call) -> tuple[str, ...]:
    state = state_argument(node)
    if state is None:
        raise Blocked("the RNN starts anew in each step", node)
    value = scope.lift(state)
    values = value.items if isinstance(value, Parts) else (value,)
    paths = tuple(each.path for each in values if isinstance(each, Carried))
    if len(paths) != len(values):
        raise Blocked("the state that goes in is not the one that came out", node)
    scope.draft.consumed.update(paths)
    return paths


def _flag(module: Module, name: str, position: int, default: bool, node: ast.AST) -> bool:
    given = module.argument(name, position)
    if given is None:
        return default
    if isinstance(given, ast.Constant) and isinstance(given.value, bool):
        return given.value
    whose = "Cell" if module.name in _FUNCTIONS else "RNN"
    raise Blocked(f"`{name}` is no constant where the {whose} is built", node)


# -- RNNs


def lift_rnn(scope: Scope, target: ast.expr, node: ast.Call) -> tuple[ast.stmt, list[State]]:
    """`out, h = self.rnn(x_t, h)`: the statement that replaces it, and the states; raises Blocked."""
    if not isinstance(target, ast.Tuple) or len(target.elts) != 2 or not isinstance(target.elts[0], ast.Name):
        raise Blocked("the RNN's output and state are not kept apart", node)
    paths = _carried_paths(scope, node)
    state = expression(paths[0] if len(paths) == 1 else f"({', '.join(paths)})")
    code, outputs = _sequence_call(scope, node, state)
    name = target.elts[0].id
    written = scope.draft.taken.fresh("steps") if name == "_" else scope.local(name)
    scope.values[name] = outputs.named(reference(written))
    made = statement("{outputs}, {state} = {code}", outputs=written, state=state, code=code)
    return made, [State(path) for path in paths]


def _sequence_call(scope: Scope, node: ast.Call, state: ast.expr) -> tuple[ast.expr, Batched]:
    module = _module(scope, node)
    bidirectional = module.argument("bidirectional", 6)
    if bidirectional is not None and not (isinstance(bidirectional, ast.Constant) and not bidirectional.value):
        raise Blocked("the RNN is bidirectional: its second direction sees one step only", node)
    axis = 1 if _flag(module, "batch_first", 4, False, node) else 0
    value = scope.tensor(node.args[0])
    if not isinstance(value, Batched) or not value.kept:
        raise Blocked("the RNN's input has no axis of size 1 for time", node)
    if value.axis != axis or (axis == 1 and value.rank == 2):
        if value.least < 3:
            raise Blocked("the RNN's input is not known to be a batch", node)
        raise Blocked("the RNN's axis for time is another than the steps'", node)
    dropout = module.argument("dropout", 5)
    if dropout is not None and not (isinstance(dropout, ast.Constant) and dropout.value == 0):
        scope.draft.changes.add("dropout between the RNN's layers draws other random numbers")
    given = state_argument(node)
    code = scope.code(node, {node.args[0]: value.code, **({given: state} if given is not None else {})})
    return code, Batched(code, axis, 3 if value.least >= 3 or axis == 1 else 2, 3, kept=True, own=True)


# -- Cells: the function that the RNN calls, on the Cell's parameters


def lift_cell(scope: Scope, node: ast.Call) -> tuple[tuple[ast.stmt, ...], State | Parts]:
    """The statements that replace a call of a Cell, and what it gives; raises Blocked."""
    paths = _carried_paths(scope, node)
    if any("." in path for path in paths):
        raise Blocked("the Cell's state is an attribute", node)
    module = _module(scope, node)
    is_pair = module.name == "LSTMCell" and len(paths) == 1
    names = (f"{paths[0]}[0]", f"{paths[0]}[1]") if is_pair else paths
    if len(names) != (2 if module.name == "LSTMCell" else 1):
        raise Blocked("the Cell's state is no plain name", node)
    scope.draft.oddities.add("a function of Cells' weights")
    code, axis = _cell_call(scope, node, module, paths, names)
    outputs = Batched(reference(scope.draft.outputs_of(paths[0])), axis, 2, 2, own=True)
    last = expression("{x}.clone()", x=picked(outputs.code, axis, number(-1)))
    states = [State(names[0], outputs, last)]
    unread = reference(_unread(scope))
    targets = [outputs.code, unread]
    for name in names[1:]:
        code_of_last = _last(scope, name)
        targets.append(code_of_last or unread)
        kept = expression("{x}.squeeze(0).clone()", x=code_of_last) if code_of_last is not None else None
        states.append(State(name, last=kept))
    made = statement("({*targets},) = {code}", targets=targets, code=code)
    return (made, *_kept(scope, paths, states)), Parts(tuple(states)) if states[1:] else states[0]


def _unread(scope: Scope) -> str:
    reads = (node for node in scope.program.of_type(ast.Name) if node.id == "_" and isinstance(node.ctx, ast.Load))
    is_global = any("_" in bound_names(each) for each in scope.program.tree.body)
    if "_" not in scope.draft.taken.names or not (is_global or any(reads)):
        return "_"
    if "_" not in scope.draft.outputs:
        scope.draft.outputs["_"] = scope.draft.taken.fresh("unread")
    return scope.draft.outputs["_"]


def _last(scope: Scope, path: str) -> ast.expr | None:
    if root_of(path) not in scope.facts.live_out:
        return None
    return reference(path if path.isidentifier() else scope.draft.taken.fresh(f"{root_of(path)}_last"))


def _kept(scope: Scope, paths: tuple[str, ...], states: list[State]) -> Iterator[ast.stmt]:
    needed = scope.facts.live_out & {*paths}
    if len(paths) < len(states) and needed:
        lasts = [state.last for state in states if state.last is not None]
        yield assignment(paths[0], expression("({*lasts},)", lasts=lasts))
        return
    for name, state in zip(paths, states, strict=False):
        if name in needed and state.outputs is None and state.last is not None:
            yield assignment(name, state.last)


def _cell_call(
    scope: Scope, node: ast.Call, module: Module, paths: tuple[str, ...], names: tuple[str, ...]
) -> tuple[ast.expr, int]:
    if not scope.facts.torch:
        raise Blocked("`torch` is not imported by that name", node)
    value = scope.tensor(node.args[0])
    if not isinstance(value, Batched):
        raise Blocked("the Cell's input is no step of a sequence", node)
    value = value.loosened()
    _check_first_states(scope, paths, node, needs_rank=value.least < 2)
    cell = scope.code(node.func)
    has_bias = _flag(module, "bias", 2, True, node)
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
    kind = module.argument("nonlinearity", 3) if module.name == "RNNCell" else None
    if kind is None:
        return _FUNCTIONS[module.name]
    if not isinstance(kind, ast.Constant) or kind.value not in ("tanh", "relu"):
        raise Blocked("`nonlinearity` is no constant where the Cell is built", node)
    return f"rnn_{kind.value}"


# -- what the states are before the loop: variables


def _check_first_states(scope: Scope, paths: tuple[str, ...], node: ast.Call, *, needs_rank: bool) -> None:
    starts = [each for path in paths for each in scope.starts(path)]
    ranks = [rank for each in starts for rank in _ranks(scope, each.node, each.given)]
    if any(rank != 2 for rank in ranks) and needs_rank:
        raise Blocked("the Cell's input is not known to be a batch", node)
    if len(paths) > 1 or (ranks and all(rank != _NO_TENSOR for rank in ranks)):
        return  # of a pair, the Cell takes tensors alone, and otherwise None besides
    is_pair = scope.program.value(node.func).name.endswith("LSTMCell")
    if is_pair or not starts or not all(_is_given(scope, each, node) for each in starts):
        raise Blocked("the Cell's first state is not known to be a tensor", node)


def _ranks(scope: Scope, target: ast.AST, value: ast.expr | None) -> Iterator[int | None]:
    known = scope.program.value(target if value is None else value)
    if value is not None and known.kind is Kind.SEQUENCE:
        elements = scope.program.get(Shapes).elements(target) if isinstance(target, ast.expr) else []
        for item in (each for each in elements if each not in scope.facts.inside):
            yield from _ranks(scope, item, item)
        return
    rank = scope.rank(value) if value is not None else None
    is_tensor = known.kind is Kind.TENSOR and known.sure
    yield rank if is_tensor else _NO_TENSOR


def _is_given(scope: Scope, start: Definition, node: ast.AST) -> bool:
    """Is it surely no None at `node`, as a test in front of the loop makes sure: `if h is None: h = zeros`?"""
    name = start.given if isinstance(start.given, ast.Name) else None
    values = scope.graph.definitions(name) if name is not None else (start,)
    at = start.node if name is not None else node
    known = (
        isinstance(each, Definition) and (_is_tensor(scope, each.given) or _is_replaced(scope, each, at))
        for each in values
    )
    return bool(values) and all(known)


def _is_tensor(scope: Scope, node: ast.expr | None) -> bool:
    known = scope.program.value(node) if node is not None else None
    return known is not None and known.kind is Kind.TENSOR and known.sure


def _is_replaced(scope: Scope, value: Definition, node: ast.AST) -> bool:
    """Does a test in front of `node` replace this value of it where that is None?"""
    for use in value.uses:
        asked, test = scope.program.parent(use), scope.program.statement_of(use)
        if not isinstance(asked, ast.Compare) or not isinstance(test, ast.If) or test.test is not asked:
            continue
        is_none = isinstance(asked.ops[0], ast.Is) and scope.program.value(asked.comparators[0]).kind is Kind.NONE
        targets = (path_of(each) for line in test.body if isinstance(line, ast.Assign) for each in line.targets)
        if is_none and len(asked.ops) == 1 and path_of(use) in targets and scope.graph.dominates(asked, node):
            return True
    return False


def is_left(values: Mapping[str, Value], path: str) -> bool:
    return path in values and is_of(values[path], path)


def is_of(value: Value, path: str) -> bool:
    if isinstance(value, Parts):
        return bool(value.items) and all(is_of(each, f"{path}[{k}]") for k, each in enumerate(value.items))
    return isinstance(value, State) and value.path == path

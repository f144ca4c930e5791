"""Classifies the calls in a loop body by what they do to its data, and the states that they carry through a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from functools import partial

from perflint import torch_ops
from perflint.analysis.call_graph import CallGraph, is_abstract
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow, lower, may_swallow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.loops.flow import CallSort, LoopFlow
from perflint.analysis.values.values import CONTAINER_METHODS, Kind, Value
from perflint.syntax.walk import (
    Function,
    Loop,
    name_called,
    nodes_of_body,
    own_nodes,
    path_of,
    reachable,
    receiver_of,
    whole_of,
)

_CHOICES = frozenset({"sample", "nlargest"})  # besides those of torch
_NO_STATE = frozenset({Kind.NUMBER, Kind.MODULE, Kind.STRING})
_RANKS = frozenset({"sort", "sorted"})
LISTS = frozenset({"append", "appendleft", "extend", "insert", "add", "push", "update"})
_HOST_LIBRARIES = frozenset(
    "numpy math os time random logging json re itertools collections copy scipy matplotlib cv2 PIL sys".split()
)


def is_metadata(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        operation = torch_ops.of_attribute(node.attr)
        return operation is not None and operation.is_metadata
    name = name_called(node)
    return _measures(name) or name in ("len", "isinstance", "hasattr", "range", "xrange", "print")


def rnn_kind(program: Program, function: ast.expr) -> str:
    """ "rnn", "rnn-cell" or ""."""
    value = program.value(function)
    kind = torch_ops.class_kind(value.name) if value.kind is Kind.MODULE and value.name else ""
    return kind if kind in ("rnn", "rnn-cell") else ""


def sort_of(program: Program, node: ast.Call) -> CallSort:
    sort = _sort_of(program, node)
    if sort.unsure and any(program.value(each).kind is Kind.NUMPY for each in node.args):
        return CallSort()
    return sort


def _sort_of(program: Program, node: ast.Call) -> CallSort:
    name, value, result = name_called(node), program.value(node.func), program.value(node)
    choice = is_choice(name) or name in _RANKS or (name == "max" and _has_axis(program, node))
    is_tensor = result.kind is Kind.TENSOR or _holds_tensors(result)
    rnn = bool(rnn_kind(program, node.func))
    callee = program.callee(node)
    if value.kind is Kind.MODULE:
        return CallSort(model=True, rnn=rnn, launches=True)
    if callee is not None and is_abstract(callee):
        return CallSort(model=True, unsure=True, launches=is_tensor)
    if callee is not None:
        graph = program.get(CallGraph)
        runs = graph.has(node, _runs_module)
        return CallSort(model=runs, launches=runs or is_tensor, choice=choice or graph.has(node, _chooses))
    if value.kind is Kind.LIBRARY:
        return _library(value.name, name, choice, is_tensor)
    if value.kind is Kind.METHOD and value.owner is not None and not _is_unseen(value.owner):
        return _method(value.owner, name, choice, is_tensor)
    known = torch_ops.of_method(name) is not None and isinstance(node.func, ast.Attribute)
    if known or keeps_numbers(name):
        return CallSort(choice=choice, view=keeps_numbers(name), launches=is_tensor and not keeps_numbers(name))
    if isinstance(node.func, ast.Attribute) and name in CONTAINER_METHODS:
        return CallSort()
    return CallSort(model=name not in LISTS and not is_choice(name), unsure=True, choice=choice, launches=is_tensor)


def keeps_numbers(name: str) -> bool:
    return name in ("data", "Variable") or torch_ops.does(name, "keeping")


def is_choice(name: str) -> bool:
    return name in _CHOICES or torch_ops.does(name, "choosing")


def _measures(name: str) -> bool:
    operation = torch_ops.of_method(name)
    return operation is not None and operation.is_metadata


def _library(qualified: str, name: str, choice: bool, is_tensor: bool) -> CallSort:
    head = qualified.partition(".")[0]
    if head in ("torch", "torchvision", "torchaudio"):
        entry = torch_ops.of_function(qualified)
        is_type = name.endswith("Tensor")  # `torch.LongTensor(words)` makes one of what the host has
        quiet = is_type or (entry is not None and bool(entry.traits & {"view", "factory"}))
        return CallSort(
            choice=choice,
            cat=entry is not None and entry.name == "cat",
            view=keeps_numbers(name),
            launches=is_tensor and not quiet and name != "Variable",
        )
    if head == "builtins" or head in _HOST_LIBRARIES:
        return CallSort(choice=choice)
    return CallSort(model=True, unsure=True, launches=is_tensor)


def _method(owner: Value, name: str, choice: bool, is_tensor: bool) -> CallSort:
    if owner.kind is Kind.TENSOR:
        return CallSort(choice=choice, view=keeps_numbers(name), launches=is_tensor and not keeps_numbers(name))
    if owner.kind is Kind.MODULE and name != "__getattr__":
        return CallSort(model=True, unsure=True, choice=choice, launches=is_tensor)
    if owner.kind is Kind.OTHER and owner.name == "distribution":
        return CallSort(choice=choice, launches=True)
    if owner.kind is Kind.INSTANCE:
        return CallSort(model=name not in LISTS, unsure=True, choice=choice, launches=is_tensor)
    return CallSort()


def _is_unseen(owner: Value) -> bool:
    while owner.kind is Kind.METHOD and owner.owner is not None:
        owner = owner.owner
        if owner.kind is Kind.MODULE:
            return True
    return owner.kind is Kind.UNKNOWN


def _holds_tensors(value: Value) -> bool:
    return value.kind is Kind.SEQUENCE and any(
        part.kind is Kind.TENSOR for part in (*(value.items or ()), *([value.item] if value.item else ()))
    )


def _has_axis(program: Program, node: ast.Call) -> bool:
    """Is it `x.max(1)` or `torch.max(x, dim=1)`, which also give where?"""
    value = program.value(node.func)
    if value.kind is Kind.LIBRARY and not value.name.startswith("torch."):
        return False
    given = node.args[1:] if value.kind is Kind.LIBRARY else node.args
    return any(program.value(each).kind is not Kind.TENSOR for each in given) or any(
        keyword.arg in ("dim", "axis") for keyword in node.keywords
    )


def _runs_module(program: Program, node: ast.Call) -> bool:
    callee = program.callee(node)
    if callee is None or program.value(node.func).kind is Kind.MODULE:
        return program.value(node.func).kind is Kind.MODULE or _may_be_a_module(program, node)
    return getattr(callee, "name", "") == "forward" or is_abstract(callee)


def is_method_of_tensors(name: str) -> bool:
    return name in LISTS or keeps_numbers(name) or torch_ops.of_method(name) is not None


def calls_one_of(function: Function, parameter: str) -> bool:
    """Does `function` call what it picks by its parameter, such as `self.heads[stage]`?"""
    nodes = own_nodes(function)
    picked = {each for each in nodes if isinstance(each, ast.Subscript) and path_of(each.slice) == parameter}
    bound = (each for each in nodes if isinstance(each, ast.Assign) and each.value in picked)
    names = {path_of(target) for each in bound for target in each.targets} - {""}
    for node in (node for node in nodes if isinstance(node, ast.Call)):
        owner = receiver_of(node) or node.func
        is_own = owner is node.func or not is_method_of_tensors(name_called(node))
        if is_own and (owner in picked or path_of(owner) in names):
            return True
    return False


def _may_be_a_module(program: Program, node: ast.Call) -> bool:
    """Is it something unknown held by an object, that is given and gives tensors?"""
    value = program.value(node.func)
    unknown = value.kind is Kind.UNKNOWN or (
        value.kind is Kind.METHOD
        and value.owner is not None
        and value.owner.kind in (Kind.UNKNOWN, Kind.METHOD, Kind.MODULE)
    )
    dots = path_of(node.func).count(".")
    return (
        unknown
        and not is_method_of_tensors(name_called(node))
        and dots > 0
        and bool(node.args)
        and (dots > 1 or any(program.value(each).kind is Kind.TENSOR for each in node.args))
    )


def _chooses(program: Program, node: ast.Call) -> bool:
    name = name_called(node)
    if is_choice(name) or (name == "max" and _has_axis(program, node)):
        return True
    return name == "sort" and program.qualified(node.func) == "torch.sort"


def changed_paths(program: Program, loop: Loop) -> dict[ast.AST, list[str]]:
    """What each call in `loop` changes: the owner of its method, and the state that modules keep."""
    calls = [node for node in nodes_of_body(loop) if isinstance(node, ast.Call)]
    return {call: [*_changed_owner(call), *sorted(_kept_inside(program, call))] for call in calls}


def _changed_owner(call: ast.Call) -> Iterator[str]:
    name, owner = name_called(call), receiver_of(call)
    changed = [each.value for each in call.keywords if each.arg == "out"]
    if owner is not None and (name in LISTS or torch_ops.writes_in_place(name)):
        changed = [owner, *changed]
    yield from filter(None, map(whole_of, changed))


def _kept_inside(program: Program, node: ast.Call) -> set[str]:
    callee, path = program.callee(node), path_of(node.func)
    is_module = program.value(node.func).kind is Kind.MODULE
    if callee is None or not path or not (is_module or _is_of_self(node)):
        return set()
    sort = sort_of(program, node)
    kept = _state_of(program, callee, 2) if sort.model or sort.launches else set[str]()
    return {path + name.removeprefix("self") for name in kept} if is_module else kept


def _state_of(program: Program, function: Function, depth: int) -> set[str]:
    graph = lower(function, partial(may_swallow, program), lambda _: ())
    found = set()
    for node in graph.values:
        path = path_of(node) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) else ""
        is_data = path.rpartition(".")[0] == "self" and program.value(node).kind not in _NO_STATE
        bindings = graph.bindings.get(path, [])
        if is_data and bindings and not (len(bindings) == 1 and _is_cache(program, bindings[0])):
            found |= {path for each in graph.definitions(node) if each.name == "self"}  # as self came in with it
    for node in (node for node in own_nodes(function) if depth and isinstance(node, ast.Call) and _is_of_self(node)):
        inner = program.callee(node)
        if inner is not None and inner is not function and program.value(node.func).kind is not Kind.MODULE:
            found |= _state_of(program, inner, depth - 1)
    return found


def _is_of_self(call: ast.Call) -> bool:
    return path_of(receiver_of(call) or call) == "self"


def _is_cache(program: Program, value: Definition) -> bool:
    tests = (each.test for each in program.ancestors(value.node) if isinstance(each, ast.If))
    return any(path_of(part) == value.name for test in tests for part in ast.walk(test))


def is_carried_by_rnn(program: Program, flow: LoopFlow, name: str) -> bool:
    """Is `name` read as the state of an RNN or a Cell alone, and carried as what that returns?"""
    returned = dict(flow.ends[name].definitions)
    calls = [call for call in flow.calls if any(given == name for given, _ in call.direct)]
    if not calls or not all(_takes_state(program, call.node, name, returned.get(id(call.node))) for call in calls):
        return False
    if not any(id(call.node) in returned for call in calls):
        return False
    inside = {id(part) for call in calls for part in ast.walk(call.node)}
    return all(id(read) in inside for read in flow.reads.get(name, ()))


def rnn_name(program: Program, flow: LoopFlow) -> str:
    names = (path_of(call.node.func) for call in flow.calls if call.direct and rnn_kind(program, call.node.func))
    return next(names, "the RNN")


def unseen_name(program: Program, flow: LoopFlow) -> str:
    """How the program calls what carries the state, where the file does not define it: it may be an RNN."""
    for call in flow.calls:
        seen = rnn_kind(program, call.node.func) or program.callee(call.node) is not None
        if call.sort.model and call.direct and not seen and path_of(call.node.func):
            return path_of(call.node.func)
    return ""


def _takes_state(program: Program, call: ast.Call, name: str, part: int | None) -> bool:
    """Is `name` no more than the state that goes into `call`, of whose result `part` is carried on?"""
    if rnn_kind(program, call.func):
        states = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg in ("hx", "hidden"))]
        is_input = any(_mentions(argument, name) for argument in call.args[:1])
        return not is_input and all(map(_is_unchanged_state, states))
    callee = program.callee(call)
    given = program.arguments(call, callee).given.items() if callee is not None else ()
    taken = [(parameter, argument) for parameter, argument in given if _mentions(argument, name)]
    if callee is None or not taken or not all(_is_unchanged_state(argument) for _, argument in taken):
        return False
    return all(_only_feeds_state(program, callee, parameter, part) for parameter, _ in taken)


def _only_feeds_state(program: Program, function: Function, parameter: str, part: int | None) -> bool:
    """Does `function` hand its parameter to RNNs as the state, test it, and return as `part` what it or they were?"""
    loads = [node for node in own_nodes(function) if isinstance(node, ast.Name) and node.id == parameter]
    uses = {node: _use(program, node) for node in loads if isinstance(node.ctx, ast.Load)}
    fed = {each for node, use in uses.items() if use == "state" for each in program.ancestors(node)}
    returned = [node.value for node in own_nodes(function) if isinstance(node, ast.Return)]
    parts = (each.elts[part] if isinstance(each, ast.Tuple) and part is not None else each for each in returned)
    return bool(fed) and "" not in uses.values() and all(_is_state_of(program, each, fed) for each in parts)


def _is_state_of(program: Program, node: ast.expr | None, calls: Set[ast.AST]) -> bool:
    """Is it a state that went into, or came out of, one of these calls of RNNs, unchanged?"""
    made = reachable([node], partial(_made_of, program))
    return all(isinstance(each, ast.Name | ast.Tuple | ast.List | ast.Subscript) or each in calls for each in made)


def _made_of(program: Program, node: ast.expr | None) -> list[ast.expr | None]:
    if isinstance(node, ast.Tuple | ast.List):
        return [*node.elts]
    if isinstance(node, ast.Subscript):
        return [node.value]
    values = program.get(Flow).graph(node).definitions(node) if isinstance(node, ast.Name) else ()
    return [each.source for each in values if isinstance(each, Definition) and not isinstance(each.node, ast.arg)]


def _use(program: Program, node: ast.expr) -> str:
    child: ast.AST = node
    for parent in program.ancestors(node):
        if isinstance(parent, ast.Call) and rnn_kind(program, parent.func) and child in parent.args[1:]:
            return "state"
        if isinstance(parent, ast.Return):
            return "returned" if program.value(node).kind is not Kind.NUMBER else ""
        if isinstance(parent, ast.If | ast.Assert) or (isinstance(parent, ast.expr) and is_metadata(parent)):
            return "test"
        if not isinstance(parent, ast.Tuple | ast.List | ast.Subscript | ast.Compare | ast.UnaryOp | ast.BoolOp):
            return ""
        child = parent
    return ""


def _mentions(node: ast.AST, path: str) -> bool:
    return any(path_of(part) == path for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute))


def _is_unchanged_state(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.List):
        return all(map(_is_unchanged_state, node.elts))
    return _is_unchanged_state(node.value) if isinstance(node, ast.Subscript) else bool(path_of(node))

"""Evaluates calls of functions and classes of the file, of modules, methods and libraries."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.values.arguments import Arguments, received
from perflint.analysis.values.call_targets import targets_of
from perflint.analysis.values.codes import value_at_home, value_of
from perflint.analysis.values.evaluate import Evaluator
from perflint.analysis.values.library import library_call
from perflint.analysis.values.methods import method_call
from perflint.analysis.values.operators import common_place
from perflint.analysis.values.values import (
    GUESSED_TENSOR,
    UNKNOWN,
    Kind,
    Place,
    Value,
    element_of,
    join,
    library,
    sequence,
    sequence_of,
    tensor,
)
from perflint.syntax.walk import path_of


def call_value(evaluator: Evaluator, node: ast.Call) -> Value:
    """What the call gives; records which function of the file it calls."""
    callee = evaluator.evaluate(node.func)
    arguments = Arguments.of(evaluator.evaluate, node)
    for value in arguments.all:
        info = evaluator.functions.get(value.node) if value.kind is Kind.FUNCTION and value.node is not None else None
        if info is not None:  # a callback: called from here, as far as heat is concerned
            evaluator.call_function(info, {}, node)
    return _apply(evaluator, callee, node, arguments)


def _apply(evaluator: Evaluator, callee: Value, node: ast.Call, arguments: Arguments) -> Value:
    """What calling `callee` with `arguments` gives."""
    if evaluator.summaries and (result := _summarised(evaluator, callee, arguments)) is not None:
        return result
    if callee.kind is Kind.LIBRARY:
        return library_call(evaluator, callee, node, arguments)
    if callee.kind is Kind.FUNCTION and callee.node is not None:
        return _call_function(evaluator, callee, node, arguments)
    if callee.kind is Kind.CLASS and callee.node is not None:
        return _construct(evaluator, callee.node, node, arguments)
    if callee.kind is Kind.MODULE:
        return _call_module(evaluator, callee, node, arguments)
    if callee.kind is Kind.METHOD and callee.owner is not None:
        if callee.owner.kind is Kind.MODULE and callee.name == "forward":
            return _call_module(evaluator, callee.owner, node, arguments)
        return method_call(evaluator, callee, node, arguments)
    if callee.kind is Kind.INSTANCE and callee.node is not None:
        info = evaluator.classes[callee.node].method("__call__")
        if info is not None:
            return _call_function(evaluator, Value(Kind.FUNCTION, node=info.node, owner=callee), node, arguments)
    result = _derived(arguments)
    if callee.kind is Kind.UNKNOWN and result.kind is Kind.UNKNOWN and callee.name.rpartition(".")[2][:1].isupper():
        return callee  # an instance of that class, whatever it is; with tensors, it is the instance that is called
    return result


def _summarised(evaluator: Evaluator, callee: Value, arguments: Arguments) -> Value | None:
    """The result of a call of another file's function by its summary; None if it has none."""
    info = evaluator.classes.get(callee.owner.node) if callee.owner is not None and callee.owner.node else None
    targets = targets_of(callee, info.base_names if info is not None else ())
    target = next((each for each in targets if each in evaluator.summaries), "")
    returns = evaluator.summaries[target].returns if target else ""
    if not returns:
        return None
    if returns.isdecimal():
        walked = arguments.get(int(returns), "")
        return _items_of(walked) if walked is not None and walked.kind is not Kind.UNKNOWN else None
    if evaluator.stays_home:
        return value_at_home(returns)
    place = common_place(arguments.tensors)
    return _made_by(target, value_of(returns, place if place is not Place.UNKNOWN else evaluator.usual_place))


def _items_of(walked: Value) -> Value:
    """What a generator gives that hands on the items of what it is given."""
    return walked if walked.kind is Kind.LOADER else sequence_of(element_of(walked))


def _made_by(target: str, value: Value) -> Value:
    """The `value` that a function of another file gives, the loaders in it with that as their owner."""
    if value.kind is Kind.LOADER:
        return value._replace(owner=library(target))
    items = value.items if value.kind is Kind.SEQUENCE and value.items is not None else ()
    return (
        value._replace(items=tuple(_made_by(f"{target}.{i}", each) for i, each in enumerate(items))) if items else value
    )


def _derived(arguments: Arguments) -> Value:
    """What an unknown call likely gives: something on the device if it was given device tensors."""
    return GUESSED_TENSOR if arguments.on_device else UNKNOWN


def _call_module(evaluator: Evaluator, module: Value, node: ast.Call, arguments: Arguments) -> Value:
    """What a torch.nn.Module gives when it is called."""
    info = evaluator.classes.get(module.node) if module.node is not None else None
    forward = info.method("forward") if info is not None else None
    if forward is not None:
        result = _call_function(evaluator, Value(Kind.FUNCTION, node=forward.node, owner=module), node, arguments)
        return result if result.kind is not Kind.UNKNOWN else tensor(evaluator.module_place, sure=False)
    if module.items:  # of an nn.Sequential
        return _apply(evaluator, module.items[-1], node, arguments)
    entry = torch_ops.of_forward(module.name) if module.name else None
    if entry is None or not module.sure:
        return tensor(evaluator.module_place, sure=False)
    output = tensor(evaluator.module_place)
    if torch_ops.class_kind(module.name) == "rnn":
        return sequence((output, sequence((output, output)) if module.name.endswith("LSTM") else output))
    return sequence((output, output)) if entry.result in ("tuple", "tensors") else output


def _call_function(evaluator: Evaluator, callee: Value, node: ast.Call, arguments: Arguments) -> Value:
    info = evaluator.functions.get(callee.node) if callee.node is not None else None
    if info is None:
        return _derived(arguments)
    evaluator.callees[node] = info
    given = received(info.node, arguments, callee.owner)
    result = evaluator.call_function(info, given, node)
    if info.yields is not None and (walked := given.get(info.handed_on, UNKNOWN)).kind is not Kind.UNKNOWN:
        return _items_of(walked)
    owner = evaluator.classes.get(callee.owner.node) if callee.owner is not None and callee.owner.node else None
    for override in owner.overriding(info.name) if owner is not None else ():
        result = join(result, evaluator.call_function(override, received(override.node, arguments, UNKNOWN), node))
    if isinstance(node.func, ast.Attribute):
        evaluator.frame.forget(path_of(node.func.value).partition(".")[0])  # the method may have assigned them
    return result if result.kind is not Kind.UNKNOWN else _derived(arguments)


def _construct(evaluator: Evaluator, cls: ast.AST, node: ast.Call, arguments: Arguments) -> Value:
    info = evaluator.classes[cls]
    instance, init = info.instance, info.method("__init__")
    if init is not None:
        evaluator.callees[node] = init
        evaluator.call_function(init, received(init.node, arguments, instance), node)
    return instance._replace(item=tensor(Place.HOST, sure=False)) if instance.kind is Kind.LOADER else instance

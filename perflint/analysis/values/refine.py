"""Refines the values of names by a test that passed or failed, and joins them after one that moves a tensor."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from perflint import torch_ops
from perflint.analysis.values.evaluate import Evaluator
from perflint.analysis.values.values import (
    GUESSED,
    NONE,
    NUMBER,
    NUMPY,
    STRING,
    UNKNOWN,
    Kind,
    Place,
    Value,
    join,
    mapping,
    sequence_of,
    tensor,
)
from perflint.syntax.walk import path_of


def refined(evaluator: Evaluator, test: ast.expr, outcome: bool) -> dict[str, Value]:
    """What is known of names and paths after `test`, given its outcome."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return refined(evaluator, test.operand, not outcome)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if outcome else ast.Or):
        known: dict[str, Value] = {}
        for part in test.values:
            known.update(refined(evaluator, part, outcome))
        return known
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        if outcome and isinstance(test.ops[0], ast.Is) and (path := _path_of_type(evaluator, test.left)):
            name = evaluator.values.get(test.comparators[0], UNKNOWN).name
            return {path: Value(Kind.MODULE, name=name)} if torch_ops.class_kind(name) else {}
        asks = getattr(test.comparators[0], "value", "") is None and path_of(test.left)
        is_none = isinstance(test.ops[0], ast.Is | ast.Eq) is outcome
        return {path_of(test.left): NONE} if asks and is_none else {}
    path = path_of(test.args[0]) if isinstance(test, ast.Call) and test.args else ""
    value = _tested(evaluator, test, outcome) if path and isinstance(test, ast.Call) else None
    return {} if value is None else {path: value}


def _path_of_type(evaluator: Evaluator, node: ast.expr) -> str:
    is_type = isinstance(node, ast.Call) and evaluator.values.get(node.func, UNKNOWN).name == "builtins.type"
    return path_of(node.args[0]) if is_type and isinstance(node, ast.Call) and len(node.args) == 1 else ""


def _tested(evaluator: Evaluator, test: ast.Call, outcome: bool) -> Value | None:
    """What is known of the argument of `isinstance` or `torch.is_tensor`."""
    asked = evaluator.values.get(test.func, UNKNOWN).name
    before = evaluator.values.get(test.args[0], UNKNOWN)
    types = {"torch.Tensor"} if asked == "torch.is_tensor" else set[str]()
    if asked == "builtins.isinstance" and len(test.args) == 2:
        parts = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
        types = {evaluator.values.get(part, UNKNOWN).name for part in parts}
    if not outcome:  # what is likely a tensor is none
        return UNKNOWN if types == {"torch.Tensor"} and before.kind is Kind.TENSOR else None
    if not types:
        return None
    if types == {"torch.Tensor"}:
        return tensor(before.place)
    if types <= {"builtins.int", "builtins.float", "builtins.bool"}:
        return NUMBER
    if types <= {"builtins.list", "builtins.tuple", "builtins.set"}:
        item = before._replace(sure=False) if before.kind is Kind.TENSOR else UNKNOWN
        return before if before.kind is Kind.SEQUENCE else sequence_of(item)
    if types == {"builtins.dict"}:
        return before if before.kind is Kind.MAPPING else mapping((), complete=False)
    return NUMPY if types == {"numpy.ndarray"} else STRING if types == {"builtins.str"} else None


def moved_by_choice(
    node: ast.If, before: Mapping[str, Value], then: Mapping[str, Value], other: Mapping[str, Value]
) -> dict[str, Value]:
    """The tensors that a branch moves, as in `if use_cuda: x = x.cuda()`: on the device, wherever one is used."""
    moved: dict[str, Value] = {}
    for name, value in before.items():
        a, b = then.get(name, value), other.get(name, value)
        if a is b:
            continue
        if value.is_blank:
            found = _moved_alone(value, a, b)
            if found is not None and _remakes(node.body if found is a else node.orelse, name):
                moved[name] = found
            continue
        if not value.kind is a.kind is b.kind is Kind.TENSOR or value.on_device:
            continue
        if a.on_device is not b.on_device and _remakes(node.body if a.on_device else node.orelse, name):
            moved[name] = join(a, b)._replace(place=Place.DEVICE)
    return moved


def _moved_alone(before: Value, a: Value, b: Value) -> Value | None:
    """What one branch makes of something unknown, which `x.cuda()` tells is a tensor, where the other leaves it."""
    alone = a if b is before else b if a is before else None
    return alone if alone is not None and alone.on_device and alone.name != GUESSED else None


def _remakes(block: Sequence[ast.stmt], name: str) -> bool:
    """Does a statement of the block make a new value of `name` out of its old one?"""
    return any(
        isinstance(statement, ast.Assign) and any(path_of(part) == name for part in ast.walk(statement.value))
        for statement in block
    )

"""Refines the values of names by a test that passed or failed."""

from __future__ import annotations

import ast

from perflint.analysis.values.inference.evaluate import Evaluator
from perflint.analysis.values.values import (
    NONE,
    NUMBER,
    NUMPY,
    STRING,
    UNKNOWN,
    Kind,
    Value,
    mapping,
    sequence_of,
    tensor,
)
from perflint.syntax.walk import path_of


def refined(evaluator: Evaluator, test: ast.expr, outcome: bool) -> dict[str, Value]:
    """What is known of names and paths behind `test`, given its outcome."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return refined(evaluator, test.operand, not outcome)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if outcome else ast.Or):
        known: dict[str, Value] = {}
        for part in test.values:
            known.update(refined(evaluator, part, outcome))
        return known
    if isinstance(test, ast.Call):
        return _type_test(evaluator, test) if outcome else _no_tensor(evaluator, test)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _none_test(evaluator, test, outcome)
    return {}


def _type_test(evaluator: Evaluator, test: ast.Call) -> dict[str, Value]:
    name = evaluator.values.get(test.func, UNKNOWN).name
    path = path_of(test.args[0]) if test.args else ""
    if not path:
        return {}
    before = evaluator.values.get(test.args[0], UNKNOWN)
    if name == "torch.is_tensor":
        return {path: tensor(before.place)}
    if name == "builtins.isinstance" and len(test.args) == 2:
        parts = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
        types = {evaluator.values.get(part, UNKNOWN).name for part in parts}
        return {path: value} if (value := _of_types(types, before)) is not None else {}
    return {}


def _no_tensor(evaluator: Evaluator, test: ast.Call) -> dict[str, Value]:
    """What a test says that failed: of what is likely a tensor, that it is none."""
    path = path_of(test.args[0]) if test.args else ""
    if not path or evaluator.values.get(test.args[0], UNKNOWN).kind is not Kind.TENSOR:
        return {}
    name = evaluator.values.get(test.func, UNKNOWN).name
    asks = name == "torch.is_tensor" or (
        name == "builtins.isinstance" and evaluator.values.get(test.args[-1], UNKNOWN).name == "torch.Tensor"
    )
    return {path: UNKNOWN} if asks else {}


def _of_types(types: set[str], before: Value) -> Value | None:
    if types == {"torch.Tensor"}:
        return tensor(before.place)
    if types <= {"builtins.int", "builtins.float", "builtins.bool"}:
        return NUMBER
    if types <= {"builtins.list", "builtins.tuple", "builtins.set"}:
        return (
            before
            if before.kind is Kind.SEQUENCE
            else sequence_of(before._replace(sure=False) if before.kind is Kind.TENSOR else UNKNOWN)
        )
    if types == {"numpy.ndarray"}:
        return NUMPY
    if types == {"builtins.str"}:
        return STRING
    if types == {"builtins.dict"}:
        return before if before.kind is Kind.MAPPING else mapping((), complete=False)
    return None


def _none_test(evaluator: Evaluator, test: ast.Compare, outcome: bool) -> dict[str, Value]:
    right = test.comparators[0]
    path = path_of(test.left)
    if not path or not (isinstance(right, ast.Constant) and right.value is None):
        return {}
    is_none = isinstance(test.ops[0], ast.Is | ast.Eq) is outcome
    return {path: NONE} if is_none else {}

"""Recognises updates that move a tensor by a share of the way towards another: `lerp_`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from perflint.syntax.walk import nodes_below, receiver_of
from perflint.transforms.operations import expression

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_METHODS: dict[str, type[ast.operator]] = {function.__name__: op for op, function in _OPERATORS.items()}
_IN_PLACE: dict[type[ast.operator], str] = {op: f"{name}_" for name, op in _METHODS.items()}
_PARTS = frozenset({"data", "detach"})  # of a tensor: the same memory
_EQUAL = 1e-9
_START, _END = math.e, math.pi  # at which products of tensors don't look like a sum of them by chance
_SAMPLES = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (_START, _END))


@dataclass(frozen=True)
class Lerp:
    """`target` becomes `target + weight * (end - target)`."""

    target: ast.expr
    end: ast.expr
    weight: ast.expr


def lerp_of(block: Sequence[ast.stmt], is_tensor: Callable[[ast.expr], bool]) -> Lerp | None:
    try:
        trial = _Trial(is_tensor, {})
        own = trial.run(block)
        (other,) = trial.tensors.keys() - {own}
        trials = [_Trial(is_tensor, {own: start, other: end}) for start, end in _SAMPLES]
        nothing, kept, moved, both = (each.values[each.run(block)] for each in trials)
    except (_Unlike, ValueError):
        return None
    if not (_equal(nothing, 0) and _equal(kept + moved, 1) and _equal(both, _START * kept + _END * moved)):
        return None
    weights = [node for value, node in trial.numbers if _equal(value, moved)]
    weights += [expression("1 - {kept}", kept=node) for value, node in trial.numbers if _equal(value, kept)]
    return Lerp(trial.tensors[own], trial.tensors[other], weights[0]) if weights else None


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, abs_tol=_EQUAL)


class _Unlike(Exception):
    """The code is more than sums and products, or updates several tensors."""


class _Trial:
    """Computes updates with samples in place of tensors, by name, and of numbers that aren't literals."""

    def __init__(self, is_tensor: Callable[[ast.expr], bool], values: Mapping[str, float]) -> None:
        self._is_tensor = is_tensor
        self.values = {**values}
        self.tensors: dict[str, ast.expr] = {}
        self.numbers: list[tuple[float, ast.expr]] = []

    def run(self, block: Sequence[ast.stmt]) -> str:
        names = {self._update(each) for each in block}
        if len(names) != 1:
            raise _Unlike
        return names.pop()

    def _update(self, statement: ast.stmt) -> str:
        if isinstance(statement, ast.AugAssign) and type(statement.op) in _IN_PLACE:
            call = ast.Call(statement.target, [statement.value], [])
            return self._changed(statement.target, _IN_PLACE[type(statement.op)], call)
        if not isinstance(statement, ast.Expr):
            raise _Unlike
        return self._called(statement.value)

    def _called(self, call: ast.expr) -> str:
        method = call.func if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or not isinstance(method, ast.Attribute):
            raise _Unlike
        target = method.value
        while isinstance(target, ast.Call) and not self._is_tensor(target):  # of `t.mul_(a).add_(b)`
            self._called(target)
            target = receiver_of(target) or target.func
        return self._changed(target, method.attr, call)

    def _changed(self, target: ast.expr, method: str, call: ast.Call) -> str:
        if not self._is_tensor(target):
            raise _Unlike
        before, name = self._value(target), self._name(target)
        given = [self._value(each) for each in call.args]
        named = {each.arg or "": self._value(each.value) for each in call.keywords}
        given += [named.pop(each) for each in ("end", "weight") if each in named and method == "lerp_"]
        scale = named.pop("alpha", 1.0)
        match method, given:
            case "add_", [_] | [_, _]:  # of two, as the first versions of torch had them
                after = before + scale * math.prod(given)
            case "sub_", [other]:
                after = before - scale * other
            case "mul_", [other]:
                after = before * other
            case "copy_", [other]:
                after = other
            case "lerp_", [end, weight]:
                after = before + weight * (end - before)
            case _:
                raise _Unlike
        if named:
            raise _Unlike
        self.values[name] = after
        return name

    def _value(self, node: ast.expr) -> float:
        if self._is_tensor(node):
            name = self._name(node)
            self.tensors.setdefault(name, node)
            return self.values.setdefault(name, _drawn(name))
        is_number = not any(isinstance(each, ast.expr) and self._is_tensor(each) for each in nodes_below(node))
        value = self._computed(node)
        if value is None and not is_number:
            raise _Unlike
        value = _drawn(ast.unparse(node)) if value is None else value
        if is_number:
            self.numbers.append((value, node))
        return value

    def _computed(self, node: ast.expr) -> float | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._value(node.operand)
        method = node.func if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords else None
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, op, right = node.left, type(node.op), node.right
        elif isinstance(node, ast.Call) and isinstance(method, ast.Attribute) and method.attr in _METHODS:
            left, op, right = method.value, _METHODS[method.attr], node.args[0]
        else:
            return None
        return float(_OPERATORS[op](self._value(left), self._value(right)))

    def _name(self, tensor: ast.expr) -> str:
        inner = tensor.func if isinstance(tensor, ast.Call) else tensor
        if isinstance(inner, ast.Attribute) and inner.attr in _PARTS:
            return self._name(inner.value)
        return ast.unparse(tensor)


def _drawn(code: str) -> float:
    return Random(code).random()

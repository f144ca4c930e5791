"""Recognises updates that move a tensor towards another one by a share of what is between them: `lerp_`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from perflint.syntax.walk import nodes_below
from perflint.transforms.operations import expression

_Sum = dict[tuple[str, ...], float]  # the factors of each product, and its coefficient
_SIGNS = {ast.Add: 1.0, ast.Sub: -1.0}
_IN_PLACE: dict[type[ast.operator], str] = {ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_"}
_PARTS = frozenset({"data", "detach"})  # of a tensor: the same memory
_EQUAL = 1e-9


@dataclass(frozen=True)
class Lerp:
    """`target` becomes `target + weight * (end - target)`."""

    target: ast.expr
    end: ast.expr
    weight: ast.expr


@dataclass(frozen=True)
class _Step:
    target: ast.expr
    method: str
    call: ast.Call


def lerp_of(block: Sequence[ast.stmt], is_tensor: Callable[[ast.expr], bool]) -> Lerp | None:
    """What the statements together do to a tensor, if that is a step towards another; `is_tensor` tells tensors."""
    return _Reader(is_tensor).read(block)


class _Reader:
    """Adds up what statements make of a tensor, as a sum of products of numbers and tensors."""

    def __init__(self, is_tensor: Callable[[ast.expr], bool]) -> None:
        self._is_tensor = is_tensor
        self._tensors: dict[str, ast.expr] = {}
        self._numbers: list[tuple[_Sum, ast.expr]] = []

    def read(self, block: Sequence[ast.stmt]) -> Lerp | None:
        steps = [step for each in block for step in self._steps(each)]
        if not steps or any(each is None for each in steps):
            return None
        target = next(each.target for each in steps if each is not None)
        own = self._name(target)
        self._tensors[own] = target
        value: _Sum | None = {(own,): 1.0}
        for step in steps:
            if step is None or value is None or self._name(step.target) != own:
                return None
            value = self._after(step, own, value)
        others = [name for name in self._tensors if name != own]
        if value is None or len(others) != 1 or not all(len(self._own(each)) == 1 for each in value):
            return None
        kept, moved = (_coefficient(value, name) for name in (own, others[0]))
        weight = self._weight(kept, moved) if _same(_plus(kept, moved), {(): 1.0}) else None
        return Lerp(target, self._tensors[others[0]], weight) if weight is not None else None

    def _own(self, factors: tuple[str, ...]) -> list[str]:
        return [each for each in factors if each in self._tensors]

    def _weight(self, kept: _Sum, moved: _Sum) -> ast.expr | None:
        found = next((node for value, node in self._numbers if _same(value, moved)), None)
        if found is not None:
            return found
        rest = next((node for value, node in self._numbers if _same(value, kept)), None)
        return expression("1 - {rest}", rest=rest) if rest is not None else None

    def _steps(self, statement: ast.stmt) -> Iterator[_Step | None]:
        if isinstance(statement, ast.AugAssign) and type(statement.op) in _IN_PLACE:
            call = ast.Call(statement.target, [statement.value], [])
            yield _Step(statement.target, _IN_PLACE[type(statement.op)], call)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            yield from self._calls(statement.value)
        else:
            yield None

    def _calls(self, call: ast.Call) -> Iterator[_Step | None]:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        while isinstance(receiver, ast.Call) and not self._is_tensor(receiver):
            before = [*self._calls(receiver)]
            yield from before
            receiver = before[-1].target if before[-1] is not None else None
        if receiver is None or not self._is_tensor(receiver) or not isinstance(call.func, ast.Attribute):
            yield None
        else:
            yield _Step(receiver, call.func.attr, call)

    def _after(self, step: _Step, own: str, value: _Sum) -> _Sum | None:
        given = [self._sum(each) for each in step.call.args]
        named = {each.arg: self._sum(each.value) for each in step.call.keywords}
        if any(each is None for each in (*given, *named.values())):
            return None
        sums = [each for each in given if each is not None]
        if value != {(own,): 1.0} and any(own in factors for each in sums for factors in each):
            return None
        scale = named.pop("alpha", None) or {(): 1.0}
        if step.method == "lerp_":
            sums += [named.pop(name, None) or {} for name in ("end", "weight") if name in named]
        if named or not sums or (len(sums) > 1 and step.method not in ("add_", "lerp_")):
            return None
        if step.method in ("add_", "sub_"):
            change = sums[0] if len(sums) == 1 else _times(*sums)  # as the first versions of torch had them
            return _plus(value, _times(change, scale), -1.0 if step.method == "sub_" else 1.0)
        if step.method == "lerp_" and len(sums) == 2:
            return _plus(value, _times(_plus(sums[0], value, -1.0), sums[1]))
        return _times(value, sums[0]) if step.method == "mul_" else sums[0] if step.method == "copy_" else None

    def _sum(self, node: ast.expr) -> _Sum | None:
        """The sum that an expression is, whose numbers and tensors are written down; None for other expressions."""
        if self._is_tensor(node):
            name = self._name(node)
            self._tensors.setdefault(name, node)
            return {(name,): 1.0}
        is_number = not any(isinstance(each, ast.expr) and self._is_tensor(each) for each in nodes_below(node))
        found = self._computed(node)
        if found is None and is_number:
            found = {(ast.unparse(node),): 1.0}
        if found is not None and is_number:
            self._numbers.append((found, node))
        return found

    def _computed(self, node: ast.expr) -> _Sum | None:
        if isinstance(node, ast.Constant):
            return {(): float(node.value)} if isinstance(node.value, int | float) else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._sum(node.operand)
            return _times(value, {(): -1.0}) if value is not None else None
        left, op, right = self._operands(node)
        one, other = (self._sum(each) if each is not None else None for each in (left, right))
        if one is None or other is None:
            return None
        return _times(one, other) if op is ast.Mult else _plus(one, other, _SIGNS[op])

    def _operands(self, node: ast.expr) -> tuple[ast.expr | None, type[ast.operator], ast.expr | None]:
        if isinstance(node, ast.BinOp) and type(node.op) in (*_SIGNS, ast.Mult):
            return node.left, type(node.op), node.right
        method = node.func if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords else None
        for op, name in _IN_PLACE.items():
            if isinstance(method, ast.Attribute) and isinstance(node, ast.Call) and f"{method.attr}_" == name:
                return method.value, op, node.args[0]
        return None, ast.Mult, None

    def _name(self, tensor: ast.expr) -> str:
        """The tensor, by whatever name of its memory."""
        inner = tensor.func if isinstance(tensor, ast.Call) else tensor
        if isinstance(inner, ast.Attribute) and inner.attr in _PARTS:
            return self._name(inner.value)
        return ast.unparse(tensor)


def _coefficient(value: _Sum, name: str) -> _Sum:
    return {tuple(each for each in factors if each != name): n for factors, n in value.items() if name in factors}


def _plus(one: _Sum, other: _Sum, sign: float = 1.0) -> _Sum:
    found = dict(one)
    for factors, number in other.items():
        found[factors] = found.get(factors, 0.0) + sign * number
    return {factors: number for factors, number in found.items() if abs(number) > _EQUAL}


def _times(one: _Sum, other: _Sum) -> _Sum:
    found: _Sum = {}
    for factors, number in one.items():
        for more, times in other.items():
            found = _plus(found, {tuple(sorted((*factors, *more))): number * times})
    return found


def _same(one: _Sum, other: _Sum) -> bool:
    return not _plus(one, other, -1.0)

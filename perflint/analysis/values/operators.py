"""Evaluates operators, comparisons and subscripts, and what a test that passed or failed tells of values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.values.values import (
    GUESSED,
    GUESSED_TENSOR,
    LIKELY_HOST_TENSOR,
    LIKELY_LOADER,
    LIKELY_MODULE,
    NONE,
    NUMBER,
    NUMPY,
    PERIODIC,
    STRING,
    UNKNOWN,
    Kind,
    Place,
    Value,
    contains_tensor,
    join,
    literal,
    mapping,
    sequence_of,
    tensor,
)
from perflint.syntax.scopes import is_of_class, is_static, matched
from perflint.syntax.walk import Function, nodes_below, path_of

_MODULO = Value(Kind.NUMBER, name="modulo")
_LIKELY_NUMBER = NUMBER._replace(sure=False)
_UNEQUAL = (Kind.SEQUENCE, Kind.STRING, Kind.NONE)  # to any tensor, whatever is in it
_LOGICAL = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Add, ast.Mult)  # of masks they make a mask


def common_place(tensors: Iterable[Value]) -> Place:
    """Where an operation on these tensors computes: on the device if one is there."""
    places = {value.place for value in tensors}
    if Place.DEVICE in places:
        return Place.DEVICE
    return Place.HOST if places == {Place.HOST} else Place.UNKNOWN


def _combined(tensors: Sequence[Value], dtype: str = "") -> Value:
    """A tensor computed of `tensors`, one of which may be none: only of guesses is it a guess itself."""
    certain = any(value.sure or value.name != GUESSED for value in tensors)
    return tensor(common_place(tensors), sure=certain, name="" if certain else GUESSED, dtype=dtype)


def arithmetic(op: ast.operator, left: Value, right: Value) -> Value:
    operands = (left, right)
    if left.kind is Kind.STRING or right.kind is Kind.STRING:
        return STRING
    tensors = [value for value in operands if value.kind is Kind.TENSOR]
    lists = [value for value in operands if value.kind is Kind.SEQUENCE and value.sure]
    if tensors and not (lists and isinstance(op, ast.Mult)):  # a tensor of one integer repeats a list
        masks = isinstance(op, _LOGICAL) and all(value.dtype == "bool" for value in operands)
        return _combined(tensors, "bool" if masks else "")
    if any(value.kind is Kind.NUMPY for value in operands):
        return NUMPY._replace(name=_MODULO.name) if isinstance(op, ast.Mod) else NUMPY
    if isinstance(op, ast.Mod) and left.kind in (Kind.NUMBER, Kind.UNKNOWN, Kind.METHOD):
        return _MODULO
    if left.kind is Kind.SEQUENCE:
        return _sequence_arithmetic(op, left, right)
    if right.kind is Kind.SEQUENCE and left.kind in (Kind.NUMBER, Kind.TENSOR):
        return _sequence_arithmetic(op, right, left)
    if all(value.kind is Kind.NUMBER for value in operands):
        return _number_arithmetic(op, left, right)
    return UNKNOWN


def _number_arithmetic(op: ast.operator, left: Value, right: Value) -> Value:
    a, b = left.literal, right.literal
    if left.is_literal and right.is_literal and isinstance(a, int | float) and isinstance(b, int | float):
        if isinstance(op, ast.Add):
            return literal(a + b)
        if isinstance(op, ast.Sub):
            return literal(a - b)
        if isinstance(op, ast.Mult) and abs(a) < 1e9 and abs(b) < 1e9:
            return literal(a * b)
    return NUMBER


def _sequence_arithmetic(op: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(op, ast.Add) and right.kind is Kind.SEQUENCE:
        return sequence_of(join(left.item or UNKNOWN, right.item or UNKNOWN))
    return sequence_of(left.item or UNKNOWN)


def comparison(ops: Sequence[ast.cmpop], left: Value, rights: Sequence[Value]) -> Value:
    operands = (left, *rights)
    if not isinstance(ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        tensors = [value for value in operands if value.kind is Kind.TENSOR]
        if tensors and all(value.kind not in _UNEQUAL for value in operands):
            return _combined(tensors, "bool")
        if any(value.kind is Kind.NUMPY for value in operands):
            return NUMPY
    if len(ops) == 1 and left.name == "modulo" and isinstance(ops[0], ast.Eq):
        return PERIODIC
    if len(ops) == 1 and left.name == "modulo" and isinstance(ops[0], (ast.NotEq, ast.Gt)):
        return _MODULO  # true but once in n, as the remainder itself
    if isinstance(ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        return NUMBER
    may_be = [value.kind in (Kind.UNKNOWN, Kind.METHOD) for value in operands]  # an attribute may be a parameter
    return UNKNOWN if all(may_be) else _LIKELY_NUMBER if any(may_be) else NUMBER


def subscript(base: Value, index: Value, node: ast.expr) -> Value:
    if base.kind is Kind.TENSOR:
        return tensor(base.place, sure=base.sure, name=base.name, dtype=base.dtype)
    if base.kind is Kind.SEQUENCE:
        return _sequence_part(base, index, node)
    if base.kind is Kind.MAPPING:
        return base.entry(index)
    if base.kind is Kind.MODULE:
        return base.item or LIKELY_MODULE
    if base.kind is Kind.DATASET:
        return LIKELY_HOST_TENSOR
    if base.kind is Kind.LOADER and not base.sure and index.is_literal:  # which no loader allows: of several loaders
        return LIKELY_LOADER
    if base.kind in (Kind.NUMPY, Kind.STRING):
        return base.varying
    return UNKNOWN


def _sequence_part(base: Value, index: Value, node: ast.expr) -> Value:
    if isinstance(node, ast.Slice):
        return sequence_of(base.item or UNKNOWN)
    items, at = base.items, index.literal
    return items[at] if items and isinstance(at, int) and -len(items) <= at < len(items) else base.item or UNKNOWN


_TABLE_KINDS = {
    Kind.NUMBER: torch_ops.NUMBER,
    Kind.TENSOR: torch_ops.TENSOR,
    Kind.NONE: torch_ops.NONE,
    Kind.UNKNOWN: torch_ops.UNKNOWN,
}


class Arguments(NamedTuple):
    """Evaluated arguments; `open` where a `*` or `**` may bring more than is known."""

    positional: tuple[Value, ...]
    keywords: Mapping[str, Value]
    open: bool

    @staticmethod
    def of(evaluate: Callable[[ast.expr], Value], node: ast.Call) -> Arguments:
        positional = tuple([evaluate(argument) for argument in node.args])
        spread = ast.Starred in map(type, node.args)
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = evaluate(keyword.value)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
                continue
            spread |= not (value.kind is Kind.MAPPING and value.sure)
            keywords.update((str(key), part) for key, part in value.entries.items())
            if value.item is not None and not value.keys:
                keywords["**"] = value.item
        return Arguments(positional, keywords, spread)

    @property
    def all(self) -> tuple[Value, ...]:
        return (*self.positional, *self.keywords.values())

    @property
    def first(self) -> Value:
        return self.positional[0] if self.positional else UNKNOWN

    @property
    def tensors(self) -> list[Value]:
        return [inner for value in self.all if (inner := contains_tensor(value)) is not None]

    @property
    def on_device(self) -> bool:
        return any(value.on_device for value in self.tensors)

    @property
    def derived(self) -> Value:
        """What an unknown call with these likely gives: something on the device if it was given device tensors."""
        return GUESSED_TENSOR if self.on_device else UNKNOWN

    def get(self, position: int, keyword: str) -> Value | None:
        if keyword in self.keywords:
            return self.keywords[keyword]
        return self.positional[position] if 0 <= position < len(self.positional) else None

    def select(self, entry: torch_ops.Operation) -> torch_ops.Operation:
        """What a call with these arguments gives, where the table knows several ways to call."""
        if not entry.variants:
            return entry
        named = {key: _table_kind(value) for key, value in self.keywords.items()}
        return entry.select([*map(_table_kind, self.positional)], named)


def _table_kind(value: Value) -> str:
    if value.is_literal and isinstance(value.literal, bool):
        return torch_ops.TRUE if value.literal else torch_ops.FALSE
    if value.kind is Kind.METHOD and not value.sure:
        return torch_ops.UNKNOWN
    return _TABLE_KINDS.get(value.kind, torch_ops.OTHER)


def received(function: Function, arguments: Arguments, owner: Value | None) -> dict[str, Value]:
    is_given = owner is not None and not is_static(function) and (owner.kind is not Kind.CLASS or is_of_class(function))
    bound = (owner,) if owner is not None and is_given else ()
    values = matched(function, (*bound, *arguments.positional), arguments.keywords)
    return {name: value for name, value in values.items() if not value.is_blank}


Values = Mapping[ast.AST, Value]  # by the expressions that have them


def refined(values: Values, test: ast.expr, outcome: bool) -> dict[str, Value]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return refined(values, test.operand, not outcome)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if outcome else ast.Or):
        known: dict[str, Value] = {}
        for part in test.values:
            known.update(refined(values, part, outcome))
        return known
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        if outcome and isinstance(test.ops[0], ast.Is) and (path := _path_of_type(values, test.left)):
            name = values.get(test.comparators[0], UNKNOWN).name
            return {path: Value(Kind.MODULE, name=name)} if torch_ops.class_kind(name) else {}
        asks = getattr(test.comparators[0], "value", "") is None and path_of(test.left)
        is_none = isinstance(test.ops[0], (ast.Is, ast.Eq)) is outcome
        return {path_of(test.left): NONE} if asks and is_none else {}
    path = path_of(test.args[0]) if isinstance(test, ast.Call) and test.args else ""
    value = _tested(values, test, outcome) if path and isinstance(test, ast.Call) else None
    return {} if value is None else {path: value}


def _path_of_type(values: Values, node: ast.expr) -> str:
    is_type = isinstance(node, ast.Call) and values.get(node.func, UNKNOWN).name == "builtins.type"
    return path_of(node.args[0]) if is_type and isinstance(node, ast.Call) and len(node.args) == 1 else ""


def _tested(values: Values, test: ast.Call, outcome: bool) -> Value | None:
    asked = values.get(test.func, UNKNOWN).name
    before = values.get(test.args[0], UNKNOWN)
    types = {"torch.Tensor"} if asked == "torch.is_tensor" else set[str]()
    if asked == "builtins.isinstance" and len(test.args) == 2:
        parts = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
        types = {values.get(part, UNKNOWN).name for part in parts}
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
    assigns = any(each.__class__ is ast.Assign for block in (node.body, node.orelse) for each in block)
    for name, value in before.items() if assigns else ():
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


def chosen(node: ast.IfExp, a: Value, b: Value) -> Value:
    """One of two values: `x.cuda() if use_cuda else x` is on the device, wherever one is used."""
    moved, other = (node.body, node.orelse) if a.on_device else (node.orelse, node.body)
    is_choice = a.kind is b.kind is Kind.TENSOR and a.on_device is not b.on_device and (name := path_of(other))
    remakes = is_choice and any(path_of(part) == name for part in nodes_below(moved))
    return join(a, b)._replace(place=Place.DEVICE) if remakes else join(a, b)


def _moved_alone(before: Value, a: Value, b: Value) -> Value | None:
    """What one branch makes of something unknown, which `x.cuda()` tells is a tensor, where the other leaves it."""
    alone = a if b is before else b if a is before else None
    return alone if alone is not None and alone.on_device and alone.name != GUESSED else None


def _remakes(block: Sequence[ast.stmt], name: str) -> bool:
    return any(
        isinstance(statement, ast.Assign) and any(path_of(part) == name for part in nodes_below(statement.value))
        for statement in block
    )

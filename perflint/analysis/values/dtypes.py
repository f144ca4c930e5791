"""Infers what numbers an expression holds: floats or integers, how wide, whether real, and whether but one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Set
from functools import reduce
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Outer, Phi, Value
from perflint.analysis.values.operations import computes_loss, given, operation, returned
from perflint.analysis.values.shapes import axis_of
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import path_of, receiver_of

FLOAT, INTEGER, UNKNOWN = "float", "integer", ""

_COMPLEX = re.compile(r"(.*_)?complex(\d+|_.*)?|c(half|float|double|single)|polar|stft|i?[rh]?fft[2n]?|eig(vals)?")
_EXACT = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)  # of integers, they give integers


class NumberType(NamedTuple):
    """What is known of the numbers in a value: `kind` is FLOAT or INTEGER (bools count as such) where all are.

    `is_wide`: integers of 64 bits, so that adding them up neither wraps nor fails. `is_real`: none is complex.
    `is_python`: a number of Python, and no bool.
    """

    kind: str = UNKNOWN
    is_wide: bool = False
    is_real: bool = False
    is_python: bool = False


_NOTHING = NumberType()
_SIZE = NumberType(INTEGER, is_real=True, is_python=True)


def number_kind(program: Program, node: ast.expr) -> str:
    """FLOAT or INTEGER (bool counts as such) where that is all `node` can hold, else UNKNOWN."""
    return _numbers(program, node).kind


def is_wide_integer(program: Program, node: ast.expr) -> bool:
    """Does `node`, which holds integers, hold them in 64 bits?"""
    return _numbers(program, node).is_wide


def is_integer(program: Program, node: ast.expr) -> bool:
    """Is it surely an integer of Python: a size, a count, or arithmetic on them?"""
    numbers = _numbers(program, node)
    return numbers.is_python and numbers.kind == INTEGER


def may_be_complex(program: Program, node: ast.expr) -> bool:
    return program.get(_computes_complex) and not _numbers(program, node).is_real


def assigned(program: Program, node: ast.Name) -> list[ast.expr] | None:
    """What the variable may have been assigned, also by adding; None where something else sets it too."""
    values = program.get(Flow).graph(node).definitions(node)
    made = [each.source for each in values if isinstance(each, Definition) and not each.steps]
    sources = [each for each in made if each is not None]
    return sorted(sources, key=lambda each: (each.lineno, each.col_offset)) if len(sources) == len(values) else None


def _computes_complex(program: Program) -> bool:
    constants = [each.value for each in program.of_type(ast.Constant)]  # also the names of types
    words = [each for each in constants if isinstance(each, str)]
    words += [each.attr for each in program.of_type(ast.Attribute)] + [each.id for each in program.of_type(ast.Name)]
    words += [alias.name for each in program.of_type(ast.ImportFrom) for alias in each.names]
    return any(isinstance(each, complex) for each in constants) or any(map(_COMPLEX.fullmatch, words))


def _differentiated(program: Program) -> frozenset[tuple[ast.AST | None, str]]:
    """The variables, by their functions, on which `.backward()` is called: only floats have gradients."""
    return frozenset(
        (program.function_of(each), path_of(each.value))
        for each in program.of_type(ast.Attribute)
        if each.attr == "backward"
    )


def _numbers(program: Program, node: ast.expr) -> NumberType:
    return _Inference(program).of(node) or _NOTHING


class _Inference:
    def __init__(self, program: Program) -> None:
        self._program, self._flow = program, program.get(Flow)
        self._known: dict[Value, NumberType | None] = {}
        self._calls = set[ast.Call]()  # of functions that are being looked into

    def of(self, node: ast.expr) -> NumberType | None:
        value, found = self._program.value(node), self._read(node)
        if value.kind is Kind.TENSOR and value.dtype in ("bool", "int", "uint8"):
            return NumberType(INTEGER, is_wide=found is not None and found.is_wide, is_real=True)
        return found

    def _read(self, node: ast.expr) -> NumberType | None:
        value = self._program.value(node)
        if axis_of(node) is not None:
            return _SIZE
        if isinstance(value.literal, int | float):
            kind = FLOAT if isinstance(value.literal, float) else INTEGER
            return NumberType(kind, is_real=True, is_python=not isinstance(value.literal, bool))
        if isinstance(node, ast.Call):
            return self._made(node)
        if isinstance(node, ast.BinOp):
            return self._computed(node.op, self.of(node.left), self.of(node.right))
        if isinstance(node, ast.UnaryOp | ast.Subscript):
            return self.of(node.operand if isinstance(node, ast.UnaryOp) else node.value)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        read = self._flow.graph(node).value(node) if isinstance(node, ast.Name) else None
        return self._held(read, node) if read is not None else _NOTHING

    def _attribute(self, node: ast.Attribute) -> NumberType | None:
        if node.attr == "data":
            return self.of(node.value)
        does = torch_ops.of_attribute(node.attr)
        is_real = does is not None and (does.result == "size" or does.does("making_reals"))
        return NumberType(is_real=is_real and self._program.value(node.value).kind is Kind.TENSOR)

    def _held(self, value: Value, read: ast.AST) -> NumberType | None:
        if value not in self._known:
            self._known[value] = None
            self._known[value] = self._defined(value, read)
        return self._known[value]

    def _defined(self, value: Value, read: ast.AST) -> NumberType | None:
        found: NumberType | None = _NOTHING
        if isinstance(value, Phi):
            found = _either(self._held(each, read) for each in value.operands.values() if not isinstance(each, Outer))
        elif isinstance(value, Definition):
            found = self._given(value, read)
        if (self._program.function_of(read), value.name) not in self._program.get(_differentiated):
            return found
        is_real = any(getattr(self._program.parent(use), "attr", "") == "backward" for use in value.uses)
        return NumberType(FLOAT, is_real=is_real or (found is not None and found.is_real))

    def _given(self, value: Definition, read: ast.AST) -> NumberType | None:
        if isinstance(value.node, ast.arg):
            is_integer = isinstance(value.node.annotation, ast.Name) and value.node.annotation.id == "int"
            return _SIZE if is_integer else _NOTHING
        if value.source is None:
            return _NOTHING
        if value.updates is not None:
            statement = self._program.parent(value.node)
            assert isinstance(statement, ast.AugAssign)
            return self._computed(statement.op, self._held(value.updates, read), self.of(value.source))
        if known := given(self._program, value):
            return _either([self.of(each) for each in known])
        is_range = isinstance(value.source, ast.Call) and path_of(value.source.func) == "range"
        is_size = isinstance(value.source, ast.Attribute) and value.source.attr == "shape"
        return _SIZE if (is_range and value.steps == ("each",)) or (is_size and len(value.steps) == 1) else _NOTHING

    def _computed(self, op: ast.operator, left: NumberType | None, right: NumberType | None) -> NumberType | None:
        one, other = left or _NOTHING, right or _NOTHING
        is_real = one.is_real and other.is_real
        if isinstance(op, ast.Div) or FLOAT in (one.kind, other.kind):
            return NumberType(FLOAT, is_real=is_real)
        if left is None or right is None:
            return None
        if one.kind == other.kind == INTEGER:
            return NumberType(
                INTEGER, is_real=is_real, is_python=one.is_python and other.is_python and isinstance(op, _EXACT)
            )
        return NumberType(is_real=is_real)

    def _made(self, node: ast.Call) -> NumberType:
        name, func = self._program.qualified(node.func), node.func
        if name in ("builtins.len", "builtins.int"):
            return _SIZE
        if node not in self._calls and (known := returned(self._program, node)):
            self._calls.add(node)
            found = _either([self.of(each) for each in known]) or _NOTHING
            self._calls.remove(node)
            return found
        if computes_loss(self._program, node):
            return NumberType(FLOAT, is_real=True)
        call = operation(self._program, node)
        word = name.removeprefix("builtins.") if name in ("builtins.abs", "builtins.float") else ""
        does = torch_ops.of_name(word) if word else call.does if call is not None else None
        tensor = node.args[0] if word and node.args else call.tensor if call is not None else None
        receiver = self._program.value(func.value) if isinstance(func, ast.Attribute) and not name else None
        if receiver is not None and receiver.kind is not Kind.TENSOR:
            drawn = receiver.name == "distribution" and getattr(func, "attr", "") in ("entropy", "log_prob")
            return NumberType(FLOAT, is_real=True) if drawn else _NOTHING
        if does is None:
            return _NOTHING
        told = any(each.arg == "dtype" for each in node.keywords)
        told |= any(
            isinstance(each, ast.Attribute) and self._program.qualified(each).startswith("torch.") for each in node.args
        )
        floats, reals = does.does("making_floats"), does.does("making_reals")
        is_wide = does.does("making_longs") and not told
        keeps = does.does("same_kind") or does.name == "item"
        kept = (self.of(tensor) if tensor is not None and (keeps or floats) and not told else None) or _NOTHING
        is_real = reals or (kept.is_real and not does.does("combining"))
        if floats:
            return NumberType(FLOAT, is_real=is_real)
        kind = kept.kind if does.name != "item" else UNKNOWN
        return NumberType(kind, is_wide or kept.is_wide, is_real)


def _either(values: Iterable[NumberType | None]) -> NumberType | None:
    known = [each for each in values if each is not None]
    return reduce(_join, known) if known else None


def _join(one: NumberType, other: NumberType) -> NumberType:
    kind = one.kind if one.kind == other.kind else UNKNOWN
    flags = (a and b for a, b in zip(one[1:], other[1:], strict=True))
    return NumberType(kind, *flags)


_REDUCING = frozenset({"reduction", "reduce", "size_average", None})  # None: in `**options`
_INPUTS = 2  # of a loss, an output and a target; what follows may say how it is reduced


def has_no_axes(program: Program, node: ast.expr, asked: Set[ast.AST] = frozenset()) -> bool:
    """Is it a loss, or another reduction of a whole tensor, or computed of such? `asked` is carried around a loop."""
    if isinstance(node, ast.Name):
        values = _assigned(program, node) if node not in asked else []
        rest = (has_no_axes(program, each, asked | {node}) for each in values)
        return node in asked or (bool(values) and all(rest))
    if isinstance(node, ast.BinOp):
        parts = (each for each in (node.left, node.right) if program.value(each).kind is not Kind.NUMBER)
        return all(has_no_axes(program, each, asked) for each in parts)
    if not isinstance(node, ast.Call):
        return False
    if program.value(node.func).kind is Kind.MODULE:
        made = list(_made(program, node.func))
        return bool(made) and all(isinstance(each, ast.Call) and _is_mean_loss(program, each) for each in made)
    if program.callee(node) is not None:
        values = returned(program, node) if node not in asked else []
        return bool(values) and all(has_no_axes(program, each, asked | {node}) for each in values)
    found = operation(program, node)
    if found is None:
        return False
    if found.does.does("loss"):
        return len(node.args) <= _INPUTS and not _is_told(node)
    is_whole = found.does.does("reduction") and found.does.result == "tensor"
    return is_whole and not (found.arguments or node.keywords)


def _assigned(program: Program, name: ast.Name) -> list[ast.expr]:
    values = program.get(Flow).graph(name).definitions(name)
    found = [given(program, each) if isinstance(each, Definition) else [] for each in values]
    return [node for each in found for node in each] if all(found) else []


def _made(program: Program, module: ast.expr, depth: int = 3) -> Iterator[ast.expr]:
    """The expressions that make a module, rather than hand it on, moved or converted."""
    for each in program.get(Origins).of(module):
        moved = receiver_of(each)
        is_handed_on = moved is not None and program.value(moved).kind is Kind.MODULE
        if moved is not None and is_handed_on and depth:
            yield from _made(program, moved, depth - 1)
        elif isinstance(each, ast.expr):
            yield each


def _is_mean_loss(program: Program, made: ast.Call) -> bool:
    is_loss = torch_ops.class_kind(program.qualified(made.func)) == "loss"
    return is_loss and not made.args and not _is_told(made)


def _is_told(call: ast.Call) -> bool:
    is_open = any(isinstance(each, ast.Starred) for each in call.args)
    return is_open or any(each.arg in _REDUCING for each in call.keywords)

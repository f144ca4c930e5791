"""Infers whether a tensor holds floats or integers, from the expression that makes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import own_nodes, path_of

FLOAT, INTEGER, UNKNOWN = "float", "integer", ""

_COMPLEX = re.compile(r"(.*_)?complex(\d+|_.*)?|c(half|float|double|single)|polar|stft|i?[rh]?fft[2n]?|eig(vals)?")
_OF_PYTHON = frozenset({"builtins.abs", "builtins.float", "builtins.int", "builtins.len"})
_OF_DISTRIBUTIONS = frozenset({"entropy", "log_prob"})
_DEPTH = 6


def _makes_floats(name: str) -> bool:
    return name in _OF_DISTRIBUTIONS or torch_ops.does(name, "making_floats")


def _makes_reals(name: str) -> bool:
    return name in _OF_DISTRIBUTIONS or name in ("int", "len") or torch_ops.does(name, "making_reals")


def _keeps_kind(name: str) -> bool:
    return name == "data" or torch_ops.does(name, "same_kind")


def _keeps_reals(name: str) -> bool:
    """Does it give real numbers where its tensor holds them, without combining it with what may be complex?"""
    return name == "item" or (_keeps_kind(name) and not torch_ops.does(name, "combining")) or _makes_floats(name)


def _is_real_part(attribute: str) -> bool:
    operation = torch_ops.of_attribute(attribute)
    return operation is not None and (operation.result == "size" or operation.does("making_reals"))


def number_kind(program: Program, node: ast.expr, depth: int = _DEPTH) -> str:
    """FLOAT or INTEGER (bool counts as such) where that is all `node` can hold, else UNKNOWN."""
    if program.value(node).kind is Kind.TENSOR and program.value(node).dtype in ("bool", "int"):
        return INTEGER
    if depth == 0:
        return UNKNOWN
    if isinstance(node, ast.Call) and _makes(program, node, _makes_floats):
        return FLOAT
    if isinstance(node, ast.BinOp):
        return _of_operation(program, node, depth)
    if isinstance(node, ast.Constant):
        return FLOAT if isinstance(node.value, float) else INTEGER if isinstance(node.value, int) else UNKNOWN
    if isinstance(node, ast.Name):
        return _of_path(program, node, depth)
    operand = _kept(program, node, _keeps_kind)
    return number_kind(program, operand, depth - 1) if operand is not None else UNKNOWN


def is_wide_integer(program: Program, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Does `node`, which holds integers, hold them in 64 bits, so that adding them up neither wraps nor fails?"""
    if depth == 0:
        return False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if any(keyword.arg == "dtype" for keyword in node.keywords):
            return False
        is_function = program.qualified(node.func).startswith("torch.")
        operand = node.func.value if not is_function else node.args[0] if node.args else None
        kept = operand is not None and _keeps_kind(node.func.attr) and is_wide_integer(program, operand, depth - 1)
        return torch_ops.does(node.func.attr, "making_longs") or kept
    if isinstance(node, ast.Subscript):
        return is_wide_integer(program, node.value, depth - 1)
    values = assigned(program, node) if isinstance(node, ast.Name) else None
    return bool(values) and all(is_wide_integer(program, value, depth - 1) for value in values or ())


def may_be_complex(program: Program, node: ast.expr) -> bool:
    """Does the file compute with complex numbers, of which `node` may be one?"""
    return program.get(_computes_complex) and not _is_real(program, node, _DEPTH)


def _computes_complex(program: Program) -> bool:
    constants = [each.value for each in program.of_type(ast.Constant)]  # also the names of types
    words = [each for each in constants if isinstance(each, str)]
    words += [each.attr for each in program.of_type(ast.Attribute)] + [each.id for each in program.of_type(ast.Name)]
    words += [alias.name for each in program.of_type(ast.ImportFrom) for alias in each.names]
    return any(isinstance(each, complex) for each in constants) or any(map(_COMPLEX.fullmatch, words))


def _is_real(program: Program, node: ast.expr, depth: int) -> bool:
    value = program.value(node)
    if (value.kind is Kind.TENSOR and value.dtype in ("bool", "int")) or isinstance(value.literal, int | float):
        return True
    if depth == 0:
        return False
    if isinstance(node, ast.Call) and _makes(program, node, _makes_reals):
        return True
    if isinstance(node, ast.Attribute) and _is_real_part(node.attr):
        return program.value(node.value).kind is Kind.TENSOR
    if isinstance(node, ast.BinOp):
        return _is_real(program, node.left, depth - 1) and _is_real(program, node.right, depth - 1)
    if isinstance(node, ast.Name):
        values = assigned(program, node)
        known = bool(values) and all(_is_real(program, value, depth - 1) for value in values or ())
        return known or (_is_bound_once(program, node) and _has_gradient(program, node))
    operand = _kept(program, node, _keeps_reals)
    return operand is not None and _is_real(program, operand, depth - 1)


def _makes(program: Program, node: ast.Call, makes: Callable[[str], bool]) -> bool:
    """Does the call give a loss, or is it of one of these functions and methods?"""
    return _is_loss(program, node) or makes(_called(program, node)[0])


def _kept(program: Program, node: ast.expr, keeps: Callable[[str], bool]) -> ast.expr | None:
    """The part of `node` that holds numbers of the same kind; a call's, where it `keeps` it."""
    if isinstance(node, ast.UnaryOp):
        return node.operand
    if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        return node.value
    if not isinstance(node, ast.Call) or _sets_type(program, node):
        return None
    word, operand = _called(program, node)
    return operand if keeps(word) else None


def _sets_type(program: Program, node: ast.Call) -> bool:
    """Is the call told of which type its result shall be, as by `view(torch.complex64)`?"""
    return any(keyword.arg == "dtype" for keyword in node.keywords) or any(
        isinstance(argument, ast.Attribute) and program.qualified(argument).startswith("torch.")
        for argument in node.args
    )


def _is_loss(program: Program, node: ast.Call) -> bool:
    callee = program.value(node.func)
    if callee.kind is Kind.MODULE and torch_ops.class_kind(callee.name) == "loss":
        return True
    name = program.qualified(node.func)
    operation = torch_ops.of_function(name)
    return operation is not None and operation.does("loss")


def _called(program: Program, node: ast.Call) -> tuple[str, ast.expr | None]:
    """The name of the function of torch, or the method of a tensor, that is called, and the tensor; "" for others."""
    func, name = node.func, program.qualified(node.func)
    if name.startswith("torch.") or name in _OF_PYTHON:
        return name.rpartition(".")[2], node.args[0] if node.args else None
    is_method = not name and isinstance(func, ast.Attribute) and program.value(func.value).kind is Kind.TENSOR
    return (func.attr, func.value) if is_method and isinstance(func, ast.Attribute) else ("", None)


def _of_operation(program: Program, node: ast.BinOp, depth: int) -> str:
    if isinstance(node.op, ast.Div):
        return FLOAT
    kinds = {number_kind(program, node.left, depth - 1), number_kind(program, node.right, depth - 1)}
    return FLOAT if FLOAT in kinds else INTEGER if kinds == {INTEGER} else UNKNOWN


def _of_path(program: Program, node: ast.Name, depth: int) -> str:
    if _has_gradient(program, node):
        return FLOAT
    kinds = {number_kind(program, value, depth - 1) for value in assigned(program, node) or ()}
    return kinds.pop() if len(kinds) == 1 else UNKNOWN


def _has_gradient(program: Program, node: ast.Name) -> bool:
    """Is `.backward()` called on the variable? Only floats have gradients, and no complex one starts them."""
    return any(
        isinstance(each, ast.Attribute) and each.attr == "backward" and path_of(each.value) == node.id
        for each in own_nodes(program.function_of(node) or program.tree)
    )


def _is_bound_once(program: Program, node: ast.Name) -> bool:
    """Does the function set the variable at one place at most, be it as a parameter?"""
    bindings = [
        each
        for each in own_nodes(program.function_of(node) or program.tree)
        if (isinstance(each, ast.Name) and each.id == node.id and not isinstance(each.ctx, ast.Load))
        or (isinstance(each, ast.arg) and each.arg == node.id)
    ]
    return len(bindings) <= 1


def assigned(program: Program, node: ast.Name) -> list[ast.expr] | None:
    """What the function assigns to the variable `node`, also by adding; None where something else sets it too."""
    values: list[ast.expr] = []
    for each in own_nodes(program.function_of(node) or program.tree):
        if isinstance(each, ast.Name) and each.id == node.id and not isinstance(each.ctx, ast.Load):
            statement = program.statement_of(each)
            if (isinstance(statement, ast.Assign) and statement.targets == [each]) or (
                isinstance(statement, ast.AugAssign) and statement.target is each
            ):
                values.append(statement.value)
            else:
                return None
    return values

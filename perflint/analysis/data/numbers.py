"""Proves that an expression is one of Python's numbers, by its definitions throughout a program."""

from __future__ import annotations

import ast
import re

from perflint.analysis.data.attributes import Attributes
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import defaults_of
from perflint.syntax.walk import own_nodes, path_of

_CALLS = re.compile(r"(math\.(?!prod)|builtins\.(float|int|len)$|numpy\.sqrt$)")
_LAYERS = re.compile(r"torch\.nn\.(modules\.\w+\.)?(Linear|Conv\dd|LayerNorm|Embedding)$")
_DEPTH = 6


def is_number(program: Program, node: ast.AST, depth: int = _DEPTH) -> bool:
    """Is `node` surely a number of Python: computed of numbers, annotated as one, or the size of a layer?

    An argument of a constructor is one, too, where its default is.
    """
    if isinstance(node, ast.Attribute) and path_of(node.value) == "self" and not program.get(Attributes).is_own(node):
        return False
    value = program.value(node)
    if value.kind is Kind.NUMBER and value.sure:
        return True
    if not depth or value.kind not in (Kind.UNKNOWN, Kind.NUMBER, Kind.METHOD, Kind.TENSOR):
        return False
    if isinstance(node, ast.BinOp):
        return all(is_number(program, each, depth - 1) for each in (node.left, node.right))
    if isinstance(node, ast.UnaryOp):
        return is_number(program, node.operand, depth - 1)
    if isinstance(node, ast.BoolOp):
        return all(is_number(program, each, depth - 1) or _is_left_out(program, each) for each in node.values)
    if isinstance(node, ast.IfExp):
        return all(is_number(program, each, depth - 1) for each in (node.body, node.orelse))
    if isinstance(node, ast.Call):
        return bool(_CALLS.match(program.qualified(node.func)))
    if isinstance(node, ast.arg):
        return _is_given_number(program, node)
    if isinstance(node, ast.Name):
        bound = program.get(Flow).graph(node).reaching(node)
        if bound and all(isinstance(each, ast.arg) and _is_given_number(program, each) for each in bound):
            return True
    found = program.get(Origins).of(node) if isinstance(node, ast.Name | ast.Attribute) else []
    if all(each is node for each in found):
        return isinstance(node, ast.Attribute) and _is_size(program, node)
    given = [each for each in found if not _is_left_out(program, each)]
    return bool(given) and all(is_number(program, each, depth - 1) for each in given)


def _is_left_out(program: Program, node: ast.AST) -> bool:
    """Is it an argument that is None unless it is given, in whose place a number stands?"""
    found = program.get(Origins).of(node) if isinstance(node, ast.Name) else [node]
    defaults = [default_of(program, each) if isinstance(each, ast.arg) else each for each in found]
    return bool(found) and all(isinstance(each, ast.Constant) and each.value is None for each in defaults)


def default_of(program: Program, parameter: ast.arg) -> ast.expr | None:
    """The parameter's default, if it has one."""
    function = program.function_of(parameter)
    return defaults_of(function).get(parameter.arg) if function is not None else None


def _is_given_number(program: Program, parameter: ast.arg) -> bool:
    if isinstance(parameter.annotation, ast.Name) and parameter.annotation.id in ("int", "float"):
        return True
    default = default_of(program, parameter)
    is_made = getattr(program.function_of(parameter), "name", "") == "__init__"
    has_number = isinstance(default, ast.Constant) and type(default.value) in (int, float)
    return (is_made and has_number) or _is_size(program, parameter)


def _is_size(program: Program, node: ast.arg | ast.Attribute) -> bool:
    """Is what is called so given to a layer of torch as its size, in the same function?"""
    function, path = program.function_of(node), node.arg if isinstance(node, ast.arg) else path_of(node)
    if function is None or not path:
        return False
    calls = (each for each in own_nodes(function) if isinstance(each, ast.Call))
    layers = (each for each in calls if _LAYERS.match(program.qualified(each.func)))
    sizes = (part for layer in layers for size in layer.args[:2] for part in ast.walk(size))
    return any(isinstance(each, ast.Name | ast.Attribute) and path_of(each) == path for each in sizes)

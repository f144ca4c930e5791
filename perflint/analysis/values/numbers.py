"""Tells what is surely a number of Python's, and which data for a tensor are made of such."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from perflint.analysis.data.origins import Attributes, Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import integer, own_nodes, path_of

_CALLS = re.compile(r"(math\.(?!prod)|builtins\.(float|int|len)$|numpy\.sqrt$)")
_LAYERS = re.compile(r"torch\.nn\.(modules\.\w+\.)?(Linear|Conv\dd|LayerNorm|Embedding)$")
_RANGES = frozenset({"builtins.range", "torch.arange"})
_READING = frozenset({"torch.tensor", "torch.as_tensor", "builtins.len"})
_DEPTH = 6


def is_number(program: Program, node: ast.AST, depth: int = _DEPTH) -> bool:
    """Is it surely a number of Python: computed of numbers, annotated as one, or a layer's size?"""
    if isinstance(node, ast.Attribute) and path_of(node.value) == "self" and not program.get(Attributes).is_own(node):
        return False
    value = program.value(node)
    if value.kind is Kind.NUMBER and value.sure:
        return True
    if not depth or value.kind not in (Kind.UNKNOWN, Kind.NUMBER, Kind.METHOD, Kind.TENSOR):
        return False
    if isinstance(node, ast.BinOp):
        return all(is_number(program, each, depth - 1) for each in (node.left, node.right))
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
    defaults = [program.default(each) if isinstance(each, ast.arg) else each for each in found]
    return bool(found) and all(isinstance(each, ast.Constant) and each.value is None for each in defaults)


def _is_given_number(program: Program, parameter: ast.arg) -> bool:
    if isinstance(parameter.annotation, ast.Name) and parameter.annotation.id in ("int", "float"):
        return True
    return _is_size(program, parameter)


def _is_size(program: Program, node: ast.arg | ast.Attribute) -> bool:
    function, path = program.function_of(node), node.arg if isinstance(node, ast.arg) else path_of(node)
    if function is None or not path:
        return False
    layers = (each for each in program.calls_in(function) if _LAYERS.match(program.qualified(each.func)))
    sizes = (part for layer in layers for size in layer.args[:2] for part in ast.walk(size))
    return any(isinstance(each, ast.Name | ast.Attribute) and path_of(each) == path for each in sizes)


_FIXED = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.Attribute, ast.Name, ast.expr_context)
_OF_NUMPY = re.compile(r"numpy\.(log(2|10|1p)?|exp(m1)?|sqrt|square|abs|sin|cos|tan|tanh|floor|ceil|prod|float(32|64))")
_OPTIONS = re.compile(r"(self\.)?_?(args|opts?|options|cfg|config|hparams|hps|flags)\.", re.IGNORECASE)


@dataclass(frozen=True)
class Numbers:
    """Data for a tensor: `number`, `size` times, or alone where `is_scalar`; no number for a table of several.

    `size` is None if unknown. `is_range`: the numbers from 0 up to `size`.
    """

    number: ast.expr | None
    size: ast.expr | None
    is_scalar: bool = False
    is_range: bool = False


def numbers(program: Program, data: ast.expr) -> Numbers | None:
    """What `data` holds, if it is made of Python's numbers and the same in each step, or one number."""
    if isinstance(data, ast.List | ast.Tuple):
        return _of_elements(program, data.elts)
    if isinstance(data, ast.BinOp) and isinstance(data.op, ast.Mult):
        for parts, count in ((data.left, data.right), (data.right, data.left)):
            if isinstance(parts, ast.List | ast.Tuple) and len(parts.elts) == 1:
                return _repeated(program, parts.elts[0], count)
    if isinstance(data, ast.BinOp) and isinstance(data.op, ast.Add):
        joined = [numbers(program, each) for each in (data.left, data.right)]
        if not any(each is None or each.is_scalar for each in joined):
            return Numbers(None, None)
    if (made := program.call_of(data, "builtins.list", "builtins.range")) is not None and made.args:
        walked = made if program.call_of(made, "builtins.range") else program.call_of(made.args[0], "builtins.range")
        is_whole = walked is not None and len(walked.args) == 1
        return Numbers(None, walked.args[0], is_range=True) if walked is not None and is_whole else None
    if is_option(program, data) or _is_constant(program, data):
        return Numbers(None, None)
    return Numbers(data, None, is_scalar=True) if _is_number(program, data) else None


def is_option(program: Program, node: ast.expr) -> bool:
    """Is it `args.weights`, or the like, and for all that is known neither a number nor a tensor?"""
    value = program.value(node)
    is_open = value.kind in (Kind.UNKNOWN, Kind.METHOD) or (value.kind is Kind.TENSOR and not value.sure)
    return isinstance(node, ast.Attribute) and is_open and _OPTIONS.match(path_of(node)) is not None


def _repeated(program: Program, item: ast.expr, count: ast.expr) -> Numbers | None:
    """Of `[item] * count`, the item a number, or a list of one that looks one up: `[[words["<start>"]]]`."""
    if isinstance(item, ast.List | ast.Tuple) and len(item.elts) == 1:
        return Numbers(None, None) if _is_looked_up(item.elts[0]) or _is_fixed(program, item) else None
    return Numbers(item, count) if program.value(item).kind in (Kind.NUMBER, Kind.UNKNOWN) else None


def _is_looked_up(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and bool(path_of(node.value))


def _is_number(program: Program, node: ast.expr) -> bool:
    likely = any(each(program, node) for each in (_is_computed, _is_bound, _is_appended))
    return likely or program.value(node).kind is Kind.NUMBER


def _is_appended(program: Program, node: ast.expr) -> bool:
    """Is it the last item of a list to which the same function adds numbers?"""
    function = program.function_of(node)
    if function is None or not isinstance(node, ast.Subscript) or integer(node.slice) != -1:
        return False
    adds, calls = f"{path_of(node.value)}.append", program.calls_in(function)
    added = [part for each in calls if path_of(each.func) == adds for part in each.args]
    return any(program.value(each).kind is Kind.NUMBER for each in added)


def _is_bound(program: Program, node: ast.expr) -> bool:
    function = program.function_of(node)
    if not isinstance(node, ast.Name) or function is None or program.value(node).kind is not Kind.UNKNOWN:
        return False
    own = own_nodes(function)
    bounds = [part for each in own if isinstance(each, ast.Slice) for part in (each.lower, each.upper)]
    counts = (each for each in own if isinstance(each, ast.Call) and program.qualified(each.func) in _RANGES)
    bounds += [part for each in counts for part in each.args]
    return any(isinstance(each, ast.Name) and each.id == node.id for each in bounds)


def _is_computed(program: Program, node: ast.expr) -> bool:
    """Is it a number that numpy computes of numbers, as in `np.log(self.high / self.low)`?"""
    if isinstance(node, ast.BinOp):
        return all(_is_computed(program, each) for each in (node.left, node.right))
    if not isinstance(node, ast.Call) or not _OF_NUMPY.fullmatch(program.qualified(node.func)) or len(node.args) != 1:
        return is_number(program, node)
    given = program.value(node.args[0])
    is_shape = given.kind is Kind.SEQUENCE and given.item is not None and given.item.kind is Kind.NUMBER
    return is_shape if path_of(node.func).endswith("prod") else _is_computed(program, node.args[0])


def _is_constant(program: Program, data: ast.expr) -> bool:
    """Is it a name for a tuple of numbers, or for a list of them that the module makes, or an object as it is made?"""
    sources = program.get(Origins).of(data) if isinstance(data, ast.Name | ast.Attribute) else []
    made = [program.default(each) if isinstance(each, ast.arg) else each for each in sources]
    return bool(made) and all(
        isinstance(each, ast.Tuple | ast.List)
        and _is_fixed(program, each)
        and (isinstance(each, ast.Tuple) or _is_left_alone(program, data, each))
        for each in made
    )


def _is_left_alone(program: Program, data: ast.expr, made: ast.List) -> bool:
    """Does the module make the list, or an object one that the file only makes tensors of?"""
    if not isinstance(data, ast.Attribute):
        return program.function_of(made) is None
    uses = [each for each in program.of_type(ast.Attribute) if each.attr == data.attr]
    calls = [program.parent(each) for each in uses if isinstance(each.ctx, ast.Load)]
    only = {program.qualified(each.func) for each in calls if isinstance(each, ast.Call)}
    is_once = len(uses) == len(calls) + 1 and getattr(program.function_of(made), "name", "") == "__init__"
    return is_once and all(isinstance(each, ast.Call) for each in calls) and only <= _READING


def _of_elements(program: Program, elements: list[ast.expr]) -> Numbers | None:
    single = _single(elements)
    is_elsewhere = single is not None and program.value(single).kind is Kind.LIBRARY  # a constant of another file
    is_one = is_elsewhere or (single is not None and _is_number(program, single))
    if not is_one and not (elements and all(_is_fixed(program, each) for each in elements)):
        return None
    is_same = len({ast.dump(each) for each in elements}) == 1 and not isinstance(elements[0], ast.List | ast.Tuple)
    return Numbers(elements[0] if is_same and not is_elsewhere else None, ast.Constant(len(elements)))


def _single(elements: list[ast.expr]) -> ast.expr | None:
    """The only number of a list, or of lists of one list: `x` of `[[x]]`."""
    while len(elements) == 1 and isinstance(elements[0], ast.List | ast.Tuple):
        elements = elements[0].elts
    return elements[0] if len(elements) == 1 else None


def _is_fixed(program: Program, node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple):
        return bool(node.elts) and all(_is_fixed(program, each) for each in node.elts)
    parts = list(ast.walk(node))
    names = [each for each in parts if isinstance(each, ast.Attribute | ast.Name)]
    if not all(isinstance(each, _FIXED) for each in parts) or not all(_is_of_self(program, each) for each in names):
        return False
    constants = [each.value for each in parts if isinstance(each, ast.Constant)]
    return bool(constants) and all(isinstance(each, int | float) for each in constants)


def _is_of_self(program: Program, node: ast.expr) -> bool:
    path = path_of(node)
    return path == "self" or (path.startswith("self.") and program.value(node).kind in (Kind.NUMBER, Kind.UNKNOWN))

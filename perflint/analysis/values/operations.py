"""Tells which operation of torch a call runs, and whether it moves its tensor, and proves what is a Python number."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.data.origins import Attributes, Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.memory.library import decorators_of
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import Bound, bind, parameters_of
from perflint.syntax.walk import Function, integer, own_nodes, path_of, returned_values

WRAPPERS = ("torch.autograd.Variable", "torch.nn.Parameter", "torch.nn.parameter.Parameter")
_DEVICE = re.compile(r"(?i)dev|cuda|gpu|rank")  # what people call one
_RECEIVERS = frozenset({Kind.TENSOR, Kind.UNKNOWN, Kind.METHOD})  # a method: an attribute of what is unknown


class TorchCall(NamedTuple):
    """A call of one of torch's functions, or of a tensor's method.

    `does` is what the table says of it. `tensor` is what it is a method of, or its first argument; None for what makes
    a tensor out of none. `arguments` are the other positional ones.
    """

    call: ast.Call
    does: torch_ops.Operation
    tensor: ast.expr | None
    arguments: tuple[ast.expr, ...]

    @property
    def name(self) -> str:
        return self.does.name

    def bound(self, *parameters: str) -> Bound:
        is_function = self.tensor is not None and self.tensor in self.call.args
        return bind(self.call, ("input", *parameters) if is_function else parameters)

    @property
    def dim(self) -> ast.expr | None:
        return self._axes.get("dim", "axis")

    @property
    def joined_axis(self) -> int | None:
        """The axis along which a concatenation or a stack joins its parts; None where that is no constant."""
        return integer(self.dim) if self.dim is not None else 0

    @property
    def keepdim(self) -> ast.expr | None:
        return self._axes.get("keepdim", "keepdims")

    @property
    def _axes(self) -> Bound:
        place = self.does.dim.position if self.does.dim is not None else None
        before = len(self.call.args) if place is None else place
        return bind(self.call, (*["_"] * before, "dim", "keepdim", "axis", "keepdims"))

    @property
    def traits(self) -> frozenset[str]:
        return self.does.traits


def operation(program: Program, node: ast.AST) -> TorchCall | None:
    """The operation of torch that `node` calls: a function, or a method of what may be a tensor."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return None
    qualified = program.qualified(node.func)
    if qualified:
        function = torch_ops.of_function(qualified)
        if function is None:
            return None
        first = None if "factory" in function.traits else next(iter(node.args), None)
        return TorchCall(node, function, first, tuple(node.args if first is None else node.args[1:]))
    if not isinstance(node.func, ast.Attribute) or program.value(node.func.value).kind not in _RECEIVERS:
        return None
    method = torch_ops.of_method(node.func.attr) if program.callee(node) is None else None
    return TorchCall(node, method, node.func.value, tuple(node.args)) if method is not None else None


def computes_loss(program: Program, call: ast.Call) -> bool:
    found, callee = operation(program, call), program.value(call.func)
    is_module = callee.kind is Kind.MODULE and torch_ops.class_kind(callee.name) == "loss"
    return is_module or (found is not None and found.does.does("loss"))


@dataclass(frozen=True)
class Move:
    """A call that takes `tensor` to the device.

    `device` is the expression of that, None for the current one; `is_certain` is False where it isn't known to be a
    device. `like` is the tensor, if there is one, beside which the result lies, and whose dtype it gets. `casts`: it
    gets another dtype besides.
    """

    call: ast.Call
    tensor: ast.expr
    device: ast.expr | None = None
    like: ast.expr | None = None
    casts: bool = False
    is_certain: bool = True


def _is_given_other(program: Program, path: str) -> bool:
    name = path.rpartition(".")[2]
    for call in program.of_type(ast.Call):
        callee = program.callee(call)
        given = program.arguments(call, callee).get(name) if callee is not None else None
        if given is not None and program.value(given).kind in (Kind.LIBRARY, Kind.TENSOR):
            return True
    return False


def moves_first(program: Program, function: Function) -> bool:
    """Does `function` take its first argument to the device, perhaps where there is one, and only give it back?"""
    parameters = [each for each in parameters_of(function) if each.arg not in ("self", "cls")]
    if not parameters or function not in program.get(_moving):
        return False
    name = parameters[0].arg
    found = [moved for each in own_nodes(function) if (moved := move(program, each)) is not None]
    moves = [each.call for each in found if path_of(_wrapped(program, each.tensor)) == name]
    ends = [_wrapped(program, each) for each in returned_values(function)]
    return bool(moves) and all(each in moves or path_of(each) == name for each in ends)


def _moving(program: Program) -> set[Function | None]:
    return {program.function_of(each) for each in program.of_type(ast.Call) if move(program, each) is not None}


def _wrapped(program: Program, node: ast.expr) -> ast.expr:
    is_variable = isinstance(node, ast.Call) and program.qualified(node.func).endswith(".Variable")
    return node.args[0] if isinstance(node, ast.Call) and is_variable and len(node.args) == 1 else node


def move(program: Program, node: ast.AST) -> Move | None:
    """`node` as `.to(device)`, `.to(x)`, `.cuda()`, `.type_as(x)` or `.type(torch.cuda.FloatTensor)`; else None."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if not torch_ops.does(node.func.attr, "to_device"):
        return None
    given = bind(node, ("device", "dtype", "non_blocking"))
    target, tensor, method = given.get("device", "other"), node.func.value, node.func.attr
    if target is None:
        target = next((each.value for each in given.others if each.arg == "other"), None)
    if method == "type":
        name = program.qualified(target) if target is not None else ""
        if not name.startswith("torch.cuda."):
            return None
        return Move(node, tensor, casts=name != "torch.cuda.FloatTensor", is_certain=path_of(target or node) == name)
    if not program.value(node).on_device or (target is None and method != "cuda"):
        return None
    if target is not None and "dtype" in path_of(target):
        return None
    others = given.rest or given.is_open or any(each.arg not in ("other", "copy") for each in given.others)
    casts = "dtype" in given.given or bool(others)
    if target is None:
        return Move(node, tensor, casts=casts)
    value = program.value(target)
    if method == "type_as" or (value.kind is Kind.TENSOR and value.sure):
        return Move(node, tensor, like=target, casts=casts)
    known = value.kind in (Kind.DEVICE, Kind.STRING) or isinstance(target, ast.Constant)
    if method == "to":  # which takes no None for the current device
        named = isinstance(target, ast.Attribute) and target.attr == "device"
        named |= value.is_blank and bool(_DEVICE.search(path_of(target)))
        known |= value.kind is Kind.NUMBER or (named and not _is_given_other(program, path_of(target)))
    return Move(node, tensor, device=target, casts=casts, is_certain=known)


def returned(program: Program, node: ast.expr) -> list[ast.expr]:
    """What a call of a function of this file may give; empty where not all of that is known."""
    callee = program.callee(node)
    if not isinstance(callee, ast.FunctionDef) or callee.name == "__init__" or decorators_of(program, callee):
        return []
    own, found = own_nodes(callee), returned_values(callee)
    is_plain = not any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own)
    is_all = len(found) == sum(isinstance(each, ast.Return) for each in own)
    return found if is_plain and is_all else []


def given(program: Program, definition: Definition) -> list[ast.expr]:
    """The expressions of which one gives a variable its value, be it an item of a tuple; empty if unknown."""
    source, steps = definition.source, definition.steps
    if source is None or definition.updates is not None:
        return []
    if not steps:
        return [source]
    step, tuples = steps[0], returned(program, source)
    if len(steps) > 1 or not isinstance(step, int):
        return []
    items = [each.elts[step] for each in tuples if isinstance(each, ast.Tuple) and step < len(each.elts)]
    is_known = len(items) == len(tuples) and not any(isinstance(each, ast.Starred) for each in items)
    return items if is_known else []


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
    if isinstance(item, ast.List | ast.Tuple) and len(item.elts) == 1:
        return Numbers(None, None) if _is_fixed(program, item) else None
    return Numbers(item, count) if program.value(item).kind in (Kind.NUMBER, Kind.UNKNOWN) else None


def _is_number(program: Program, node: ast.expr) -> bool:
    return program.value(node).kind is Kind.NUMBER or _is_computed(program, node) or _is_bound(program, node)


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
    """Is it a name for a tuple of numbers, or for a list of them that the module makes?"""
    sources = program.get(Origins).of(data) if isinstance(data, ast.Name | ast.Attribute) else []
    made = [program.default(each) if isinstance(each, ast.arg) else each for each in sources]
    return bool(made) and all(
        isinstance(each, ast.Tuple | ast.List)
        and _is_fixed(program, each)
        and (isinstance(each, ast.Tuple) or program.function_of(each) is None)
        for each in made
    )


def _of_elements(program: Program, elements: list[ast.expr]) -> Numbers | None:
    is_one = len(elements) == 1 and _is_number(program, elements[0])
    if not is_one and not (elements and all(_is_fixed(program, each) for each in elements)):
        return None
    is_same = len({ast.dump(each) for each in elements}) == 1 and not isinstance(elements[0], ast.List | ast.Tuple)
    return Numbers(elements[0] if is_same else None, ast.Constant(len(elements)))


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

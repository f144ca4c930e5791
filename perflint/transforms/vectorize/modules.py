"""The torch modules that a loop's body calls: how each was built, and what it does to the axes of its input."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint import torch_ops
from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import path_of
from perflint.transforms.vectorize.module_lists import are_kin, home_of, items, list_of
from perflint.transforms.vectorize.wrapping import may_be_hooked, sets_attributes_by_name

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_POINTWISE = frozenset(
    "ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Sigmoid Tanh Softplus Softsign Hardtanh Hardswish Hardsigmoid"
    " LogSigmoid Tanhshrink Identity".split()
)
_SIZED = frozenset({"LSTMCell", "GRUCell", "RNNCell", "Linear"})
_SIZES = frozenset({"input_size", "hidden_size", "in_features", "out_features"})
_SOFTMAXES = frozenset({"Softmax", "LogSoftmax"})
_RETURN_IT = frozenset("to cuda cpu xpu float double half bfloat16 train eval requires_grad_ share_memory".split())
_HARMLESS = _RETURN_IT | {"parameters", "named_parameters", "state_dict", "zero_grad"}


@dataclass(frozen=True)
class Module:
    """A module of torch: its class, such as "LSTM", and the call that built it."""

    name: str
    built: ast.Call

    def argument(self, name: str, position: int) -> ast.expr | None:
        """What it was given for a parameter of its constructor."""
        for keyword in self.built.keywords:
            if keyword.arg == name:
                return keyword.value
        if self.name == "RNN" and position > 2:
            position += 1  # behind nonlinearity
        return self.built.args[position] if len(self.built.args) > position else None

    @property
    def described(self) -> str:
        """What it is besides the sizes of its input and output."""
        more = self.built.args[2:] if self.name in _SIZED else self.built.args
        named = [each for each in self.built.keywords if each.arg not in _SIZES or self.name not in _SIZED]
        return " ".join([self.name, *map(ast.dump, more), *sorted(map(ast.dump, named))])

    @property
    def is_in_place(self) -> bool:
        """May it write to its input?"""
        keyword = next((each.value for each in self.built.keywords if each.arg == "inplace"), None)
        given = [each for each in self.built.args if isinstance(each, ast.Constant) and each.value is True]
        return bool(given) or (keyword is not None and not (isinstance(keyword, ast.Constant) and not keyword.value))

    @property
    def is_pointwise(self) -> bool:
        """Does it work on each number by itself?"""
        return self.name in _POINTWISE

    def reads_last_axis(self, program: Program) -> bool:
        """Does it work on the last axis and leave the others alone?"""
        if self.name not in ("LayerNorm", "RMSNorm"):
            return self.name == "Linear"
        shape = self.argument("normalized_shape", 0)
        return shape is not None and program.value(shape).kind is Kind.NUMBER

    def is_function(self, program: Program) -> bool:
        """Does it give the same each time for the same input, and change nothing?"""
        return (self.is_pointwise and not self.is_in_place) or self.reads_last_axis(program)

    @property
    def is_dropout(self) -> bool:
        """Does it drop single numbers at random while training?"""
        return self.name in ("Dropout", "AlphaDropout")

    @property
    def softmax_axis(self) -> ast.expr | None:
        """The axis of a softmax."""
        return self.argument("dim", 0) if self.name in _SOFTMAXES else None


def module_of(program: Program, function: ast.expr) -> Module | None:
    """The module of torch that `function` surely is; None where it is not known how it was built."""
    value = program.value(function)
    if value.kind is not Kind.MODULE or not value.name.startswith("torch.nn.") or may_be_hooked(program):
        return None
    whole = list_of(function, program)
    if whole is not None:
        return _item(program, whole)
    built = construction(program, function) if value.sure else None
    return module_built(program, built) if built is not None else None


def _item(program: Program, whole: ast.expr) -> Module | None:
    """Any of the modules in a list, where they were built alike, but for their sizes."""
    built = construction(program, whole)
    parts = items(program, built, whole) if built is not None else None
    modules = [module_built(program, part) for part in parts or ()]
    if not modules or len({module and module.described for module in modules}) > 1:
        return None
    return modules[0]


def module_built(program: Program, node: ast.expr) -> Module | None:
    """The module of torch that the call `node` builds, where all of its arguments are in sight."""
    node = _as_built(node)
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        return None
    if any(isinstance(argument, ast.Starred) for argument in node.args):
        return None
    name = program.qualified(node.func)
    known = name.startswith("torch.nn.") and torch_ops.class_kind(name) is not None
    return Module(name.rpartition(".")[2], node) if known else None


def _as_built(node: ast.expr) -> ast.expr:
    """What makes the module, without what moves it to its place or type."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _RETURN_IT:
        node = node.func.value
    return node


def is_changed(program: Program, function: ast.expr) -> bool:
    """Does the program do more with the module that `function` is than build, call, move and save it?"""
    name = path_of(function).rpartition(".")[2]
    uses = [node for node in program.of_type(ast.Attribute) if node.attr == name]
    uses_by_name = [node for node in program.of_type(ast.Name) if node.id == name]
    for node in (*uses, *uses_by_name):
        parent = program.parent(node)
        if isinstance(parent, ast.Subscript) or (isinstance(parent, ast.Attribute) and parent.attr not in _HARMLESS):
            return True
    return False


def construction(program: Program, function: ast.expr) -> ast.Call | None:
    """The one call that builds what `function` is: the only value which the program gives that attribute or name."""
    path = path_of(function)
    values = [value for value in values_of(program, function) if value is None or path_of(_as_built(value)) != path]
    return values[0] if len(values) == 1 and isinstance(values[0], ast.Call) else None


def values_of(program: Program, node: ast.expr) -> list[ast.expr | None]:
    """What the program gives an attribute of its object, or a variable; empty where that is not in sight."""
    path = path_of(node)
    root, _, attribute = path.partition(".")
    if not path or "." in attribute or sets_attributes_by_name(program):
        return []
    if not attribute:
        return _values_of_name(program, node)
    if root != "self" or home_of(program, node) is None:
        return []
    values = []
    for target, value in assignments(program):
        owner, _, name = path_of(target).rpartition(".")
        if name != attribute or not owner:
            continue
        if owner != "self":
            return []
        if are_kin(program, node, target):
            values.append(value)
    return values


def _values_of_name(program: Program, name: ast.expr) -> list[ast.expr | None]:
    """What a variable may hold where it is read: all that it is ever given, where other functions share it."""
    found = [(target, value) for target, value in assignments(program) if path_of(target) == path_of(name)]
    flow, around = program.get(Flow), program.function_of(name)
    if isinstance(name, ast.Name) and name.id not in flow.bindings(name).shared:
        reaching = _reaching(flow, name, dict(found))
        here = [value for target, value in found if target in reaching]
        if len(here) == len(reaching) > 0:
            return here
    own = [value for target, value in found if program.function_of(target) is around]
    return own or [value for _, value in found]


def _reaching(flow: Flow, name: ast.Name, values: dict[ast.expr, ast.expr | None]) -> set[ast.AST]:
    """Where a variable gets what it holds where it is read, and what it was moved from."""
    reaching: set[ast.AST] = set()
    pending = [*flow.definitions(name)]
    while pending:
        target = pending.pop()
        reaching.add(target)
        value = values.get(target) if isinstance(target, ast.expr) else None
        source = _as_built(value) if value is not None else None
        if isinstance(source, ast.Name) and source.id == name.id:
            pending += flow.definitions(source) - reaching
    return reaching


def assignments(program: Program) -> list[tuple[ast.expr, ast.expr | None]]:
    """What the program assigns to, and the value, None where that is only a part of an expression."""
    found: list[tuple[ast.expr, ast.expr | None]] = []
    for node in program.of_type(ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List):
                parts = node.value.elts if isinstance(node.value, ast.Tuple) else []
                is_plain = len(parts) == len(target.elts) and not any(isinstance(each, ast.Starred) for each in parts)
                found += zip(target.elts, parts if is_plain else [None] * len(target.elts), strict=True)
            else:
                found.append((target, node.value))
    found += [(node.target, node.value) for node in program.of_type(ast.AnnAssign) if node.value is not None]
    found += [(node.target, None) for node in program.of_type(ast.AugAssign)]
    return found + [(node.target, None) for node in program.of_type(ast.For)]

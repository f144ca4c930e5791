"""Tells what is loop-invariant, and how torch modules called in a loop were built."""

from __future__ import annotations

import ast
from collections.abc import Set
from dataclasses import dataclass

from perflint import torch_ops
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.dispatch import Modules, as_built, may_be_hooked
from perflint.analysis.memory.special_methods import SpecialMethods
from perflint.analysis.program import Program
from perflint.analysis.values.classes import ClassInfo
from perflint.analysis.values.operations import TorchCall, operation
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import keyword_of
from perflint.syntax.walk import is_false, operands, path_of
from perflint.transforms.rewrite import Blocked, shown
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import Invariant

_SIZED = frozenset({"LSTMCell", "GRUCell", "RNNCell", "Linear"})
_SIZES = frozenset({"input_size", "hidden_size", "in_features", "out_features"})

_PURE = frozenset(
    f"builtins.{name}" for name in "len int float bool min max abs range isinstance tuple list round".split()
) | {f"torch.{name}" for name in "device get_default_dtype finfo iinfo".split()}
_CLOSED = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.Lambda)


ATTRIBUTES = frozenset({"__getattr__", "__getattribute__", "__setattr__"})


@dataclass(frozen=True)
class Module:
    """A module of torch: its class, such as "LSTM", and the call that built it."""

    name: str
    built: ast.Call

    def argument(self, name: str, position: int) -> ast.expr | None:
        if (given := keyword_of(self.built, name)) is not None:
            return given
        if self.name == "RNN" and position > 2:
            position += 1  # after nonlinearity
        return self.built.args[position] if len(self.built.args) > position else None

    @property
    def described(self) -> str:
        more = self.built.args[2:] if self.name in _SIZED else self.built.args
        named = [each for each in self.built.keywords if each.arg not in _SIZES or self.name not in _SIZED]
        return " ".join([self.name, *map(ast.dump, more), *sorted(map(ast.dump, named))])

    @property
    def is_in_place(self) -> bool:
        keyword = keyword_of(self.built, "inplace")
        given = [each for each in self.built.args if isinstance(each, ast.Constant) and each.value is True]
        return bool(given) or (keyword is not None and not is_false(keyword))

    @property
    def is_pointwise(self) -> bool:
        operation = torch_ops.of_forward(f"torch.nn.{self.name}")
        return self.name == "Identity" or (operation is not None and operation.does("pointwise"))

    def reads_last_axis(self, program: Program) -> bool:
        if self.name not in ("LayerNorm", "RMSNorm"):
            return self.name == "Linear"
        shape = self.argument("normalized_shape", 0)
        return shape is not None and program.value(shape).kind is Kind.NUMBER

    def is_function(self, program: Program) -> bool:
        return (self.is_pointwise and not self.is_in_place) or self.reads_last_axis(program)


def intercepts(owner: ClassInfo, names: Set[str] = ATTRIBUTES) -> bool:
    """Whether a class says itself what it means to read or to set an attribute, or whatever `names` are about."""
    return any(info.methods.keys() & names for info in owner.lineage())


def module_of(program: Program, function: ast.expr) -> Module | None:
    value = program.value(function)
    if value.kind is not Kind.MODULE or not value.name.startswith("torch.nn.") or may_be_hooked(program):
        return None
    if value.name == class_tested(program, function):
        return Module(value.name.rpartition(".")[2], ast.Call(function, [], []))
    modules = [module_built(program, each) for each in program.get(Modules).builders(function)]
    same = {module and module.described for module in modules}  # built alike, but for their sizes
    return modules[0] if len(same) == 1 else None


def is_told_by_class(name: str) -> bool:
    """Does any module of the class do the same to each step?"""
    operation = torch_ops.of_forward(name)
    works_alone = operation is not None and operation.does("pointwise") and not operation.writes
    return name in ("torch.nn.Linear", "torch.nn.Identity") or works_alone


def class_tested(program: Program, function: ast.expr) -> str:
    """The class of a called module by a test around it: `if type(self.head) is nn.Linear:`."""
    attribute = path_of(function).rpartition(".")[2]
    if _is_changed(program, attribute):
        return ""
    child: ast.AST = function
    for around in program.ancestors(function):
        for test in operands(around.test, ast.And) if isinstance(around, ast.If) and child in around.body else ():
            path, name = class_of_test(program, test)
            if path == path_of(function) and is_told_by_class(name):
                return name
        child = around
    return ""


def _is_changed(program: Program, attribute: str) -> bool:
    if not attribute or "setattr" in program.text or "__dict__" in program.text:
        return True
    stores = (
        each for each in program.of_type(ast.Attribute) if each.attr == attribute and not isinstance(each.ctx, ast.Load)
    )
    return any(getattr(program.function_of(each), "name", "") != "__init__" for each in stores)


def class_of_test(program: Program, test: ast.expr) -> tuple[str, str]:
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Is):
        return "", ""
    asked = test.left
    if not isinstance(asked, ast.Call) or program.qualified(asked.func) != "builtins.type" or len(asked.args) != 1:
        return "", ""
    return path_of(asked.args[0]), program.qualified(test.comparators[0])


def module_built(program: Program, node: ast.expr | None) -> Module | None:
    node = as_built(node)
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        return None
    if any(isinstance(argument, ast.Starred) for argument in node.args):
        return None
    name = program.qualified(node.func)
    known = name.startswith("torch.nn.") and torch_ops.class_kind(name) is not None
    return Module(name.rpartition(".")[2], node) if known else None


def invariant(scope: Scope, node: ast.expr) -> Invariant:
    check_invariant(scope, node)
    return scope.invariant(node)


def check_invariant(scope: Scope, *nodes: ast.expr) -> None:
    for part in (part for node in nodes for part in ast.walk(node)):
        if isinstance(part, ast.Call) and not _is_pure(scope, part):
            raise Blocked(f"{shown(scope.program, part)} may give another result each time", part)
        if isinstance(part, _CLOSED):
            raise Blocked("other code may run in each step", part)
        if isinstance(part, ast.Attribute) and _runs_property(scope.program, part):
            raise Blocked(f"{shown(scope.program, part)} is a property that may do more than read", part)


def _runs_property(program: Program, node: ast.Attribute) -> bool:
    getters = program.get(SpecialMethods).getters.get(node.attr, ()) if isinstance(node.ctx, ast.Load) else ()
    called = (each for getter in getters for each in ast.walk(getter) if isinstance(each, ast.Call))
    writes = any(program.get(Memory).summary(each).writes for each in getters)
    return writes or any((found := operation(program, each)) and found.does.does("random") for each in called)


def _is_pure(scope: Scope, node: ast.Call) -> bool:
    value = scope.program.value(node.func)
    if value.kind is Kind.LIBRARY and value.name in _PURE:
        return True
    method = torch_ops.of_method(node.func.attr) if isinstance(node.func, ast.Attribute) else None
    if method is not None and method.does("measuring"):
        return True
    if (module := module_of(scope.program, node.func)) is not None:
        return module.is_function(scope.program) and not scope.program.get(Modules).is_changed(node.func)
    found = called_operation(scope, node)
    does = found.does if found is not None else None
    return does is not None and does.result == "tensor" and not does.does("random") and not does.in_place


def called_module(scope: Scope, node: ast.Call) -> Module | None:
    if scope.program.value(node.func).kind is Kind.MODULE and scope.varies(node.func):
        raise Blocked(f"{shown(scope.program, node.func)} is another module in each step", node)
    return module_of(scope.program, node.func)


def viewed_whole(scope: Scope, node: ast.expr) -> ast.expr | None:
    """The tensor of which `node` is a view with the same numbers and axes, such as `x.detach()`."""
    found = called_operation(scope, node) if isinstance(node, ast.Call) and not (node.args or node.keywords) else None
    does = found.does if found is not None else None
    is_view = does is not None and does.does("view") and does.does("same_kind") and not does.does("move")
    return found.tensor if found is not None and is_view and found.does.does("same_shape") else None


def called_operation(scope: Scope, node: ast.Call) -> TorchCall | None:
    """The called torch operation; None for others, and those that write to arguments."""
    if any(keyword.arg in ("out", "inplace", None) for keyword in node.keywords):
        return None
    found = operation(scope.program, node)
    is_method = isinstance(node.func, ast.Attribute) and found is not None and found.tensor is node.func.value
    is_known = not is_method or scope.program.value(node.func.value).kind is Kind.TENSOR  # type: ignore[attr-defined]
    return found if is_known else None

"""Decides whether a call may draw random numbers."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.data.effects import HARMLESS_LIBRARIES, HARMLESS_METHODS, Callees
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, Function, method_of

_TRANSFORMS = ("torchvision.transforms.v2.", "torchvision.transforms.")
_FIXED_TRANSFORMS = frozenset(
    "Compose ToTensor PILToTensor ToPILImage ToImage ToPureTensor ToDtype ConvertImageDtype Normalize"
    " Resize Scale CenterCrop Pad"
    " Grayscale FiveCrop TenCrop Identity Lambda LinearTransformation".split()
)
_OF_GENERATORS = frozenset("choice permutation shuffle normal uniform integers rand randn random".split())


class Draws:
    """Random draws in the functions, classes and transforms of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)
        self._callees = program.get(Callees)
        self._known: dict[Function, bool] = {}

    def may_call(self, node: ast.AST) -> bool:
        """May calling the value of `node`, a transform or a function, draw random numbers?"""
        return any(self._may_call(origin) for origin in self._origins.of(node))

    def _may_call(self, origin: ast.AST) -> bool:
        if isinstance(origin, ast.Constant):
            return origin.value is not None
        if isinstance(origin, FUNCTIONS):
            return self.may_run(origin)
        if isinstance(origin, ast.Call):
            return not self.is_fixed_transform(origin)
        name = self._program.qualified(origin)
        return not (name.startswith("torch.utils.data.") and name.endswith("default_collate"))

    def is_fixed_transform(self, call: ast.Call) -> bool:
        """Does `call` build a transform of torchvision that always does the same, and is made of such?"""
        name = self._program.qualified(call.func)
        if not name.startswith(_TRANSFORMS) or name.rpartition(".")[2] not in _FIXED_TRANSFORMS:
            return self._is_fixed_instance(call)
        if not name.endswith((".Compose", ".Lambda")):
            return True
        parts = [part for argument in call.args for part in self._origins.of(argument)]
        lists = [part for part in parts if isinstance(part, ast.List | ast.Tuple)]
        rest = [part for part in parts if not isinstance(part, ast.List | ast.Tuple)]
        return not any(self.may_call(part) for part in (*(each for one in lists for each in one.elts), *rest))

    def _is_fixed_instance(self, call: ast.Call) -> bool:
        """Does `call` make an object of a class of this file whose `__call__` draws nothing?"""
        value = self._program.value(call.func)
        method = method_of(value.node, "__call__")
        return method is not None and not self.may_run(method)

    def may_run(self, function: Function) -> bool:
        """May running the body of `function` draw random numbers?"""
        if function not in self._known:
            self._known[function] = True  # while it is being computed, for transforms that run one another
            calls = (call for each in self._callees.reached([function]) for call in self._callees.calls(each))
            self._known[function] = any(map(self._may_draw, calls))
        return self._known[function]

    def _may_draw(self, call: ast.Call) -> bool:
        """May a call draw random numbers, other than in the functions of this file that it runs?"""
        value = self._program.value(call.func)
        if self._program.callee(call) is not None:
            return False
        if value.kind is Kind.LIBRARY:
            return library_draws(value.name)
        if value.kind is Kind.CLASS:
            return False  # without an __init__ of its own
        if isinstance(call.func, ast.Attribute):
            return self._method_draws(call.func)
        return self._may_call_unseen(call.func)

    def _may_call_unseen(self, node: ast.AST) -> bool:
        origins = self._origins.of(node)
        return any(self._may_call(origin) for origin in origins if not isinstance(origin, FUNCTIONS))

    def _method_draws(self, function: ast.Attribute) -> bool:
        owner = self._program.value(function.value)
        if owner.kind is Kind.TENSOR:
            entry = torch_ops.of_method(function.attr)
            return entry is not None and "random" in entry.traits
        if owner.kind in (Kind.NUMPY, Kind.STRING, Kind.SEQUENCE, Kind.MAPPING, Kind.NUMBER):
            return function.attr in _OF_GENERATORS
        is_of_base = isinstance(function.value, ast.Call) and (
            self._program.qualified(function.value.func) == "builtins.super"
        )
        if is_of_base or function.attr in HARMLESS_METHODS:
            return is_of_base
        return self._may_call_unseen(function)


def library_draws(name: str) -> bool:
    """May calling the library function, or class, called `name` draw random numbers? True where it is unknown."""
    head = name.partition(".")[0]
    if "rand" in name:
        return True
    if head == "torch":
        entry = torch_ops.of_function(name)
        if entry is not None:
            return "random" in entry.traits
        return (
            name not in ("torch.load",)
            and torch_ops.class_kind(name) != "tensor-type"
            and not name.endswith(".default_collate")
        )
    if name.startswith(("torchvision.transforms.functional.", "torchvision.io.")):
        return False
    return head not in HARMLESS_LIBRARIES and head not in ("numpy", "scipy")

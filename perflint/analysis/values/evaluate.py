"""Evaluates expressions abstractly."""

from __future__ import annotations

import ast
import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from perflint import torch_ops
from perflint.analysis.links import Summary
from perflint.analysis.values.classes import ClassInfo, Frame, FunctionInfo
from perflint.analysis.values.hints import USUAL_NAMES, Usage, by_name
from perflint.analysis.values.operators import arithmetic, chosen, comparison, subscript
from perflint.analysis.values.values import (
    GUESSED,
    NUMBER,
    OTHER,
    PERIODIC,
    STRING,
    UNKNOWN,
    Constant,
    Kind,
    Place,
    Value,
    element_of,
    join,
    join_all,
    library,
    literal,
    mapping,
    sequence,
    sequence_of,
    tensor,
)
from perflint.syntax.walk import children, path_of

_FIELDS = frozenset({"values", "indices"})  # of the pairs that torch.max and the like give
_OF_DISTRIBUTION = frozenset({"probs", "logits", "loc", "scale"})  # its parameters
_CONSTANTS = frozenset({bool, int, float, complex, str, bytes, type(None)})
BUILTINS = frozenset(dir(builtins))


class Evaluator(ABC):
    def __init__(self, *, default_place: Place) -> None:
        self.values: dict[ast.AST, Value] = {}
        self.callees: dict[ast.AST, FunctionInfo] = {}
        self.functions: dict[ast.AST, FunctionInfo] = {}
        self.classes: dict[ast.AST, ClassInfo] = {}
        self.usages: Mapping[ast.AST | None, Usage] = {}  # of the functions
        self.roles: dict[str, Value] = {}  # what names and paths likely are, by how the file uses them
        self.summaries: dict[str, Summary] = {}  # of other files, by what this one calls their functions
        self.star_imports: list[str] = []
        self.rebound: tuple[tuple[str, str], ...] = ()  # the names to which modules give another meaning, after these
        self.module_place = default_place  # where modules compute: the host in a program that never leaves it
        self.stays_home = False  # a script that never speaks of a device, whatever those that it calls may assume
        self.default_device_set = False  # by torch.set_default_device and its kin
        self.is_demo = False  # what it runs only tries out, on the host, what others use elsewhere
        self.frame = Frame({})
        self.round = 0
        self.changes = 0  # of the classes and the star imports: everything depends on these

    def function(self, value: Value) -> FunctionInfo | None:
        return self.functions.get(value.node) if value.node is not None else None

    def class_of(self, value: Value | None) -> ClassInfo | None:
        return self.classes.get(value.node) if value is not None and value.node is not None else None

    def release(self) -> None:
        """Break the circles of functions, classes and frames, which else wait for the garbage collector."""
        for info in (*self.functions.values(), *self.classes.values()):
            vars(info).clear()

    def evaluate(self, node: ast.expr) -> Value:
        value = self.values[node] = _EXPRESSIONS[node.__class__](self, node)
        return value

    def evaluate_parts(self, node: ast.AST) -> None:
        for part in children(node):
            self.evaluate(part)  # type: ignore[arg-type]

    def _of_parts(self, node: ast.expr) -> Value:
        self.evaluate_parts(node)
        return _OF_PARTS[node.__class__]

    @property
    def usual_place(self) -> Place:
        """Where tensors are of which nothing tells it: in what a module does, where that computes."""
        function = self.frame.function
        if function is None or function.owner is None or function.name == "__init__":
            return Place.UNKNOWN
        return self.module_place if function.owner.is_a("module") else Place.UNKNOWN

    @abstractmethod
    def call(self, node: ast.Call) -> Value:
        """What a call gives; `Executor` knows."""

    @abstractmethod
    def call_function(self, info: FunctionInfo, arguments: dict[str, Value], site: ast.Call | None) -> Value:
        """What a call of a function of this file gives; `Executor` evaluates its body."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Value) -> None:
        """Bind `target`; `Executor` does it."""

    def by_role(self, node: ast.expr, value: Value) -> Value:
        """What the vaguely known `value` of a name or path likely is, by how the file uses it."""
        role = self.roles.get(path_of(node))
        if role is UNKNOWN:
            return value if value.kind is Kind.UNKNOWN else UNKNOWN
        if role is None or (role.kind is Kind.TENSOR and value.kind is Kind.TENSOR):
            return value if role is None or value.name == GUESSED else value._replace(sure=True)
        return role._replace(place=self.module_place) if role.kind is Kind.TENSOR else role._replace(name=value.name)

    # -- names and attributes

    def _name(self, node: ast.Name) -> Value:
        value = self.frame.env.get(node.id)
        if value is None:
            value = self.frame.lookup(node.id)
            self.frame.reads.setdefault((None, node.id), value)
            if value is None:
                value = self._free_name(node.id)
        return value if value.kind is not Kind.UNKNOWN else by_name(node.id) or value

    def _free_name(self, name: str) -> Value:
        for module in self.star_imports:
            if name in torch_ops.exports(module):
                return library(f"{module}.{name}")
        if name in BUILTINS:
            return library(f"builtins.{name}")
        unlisted = [module for module in self.star_imports if not torch_ops.exports(module)]
        if not unlisted:
            return UNKNOWN
        if name in USUAL_NAMES:
            return library(USUAL_NAMES[name])
        return Value(Kind.UNKNOWN, name=f"{unlisted[-1]}.{name}")

    def _attribute(self, node: ast.Attribute) -> Value:
        base = self.evaluate(node.value)
        path = path_of(node)
        known = self.frame.env.get(path) if path else None
        if known is not None:
            return known
        value = self.attribute_of(base, node.attr)
        if path and path in self.roles and is_vague(value):
            value = self.by_role(node, value)
        is_guess = not value.sure or (base.kind is Kind.LOADER and not base.sure)  # which may only hold a loader
        is_guess = value.kind is Kind.UNKNOWN or (is_guess and value.kind is Kind.METHOD)
        return (by_name(node.attr) if is_guess else None) or value

    def attribute_of(self, base: Value, name: str) -> Value:
        if base.kind is Kind.LIBRARY:
            return library(f"{base.name}.{name}")
        if isinstance(base.node, ast.ClassDef):
            found = self._member(base, name)
            if found is not None:
                return found
        if base.kind is Kind.TENSOR:
            return self._tensor_attribute(base, name)
        if base.kind is Kind.SEQUENCE and base.item is not None and name in _FIELDS:
            return base.item
        if base.name == "argparse.Namespace":
            return UNKNOWN
        if base.name == "distribution" and name in _OF_DISTRIBUTION:
            return tensor(base.place)
        if name in base.keys:
            return base.entry(literal(name))
        if name == "saved_tensors":  # of the context of a torch.autograd.Function
            return sequence_of(tensor(self.module_place))
        if name == "param_groups":  # of an optimizer, or what wraps one
            return sequence_of(mapping([("params", sequence_of(tensor(self.module_place)))])._replace(item=UNKNOWN))
        known = base.kind is not Kind.UNKNOWN and not isinstance(base.node, ast.ClassDef)
        return Value(Kind.METHOD, name=name, owner=base, sure=known)

    def _member(self, base: Value, name: str) -> Value | None:
        info = self.class_of(base)
        if info is None:
            return None
        method = info.method(name)
        if method is not None:
            if any(getattr(d, "id", "") == "property" for d in getattr(method.node, "decorator_list", ())):
                return self.call_function(method, {}, None)
            return Value(Kind.FUNCTION, node=method.node, owner=base)
        value = info.attribute(name)
        self.frame.reads.setdefault((info, name), value)
        return value

    def _tensor_attribute(self, base: Value, name: str) -> Value:
        entry = torch_ops.of_attribute(name)
        if entry is None:
            if torch_ops.of_method(name) is None and not base.sure:
                if torch_ops.of_distribution(name) is not None:  # which is what the model gave, then
                    return Value(Kind.METHOD, name=name, owner=Value(Kind.OTHER, base.place, name="distribution"))
                if name == "items":  # of a mapping
                    return Value(Kind.METHOD, name=name, owner=Value(Kind.MAPPING, sure=False, item=base))
                return base._replace(dtype="", item=None)  # outputs.loss: a part of what a model gave
            return Value(Kind.METHOD, name=name, owner=base)
        if entry.result == "tensor":
            is_data = name == "data"  # of what a model gave: if need be, that of a packed sequence
            certain = base.sure or (is_data and base.name != GUESSED)
            return tensor(base.place, sure=certain, dtype=base.dtype if is_data else "")
        if entry.result == "size":
            return sequence_of(NUMBER)
        return {"number": NUMBER, "bool": NUMBER, "str": STRING, "device": Value(Kind.DEVICE, base.place)}.get(
            entry.result, OTHER
        )

    # -- displays

    def _constant(self, node: ast.Constant) -> Value:
        return literal(node.value) if node.value.__class__ in _CONSTANTS else OTHER

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        parts = [self.evaluate(part) for part in node.elts]
        if any(isinstance(part, ast.Starred) for part in node.elts):
            return sequence_of(join_all(parts))
        return sequence(parts)

    def _dict(self, node: ast.Dict) -> Value:
        entries: dict[Constant, Value] = {}
        complete = True
        for key, part in zip(node.keys, node.values, strict=True):
            value = self.evaluate(part)
            known = self.evaluate(key) if key is not None else value
            if key is None and value.kind is Kind.MAPPING and value.items is not None:
                entries |= value.entries
                complete &= value.sure
            elif key is not None and known.is_literal:
                entries[known.literal] = value
            else:
                complete = False
        return mapping(entries.items(), complete=complete)

    # -- operators

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            return PERIODIC if value.name == "modulo" else NUMBER
        if value.is_literal and isinstance(node.op, ast.USub) and isinstance(value.literal, int | float):
            return literal(-value.literal)
        return value

    def _boolop(self, node: ast.BoolOp) -> Value:
        parts = [self.evaluate(part) for part in node.values]
        periodic = [part.periodic for part in parts]
        if any(periodic) if isinstance(node.op, ast.And) else all(periodic):
            return PERIODIC
        return join_all(part._replace(periodic=False) if part.periodic else part for part in parts)

    def _compare(self, node: ast.Compare) -> Value:
        left = self.evaluate(node.left)
        rights = [self.evaluate(part) for part in node.comparators]
        return comparison(node.ops, left, rights)

    def _ifexp(self, node: ast.IfExp) -> Value:
        self.evaluate(node.test)
        return chosen(node, self.evaluate(node.body), self.evaluate(node.orelse))

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self.assign(node.target, value)
        return value

    def _yield(self, node: ast.Yield | ast.YieldFrom) -> Value:
        value = self.evaluate(node.value) if node.value is not None else UNKNOWN
        if isinstance(node, ast.YieldFrom):
            value = element_of(value)
        function = self.frame.function
        if function is not None:
            function.yields = value if function.yields is None else join(function.yields, value)
        return UNKNOWN

    # -- functions and comprehensions

    def _lambda(self, node: ast.Lambda) -> Value:
        if node not in self.functions:
            self.functions[node] = FunctionInfo(node, self.frame, usage=self.usages.get(node, {}))
        return Value(Kind.FUNCTION, node=node)

    def _listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        outer = self._enter_comprehension(node.generators)
        item = self.evaluate(node.elt)
        self.frame.env = outer
        return sequence_of(item)

    def _dictcomp(self, node: ast.DictComp) -> Value:
        outer = self._enter_comprehension(node.generators)
        self.evaluate(node.key)
        item = self.evaluate(node.value)
        self.frame.env = outer
        return Value(Kind.MAPPING, sure=False, items=(), item=item)

    def _enter_comprehension(self, generators: list[ast.comprehension]) -> dict[str, Value]:
        outer = self.frame.env
        self.frame.env = dict(outer)
        for generator in generators:
            self.assign(generator.target, element_of(self.evaluate(generator.iter)))
            for test in generator.ifs:
                self.evaluate(test)
        return outer


def is_vague(value: Value) -> bool:
    """Is so little known of `value` that the way it is used says more?"""
    return value.kind is Kind.UNKNOWN or (not value.sure and value.kind in (Kind.TENSOR, Kind.METHOD))


_OF_PARTS = {ast.JoinedStr: STRING, ast.FormattedValue: STRING, ast.Slice: Value(Kind.OTHER, name="slice")}
_EXPRESSIONS: dict[type[ast.AST], Callable[[Evaluator, Any], Value]] = {
    **dict.fromkeys(_OF_PARTS, Evaluator._of_parts),
    **dict.fromkeys((ast.List, ast.Tuple, ast.Set), Evaluator._list),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp), Evaluator._listcomp),
    **dict.fromkeys((ast.Yield, ast.YieldFrom), Evaluator._yield),
    ast.Name: Evaluator._name,
    ast.Attribute: Evaluator._attribute,
    ast.Constant: Evaluator._constant,
    ast.Dict: Evaluator._dict,
    ast.Starred: lambda self, node: element_of(self.evaluate(node.value)),
    ast.BinOp: lambda self, node: arithmetic(node.op, self.evaluate(node.left), self.evaluate(node.right)),
    ast.UnaryOp: Evaluator._unaryop,
    ast.BoolOp: Evaluator._boolop,
    ast.Compare: Evaluator._compare,
    ast.IfExp: Evaluator._ifexp,
    ast.NamedExpr: Evaluator._namedexpr,
    ast.Subscript: lambda self, node: subscript(self.evaluate(node.value), self.evaluate(node.slice), node.slice),
    ast.Await: lambda self, node: self.evaluate(node.value),
    ast.Lambda: Evaluator._lambda,
    ast.Call: lambda self, node: self.call(node),
    ast.DictComp: Evaluator._dictcomp,
}

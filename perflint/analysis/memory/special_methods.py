"""Which special methods, properties and descriptors of a program a node may run without a visible call."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from perflint.analysis.facts import Program
from perflint.analysis.memory.roles import OPERATORS
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.walk import Function, last_name
from perflint.torch_ops import libraries

_Method = ast.FunctionDef | ast.AsyncFunctionDef
Names = tuple[str, ...]
Runs = tuple[Names, ast.expr, tuple[ast.expr, ...]]  # the names, the object, and what else they are given

INDEXING = frozenset({"__getitem__", "__iter__", "__next__", "__missing__", "__reversed__"})
ITERATION = ("__iter__", "__next__", "__getitem__", "__len__", "__aiter__", "__anext__")
TRUTH = ("__bool__", "__len__")
TEXT = ("__format__", "__str__", "__repr__")
_ITEM = ("__getitem__", "__missing__", "__class_getitem__")
WITHIN = frozenset((*TEXT, "__hash__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"))  # also of contents
_KEYS = ("__hash__", "__eq__", "__index__")
_BY_LIBRARY = {"len": ("__len__",), "bool": TRUTH, **dict.fromkeys(("str", "repr", "print", "format"), TEXT)}
_ASKS = frozenset("isinstance issubclass type id callable getattr hasattr setattr delattr super".split())
_NOT_BY_LIBRARY = frozenset(  # of an object that is given to a library
    "__call__ __init__ __new__ __del__ __post_init__ __init_subclass__ __set_name__ __class_getitem__"
    " __setattr__ __delattr__ __getattr__ __getattribute__ __setitem__ __delitem__ __enter__ __aenter__ __exit__"
    " __aexit__ __get__ __set__ __delete__ __setstate__".split()
)
_COMPARED: dict[type[ast.cmpop], Names] = {
    ast.Eq: ("__eq__",),
    ast.NotEq: ("__ne__", "__eq__"),
    ast.Lt: ("__lt__", "__gt__"),
    ast.LtE: ("__le__", "__ge__"),
    ast.Gt: ("__gt__", "__lt__"),
    ast.GtE: ("__ge__", "__le__"),
    ast.In: ("__eq__",),
    ast.NotIn: ("__eq__",),
}
_UNARY: dict[type[ast.unaryop], Names] = {
    ast.Not: TRUTH,
    ast.USub: ("__neg__",),
    ast.UAdd: ("__pos__",),
    ast.Invert: ("__invert__",),
}
_NO_INSTANCE = frozenset(
    {Kind.TENSOR, Kind.NUMPY, Kind.NUMBER, Kind.STRING, Kind.DEVICE, Kind.NONE, Kind.OPTIMIZER, Kind.LIBRARY}
    | {Kind.FUNCTION, Kind.METHOD, Kind.SEQUENCE, Kind.MAPPING}
)


class SpecialMethods:
    """The methods of the classes of one program that are run without a call, by the names that run them."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.methods: defaultdict[str, list[Function]] = defaultdict(list)
        self.getters: defaultdict[str, list[Function]] = defaultdict(list)
        self.setters: defaultdict[str, list[Function]] = defaultdict(list)
        self.deleters: defaultdict[str, list[Function]] = defaultdict(list)
        self.described: set[str] = set()  # attributes that may be descriptors
        self._classes: dict[_Method, ast.ClassDef] = {}
        for owner in program.of_type(ast.ClassDef):
            for node in owner.body:
                if isinstance(node, _Method):
                    self._classes[node] = owner
                    self._note(node)
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    self._note_descriptor(owner, node, node.value)

    def _note(self, method: _Method) -> None:
        name = method.name
        if name.startswith("__") and name.endswith("__"):
            self.methods[name].append(method)
        for each in method.decorator_list:
            word = last_name(each)
            found = {"setter": self.setters, "deleter": self.deleters}.get(word, self.getters)
            if word not in ("staticmethod", "classmethod", "abstractmethod"):
                found[name].append(method)

    def _note_descriptor(self, owner: ast.ClassDef, node: ast.Assign, made: ast.Call) -> None:
        names = [each.id for each in node.targets if isinstance(each, ast.Name)]
        self.described.update(names)
        if getattr(made.func, "id", "") == "property":
            given = [*made.args[:3], *(each.value for each in made.keywords)]
            called = {each.id for each in given if isinstance(each, ast.Name)}
            functions: list[Function] = [
                each for each, of in self._classes.items() if of is owner and each.name in called
            ]
            functions += [each for each in given if isinstance(each, ast.Lambda)]
            for name in names:
                for found in (self.getters, self.setters, self.deleters):
                    found[name] += functions

    def _owner(self, method: ast.AST) -> ast.ClassDef | None:
        return self._classes.get(method) if isinstance(method, _Method) else None

    def is_of(self, value: Value, method: Function) -> bool:
        owner = self._owner(method)
        if isinstance(value.node, ast.ClassDef) and owner is not None and value.kind is not Kind.CLASS:
            return owner in self._program.lineage(value.node) or value.node in self._program.lineage(owner)
        return not (value.sure and value.kind in _NO_INSTANCE)

    def inherited(self, method: Function, name: str) -> list[Function]:
        bases = self._program.lineage(self._owner(method))[1:]
        return [each for each, of in self._classes.items() if of in bases and each.name == name]

    def is_of_library(self, method: ast.AST) -> bool:
        """Does the class of `method` derive from classes of the file, torch and Python alone?"""
        lineage = self._program.lineage(self._owner(method))
        bases = (base for each in lineage for base in self._program.base_names(each))
        return bool(lineage) and all(each.startswith(("@", "torch.")) or libraries.is_pure(each) for each in bases)

    def by_library(self, name: str) -> Names:
        """What a function of a library, or an unanalysed one, may run of an object that it is given."""
        package, _, last = name.rpartition(".")
        if package == "builtins" and (last in _BY_LIBRARY or last in _ASKS):
            return _BY_LIBRARY.get(last, ())
        is_torch = package.partition(".")[0] == "torch"  # which computes on tensors
        return () if is_torch else tuple(each for each in self.methods if each not in _NOT_BY_LIBRARY)


def only_asks(name: str) -> bool:
    return name.startswith("builtins.") and name.rpartition(".")[2] in _ASKS


def run_by(node: ast.AST) -> Iterator[Runs]:
    method = _RUN_BY.get(type(node))
    return method(node) if method is not None else iter(())


def _of_binary(node: ast.BinOp) -> Iterator[Runs]:
    word = OPERATORS[type(node.op)]
    yield (f"__{word}__",), node.left, (node.right,)
    yield (f"__r{word}__",), node.right, (node.left,)
    if isinstance(node.op, ast.Mod):
        yield TEXT, node.right, ()


def _of_comparison(node: ast.Compare) -> Iterator[Runs]:
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        for one, other in ((left, right), (right, left)):
            yield _COMPARED.get(type(op), ()), one, (other,)
        if isinstance(op, ast.In | ast.NotIn):
            yield ("__contains__", *ITERATION), right, (left,)
        left = right


def _of_truth(node: ast.If | ast.While | ast.IfExp | ast.Assert) -> Iterator[Runs]:
    yield TRUTH, node.test, ()


def _of_either(node: ast.BoolOp) -> Iterator[Runs]:
    return ((TRUTH, each, ()) for each in node.values)


def _of_comprehension(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> Iterator[Runs]:
    for each in node.generators:
        yield ITERATION, each.iter, ()
        yield from ((TRUTH, test, ()) for test in each.ifs)


def _of_assignment(node: ast.Assign) -> Iterator[Runs]:
    if any(isinstance(each, ast.Tuple | ast.List) for each in node.targets):
        yield ITERATION, node.value, ()


def _of_subscript(node: ast.Subscript) -> Iterator[Runs]:
    names = {ast.Store: ("__setitem__",), ast.Del: ("__delitem__",)}.get(type(node.ctx), _ITEM)
    yield names, node.value, (node.slice,)
    yield _KEYS, node.slice, ()


def _of_keys(node: ast.Set | ast.Dict) -> Iterator[Runs]:
    keys = node.elts if isinstance(node, ast.Set) else node.keys
    return ((_KEYS, each, ()) for each in keys if each is not None)


def _of_match(node: ast.Match) -> Iterator[Runs]:
    yield ("__eq__", "__getitem__", *ITERATION), node.subject, ()


_RUN_BY: dict[type[ast.AST], Callable[[Any], Iterator[Runs]]] = {
    ast.BinOp: _of_binary,
    ast.UnaryOp: lambda node: iter([(_UNARY[type(node.op)], node.operand, ())]),
    ast.Compare: _of_comparison,
    ast.BoolOp: _of_either,
    ast.If: _of_truth,
    ast.While: _of_truth,
    ast.IfExp: _of_truth,
    ast.Assert: _of_truth,
    ast.FormattedValue: lambda node: iter([(TEXT, node.value, ())]),
    ast.Subscript: _of_subscript,
    ast.Starred: lambda node: iter([(ITERATION, node.value, ())]),
    ast.YieldFrom: lambda node: iter([(ITERATION, node.value, ())]),
    ast.Await: lambda node: iter([(("__await__",), node.value, ())]),
    ast.For: lambda node: iter([(ITERATION, node.iter, ())]),
    ast.AsyncFor: lambda node: iter([(ITERATION, node.iter, ())]),
    ast.ListComp: _of_comprehension,
    ast.SetComp: _of_comprehension,
    ast.DictComp: _of_comprehension,
    ast.GeneratorExp: _of_comprehension,
    ast.Set: _of_keys,
    ast.Dict: _of_keys,
    ast.Assign: _of_assignment,
    ast.withitem: lambda node: iter([(("__enter__", "__exit__", "__aenter__", "__aexit__"), node.context_expr, ())]),
    ast.Match: _of_match,
}
RUNNING = frozenset({*_RUN_BY, ast.Call, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef})

"""What calling a value runs, also where one callable is composed of others, what that changes, and whether it draws."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from perflint import torch_ops
from perflint.analysis.call_graph import CallGraph
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.locations import NOWHERE, Location, Locations, MemorySummary, Origin, Write, made
from perflint.analysis.memory.points_to import PointsTo
from perflint.analysis.memory.roles import FILLS, TAKES
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of, is_static
from perflint.syntax.walk import FUNCTIONS, Function, method_of, path_of
from perflint.torch_ops import libraries

_DEPTH = 3  # of compositions of callables

Part = Function | str | None  # a function of the file, the name of a function or class of a library, or what is unknown


class Callables:
    def __init__(self, program: Program, origins: Origins | None = None) -> None:
        self._program = program
        self._origins = origins or program.get(Origins)
        self._flow = program.get(Flow)

    def made_at(self, call: ast.Call) -> Callables:
        return Callables(self._program, self._origins.given_at(call))

    def of(self, node: ast.AST, depth: int = _DEPTH) -> list[Part]:
        parts = dict.fromkeys(part for origin in self._origins.of(node) for part in self._behind(origin, depth))
        is_replaced = isinstance(node, ast.Attribute) and node.attr in self._set_from_outside
        return list(parts | dict.fromkeys([None] if is_replaced else []))

    @cached_property
    def _set_from_outside(self) -> set[str]:
        stores = (each for each in self._program.of_type(ast.Attribute) if isinstance(each.ctx, ast.Store))
        return {each.attr for each in stores if getattr(each.value, "id", "") != "self"}

    def _behind(self, origin: ast.AST, depth: int) -> Iterator[Part]:
        value = self._program.value(origin)
        if isinstance(origin, FUNCTIONS):
            yield origin
        elif isinstance(origin, ast.Call):
            yield from self._of_object(origin, depth)
        elif value.kind is Kind.FUNCTION and isinstance(value.node, FUNCTIONS):
            yield value.node
        elif not (isinstance(origin, ast.Constant) and origin.value is None):  # which nobody calls
            yield self._program.qualified(origin) or None

    def _of_object(self, call: ast.Call, depth: int) -> Iterator[Part]:
        value = self._program.value(call.func)
        if value.kind is Kind.CLASS:
            yield method_of(value.node, "__call__")
        elif value.kind is Kind.LIBRARY:
            yield value.name if depth else None
            is_composed = libraries.composes(value.name)
            for argument in arguments_of(call) if depth else ():
                for part in self._items(argument):
                    inner = self.of(part, depth - 1) if part is not None else [None]
                    yield from inner if is_composed else (each for each in inner if isinstance(each, FUNCTIONS))
            if is_composed and self._is_recomposed(call):
                yield None
        else:
            yield None

    def _items(self, argument: ast.expr) -> Iterator[ast.AST | None]:
        for origin in self._origins.of(argument):
            if isinstance(origin, ast.List | ast.Tuple):
                yield from origin.elts
                if origin is not argument and not self._is_used_once(argument):
                    yield None
            else:
                yield origin

    def _is_used_once(self, node: ast.expr) -> bool:
        value = self._flow.graph(node).value(node) if isinstance(node, ast.Name) else None
        return value is not None and len(value.uses) == 1

    def _is_recomposed(self, call: ast.Call) -> bool:
        """May the program change the composition made there, by `its.transforms.insert(0, ...)`?"""
        mentions = self._program.attributes.get("transforms", ())
        wholes = (self._origins.of(each.value) for each in mentions if not self._program.qualified(each))
        return any(call in found or not all(isinstance(each, ast.Call) for each in found) for found in wholes)


_READING_ON = frozenset("read read1 readinto readline readlines recv seek send fetchone fetchmany __next__".split())
_GIVING = frozenset({"pop", "popleft", "popitem", "setdefault"})  # those that fill or take, and whose result is used
_SHARING = ("builtins.", "itertools.", "collections.", "functools.partial", "numpy.asarray")
HARMLESS_METHODS = frozenset(  # of anything but tensors, as far as they are not torch's
    "append extend index count get items keys values copy split strip lower upper replace join format"
    " startswith endswith encode"
    " decode read readline seek close iloc loc item tolist numpy astype reshape transpose view float"
    " long int double half bool"
    " unsqueeze squeeze permute contiguous clone detach convert resize crop size dim mean sum min max"
    " std to_numpy open load"
    " type to div mul add sub flatten ravel pad encode_plus".split()
)


class OptimisticPointsTo(PointsTo):
    """Points-to analysis where unanalysed code is taken to write to nothing, and to return something new.

    An attribute that is assigned where it is missing, as at its first use, is not written to.
    """

    def is_run(self, special: str) -> bool:
        return False

    def write(
        self, node: ast.AST, to: Collection[Location], *,
        deep: bool = False, deferred: bool = False, attribute: str = "",
    ) -> None:  # fmt: skip
        if not deep and not is_first_use(self.program, node):
            super().write(node, to, deferred=deferred, attribute=attribute)

    def _dispatched(self, call: ast.Call) -> Sequence[Function]:
        return super()._dispatched(call) or self.program.get(Callees).of(call.func)

    def joined(self, operand: ast.expr) -> Locations:
        is_container = self.program.value(operand).kind in (Kind.SEQUENCE, Kind.MAPPING)
        return super().joined(operand) if is_container else NOWHERE

    def _of_library(self, call: ast.Call, name: str) -> Locations:
        is_new = not name.startswith(_SHARING)
        if name == "builtins.next" and call.args:
            self.write(call, self.of(call.args[0]))
        found = super()._of_library(call, name)
        return self._unknown(call) if is_new else found

    def _elsewhere(self, call: ast.Call, name: str) -> Locations:
        return self._unknown(call)

    def _of_module(self, call: ast.Call) -> Locations:
        return self._unknown(call)

    def _method(self, call: ast.Call, func: ast.Attribute) -> Locations:
        name, receiver = func.attr, self.of(func.value)
        is_statement = isinstance(self.program.parent(call), ast.Expr)
        if name in _READING_ON:
            self.write(call, receiver)
        is_new = name in ("copy", *_READING_ON) or (
            torch_ops.of_method(name) is None and self.program.value(func.value).kind is Kind.NUMPY
        )
        is_used = name in FILLS | TAKES and name not in _GIVING and not is_statement
        if is_used or (is_new and name not in FILLS | TAKES):
            return self._unknown(call)
        return super()._method(call, func)

    def _unknown(self, call: ast.Call) -> Locations:
        for keyword in call.keywords:
            if keyword.arg == "inplace" and getattr(keyword.value, "value", False) is True:
                is_method = isinstance(call.func, ast.Attribute) and not self.program.qualified(call.func)
                self.write(call, self.of(call.func.value if is_method else call.args[0]))  # type: ignore[attr-defined]
        return frozenset({made(call)})


class SideEffects(Memory):
    analysis = OptimisticPointsTo

    def left_behind(self, function: Function) -> list[str]:
        known = (each for each in self.summary(function).writes if each.to.origin is not Origin.ANYWHERE)
        return sorted({_written_name(each) for each in known if not self._is_argument(function, each.to)} - {""})

    def passes_on(self, function: Function) -> bool:
        summary = self.summary(function)
        given = (each for each in summary.returns | summary.holds if each.is_outside)
        return any(self._is_argument(function, each) for each in given)

    def _is_argument(self, function: Function, place: Location) -> bool:
        first = next(iter([*function.args.posonlyargs, *function.args.args]), None)
        is_method = self.program.class_of(function) is not None and not is_static(function)
        return place.origin is Origin.PARAMETER and not (is_method and place.root is first)

    def _of_unknown(self, function: Function) -> MemorySummary:
        return MemorySummary()

    def _of_recursion(self, function: Function) -> MemorySummary:
        return MemorySummary()


def _written_name(write: Write) -> str:
    root = write.to.root.arg if isinstance(write.to.root, ast.arg) else str(write.to.root)
    attributes = [part for part in (*write.to.path, write.attribute) if part.isidentifier()]
    return ".".join([root, *attributes[:1]])


# -- which functions run


class Callees(CallGraph):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._callables = program.get(Callables)

    def callees(self, call: ast.Call) -> Sequence[Function]:
        return super().callees(call) or self.of(call.func)

    def of(self, node: ast.AST) -> list[Function]:
        return [part for part in self._callables.of(node) if isinstance(part, FUNCTIONS)]


def is_first_use(program: Program, node: ast.AST) -> bool:
    """Is `node` an assignment for where nothing is there yet, as a file is opened at first use?"""
    if not isinstance(node, ast.Assign) or isinstance(node.targets[0], ast.Subscript):
        return False
    name = path_of(node.targets[0]).rpartition(".")[2]
    tests = [parent.test for parent in program.ancestors(node) if isinstance(parent, ast.If)]
    return bool(name) and any(_asks_whether_missing(part, name) for test in tests for part in ast.walk(test))


def _asks_whether_missing(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _mentions(node.operand, name)
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Is | ast.Eq):
        return False
    return getattr(node.comparators[0], "value", 0) is None and _mentions(node.left, name)


def _mentions(node: ast.AST, name: str) -> bool:
    return any(
        name in (getattr(each, "id", ""), getattr(each, "attr", ""), getattr(each, "value", ""))
        for each in ast.walk(node)
    )


_DRAWING = frozenset("choice permutation shuffle normal uniform integers rand randn random sample rvs".split())


class Draws:
    def __init__(self, program: Program, callables: Callables | None = None) -> None:
        self._program = program
        self._callables = callables or program.get(Callables)
        self._callees = program.get(Callees)
        self._known: dict[Function, bool] = {}

    def of_object(self, call: ast.Call) -> Draws:
        """Those of the object that `call` makes, whatever other objects of the class are given."""
        return Draws(self._program, self._callables.made_at(call))

    def may_call(self, node: ast.AST) -> bool:
        return any(map(self._part_draws, self._callables.of(node)))

    def _part_draws(self, part: Part) -> bool:
        if isinstance(part, FUNCTIONS):
            return self.may_run(part)
        return part is None or library_draws(part)

    def may_run(self, function: Function) -> bool:
        if function not in self._known:
            self._known[function] = True  # while it is being computed, for transforms that run one another
            calls = (call for each in self._callees.reached([function]) for call in self._callees.calls(each))
            self._known[function] = any(map(self._may_draw, calls))
        return self._known[function]

    def _may_draw(self, call: ast.Call) -> bool:
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
        parts = self._callables.of(node)
        return any(self._part_draws(part) for part in parts if not isinstance(part, FUNCTIONS))

    def _method_draws(self, function: ast.Attribute) -> bool:
        owner = self._program.value(function.value)
        if owner.kind is Kind.TENSOR:
            entry = torch_ops.of_method(function.attr)
            return entry is not None and "random" in entry.traits
        if owner.kind in (Kind.NUMPY, Kind.STRING, Kind.SEQUENCE, Kind.MAPPING, Kind.NUMBER):
            return function.attr in _DRAWING
        is_of_base = isinstance(function.value, ast.Call) and (
            self._program.qualified(function.value.func) == "builtins.super"
        )
        if is_of_base or function.attr in HARMLESS_METHODS:
            return is_of_base
        return self._may_call_unseen(function)


def library_draws(name: str) -> bool:
    """May calling the library function, or class, draw random numbers? True where it is unknown."""
    if not name.startswith("torch."):
        return libraries.may_draw(name)
    if (entry := torch_ops.of_function(name)) is not None:
        return "random" in entry.traits
    is_known = name == "torch.load" or torch_ops.class_kind(name) == "tensor-type" or name.endswith(".default_collate")
    return "rand" in name or not is_known

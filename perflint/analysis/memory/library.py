"""What operations of torch, methods and library functions do to memory, and what unanalysed code may do."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.graph import Graph
from perflint.analysis.memory.dispatch import Modules, registers_hooks
from perflint.analysis.memory.locations import (
    ANY,
    ANYWHERE,
    ELEMENTS,
    GRADIENTS,
    NOWHERE,
    Cells,
    Location,
    Locations,
    MemorySummary,
    Write,
    made,
)
from perflint.analysis.memory.roles import CONTAINERS_OF, FILLS, GRADING, HOLDS, NAMESPACES, NEW, TAKES
from perflint.analysis.memory.sharing import Sharing
from perflint.analysis.memory.special_methods import INDEXING, SpecialMethods
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import FUNCTIONS, Function, text_of
from perflint.torch_ops import Argument, Operation, libraries

PLAIN = frozenset({Kind.NUMBER, Kind.STRING, Kind.NONE, Kind.DEVICE})
_CONTAINERS = frozenset({Kind.SEQUENCE, Kind.MAPPING})
ARRAYS = frozenset({Kind.TENSOR, Kind.NUMPY})
_GRAPHS = "perflint.runtime.graphs."
_OF_SCALERS = ("scale", "unscale_", "update")  # methods of GradScaler that keep nothing of what they are given


def is_library(program: Program, node: ast.expr) -> bool:
    return _is_known(program.qualified(getattr(node, "func", node)))


def _is_known(name: str) -> bool:
    return libraries.is_pure(name) or name.startswith("torch.")


def is_display(place: Location) -> bool:
    """Is it a container of Python's own, made here?"""
    displays = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)
    return not place.path and isinstance(place.root, displays)


def is_decorated(program: Program, function: Function) -> bool:
    """May an unanalysed decorator make something else of the function?"""
    return not all(is_library(program, each) for each in decorators_of(program, function))


def decorators_of(program: Program, function: Function) -> list[ast.expr]:
    found: list[ast.expr] = getattr(function, "decorator_list", [])
    return [each for each in found if not program.qualified(getattr(each, "func", each)).startswith(_GRAPHS)]


class LibraryCalls(ABC):
    def __init__(self, program: Program, graph: Graph, summary_of: Callable[[Function], MemorySummary]) -> None:
        self.program, self.graph, self.summary_of = program, graph, summary_of
        self.sharing = program.get(Sharing)
        self.cells = Cells()
        self.writes: dict[Write, None] = {}
        self._deferred = {part for node in graph.deferred for part in ast.walk(node)}
        self.specials = program.get(SpecialMethods)

    @abstractmethod
    def of(self, node: ast.expr) -> Locations:
        """The locations that `node` may evaluate to; none for numbers and other plain values."""

    @abstractmethod
    def run(
        self, function: Function, node: ast.AST, given: Mapping[int, Locations], *, deferred: bool = False
    ) -> Locations:
        """What running `function` gives, with these locations for its first parameters; `deferred`: at any time."""

    def is_run(self, special: str) -> bool:
        """May an operator run the special methods of this name, of any class of the file?"""
        return True

    @property
    def indexes(self) -> bool:
        return any(map(self.is_run, INDEXING & self.specials.methods.keys()))

    def items_of(self, node: ast.expr) -> Locations:
        """What iterating over `node` or indexing it may give: the items of a container, views of a tensor."""
        return self._items(self.of(node), node)

    def write(
        self, node: ast.AST, to: Collection[Location], *,
        deep: bool = False, deferred: bool = False, attribute: str = "",
    ) -> None:  # fmt: skip
        """Note that `node` writes to these locations; `deep`: and to what can be reached from them."""
        deferred |= node in self._deferred
        shared = [each for place in to for each in self.cells.held.get((place, "data"), ())]
        if GRADIENTS in to:
            shared += [each for (_, name), held in self.cells.held.items() if name == "grad" for each in held]
        for each in self.cells.reach([*to, *shared]) if deep else (*to, *shared):
            self.writes[Write(node, each, deep, deferred, attribute)] = None

    def items_at(self, locations: Locations) -> Locations:
        """What objects at `locations` hold as items, where nothing is known of their kind."""
        return locations | self.cells.load(locations, ELEMENTS)

    def bind_attribute(self, node: ast.AST, objects: Locations, name: str, values: Locations) -> None:
        """`object.name = value`; the data of a tensor becomes another's."""
        self.cells.store(objects, name, values)
        if name == "data":
            self.write(node, objects)
            self.cells.store(objects, ANY, values)
        self.write(node, objects, attribute=name)

    def _items(self, locations: Locations, node: ast.expr) -> Locations:
        value = self.program.value(node)
        if value.kind in ARRAYS and value.sure:
            return locations
        items = self.cells.load(locations, ANY if self.indexes and value.kind not in _CONTAINERS else ELEMENTS)
        return items if value.kind in _CONTAINERS else locations | items

    # -- torch's operations

    def _operation(self, call: ast.Call, operation: Operation) -> Locations:
        if operation.does("differentiating"):
            self._differentiate(call)
        for argument in operation.writes:
            written = self._argument(call, argument)
            self.write(call, written)
            if operation.does("adopting"):
                self.bind_attribute(call, written, "data", self._given(call))
        shared = frozenset().union(*(self._argument(call, each) for each in (*operation.views, *operation.may_return)))
        own = frozenset({made(call)})
        self.cells.store(own, ELEMENTS, shared)
        return self._unknown(call) if operation.does("applying") and self._applies(call) else shared | own

    def _differentiate(self, call: ast.Call) -> None:
        """Gradients change, and what runs with backward passes: hooks, and functions with one of their own."""
        self.write(call, [ANYWHERE if registers_hooks(self.program) else GRADIENTS], deep=True)
        for function in self.program.of_type(ast.FunctionDef):
            if function.name == "backward":
                self.run(function, call, {})

    def _argument(self, call: ast.Call, argument: Argument) -> Locations:
        found = [self.items_at(self.of(each)) if argument.spread else self.of(each)
                 for each in argument.of(call)]  # fmt: skip
        found += [self.items_of(each.value) for each in call.keywords if each.arg is None]
        return frozenset().union(*found)

    def _of_tensor_type(self, call: ast.Call) -> Locations:
        """`torch.LongTensor(x)`: the memory of a tensor, but a copy of a list."""
        tensors = (each for each in call.args if self.program.value(each).kind not in _CONTAINERS)
        return frozenset({made(call)}).union(*map(self.of, tensors))

    def _of_module(self, call: ast.Call) -> Locations:
        """A call of a module, which keeps nothing, but may be built to work in place."""
        chain = self._chain(call)
        new = [at for at, (_, each) in enumerate(chain) if not (each.views or each.may_return)]
        if not chain or any(each.does("tracking") for _, each in chain):
            self.write(call, self.of(call.func), deep=True)
        if registers_hooks(self.program):
            self.write(call, self._given(call), deep=True, deferred=True)
        elif not chain or any(self._is_in_place(*each) for each in chain[: new[0] + 1 if new else None]):
            self.write(call, self._given(call), deep=True)
        return frozenset({made(call)}) if new and not registers_hooks(self.program) else self._kept(call)

    def _chain(self, call: ast.Call) -> list[tuple[str, Operation]]:
        """The modules of torch that a call runs one by one, and what each does; empty where one isn't known."""
        value = self.program.value(call.func)
        is_plain = bool(value.items) and value.name == "torch.nn.Sequential"
        is_plain = is_plain and not self.program.get(Modules).is_changed(call.func)
        parts = value.items or () if is_plain else (value,)
        found = [(each.name, torch_ops.of_forward(each.name)) for each in parts if each.sure and each.name]
        chain = [(name, operation) for name, operation in found if operation is not None]
        is_known = value.sure and len(chain) == len(parts) and not any(each.items for each in parts)
        return chain if is_known else []

    def _is_in_place(self, name: str, operation: Operation) -> bool:
        calls = self.program.of_type(ast.Call) if operation.writes else ()
        builders = [each for each in calls if self.program.qualified(each.func) == name]
        return any(each.happens(one) for each in operation.writes for one in builders)

    # -- methods

    def _method(self, call: ast.Call, func: ast.Attribute) -> Locations:
        value = self.program.value(func.value)
        receiver = self.of(func.value)
        operation = torch_ops.of_method(func.attr)
        drawn = torch_ops.of_distribution(func.attr) if value.name == "distribution" and value.sure else None
        if drawn is not None:
            return self._operation(call, drawn)
        if func.attr in GRADING:
            self.write(call, [GRADIENTS], deep=True)
        if func.attr == "step" and self._may_step(call, value):
            self.write(call, [*receiver, *self._given(call), ANYWHERE], deep=True)
            return NOWHERE
        if func.attr in _OF_SCALERS and receiver and all(map(self._is_scaler, receiver)):
            return self._given(call) | {made(call)}  # it keeps none of that
        if value.kind is Kind.STRING and value.sure:
            self.write(call, self._given(call), deep=True)  # by their own `__format__`
            return NOWHERE if self.program.value(call).kind is Kind.STRING else frozenset({made(call)})
        if value.kind in (Kind.SEQUENCE, Kind.MAPPING) or (
            func.attr in FILLS | TAKES | HOLDS and (value.kind is not Kind.TENSOR or operation is None)
        ):
            if value.kind not in _CONTAINERS and not all(map(is_display, receiver)):  # its own method may do anything
                self.write(call, receiver | self._given(call), deep=True)
            return self._of_container(call, func.attr, receiver)
        if operation is not None and value.kind is not Kind.MODULE:
            return self._operation(call, operation)
        if value.kind is Kind.NUMPY:
            self._write_out(call)
            return receiver | {made(call)}
        return self._unknown(call)

    def _is_scaler(self, location: Location) -> bool:
        root = location.root
        name = self.program.qualified(root.func) if isinstance(root, ast.Call) and not location.is_outside else ""
        return name.startswith("torch.") and name.endswith(".GradScaler")

    def _may_step(self, call: ast.Call, receiver: Value) -> bool:
        given = list(map(self.program.value, arguments_of(call)))
        alone = len(given) < 2 and all(each.kind is Kind.UNKNOWN for each in (receiver, *given))
        return alone or any(each.kind is Kind.OPTIMIZER for each in (receiver, *given))

    def _of_container(self, call: ast.Call, name: str, receiver: Locations) -> Locations:
        given = self._given(call)
        if name in FILLS or name in TAKES or name.startswith("__"):
            self.write(call, receiver)
        if name in FILLS or name.startswith("__"):
            self.cells.store(receiver, ELEMENTS, given | self._inside(given))
        if getattr(getattr(call.func, "value", None), "attr", "") in NAMESPACES:
            self.cells.store(receiver, ANY, given | self._inside(given))
        items = self.cells.load(receiver, ELEMENTS)
        own = frozenset({made(call)})
        self.cells.store(own, ELEMENTS, items)
        return items | own | given

    # -- library functions, and the unknown

    def _of_library(self, call: ast.Call, name: str) -> Locations:
        last = name.rpartition(".")[2]
        self._write_out(call)
        fills_container = name.startswith("builtins.") and last in CONTAINERS_OF
        if (
            any(map(self._may_write, (each.value for each in call.keywords)))
            if fills_container
            else self._applies(call)
        ):
            return self._unknown(call)
        if name.startswith(("numpy.", "cv2.")):  # one of them may be `out`, or `dst`, which OpenCV takes earlier
            others = call.args[1:] if name.startswith("cv2.") else call.args[2:]
            self.write(call, frozenset().union(*map(self.of, others)), deep=True)
        first = self.of(call.args[0]) if call.args else NOWHERE
        is_in_place = name.startswith("operator.i") and last not in ("index", "indexOf", "invert")
        if last in libraries.WRITES_FIRST or is_in_place:
            self.write(call, first | self._inside(first))
            if not name.startswith("numpy."):  # which copies numbers
                self.cells.store(first, ELEMENTS, frozenset().union(*map(self.of, call.args[1:])))
        if name in libraries.WRITES_SECOND:
            self.write(call, frozenset().union(*map(self.of, call.args[1:2])))
        if name == "copy.deepcopy" or last in libraries.READERS or (name.startswith("builtins.") and last in NEW):
            return frozenset({made(call)})
        if fills_container:
            self._kept(call)
            return frozenset({made(call)})
        return self._kept(call) | self._inside(self._given(call))

    def _write_out(self, call: ast.Call) -> None:
        for keyword in call.keywords:
            if keyword.arg in ("out", "dst"):
                self.write(call, self.items_at(self.of(keyword.value)))

    def _set_attribute(self, call: ast.Call) -> Locations:
        if len(call.args) == 3:
            objects, name, value = call.args
            self.bind_attribute(call, self.of(objects), text_of(name) or ANY, self.of(value))
        return NOWHERE

    def _kept(self, call: ast.Call) -> Locations:
        given = self._given(call)
        own = frozenset({made(call)})
        self.cells.store(own, ANY, given | self._inside(given))
        return own | given

    def _unknown(self, call: ast.Call) -> Locations:
        """Unanalysed code: it may write to, store and return all that it can reach."""
        func = call.func
        given = self._given(call)
        if not _is_known(self.program.qualified(func)):  # another file's may keep what it is given, and give it back
            given |= self.of(func.value if isinstance(func, ast.Attribute) else func)
        keeps = any(self._may_write(each, is_sure=True) for each in arguments_of(call))
        self.write(call, given, deep=True, deferred=keeps)  # what is given a function may call it at any time
        self.cells.store([*given, made(call)], ANY, given)
        unknown = {each.part(ANY) for each in given if each.has_unknown_contents}
        return self.cells.reach(given) | {made(call)} | unknown

    def _applies(self, call: ast.Call) -> bool:
        return any(self._may_write(each) for each in arguments_of(call))

    def _may_write(self, node: ast.expr, *, is_sure: bool = False) -> bool:
        """Is it a function that may write to something, or for sure a function that does?"""
        value = self.program.value(node)
        if isinstance(node, ast.Lambda) or (value.kind is Kind.FUNCTION and isinstance(value.node, FUNCTIONS)):
            function = node if isinstance(node, ast.Lambda) else value.node
            assert isinstance(function, FUNCTIONS)
            return any(not write.attribute for write in self.summary_of(function).writes)
        if value.kind is Kind.LIBRARY:
            operation = torch_ops.of_function(value.name) if value.name.startswith("torch.") else None
            is_known = operation is not None or _is_known(value.name)
            return bool(operation.writes) if operation is not None else not is_known
        if value.kind is Kind.METHOD and isinstance(node, ast.Attribute):
            operation = torch_ops.of_method(node.attr)
            return bool(operation.writes) if operation else not is_sure and torch_ops.of_attribute(node.attr) is None
        return value.kind in (Kind.METHOD, Kind.MODULE) and not is_sure

    def _given(self, call: ast.Call) -> Locations:
        return frozenset().union(*map(self.of, arguments_of(call)))

    def _inside(self, places: Iterable[Location]) -> Locations:
        return self.cells.load(places, ELEMENTS) | self.cells.load(places, ANY)

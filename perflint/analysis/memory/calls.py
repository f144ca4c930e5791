"""What calls do to memory: their results, the writes that they make, and what they store."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.graph import Graph
from perflint.analysis.memory.locations import (
    ANY,
    ANYWHERE,
    ELEMENTS,
    NOWHERE,
    Cells,
    Location,
    Locations,
    Origin,
    Summary,
    Write,
    made,
)
from perflint.analysis.memory.python import (
    CONTAINERS_OF,
    FILLS,
    HOLDS,
    NEW,
    PURE_PACKAGES,
    SEE_ALL,
    TAKES,
    WRITES_FIRST,
)
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import bind, defaults_of, is_static, parameters_of
from perflint.syntax.walk import FUNCTIONS, Function
from perflint.torch_ops import Argument, Operation

PLAIN = frozenset({Kind.NUMBER, Kind.STRING, Kind.NONE, Kind.DEVICE})
_CONTAINERS = frozenset({Kind.SEQUENCE, Kind.MAPPING})
ARRAYS = frozenset({Kind.TENSOR, Kind.NUMPY})
VARIABLE = "="  # the cell of a variable of an outer scope


class Calls(ABC):
    """The memory of one function, and what the calls in it do to that."""

    def __init__(self, program: Program, graph: Graph, summary_of: Callable[[Function], Summary]) -> None:
        self.program, self.graph, self.summary_of = program, graph, summary_of
        self.cells = Cells()
        self.writes: dict[Write, None] = {}
        self._deferred = {part for node in graph.deferred for part in ast.walk(node)}
        self.properties: dict[str, list[Function]] = {}
        self.operators: dict[str, list[Function]] = {}
        for function in program.of_type(ast.FunctionDef):
            if function.name.startswith("__"):
                self.operators.setdefault(function.name, []).append(function)
            if any(getattr(each, "id", "") in ("property", "cached_property") for each in function.decorator_list):
                self.properties.setdefault(function.name, []).append(function)

    @abstractmethod
    def of(self, node: ast.expr) -> Locations:
        """The locations that `node` may evaluate to; none for numbers and other plain values."""

    @abstractmethod
    def dispatched(self, call: ast.Call) -> Sequence[Function]:
        """The functions of this file that a call runs although only its running tells which of them it is."""

    @abstractmethod
    def outer(self, name: str) -> Locations:
        """What a function inside of this scope finds under `name` at any time."""

    def items_of(self, node: ast.expr) -> Locations:
        """What iterating over `node` or indexing it may give: the items of a container, views of a tensor."""
        return self._items(self.of(node), node)

    def outside(self, name: str) -> Locations:
        """What a variable of a scope around this one may hold."""
        place = Location(Origin.OUTER, name)
        return frozenset({place, *self.cells.held.get((place, VARIABLE), ())})

    def write(
        self,
        node: ast.AST,
        to: Iterable[Location],
        *,
        deep: bool = False,
        deferred: bool = False,
        attribute: str = "",
    ) -> None:
        """Note that `node` writes to these locations; `deep`: and to what can be reached from them."""
        deferred |= node in self._deferred
        shared = (each for place in to for each in self.cells.held.get((place, "data"), ()))
        for each in self.cells.reach(to) if deep else (*to, *shared):
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
        items = self.cells.load(locations, ELEMENTS)
        return items if value.kind in _CONTAINERS else locations | items

    def result(self, call: ast.Call) -> Locations:
        """What a call may evaluate to. Its writes and stores are noted."""
        function = self._callee(call)
        if function is not None:
            return self._unknown(call) if self._is_decorated(function) else self._called(call, function)
        if dispatched := self.dispatched(call):
            return frozenset().union(*(self._called(call, each) for each in dispatched))
        name = self.program.qualified(call.func)
        if name in SEE_ALL:
            self.write(call, [ANYWHERE], deferred=True)
        if name == "builtins.setattr":
            return self._set_attribute(call)
        operation = torch_ops.of_function(name) if name.startswith("torch.") else None
        if operation is not None:
            return self._operation(call, operation)
        if name.startswith("torch.") and (kind := torch_ops.class_kind(name)) is not None:
            return self._of_tensor_type(call) if kind == "tensor-type" else self._kept(call)
        if name and name.partition(".")[0] in (*PURE_PACKAGES, "torch") and not name.startswith("torch.ops."):
            return self._of_library(call, name)
        if self.program.value(call.func).kind is Kind.MODULE:
            return self._of_module(call)
        if isinstance(call.func, ast.Attribute) and not name:
            return self._method(call, call.func)
        return self._elsewhere(call, name) if name else self._unknown(call)

    def _is_decorated(self, function: Function) -> bool:
        """May a decorator out of sight make something else of the function?"""
        return not all(map(self.is_library, getattr(function, "decorator_list", ())))

    def is_library(self, node: ast.expr) -> bool:
        """Is it a library's function, or a call of one, which writes to nothing later on?"""
        name = self.program.qualified(getattr(node, "func", node))
        return name.partition(".")[0] in (*PURE_PACKAGES, "torch")

    def kept(self, node: ast.AST, function: Function) -> None:
        """Somebody may call the inner function at any later time."""
        for write in self.summary_of(function).writes:
            if write.to.origin is Origin.OUTER:
                places = self._mapped(write.to, function, {})
                self.write(node, places, deep=write.deep, deferred=True, attribute=write.attribute)

    def run(self, function: Function, node: ast.AST, given: Mapping[int, Locations]) -> Locations:
        """What running `function` gives, with these locations for its first parameters."""
        parameters = [*function.args.posonlyargs, *function.args.args]
        return self._instantiated(
            node, function, {parameters[at]: what for at, what in given.items() if at < len(parameters)}
        )

    # -- functions of this file

    def _callee(self, call: ast.Call) -> Function | None:
        found = self.program.callee(call)
        if found is not None and self.program.value(call.func).kind is Kind.FUNCTION:
            is_made = any(isinstance(each.root, ast.Call) and not each.path for each in self.of(call.func))
            return None if is_made or isinstance(call.func, ast.Call) else found  # as by functools.partial
        if found is not None or not isinstance(call.func, ast.Name | ast.Lambda):
            return found
        if isinstance(call.func, ast.Lambda):
            return call.func
        definitions = self.graph.definitions(call.func)
        nodes = {getattr(each, "source", None) or getattr(each, "node", None) for each in definitions}
        only = nodes.pop() if len(nodes) == 1 else None
        return only if isinstance(only, FUNCTIONS) else None

    def _called(self, call: ast.Call, function: Function) -> Locations:
        given = self._bound(call, function)
        value = self.program.value(call.func)
        if value.kind is Kind.CLASS:
            own = frozenset({made(call)})
            first = next(iter([*function.args.posonlyargs, *function.args.args]), None)
            self._instantiated(call, function, {**given, **({first: own} if first is not None else {})})
            return own
        return self._instantiated(call, function, given)

    def _bound(self, call: ast.Call, function: Function) -> dict[ast.arg, Locations]:
        """What each parameter refers to; all that is unpacked may be any of them, and defaults are the caller's."""
        parameters = parameters_of(function)
        named = {each.arg: each for each in parameters}
        defaults = {name: each for name, each in defaults_of(function).items() if each in self.graph.places}
        given = {named[name]: self.of(default) for name, default in defaults.items()}
        value = self.program.value(call.func)
        is_method = self.program.class_of(function) is not None and not is_static(function)
        is_bound = is_method and (value.owner is not None or value.kind is not Kind.FUNCTION)
        if is_bound:
            given[parameters[0]] = self._receiver(call, function)
        bound = bind(call, function, skipped=is_bound)
        given |= {named[name]: self.of(each) for name, each in bound.given.items()}
        spread = frozenset().union(*map(self.of, (*bound.rest, *(each.value for each in bound.others))))
        if bound.is_open:
            stars = (position for position, each in enumerate(call.args) if isinstance(each, ast.Starred))
            spread = spread.union(*map(self.of, call.args[next(stars, len(call.args)) :]))
            spread = spread.union(*(self.items_of(each.value) for each in call.keywords if each.arg is None))
        extra = (function.args.vararg, function.args.kwarg)
        for each in (parameters[is_bound:] if bound.is_open else extra) if spread else ():
            if each is not None:
                given[each] = given.get(each, NOWHERE) | spread
        return given

    def _receiver(self, call: ast.Call, function: Function) -> Locations:
        """The object whose method a call runs: what is called itself, unless its method is called by name."""
        func = call.func
        is_named = isinstance(func, ast.Attribute) and func.attr == getattr(function, "name", "")
        return self.of(func.value if is_named and isinstance(func, ast.Attribute) else func)

    def _instantiated(self, node: ast.AST, function: Function, given: Mapping[ast.arg, Locations]) -> Locations:
        """What the summary of `function` says, in terms of this function's locations."""
        summary = self.summary_of(function)
        for write in summary.writes:
            places = self._mapped(write.to, function, given)
            self.write(node, places, deep=write.deep, attribute=write.attribute,
                         deferred=write.deferred or summary.is_generator)  # fmt: skip
        for place, name, what in summary.keeps:
            places = frozenset({place}) if name == VARIABLE else self._mapped(place, function, given)
            self.cells.store(places, name, self._mapped(what, function, given))
        own = frozenset({made(node)})
        held = frozenset().union(*(self._mapped(each, function, given) for each in summary.holds))
        self.cells.store(own, ANY, held)
        returned = {each for each in summary.returns if each.is_outside}
        found = frozenset().union(*(self._mapped(each, function, given) for each in returned))
        if summary.is_generator:
            self.cells.store(own, ANY, found)
            return own
        return found | (own if len(returned) < len(summary.returns) else NOWHERE)

    def _mapped(self, place: Location, function: Function, given: Mapping[ast.arg, Locations]) -> Locations:
        """What the callee's location is here."""
        if place.origin is Origin.ANYWHERE:
            return frozenset({place})
        if place.origin is Origin.PARAMETER:
            found = given.get(place.root, NOWHERE) if isinstance(place.root, ast.arg) else NOWHERE
        else:
            name = str(place.root)
            is_inner = function in self.graph.places or self.program.function_of(function) is self.graph.scope
            is_own = is_inner or isinstance(self.graph.scope, ast.Module) or name in self.graph.shared
            found = self.outer(name) if is_own else self.outside(name)
        for part in place.path:
            loaded = self.cells.load(found, part)
            found = loaded | (found if part == ELEMENTS else NOWHERE)
        return found

    # -- functions of other files

    def _elsewhere(self, call: ast.Call, name: str) -> Locations:
        """A call of a function of another file, which it says what it does with its arguments, or of a library's."""
        known = {each.memory for each in self.program.summaries(call) if each.target == name}
        effects = known.pop() if len(known) == 1 else None
        if effects is None or self._applies(call):
            self.program.memory_queries.update({name} & {*self.program.targets(call)})
            return self._unknown(call)
        names = [each.name for each in effects]
        bound = bind(call, names[: names.index("*")])
        by_name = {each.name: each for each in effects}
        extra = [each for each in effects if each.name.startswith("*")]
        given = [(value, [by_name[each]]) for each, value in bound.given.items()]
        given += [(value, extra) for value in bound.rest]
        given += [(each.value, [by_name[each.arg]] if each.arg in by_name else extra) for each in bound.others]
        if bound.is_open:
            given = [(value, [*effects]) for value in self._expressions(call)]
        returned: Locations = NOWHERE
        for value, done in given:
            places = self.of(value) | (self.items_of(value) if bound.is_open else NOWHERE)
            if any(each.writes for each in done):
                self.write(call, places, deep=True)
            if any(each.returns for each in done):
                returned |= self.cells.reach(places) | {each.part(ANY) for each in places if each.is_open}
        self.cells.store([made(call)], ANY, returned)
        return returned | {made(call)}

    # -- torch's operations

    def _operation(self, call: ast.Call, operation: Operation) -> Locations:
        for argument in operation.writes:
            self.write(call, self._argument(call, argument))
        shared = frozenset().union(*(self._argument(call, each) for each in (*operation.views, *operation.may_return)))
        own = frozenset({made(call)})
        self.cells.store(own, ELEMENTS, shared)
        if self._applies(call):
            return self._unknown(call)
        return shared | own

    def _argument(self, call: ast.Call, argument: Argument) -> Locations:
        found = [self.items_at(self.of(each)) if argument.spread else self.of(each)
                 for each in argument.of(call)]  # fmt: skip
        return frozenset().union(*found)

    def _of_tensor_type(self, call: ast.Call) -> Locations:
        """`torch.LongTensor(x)`: the memory of a tensor, but a copy of a list."""
        tensors = (each for each in call.args if self.program.value(each).kind not in _CONTAINERS)
        return frozenset({made(call)}).union(*map(self.of, tensors))

    def _of_module(self, call: ast.Call) -> Locations:
        """A call of a module, which keeps nothing, but may work in place."""
        value = self.program.value(call.func)
        operation = torch_ops.of_forward(value.name) if value.sure and value.name and not value.items else None
        if operation is None or self._may_be_in_place(value.name):
            self.write(call, self._given(call), deep=True)
        return self._kept(call)

    def _may_be_in_place(self, name: str) -> bool:
        """Is a module of this class built to work in place, here or out of sight?"""
        given = [
            each
            for call in self.program.of_type(ast.Call)
            if self.program.qualified(call.func) == name
            for each in (*call.args, *(word.value for word in call.keywords if word.arg in ("inplace", None)))
        ]
        operation = torch_ops.of_forward(name)
        may_be = operation is not None and bool(operation.traits & {"pointwise", "random"})
        return may_be and any(not isinstance(each, ast.Constant) or each.value is True for each in given)

    # -- methods

    def _method(self, call: ast.Call, func: ast.Attribute) -> Locations:
        value = self.program.value(func.value)
        receiver = self.of(func.value)
        operation = torch_ops.of_method(func.attr)
        if value.kind is Kind.OPTIMIZER and func.attr == "step":
            self.write(call, [*receiver, ANYWHERE], deep=True)
            return NOWHERE
        if value.kind in (Kind.SEQUENCE, Kind.MAPPING) or (
            func.attr in FILLS | TAKES | HOLDS and value.kind is not Kind.TENSOR
        ):
            return self._of_container(call, func.attr, receiver)
        if operation is not None and value.kind is not Kind.MODULE:
            return self._operation(call, operation)
        if value.kind is Kind.NUMPY:
            self._write_out(call)
            return receiver | {made(call)}
        return self._unknown(call)

    def _of_container(self, call: ast.Call, name: str, receiver: Locations) -> Locations:
        """`items.append(x)`, `items.pop()`, `names.items()`."""
        given = self._given(call)
        if name in FILLS or name in TAKES or name.startswith("__"):
            self.write(call, receiver)
        self.cells.store(receiver, ELEMENTS, given | self._inside(given))
        items = self.cells.load(receiver, ELEMENTS)
        own = frozenset({made(call)})
        self.cells.store(own, ELEMENTS, items)
        return items | own | given

    # -- library functions, and the unknown

    def _of_library(self, call: ast.Call, name: str) -> Locations:
        last = name.rpartition(".")[2]
        self._write_out(call)
        if self._applies(call):
            return self._unknown(call)
        first = self.of(call.args[0]) if call.args else NOWHERE
        if last in WRITES_FIRST or (name.startswith("operator.i") and last not in ("index", "indexOf", "invert")):
            self.write(call, first | self._inside(first))
        if name == "copy.deepcopy" or (name.startswith("builtins.") and last in NEW):
            return frozenset({made(call)})
        if name.startswith("builtins.") and last in CONTAINERS_OF:
            self._kept(call)
            return frozenset({made(call)})
        return self._kept(call) | self._inside(self._given(call))

    def _write_out(self, call: ast.Call) -> None:
        for keyword in call.keywords:
            if keyword.arg == "out":
                self.write(call, self.items_at(self.of(keyword.value)))

    def _set_attribute(self, call: ast.Call) -> Locations:
        if len(call.args) == 3:
            objects, name, value = call.args
            word = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ANY
            self.bind_attribute(call, self.of(objects), word, self.of(value))
        return NOWHERE

    def _kept(self, call: ast.Call) -> Locations:
        """Something new that may be, or hold, what the call is given."""
        given = self._given(call)
        own = frozenset({made(call)})
        self.cells.store(own, ANY, given | self._inside(given))
        return own | given

    def _unknown(self, call: ast.Call) -> Locations:
        """Code out of sight: it may write to all that can be reached from what it is given, store and return it."""
        func = call.func
        given = self._given(call) | self.of(func)
        if isinstance(func, ast.Attribute):
            given |= self.of(func.value)
        self.write(call, given, deep=True)
        self.cells.store([*given, made(call)], ANY, given)
        return self.cells.reach(given) | {made(call)} | frozenset(each.part(ANY) for each in given if each.is_open)

    def _applies(self, call: ast.Call) -> bool:
        """Is the call given a function, to apply to its other arguments, that may write to something?"""
        return any(self._may_write(each) for each in self._expressions(call))

    def _may_write(self, node: ast.expr) -> bool:
        value = self.program.value(node)
        if isinstance(node, ast.Lambda) or (value.kind is Kind.FUNCTION and isinstance(value.node, FUNCTIONS)):
            function = node if isinstance(node, ast.Lambda) else value.node
            assert isinstance(function, FUNCTIONS)
            return any(not write.attribute for write in self.summary_of(function).writes)
        if value.kind is Kind.LIBRARY:
            operation = torch_ops.of_function(value.name) if value.name.startswith("torch.") else None
            is_known = operation is not None or value.name.partition(".")[0] in (*PURE_PACKAGES, "torch")
            return bool(operation.writes) if operation is not None else not is_known
        return value.kind in (Kind.METHOD, Kind.MODULE)

    def _given(self, call: ast.Call) -> Locations:
        return frozenset().union(*map(self.of, self._expressions(call)))

    def _inside(self, places: Iterable[Location]) -> Locations:
        return self.cells.load(places, ELEMENTS) | self.cells.load(places, ANY)

    def _expressions(self, call: ast.Call) -> Iterator[ast.expr]:
        yield from call.args
        yield from (keyword.value for keyword in call.keywords)

"""What calls do to memory: of functions of the file, by their summaries, and of others."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from perflint import torch_ops
from perflint.analysis.memory.dispatch import Modules
from perflint.analysis.memory.library import LibraryCalls, is_decorated
from perflint.analysis.memory.locations import ANY, ANYWHERE, ELEMENTS, NOWHERE, Location, Locations, Origin, made
from perflint.analysis.memory.roles import SEE_ALL
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of, bind, defaults_of, parameters_of
from perflint.syntax.walk import FUNCTIONS, Function
from perflint.torch_ops import libraries

VARIABLE = "="  # the cell of a variable of an outer scope


class Calls(LibraryCalls):
    @abstractmethod
    def outer(self, name: str) -> Locations:
        """What a function inside of this scope finds under `name` at any time."""

    def outside(self, name: str) -> Locations:
        places = [Location(Origin.OUTER, each) for each in (name, *self.sharing.of_variable(name))]
        return frozenset(places).union(*(self.cells.held.get((each, VARIABLE), ()) for each in places))

    def result(self, call: ast.Call) -> Locations:
        function = self._callee(call)
        if function is not None:
            return self._unknown(call) if is_decorated(self.program, function) else self._called(call, function)
        if dispatched := self._dispatched(call):
            return frozenset().union(*(self._called(call, each) for each in dispatched))
        name = self.program.qualified(call.func)
        if name in SEE_ALL:
            self.write(call, [ANYWHERE], deferred=True)
        if name in ("builtins.setattr", "builtins.object.__setattr__"):
            return self._set_attribute(call)
        operation = torch_ops.of_function(name) if name.startswith("torch.") else None
        if operation is not None:
            return self._operation(call, operation)
        if name.startswith("torch.") and (kind := torch_ops.class_kind(name)) is not None:
            return self._of_tensor_type(call) if kind == "tensor-type" else self._kept(call)
        is_torch = name.startswith("torch.") and not name.startswith(("torch.ops.", "torch.utils."))  # on anything
        if is_torch or libraries.is_pure(name):
            return self._of_library(call, name)
        if self.program.value(call.func).kind is Kind.MODULE:
            return self._of_module(call)
        if isinstance(call.func, ast.Attribute) and not name:
            return self._method(call, call.func)
        return self._elsewhere(call, name) if name else self._unknown(call)

    def kept(self, node: ast.AST, function: Function) -> None:
        summary = self.summary_of(function)
        mapped = self._as_here(function, {}, summary.names)
        for each in summary.returns | summary.holds:
            if each.origin is Origin.OUTER:
                self.cells.store([made(function)], ANY, mapped(each))
        for write in summary.writes:
            if write.to.origin in (Origin.OUTER, Origin.ANYWHERE):
                places = mapped(write.to)
                self.write(node, places, deep=write.deep, deferred=True, attribute=write.attribute)

    def handed_on(self, node: ast.Name | ast.Attribute, places: Locations, receiver: Locations = NOWHERE) -> None:
        """A function of the file that is more than called, at `places`, may be run by somebody at any later time."""
        parent, value = self.program.parent(node), self.program.value(node)
        is_called = isinstance(parent, ast.Call) and parent.func is node
        if not is_called and isinstance(value.node, FUNCTIONS) and value.node not in self.graph.inner:
            is_bound = value.owner is not None and value.owner.kind is not Kind.CLASS
            returned = self.run(value.node, node, {0: receiver} if is_bound else {}, deferred=True)
            self.cells.store(places, ANY, returned)

    def run(
        self, function: Function, node: ast.AST, given: Mapping[int, Locations], *, deferred: bool = False
    ) -> Locations:
        parameters = [*function.args.posonlyargs, *function.args.args]
        bound = {parameters[at]: what for at, what in given.items() if at < len(parameters)}
        return self._instantiated(node, function, bound, deferred=deferred)

    def passed(self, call: ast.Call, function: Function, places: Locations) -> Locations:
        mapped = self._as_here(function, self._bound(call, function))
        return frozenset().union(*(mapped(each) for each in places if each.is_outside))

    # -- functions of this file

    def _dispatched(self, call: ast.Call) -> Sequence[Function]:
        is_module = self.program.value(call.func).kind in (Kind.MODULE, Kind.UNKNOWN)
        return self.program.get(Modules).forwards(call) if is_module else ()

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
            for finalizer in self.specials.methods.get("__del__", ()):
                self.run(finalizer, call, {0: own}, deferred=True)
            return own
        return self._instantiated(call, function, given)

    def _bound(self, call: ast.Call, function: Function) -> dict[ast.arg, Locations]:
        bound = self.program.arguments(call, function)
        parameters = {each.arg: each for each in parameters_of(function)}
        defaults = {name: each for name, each in defaults_of(function).items() if each in self.graph.places}
        given = {parameters[name]: self.of(each) for name, each in {**defaults, **bound.given}.items()}
        if self.program.is_bound(call, function):
            given[next(iter(parameters.values()))] = self.of(self.program.object_of(call, function))
        taken = set(bound.given.values())
        spread = frozenset().union(*(self.of(each) for each in call.args if each not in taken))
        for keyword in call.keywords:
            if keyword.value not in taken:
                spread |= self.of(keyword.value) if keyword.arg else self.items_of(keyword.value)
        for name, parameter in parameters.items():
            if spread and name not in bound.given:
                given[parameter] = given.get(parameter, NOWHERE) | spread
        return given

    def _instantiated(
        self, node: ast.AST, function: Function, given: Mapping[ast.arg, Locations], *, deferred: bool = False
    ) -> Locations:
        """What the summary of `function` says, in terms of this function's locations."""
        summary = self.summary_of(function)
        mapped = self._as_here(function, given, summary.names)
        is_deferred = deferred or summary.is_generator
        written = (
            (mapped(each.to), each.deep, each.attribute, is_deferred or each.deferred) for each in summary.writes
        )
        for to, deep, attribute, is_late in dict.fromkeys(written):  # many are to the same here
            self.write(node, to, deep=deep, attribute=attribute, deferred=is_late)
        for place, name, values in summary.keeps:
            kept = frozenset().union(*map(mapped, values))
            self.cells.store({place} if name == VARIABLE else mapped(place), name, kept)
        own = frozenset({made(node)})
        self.cells.store(own, ANY, frozenset().union(*map(mapped, summary.holds)))
        returned = {each for each in summary.returns if each.is_outside}
        found: Locations = frozenset().union(*map(mapped, returned))
        if summary.is_generator:
            self.cells.store(own, ANY, found)
            return own
        return found | (own if len(returned) < len(summary.returns) else NOWHERE)

    def _as_here(
        self, function: Function, given: Mapping[ast.arg, Locations], names: Iterable[str] = ()
    ) -> Callable[[Location], Locations]:
        for name in names:  # in one order, as it counts where there are too many facts, and sets have none
            self._root(Location(Origin.OUTER, name), function, given)
        known: dict[Location, Locations] = {}
        size = self.cells.size

        def mapped(place: Location) -> Locations:
            nonlocal size
            if self.cells.size != size:
                size = self.cells.size
                known.clear()
            if place in known:
                return known[place]
            if place.path and place.origin is not Origin.ANYWHERE:
                inner, part = mapped(place._replace(path=place.path[:-1])), place.path[-1]
                found = self.cells.load(inner, part) | (inner if part == ELEMENTS else NOWHERE)
            else:
                found = self._root(place, function, given)
            known[place] = found
            return found

        return mapped

    def _root(self, place: Location, function: Function, given: Mapping[ast.arg, Locations]) -> Locations:
        if place.origin is Origin.ANYWHERE:
            return frozenset({place})
        if place.origin is Origin.PARAMETER:
            return given.get(place.root, NOWHERE) if isinstance(place.root, ast.arg) else NOWHERE
        name = str(place.root)
        is_inner = function in self.graph.places or self.program.function_of(function) is self.graph.scope
        is_own = is_inner or isinstance(self.graph.scope, ast.Module) or name in self.graph.shared
        return self.outer(name) if is_own else self.outside(name)

    # -- functions of other files

    def _elsewhere(self, call: ast.Call, name: str) -> Locations:
        """A call of a function of another file, by what that says of its arguments, or of a library's."""
        known = {each.memory for each in self.program.summaries(call) if each.target == name}
        effects = known.pop() if len(known) == 1 else None
        if effects is None or self._applies(call):
            self.program.asked.effects.update({name} & {*self.program.targets(call)})
            return self._unknown(call)
        names = [each.name for each in effects]
        bound = bind(call, names[: names.index("*")])
        by_name = {each.name: each for each in effects}
        extra = [each for each in effects if each.name.startswith("*")]
        given = [(value, [by_name[each]]) for each, value in bound.given.items()]
        given += [(value, extra) for value in bound.rest]
        given += [(each.value, [by_name[each.arg]] if each.arg in by_name else extra) for each in bound.others]
        if bound.is_open:
            given = [(value, [*effects]) for value in arguments_of(call)]
        returned: Locations = NOWHERE
        for value, done in given:
            places = self.of(value) | (self.items_of(value) if bound.is_open else NOWHERE)
            if any(each.writes for each in done):
                self.write(call, places, deep=True)
            if any(each.returns for each in done):
                returned |= self.cells.reach(places) | {each.part(ANY) for each in places if each.has_unknown_contents}
        self.cells.store([made(call)], ANY, returned)
        return returned | {made(call)}

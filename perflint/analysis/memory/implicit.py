"""What nodes do to memory by code that no call shows: special methods, properties, descriptors."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perflint.analysis.ir.graph import Outer
from perflint.analysis.ir.graph import Value as IRValue
from perflint.analysis.memory.calls import Calls
from perflint.analysis.memory.library import is_library
from perflint.analysis.memory.locations import ANY, ELEMENTS, NOWHERE, Location, Locations, Origin, made
from perflint.analysis.memory.special_methods import ITERATION, WITHIN, Names, only_asks, run_by
from perflint.analysis.values.values import UNKNOWN, Kind, Value
from perflint.syntax.scopes import arguments_of, parameters_of
from perflint.syntax.walk import FUNCTIONS, Function, name_called, receiver_of
from perflint.torch_ops import libraries

_COPIES = frozenset({"copy.copy", "copy.deepcopy"})
_NEW = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Compare)
_REPLACES = frozenset("load_state_dict to cuda cpu half float double bfloat16 type _apply apply".split())  # of modules


class ImplicitCalls(Calls):
    """The memory of one function, and what runs in it without a call. An object is of a class of the file if it may be.

    Tensors, numbers and what libraries make are of none; what is not known, such as a parameter, may be of any.
    """

    def special(self, node: ast.AST) -> Locations:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self._defined_anew(node)
        if isinstance(node, ast.Call):
            self._run_by_library(node)
            return NOWHERE
        found: Locations = NOWHERE
        if isinstance(node, ast.Match):
            self._matched(node, self.cells.reach(self.of(node.subject)))
        for names, operand, others in run_by(node):
            given = self.of(operand)
            results = self._run(node, names, given, self.program.value(operand), *map(self.of, others))
            self._run_elsewhere(node, given)
            if not WITHIN.isdisjoint(names):
                self._run(node, names, self.cells.reach(given) - given, UNKNOWN, *map(self.of, others))
            if names is ITERATION:
                self.cells.store(given, ELEMENTS, results)
            elif isinstance(node, ast.withitem):
                self.cells.store(given, ANY, results)
            found |= results
        return found

    def _matched(self, node: ast.Match, places: Locations) -> None:
        for pattern in ast.walk(node):
            if isinstance(pattern, ast.MatchClass):
                names = self.specials.getters if pattern.patterns else pattern.kwd_attrs
                for name in names:
                    self.read(node, places, name, UNKNOWN)
                self._run(node, ("__instancecheck__",), self.of(pattern.cls), UNKNOWN, places)

    def _defined_anew(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A definition runs its decorators, and that of a class what its bases do with their subclasses."""
        for each in node.decorator_list:
            function = self.program.value(each).node
            if isinstance(function, FUNCTIONS) and not isinstance(each, ast.Call):
                self.run(function, node, {0: frozenset({made(node)})})
        for keyword in node.keywords if isinstance(node, ast.ClassDef) else ():
            for method in self.specials.methods.get("__init_subclass__", ()):
                given = dict.fromkeys(parameters_of(method), self.of(keyword.value))
                self._instantiated(node, method, given)

    def _run(self, node: ast.AST, names: Names, places: Locations, value: Value, *others: Locations) -> Locations:
        methods = (each for name in names if self.is_run(name) for each in self.specials.methods.get(name, ()))
        return self._run_of(node, methods, places, value, *others)

    def _run_of(
        self, node: ast.AST, methods: Iterable[Function], places: Locations, value: Value, *others: Locations
    ) -> Locations:
        found: Locations = NOWHERE
        for method in methods:
            of_class = frozenset(each for each in places if self._may_be_of(each, value, method))
            if of_class and method is not self.graph.scope:  # which does the same to the object inside as to its own
                found |= self.run(method, node, {0: of_class, **dict(enumerate(others, 1))})
        return found

    def _may_be_of(self, place: Location, value: Value, method: Function) -> bool:
        if not self.specials.is_of(value, method):
            return False
        root = place.root
        if place.is_outside or (isinstance(value.node, ast.ClassDef) and value.sure):
            return True
        if isinstance(root, ast.Call):
            known = self.program.value(root)
            is_new = is_library(self.program, root) and self.program.qualified(root.func) not in _COPIES
            return self.specials.is_of(known, method) and not is_new
        return not isinstance(root, (*_NEW, *FUNCTIONS, ast.ClassDef))

    def _run_by_library(self, call: ast.Call) -> None:
        """Unanalysed code may run the special methods of what it is given, and of the items of that."""
        if self._callee(call) is not None or self._dispatched(call):
            return
        filled = receiver_of(call, "append", "appendleft", "insert")  # which look at nothing of what they are given
        if filled is not None and self.program.value(filled).kind is Kind.SEQUENCE and self.program.value(filled).sure:
            return
        name = self.program.qualified(call.func)
        if libraries.is_pure(name) and not only_asks(name):
            self._run_elsewhere(call, self._given(call))
        names = self.specials.by_library(name)
        if name in ("builtins.getattr", "builtins.hasattr") and call.args[1:]:
            word = call.args[1].value if isinstance(call.args[1], ast.Constant) else ANY
            base, value = self.of(call.args[0]), self.program.value(call.args[0])
            for each in self.specials.getters if word == ANY else (str(word),):
                self.read(call, base, each, value)
        for given in arguments_of(call):
            places, value = self.of(given), self.program.value(given)
            is_object = value.sure and value.kind is Kind.INSTANCE
            self._run(call, (*names, "__call__") if is_object else names, places, value)
            self._run(call, names, self.cells.reach(places) - places, UNKNOWN)

    def _run_elsewhere(self, node: ast.AST, places: Locations) -> None:
        """Special methods of what other files define may do anything to what an object was made of."""
        objects = [each for each in places if self._is_of_class_elsewhere(each)]
        if objects:
            self.write(node, objects, deep=True)

    def _is_of_class_elsewhere(self, place: Location) -> bool:
        call = place.root if not place.path else None
        if not isinstance(call, ast.Call) or not name_called(call)[:1].isupper():
            return False
        is_unknown = self.program.value(call.func).kind is not Kind.CLASS and self._callee(call) is None
        return is_unknown and not is_library(self.program, call)

    # -- attributes

    def read(self, node: ast.AST, base: Locations, name: str, value: Value) -> Locations:
        found = self._run_of(node, self.specials.getters.get(name, ()), base, value)
        found |= self._run(node, ("__getattr__", "__getattribute__"), base, value)
        if name in self.specials.described:
            found |= self._described(node, "__get__", base)
        return found

    def bind_attribute(self, node: ast.AST, objects: Locations, name: str, values: Locations) -> None:
        super().bind_attribute(node, objects, name, values)
        names = self.specials.setters if name == ANY else (name,)
        for each in names:
            self._run_of(node, self.specials.setters.get(each, ()), objects, UNKNOWN, values)
        self._run(node, ("__setattr__",), objects, UNKNOWN, NOWHERE, values)
        if name in self.specials.described or name == ANY:
            self._described(node, "__set__", objects, values)

    def delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                self.write(node, self.of(target.value))
            elif isinstance(target, ast.Attribute):
                places, value = self.of(target.value), self.program.value(target.value)
                self.write(node, places, attribute=target.attr)
                self._run_of(node, self.specials.deleters.get(target.attr, ()), places, value)
                self._run(node, ("__delattr__",), places, value)
                if target.attr in self.specials.described:
                    self._described(node, "__delete__", places)

    def _described(self, node: ast.AST, name: str, base: Locations, *others: Locations) -> Locations:
        """Run the descriptors of the program, one of which the attribute may be."""
        found: Locations = NOWHERE
        for method in self.specials.methods.get(name, ()) if self.is_run(name) else ():
            if method is not self.graph.scope:
                found |= self.run(method, node, {0: NOWHERE, **dict(enumerate((base, *others), 1))})
        return found

    # -- code of others

    def leave(self, node: ast.withitem) -> None:
        if isinstance(self.program.parent(node), ast.AsyncWith):
            self.suspend(node, node.context_expr)
        elif not is_library(self.program, node.context_expr) or self._runs_code(node.context_expr):
            self.write(node, self.of(node.context_expr), deep=True)

    def _runs_code(self, manager: ast.expr) -> bool:
        name = self.program.qualified(getattr(manager, "func", manager))
        return name.rpartition(".")[2] in ("closing", "aclosing", "ExitStack", "AsyncExitStack")

    def suspend(self, node: ast.AST, given: ast.expr | None) -> None:
        """Other code runs here: it may write to all that it was given, and to what lies outside."""
        scope = self.graph.scope
        parameters = parameters_of(scope) if isinstance(scope, FUNCTIONS) else []
        places = self.globals_read().union(Location(Origin.PARAMETER, each) for each in parameters)
        self.write(node, places | (self.of(given) if given is not None else NOWHERE), deep=True)

    def globals_read(self) -> Locations:
        names = {each.name for name, each in self.graph.values.items() if self._is_data_outside(name, each)}
        return frozenset().union(*map(self.outside, names))

    def _is_data_outside(self, name: ast.AST, value: IRValue) -> bool:
        kinds = (Kind.LIBRARY, Kind.FUNCTION, Kind.CLASS)
        return isinstance(value, Outer) and self.program.value(name).kind not in kinds

    # -- methods of base classes

    def result(self, call: ast.Call) -> Locations:
        func = call.func
        if self.program.qualified(func) == "builtins.super":
            return self._object
        base = getattr(getattr(func, "value", None), "func", None)
        if isinstance(func, ast.Attribute) and base is not None and self.program.qualified(base) == "builtins.super":
            return self._of_base(call, func.attr)
        return super().result(call)

    @property
    def _object(self) -> Locations:
        scope = self.graph.scope
        parameters = parameters_of(scope) if isinstance(scope, FUNCTIONS) else []
        return frozenset(Location(Origin.PARAMETER, each) for each in parameters[:1])

    def _of_base(self, call: ast.Call, name: str) -> Locations:
        """`super().method(x)`: of a base in the file, of a library's class, or of one not analysed."""
        scope = self.graph.scope
        known = self.specials.inherited(scope, name) if isinstance(scope, FUNCTIONS) else []
        if known:
            return frozenset().union(*(self._called(call, each) for each in known))
        is_quiet = name.startswith("__") or (self.specials.is_of_library(scope) and name not in _REPLACES)
        return self._kept(call) if is_quiet else super().result(call)

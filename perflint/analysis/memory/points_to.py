"""Points-to analysis of one function: which locations each expression may evaluate to, and what is written to them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.graph import Definition, Graph, Outer, Step, Value, updated_by
from perflint.analysis.memory.calls import VARIABLE
from perflint.analysis.memory.implicit import ImplicitCalls
from perflint.analysis.memory.library import ARRAYS, PLAIN, decorators_of
from perflint.analysis.memory.locations import (
    ANY,
    ANYWHERE,
    ELEMENTS,
    NOWHERE,
    Location,
    Locations,
    MemorySummary,
    Origin,
    TooManyFacts,
    item,
    made,
)
from perflint.analysis.memory.roles import NAMESPACES, OPERATORS
from perflint.analysis.memory.special_methods import RUNNING
from perflint.analysis.values.shapes import gathers
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import bound_names
from perflint.syntax.walk import FUNCTIONS, Function, bindings_of, own_nodes
from perflint.torch_ops import libraries

_MOST_ROUNDS = 12


class PointsTo(ImplicitCalls):
    """The locations and writes of `scope`, by a fixpoint over its statements: what may be, never less.

    Variables are distinguished by SSA values, contents of objects only by object and attribute. It is assumed that
    two parameters are given different objects, that unanalysed code keeps no reference to what it is given but in its
    result and its other arguments, and that special methods of classes not analysed write nothing.
    """

    def __init__(self, program: Program, graph: Graph, summary_of: Callable[[Function], MemorySummary]) -> None:
        super().__init__(program, graph, summary_of)
        self._at: dict[ast.AST, Locations] = {}
        self._current: set[ast.AST] = set()
        self._bindings = graph.bindings
        self.is_known = True
        try:
            self.is_known = self._is_settled()
        except TooManyFacts:
            self.is_known = False
        self.cells.most = sys.maxsize  # what questions add is little
        if not self.is_known:
            self.writes.clear()
            self.write(graph.scope, [ANYWHERE], deferred=True)  # all may have changed, at any time

    def _is_settled(self) -> bool:
        nodes = [
            (node, _EFFECTS.get(type(node))) for node in self.graph.places if type(node) in _EFFECTS.keys() | RUNNING
        ]
        for _ in range(_MOST_ROUNDS):
            before = self.cells.size, sum(map(len, self._at.values())), len(self.writes)
            self._current.clear()
            for node, effect in nodes:
                if effect is not None:
                    effect(self, node)
                if given := self.special(node):
                    self._at[node] = self._at.get(node, NOWHERE) | given
            for name, values in self._bindings.items():
                for value in values if name in self.graph.shared else ():
                    self.cells.store([_outer(name)], VARIABLE, self._defined(value))
                    self.write(self.program.statement_of(value.node), [_outer(name)], attribute=VARIABLE)
            if before == (self.cells.size, sum(map(len, self._at.values())), len(self.writes)):
                return True
        return False

    def of(self, node: ast.expr) -> Locations:
        if not self.is_known:
            return frozenset({ANYWHERE})
        if node not in self._current:
            self._current.add(node)
            self._at[node] = self._at.get(node, NOWHERE) | self._evaluated(node)
        return self._at.get(node, NOWHERE)  # while it is being evaluated, what the round before found

    @property
    def names(self) -> Collection[str]:
        return self._bindings.keys()

    def outer(self, name: str) -> Locations:
        bindings = self._bindings.get(name, ())
        found = frozenset().union(*map(self._defined, bindings)) if bindings else NOWHERE
        return found | (self.outside(name) if not bindings or name in self.graph.shared else NOWHERE)

    def returned(self) -> Locations:
        return self.cells.reach(self._returns())

    def _returns(self) -> Locations:
        scope = self.graph.scope
        given = [scope.body] if isinstance(scope, ast.Lambda) else []
        leaves = (node for node in self.graph.places if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom))
        return frozenset().union(*(self.of(each) for each in (*given, *(node.value for node in leaves)) if each))

    def summary(self) -> MemorySummary:
        """What a call of this function does to its callers."""
        returns = self._returns()
        yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in self.graph.places)
        own = [each for each in returns if not each.is_outside]
        holds = frozenset(each for each in self.cells.reach(own) if each.is_outside)
        kept = ((at, self.cells.reach(values)) for at, values in self.cells.held.items() if at[0].is_outside)
        outside = ((*at, frozenset(each for each in values if each.is_outside)) for at, values in kept)
        keeps = frozenset(each for each in outside if each[2])
        writes = frozenset(write for write in self.writes if write.to.is_outside)
        told = {*returns, *holds, *(each.to for each in writes)}.union(*({at, *values} for at, _, values in keeps))
        names = sorted({str(each.root) for each in told if each.origin is Origin.OUTER})
        return MemorySummary(returns, holds, writes, keeps, yields, tuple(names))

    def escaping(self) -> Locations:
        """What callers, and objects that others hold, can reach once it has run."""
        returns, held = self._returns(), self.cells.held.items()
        stored = [each for (place, _), values in held if place.is_outside for each in values]
        return frozenset(self.cells.reach([*returns, *stored]))

    # -- expressions

    def _evaluated(self, node: ast.expr) -> Locations:
        value = self.program.value(node)
        if value.kind in PLAIN - {Kind.NONE} and value.sure:  # None may only have been there first
            if isinstance(node, ast.Call | ast.Attribute):  # which may run a function or a property
                _EXPRESSIONS[type(node)](self, node)
            return NOWHERE
        method = _EXPRESSIONS.get(type(node))
        return NOWHERE if method is None else method(self, node)

    def _name(self, node: ast.Name) -> Locations:
        value = self.graph.value(node)
        found = self.outer(node.id) if value is None else self.held(value)
        self.handed_on(node, found)
        return found

    def held(self, value: Value) -> Locations:
        """The locations that a variable may hold while it has this SSA value."""
        return frozenset().union(*map(self._defined, updated_by(value)))

    def _defined(self, value: Value) -> Locations:
        if isinstance(value, Outer):
            is_own = value.name in self._bindings
            if is_own and value.name not in self.graph.shared and not isinstance(self.graph.scope, ast.Module):
                return NOWHERE  # not bound yet
            return (self.outer(value.name) if is_own else NOWHERE) | self.outside(value.name)
        assert isinstance(value, Definition)
        if isinstance(value.node, ast.arg):
            return self._parameter(value.node)
        if isinstance(value.node, ast.ExceptHandler):
            return frozenset({made(self.graph.scope), ANYWHERE})
        if isinstance(value.node, ast.alias | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            return self._definition(value.node, value.name)
        if value.source is None:
            return NOWHERE
        if value.updates is not None:
            return frozenset({made(value.node)})
        return self._part(self.of(value.source), value.source, value.steps)

    def _parameter(self, node: ast.arg) -> Locations:
        location = Location(Origin.PARAMETER, node)
        arguments = self.graph.scope.args if isinstance(self.graph.scope, FUNCTIONS) else None
        if arguments is not None and node in (arguments.vararg, arguments.kwarg):
            own = frozenset({made(node)})
            self.cells.store(own, ANY, [location])
            return own
        shared = self.sharing.of_parameter(node, self.graph.scope) if isinstance(self.graph.scope, FUNCTIONS) else ()
        return frozenset({location, *shared})

    def _part(self, locations: Locations, source: ast.expr, steps: tuple[Step, ...]) -> Locations:
        for position, step in enumerate(steps):
            if step == "enter" or step == "part":
                locations |= self.cells.load(locations, ANY) | self.cells.load(locations, ELEMENTS)
                locations |= self.cells.load(locations, ANY)
            elif position == 0:
                locations = self._items(locations, source)
            else:
                locations = self.items_at(locations)
        return locations

    def _attribute(self, node: ast.Attribute) -> Locations:
        if node.attr.isupper() and libraries.is_pure(self.program.qualified(node)):
            return NOWHERE  # a number
        base = self.of(node.value)
        value = self.program.value(node.value)
        is_tensor = value.kind in ARRAYS and value.sure
        names = (node.attr, *self.sharing.of_attribute(node.attr))
        found = NOWHERE if is_tensor else NOWHERE.union(*(self.cells.load(base, each) for each in names))
        attribute = torch_ops.of_attribute(node.attr)
        operation = attribute or torch_ops.of_method(node.attr)
        if is_tensor or (attribute is not None and not attribute.shares):  # `p.grad = s` gives it another's memory
            found = found.union(*(self.cells.held.get((each, node.attr), ()) for each in base))
        if attribute is not None and not attribute.shares:
            found |= {each.part(node.attr) for each in base}
        elif operation is not None or node.attr in NAMESPACES or is_tensor:
            found |= base  # a view, or a method bound to it
        if node.attr in NAMESPACES:
            own = frozenset({made(node)})
            self.cells.store(own, ELEMENTS, self.cells.load(base, ANY))
            found |= own
        self.handed_on(node, found, base)
        return found | self.read(node, base, node.attr, value)

    def _subscript(self, node: ast.Subscript) -> Locations:
        if gathers(self.program, node):
            return frozenset({made(node)})
        base = self.of(node.value)
        if (name := item(node.slice)) != ELEMENTS and not self.indexes:
            return self.cells.load(base, name)
        return (base if isinstance(node.slice, ast.Slice) else NOWHERE) | self.items_of(node.value)

    def _display(self, node: ast.List | ast.Tuple | ast.Set) -> Locations:
        own = frozenset({made(node)})
        for each in node.elts:
            held = self.items_of(each.value) if isinstance(each, ast.Starred) else self.of(each)
            self.cells.store(own, ELEMENTS, held)
        return own

    def _mapping(self, node: ast.Dict) -> Locations:
        own = frozenset({made(node)})
        for key, each in zip(node.keys, node.values, strict=True):
            if key is None:
                self.cells.store(own, ELEMENTS, self.items_of(each))
            else:
                self.cells.store(own, item(key), self.of(each))
        return own

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Locations:
        own = frozenset({made(node)})
        self.cells.store(own, ELEMENTS, self.of(node.value if isinstance(node, ast.DictComp) else node.elt))
        return own

    def _either(self, node: ast.IfExp | ast.BoolOp) -> Locations:
        parts = node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse)
        return frozenset().union(*map(self.of, parts))

    def _arithmetic(self, node: ast.BinOp) -> Locations:
        """Something new, which may hold what its operands do: `[s] * 2`; not if one is a tensor, and none a list."""
        own, values = frozenset({made(node)}), [self.program.value(each) for each in (node.left, node.right)]
        is_list = isinstance(node.op, ast.Mult) and not {each.kind for each in values} <= {Kind.TENSOR, Kind.NUMBER}
        if is_list or not any(each.kind is Kind.TENSOR and each.sure for each in values):
            self.cells.store(own, ELEMENTS, self.joined(node.left) | self.joined(node.right))
        return own

    def joined(self, operand: ast.expr) -> Locations:
        """What the result of an operator may hold of an operand."""
        return self.cells.load(self.of(operand), ELEMENTS)

    def _lambda(self, node: ast.Lambda) -> Locations:
        self.kept(node, node)
        return frozenset({made(node)})

    # -- effects

    def _assignment(self, node: ast.Assign | ast.AnnAssign) -> None:
        for target, value in bindings_of(node):
            self._store(node, target, value, ())

    def _store(self, node: ast.AST, target: ast.expr, source: ast.expr, steps: tuple[Step, ...]) -> None:
        """Store the part of `source` that `steps` lead to into an attribute or items; names are SSA values."""
        if isinstance(target, ast.Tuple | ast.List):
            parts = source.elts if isinstance(source, ast.Tuple | ast.List) and not steps else []
            for index, each in enumerate(target.elts):
                if len(parts) == len(target.elts):
                    self._store(node, each, parts[index], ())
                else:
                    self._store(node, each, source, (*steps, index))
        elif isinstance(target, ast.Starred):
            self._store(node, target.value, source, (*steps[:-1], "part"))
        elif isinstance(target, ast.Attribute):
            self.bind_attribute(node, self.of(target.value), target.attr, self._part(self.of(source), source, steps))
        elif isinstance(target, ast.Subscript):
            base, value = self.of(target.value), self.program.value(target.value)
            self.write(node, base)
            if value.kind not in ARRAYS:
                values = self._part(self.of(source), source, steps)
                values |= self.items_at(values) if isinstance(target.slice, ast.Slice) else NOWHERE
                self.cells.store(base, item(target.slice), values)
                self._run(node, ("__setitem__",), base, value, self.of(target.slice), values)

    def _augmented(self, node: ast.AugAssign) -> None:
        target = node.target
        value = self.program.value(target)
        if value.kind in PLAIN and value.sure:
            if isinstance(target, ast.Attribute):
                self.write(node, self.of(target.value), attribute=target.attr)
            elif isinstance(target, ast.Subscript):
                self.write(node, self.of(target.value))
            return
        if isinstance(target, ast.Name):
            definition = self.graph.value(target)
            old = definition.updates if isinstance(definition, Definition) else None
            objects = NOWHERE if old is None else self.held(old)
            self.cells.store(objects, ELEMENTS, self.items_of(node.value))
        elif isinstance(target, ast.Attribute):
            objects = self._attribute(target)
            self.write(node, self.of(target.value), attribute=target.attr)
        else:
            assert isinstance(target, ast.Subscript)
            objects = self.of(target.value) | self.items_of(target.value)
        word = OPERATORS[type(node.op)]
        self._run(node, (f"__i{word}__", f"__{word}__"), objects, value, self.of(node.value))
        self.write(node, objects)

    def _looped(self, node: ast.For | ast.AsyncFor | ast.comprehension) -> None:
        self._store(node, node.target, node.iter, ("each",))
        if isinstance(node, ast.AsyncFor):
            self.suspend(node, node.iter)

    def _managed(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._store(node, node.optional_vars, node.context_expr, ("enter",))
        self.leave(node)

    def _raised(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self.cells.store([made(self.graph.scope)], ANY, self.cells.reach(self.of(node.exc)))

    def _inner_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function that is more than called may be kept by somebody, and run at any time."""
        calls = [(self.program.parent(use), use) for use in self.graph.uses.get(node, ())]
        is_only_called = all(
            isinstance(call, ast.Call) and call.func is use and self.program.callee(call) is node for call, use in calls
        )
        is_method = isinstance(self.program.parent(node), ast.ClassDef)
        if is_method or not is_only_called or node.name in self.graph.captured or decorators_of(self.program, node):
            self.kept(node, node)

    def _class_body(self, node: ast.ClassDef) -> None:
        within, own = set(own_nodes(node)), self._definition(node, node.name)
        for name in sorted(bound_names(*node.body)):
            bindings = (each for each in self._bindings.get(name, ()) if each.node in within)
            self.cells.store(own, name, NOWHERE.union(*map(self._defined, bindings)))

    def _definition(self, node: ast.AST, name: str) -> Locations:
        return frozenset({_outer(name) if isinstance(self.graph.scope, ast.Module) else made(node)})


def _outer(name: str) -> Location:
    return Location(Origin.OUTER, name)


_EXPRESSIONS: dict[type[ast.AST], Callable[..., Locations]] = {
    ast.Name: PointsTo._name,
    ast.Attribute: PointsTo._attribute,
    ast.Subscript: PointsTo._subscript,
    ast.Starred: lambda self, node: self.items_of(node.value),
    ast.List: PointsTo._display,
    ast.Tuple: PointsTo._display,
    ast.Set: PointsTo._display,
    ast.Dict: PointsTo._mapping,
    ast.ListComp: PointsTo._comprehension,
    ast.SetComp: PointsTo._comprehension,
    ast.GeneratorExp: PointsTo._comprehension,
    ast.DictComp: PointsTo._comprehension,
    ast.IfExp: PointsTo._either,
    ast.BoolOp: PointsTo._either,
    ast.NamedExpr: lambda self, node: self.of(node.value),
    ast.Await: lambda self, node: self.of(node.value) | {ANYWHERE},
    ast.Yield: lambda self, node: frozenset({ANYWHERE}),
    ast.YieldFrom: lambda self, node: frozenset({ANYWHERE}),
    ast.BinOp: PointsTo._arithmetic,
    ast.UnaryOp: lambda self, node: self.of(node.operand) | {made(node)},  # `+x` is `x`
    ast.Compare: lambda self, node: frozenset({made(node)}),
    ast.Call: lambda self, node: self.result(node),
    ast.Lambda: PointsTo._lambda,
}
_EFFECTS: dict[type[ast.AST], Callable[..., object]] = {
    **dict.fromkeys((ast.Call, ast.Lambda, ast.BinOp), PointsTo.of),
    ast.Attribute: lambda self, node: self.of(node) if isinstance(node.ctx, ast.Load) else None,
    ast.Assign: PointsTo._assignment,
    ast.AnnAssign: PointsTo._assignment,
    ast.AugAssign: PointsTo._augmented,
    ast.Delete: PointsTo.delete,
    ast.For: PointsTo._looped,
    ast.AsyncFor: PointsTo._looped,
    ast.withitem: PointsTo._managed,
    ast.Raise: PointsTo._raised,
    ast.Yield: lambda self, node: self.suspend(node, node.value),
    ast.YieldFrom: lambda self, node: self.suspend(node, node.value),
    ast.Await: lambda self, node: self.suspend(node, node.value),
    ast.ClassDef: PointsTo._class_body,
    ast.FunctionDef: PointsTo._inner_function,
    ast.AsyncFunctionDef: PointsTo._inner_function,
}

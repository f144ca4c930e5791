"""Follows what is computed to those who differentiate it or keep it, and to what would notice that no gradients are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from perflint import torch_ops
from perflint.analysis.autograd.effects import (
    KNOWN,
    Effects,
    asks_for_gradients,
    differentiates,
    own_wrappers,
    properties,
    runs_module,
)
from perflint.analysis.autograd.modes import GradModes
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.links import Effect, Fate, GradMode, GraphUse, Likelihood, Manner
from perflint.analysis.memory.dispatch import may_be_hooked, registers_hooks
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.scopes import arguments_of, parameters_of
from perflint.syntax.walk import Function, bindings_of, name_called, own_nodes, path_of, receiver_of, root_of

_LEAVES = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")
_DEPTH = 6  # of calls in calls
_DEEP = 60  # of values, one computed of the other
_HARMLESS = frozenset({Kind.NONE, Kind.NUMBER, Kind.STRING, Kind.NUMPY, Kind.DEVICE})
_INTEGRAL = ("int", "uint8", "bool")
CUTTING = frozenset({"detach", "data"})
_ASKED = frozenset({"requires_grad", "grad_fn", "needs_input_grad", "is_leaf"})  # of a tensor, about its graph
_NEEDING = _ASKED | {"grad", "register_hook", "retains_grad", "output_nr"}  # of one that was computed
_KEEPING = frozenset({"append", "extend", "insert", "appendleft", "add", "setdefault", "update"})
_ALSO = frozenset({"add", "update"})  # of metrics, too
_STOPS = (ast.Compare, ast.Expr, ast.Assert, ast.While, ast.If, ast.Raise, ast.Slice)
_PLAIN = re.compile(r"%[sr]|\{[^{}:]*\}|\{[^{}]*![sra]")  # shows all of a tensor, which a format of numbers refuses to
_FIELD = re.compile(r"\{(?::[^{}]*)?\}")
_BUILTINS = frozenset(
    "float int bool complex len sum max min abs any all round zip enumerate list tuple set dict range reversed sorted"
    " isinstance type map filter iter next super".split()
)
_WRITING = frozenset({"torch.save", "torch.package"})
_CONTAINERS = frozenset({Kind.SEQUENCE, Kind.MAPPING})

Calls = tuple[ast.Call, ...]  # that led into a function


def graph_uses(program: Program, place: ast.AST) -> list[GraphUse]:
    return _walked(program, place).found


def with_graphs(program: Program, place: ast.AST) -> set[ast.AST]:
    return {node for node, _ in _walked(program, place).seen}


def _walked(program: Program, place: ast.AST) -> _Walk:
    walk = _Walk(program)
    if isinstance(place, ast.expr):
        walk.follow(place, ())
        return walk
    for node in own_nodes(place):
        if walk.may_start(node):
            walk.follow(node, ())
    return walk


def _is_leaf(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return asks_for_gradients(node) or program.qualified(node.func) in _LEAVES
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return False
    return program.value(node.value).kind is Kind.MODULE and program.value(node).kind is Kind.TENSOR


def cuts(program: Program, place: ast.expr) -> list[ast.AST]:
    walk = _Walk(program)
    walk.follow(place, ())
    return walk.cuts


def drops_graph(program: Program, function: Function) -> bool:
    """Does `function` let go of the graph of its first argument, and use it for nothing?"""
    if program.definition_around(function) or not (function in program.get(_cutting) or program.may_drop_elsewhere):
        return False
    flow, parameter = program.get(Flow), next(iter(parameters_of(function)), None)
    bindings = flow.graph_of(program.tree).bindings.get(getattr(function, "name", ""), [])
    if parameter is None or [each.node for each in bindings] != [function] or own_wrappers(program, function):
        return False
    walk = _Walk(program, within=function)
    walk.uses(flow.graph_of(function).readers(parameter), ())
    return bool(walk.cuts) and not walk.found


def _shown_inside(program: Program, function: Function) -> list[GraphUse]:
    """What shows or keeps a graph that `function` makes, other than by returning it."""
    walk = _Walk(program, returns=False)
    owner = program.class_of(function)
    is_module = owner is not None and owner.instance.kind is Kind.MODULE
    given = {each.arg for each in parameters_of(function)[1:]} if is_module else set()
    for node in own_nodes(function):
        is_weight = is_module and isinstance(node, ast.Attribute) and program.value(node).kind is Kind.TENSOR
        is_given = isinstance(node, ast.Name) and node.id in given
        if walk.may_start(node) or (isinstance(node, ast.expr) and (is_weight or is_given)):
            walk.follow(node, ())
    return walk.found


def _cutting(program: Program) -> set[Function | None]:
    cuts = (each for each in program.of_type(ast.Attribute) if each.attr in CUTTING)
    return {program.function_of(each) for each in cuts if not program.qualified(each)}


class _Walk:
    """One walk along graphs: what it has `seen`, their ends as `found`, and where `detach` or `data` cut them off.

    A graph that the function returns of which it stays `within` has an end there.
    """

    def __init__(self, program: Program, *, returns: bool = True, within: Function | None = None) -> None:
        self.program, self.found, self._returns, self._within = program, list[GraphUse](), returns, within
        self.cuts = list[ast.AST]()
        self._flow, self._modes = program.get(Flow), program.get(GradModes)
        self.seen: set[tuple[ast.AST, Calls]] = set()
        self._stores = set[ast.AST]()  # definitions of containers whose other names have been followed
        self._depth, self._later = 0, list[tuple[ast.expr, Calls]]()

    def may_start(self, node: ast.AST) -> TypeGuard[ast.expr]:
        if not isinstance(node, ast.Call) or _is_leaf(self.program, node):
            return _is_leaf(self.program, node)
        if runs_module(self.program, node) or self.program.get(Effects).of(node, Effect.RUNS_MODULE):
            return True
        return self.program.value(node.func).kind is Kind.UNKNOWN and self.program.callee(node) is None

    def follow(self, node: ast.expr, calls: Calls) -> None:
        if (node, calls) not in self.seen and not self._is_harmless(node):
            self.seen.add((node, calls))
            if self._depth == _DEEP:  # beyond which Python might not go on
                self.seen.discard((node, calls))
                self._later.append((node, calls))
                return
            self._depth += 1
            parent = self.program.parent(node)
            if parent is not None:
                self._step(parent, node, calls)
            self._depth -= 1
            while not self._depth and self._later:
                self.follow(*self._later.pop())

    def _end(self, node: ast.AST, fate: Fate) -> None:
        self.found.append(GraphUse(node, fate))

    def _is_harmless(self, node: ast.expr) -> bool:
        is_computed = isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp))
        if is_computed and self._modes.of(node, callers=False) is GradMode.OFF:
            return True
        method = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        entry = torch_ops.of_method(method)
        is_read = method != "cpu" and torch_ops.does(method, "to_host")
        if is_read or method in ("byte", "int") or (entry is not None and entry.dtype in _INTEGRAL):
            return True
        return _has_none(self.program.value(node))

    def _step(self, parent: ast.AST, node: ast.expr, calls: Calls) -> None:
        if isinstance(parent, (ast.Call, ast.keyword)):
            self._argument(parent, node, calls)
        elif isinstance(parent, ast.Attribute):
            self._attribute(parent, calls)
        elif isinstance(parent, (ast.Return, ast.Yield, ast.YieldFrom, ast.Lambda)):
            self._returned(parent, calls)
        elif targets := bindings_of(parent):
            for target, _ in targets:
                self._bound(target, calls)
            if isinstance(parent, ast.NamedExpr):
                self.follow(parent, calls)
        elif isinstance(parent, ast.Subscript) and node is parent.slice:
            pass  # an index
        elif isinstance(parent, ast.IfExp) and node is parent.test:
            pass
        elif isinstance(parent, ast.FormattedValue):
            if parent.format_spec is None:
                self._end(parent, Fate.OBSERVED)
        elif isinstance(parent, ast.BinOp) and self.program.value(parent.left).kind is Kind.STRING:
            self._formatted(parent, parent.left)
        elif isinstance(parent, ast.Compare) and _compares_identity(parent):
            self._end(parent, Fate.OBSERVED)
        elif isinstance(parent, ast.expr) and not isinstance(parent, _STOPS):
            self.follow(parent, calls)
        elif not isinstance(parent, _STOPS):
            self._end(parent, Fate.LOST)

    def _formatted(self, node: ast.expr, pattern: ast.expr, shown: ast.expr | None = None) -> None:
        text = str(pattern.value) if isinstance(pattern, ast.Constant) else "{}"
        fields, given = _FIELD.findall(text), getattr(node, "args", [])
        if shown in given and len(fields) == len(given):
            text = fields[given.index(shown)]
        if _PLAIN.search(text):
            self._end(node, Fate.OBSERVED)

    def _attribute(self, parent: ast.Attribute, calls: Calls) -> None:
        call = self.program.parent(parent)
        entry = torch_ops.of_attribute(parent.attr)
        if parent.attr == "numpy":
            self._end(parent, Fate.OBSERVED)  # which fails for a tensor that has a graph
        if parent.attr in _NEEDING:
            self._end(parent, Fate.ASKED)
            return
        is_cut = parent.attr in CUTTING or (parent.attr != "cpu" and torch_ops.does(parent.attr, "to_host"))
        if is_cut or (entry and entry.is_metadata):
            self.cuts += [parent] if parent.attr in CUTTING else []
            return
        if not isinstance(call, ast.Call) or call.func is not parent:
            self.follow(parent, calls)
        elif differentiates(self.program, call):
            self._end(call, Fate.DIFFERENTIATED)
        else:
            self.follow(call, calls)

    def _argument(self, parent: ast.Call | ast.keyword, node: ast.expr, calls: Calls) -> None:
        call = parent if isinstance(parent, ast.Call) else self.program.parent(parent)
        if not isinstance(call, ast.Call):
            return  # of a class
        callee = self.program.callee(call)
        if callee is not None:
            self._into(callee, call, node, calls)
        elif differentiates(self.program, call) or self._differentiates_inside(call):
            self._end(call, Fate.DIFFERENTIATED)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPING:
            may_count = call.func.attr in _ALSO and self.program.value(call.func.value).kind not in _CONTAINERS
            self._stored(call.func.value, calls, others=not may_count)
            if may_count:
                self._end(call, Fate.OBSERVED)
        elif (pattern := receiver_of(call, "format")) is not None:
            self._formatted(call, pattern, node)
        elif node in call.args[:1] and self.program.drops_elsewhere(call):
            self.cuts.append(call)
            return
        elif not self._is_known(call):
            self._end(call, Fate.OBSERVED)
        if callee is None and not self.program.qualified(call.func) and not self._is_harmless(call):
            self._written(call, calls)
        self.follow(call, calls)

    def _written(self, node: ast.expr, calls: Calls) -> None:
        """Go on with what a chain of calls writes to, unless it is new."""
        call = node
        while torch_ops.writes_in_place(name_called(node)) and (owner := receiver_of(node)) is not None:
            node = owner
        is_new = node is call or isinstance(node, ast.Call)
        if not is_new and CUTTING.isdisjoint(getattr(each, "attr", "") for each in ast.walk(node)):
            self._stored(node, calls)

    def _differentiates_inside(self, call: ast.Call) -> bool:
        effects = self.program.get(Effects)
        found = set(effects.of(call, Effect.DIFFERENTIATES))
        return bool(found.difference(*(effects.of(each, Effect.DIFFERENTIATES) for each in arguments_of(call))))

    def _is_known(self, call: ast.Call) -> bool:
        """Does the callee, which is not in this file, surely neither show nor keep what it is given?"""
        name, callee = self.program.qualified(call.func), self.program.value(call.func)
        if name in _WRITING:
            return False
        if isinstance(call.func, ast.Name) and call.func.id in _BUILTINS:
            return True
        owner = callee.owner if callee.owner is not None else callee
        is_drawn = owner.name == "distribution" and owner.sure
        known = torch_ops.of_distribution if is_drawn else torch_ops.of_attribute
        is_operation = isinstance(call.func, ast.Attribute) and known(call.func.attr) is not None
        is_tensor = owner.kind is Kind.TENSOR
        return is_tensor or is_operation or (name or owner.name).startswith(KNOWN) or runs_module(self.program, call)

    def _into(self, callee: Function, call: ast.Call, node: ast.expr, calls: Calls) -> None:
        parameter = self.program.receiver(node, call, callee)
        if parameter is None or call in calls or len(calls) >= _DEPTH:
            self._end(call, Fate.LOST)
            return
        self.uses(self._flow.graph_of(callee).readers(parameter), (*calls, call))

    def uses(self, uses: Iterable[ast.Name], calls: Calls) -> None:
        for use in uses:
            self.follow(use, calls)

    def _bound(self, target: ast.expr, calls: Calls) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._bound(each, calls)
        elif isinstance(target, ast.Starred):
            self._bound(target.value, calls)
        elif isinstance(target, ast.Name):
            graph = self._flow.graph(target)
            if target.id in graph.shared:
                self._end(target, Fate.KEPT)
            self.uses(graph.readers(target), calls)
        else:
            self._stored(target, calls)

    def _stored(self, target: ast.expr, calls: Calls, *, others: bool = True) -> None:
        """Go on with all that may find it in what `target` is a part of, by `others`, too."""
        root = root_of(target)
        definitions = self._flow.definitions(root) if isinstance(root, ast.Name) else ()
        is_outer = isinstance(target, ast.Attribute) or any(isinstance(each, ast.arg) for each in definitions)
        if not isinstance(root, ast.Name) or not definitions or is_outer:
            self._end(target, Fate.KEPT)
            return
        graph = self._flow.graph(root)
        for each in definitions:
            self.uses([use for use in graph.uses.get(each, ()) if use is not root], calls)
        self.uses(graph.captured.get(root.id, ()), calls)
        values = (each for each in graph.definitions(root) if isinstance(each, Definition) and others)
        for value in (each for each in values if each.node not in self._stores):
            self._stores.add(value.node)
            for name in _others(value):
                self._stored(name, calls)

    def _returned(self, node: ast.AST, calls: Calls) -> None:
        function = node if isinstance(node, ast.Lambda) else self.program.function_of(node)
        for wrapper in own_wrappers(self.program, function) if function is not None and self._returns else ():
            self._end(wrapper, Fate.OBSERVED)
        if not calls and not self._returns:
            return
        if not calls and function is self._within:
            self._end(node, Fate.RETURNED)
            return
        if calls:
            self.follow(calls[-1], calls[:-1])
        sites = self.program.call_sites(function)
        for site in sites:
            if not self.program.calls(site, function):
                self._end(site, Fate.LOST)
            elif not calls:
                self.follow(site, ())
        is_open = function is None or not sites or self.program.is_called(function, Manner.CALLED)
        if is_open and not calls:
            self._end(node, Fate.RETURNED)


def _others(value: Definition) -> Iterator[ast.expr]:
    pending = [value.source] if value.source is not None else []
    for node in pending:
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            yield node
        elif isinstance(node, ast.IfExp | ast.BoolOp):
            pending += [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
        elif isinstance(node, ast.Tuple | ast.List) and value.steps:
            pending += node.elts
        elif isinstance(node, ast.Call) and (value.steps or path_of(node.func).endswith((".get", ".setdefault"))):
            pending += filter(None, (*node.args, receiver_of(node)))


def _compares_identity(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    is_about_none = any(isinstance(each, ast.Constant) for each in sides)
    return not is_about_none and any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops)


def _has_none(value: Value) -> bool:
    is_plain = value.kind in _HARMLESS or value.dtype in _INTEGRAL
    return is_plain or (bool(value.items) and all(map(_has_none, value.items or ())))


_ASKING = frozenset({"torch.is_grad_enabled", "torch.is_inference_mode_enabled"})


def observers(program: Program, place: ast.AST) -> Iterator[GraphUse]:
    """What asks whether gradients are recorded where `place` runs, or shows or keeps graphs made in calls."""
    effects = program.get(Effects)
    nodes = list(effects.reached(place))
    for node in nodes:
        if _asks(program, node):
            yield GraphUse(node, Fate.ASKED)
    around = program.function_of(place)
    for function in (*effects.functions(place), *properties(program, nodes)):
        if function is not around:
            uses = _shown_inside(program, function) if function is not place else []
            yield from (*uses, *(GraphUse(each, Fate.OBSERVED) for each in own_wrappers(program, function)))
    if registers_hooks(program) or may_be_hooked(program):
        yield GraphUse(program.tree, Fate.HOOKED)


def needs_gradients(program: Program, function: Function) -> Likelihood:
    """Whether a call of `function` differentiates; POSSIBLE where something in it may, or would notice without a graph.

    That is what unknown modules do, and who asks for a graph, shows or keeps one.
    """
    effects = program.get(Effects)
    if effects.of(function, Effect.DIFFERENTIATES):
        return Likelihood.CERTAIN
    may_keep = own_wrappers(program, function) or _shown_inside(program, function)
    is_noticed = may_keep or effects.of(function, Effect.UNSEEN) or any(observers(program, function))
    return Likelihood.POSSIBLE if is_noticed else Likelihood.NO


def _asks(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in _ASKED and isinstance(node.ctx, ast.Load):
        return True
    return program.call_of(node, *_ASKING) is not None

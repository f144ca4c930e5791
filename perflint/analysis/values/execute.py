"""Executes statements abstractly, in two rounds over a file, so that results and arguments reach everywhere."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perflint.analysis.links import HotCall
from perflint.analysis.values.calls import call_value
from perflint.analysis.values.classes import (
    ClassInfo,
    Frame,
    FunctionInfo,
    annotated_fields,
    joined,
    parameter_values,
)
from perflint.analysis.values.codes import arguments_of
from perflint.analysis.values.evaluate import Evaluator, is_vague
from perflint.analysis.values.operators import Arguments, arithmetic, moved_by_choice, received, refined
from perflint.analysis.values.values import (
    LIKELY_HOST_TENSOR,
    LIKELY_LOADER,
    UNKNOWN,
    Kind,
    Place,
    Value,
    element_of,
    join,
    join_handed,
    library,
    mapping,
    parts_of,
    sequence_of,
)
from perflint.syntax.walk import TRIES, last_name, path_of, place_of

ROUNDS = 2
_EVALUATIONS_PER_ROUND = 3  # of one function, each time its arguments turn out to be more than was known


class Executor(Evaluator):
    """The statements of one file."""

    def __init__(self, *, default_place: Place, default_device_set: bool) -> None:
        super().__init__(default_place=default_place)
        self.default_device_set = default_device_set
        self.calls: Sequence[HotCall] = ()  # from other files
        self._loop_exits: dict[ast.AST, dict[str, Value]] = {}
        self._evaluations: dict[ast.AST, int] = {}

    def run(self, tree: ast.Module) -> None:
        module = Frame({})
        for self.round in range(1, ROUNDS + 1):
            self._evaluations.clear()
            if self._is_stale(module):
                module.dead = module.is_open = False
                module.reads.clear()
                self.frame = module
                self._block(tree.body)
                module.changes = self.changes
            while pending := [info for info in self.functions.values() if info.round != self.round]:
                for info in pending:  # evaluating one may define more of them, or call others
                    self._update(info)
        for info in self.functions.values():
            info.call_sites.sort(key=place_of)

    # -- functions

    call = call_value

    def call_function(self, info: FunctionInfo, arguments: dict[str, Value], site: ast.Call | None) -> Value:
        """What a call at `site` gives; evaluates the body if this round has not, or with new arguments."""
        if site is not None and site not in info.call_sites:
            info.call_sites.append(site)
        if info.receive(arguments) and not self._holds(info):
            info.frame = None
        self._update(info)
        self.frame.reads.setdefault((info, ""), info.returns)
        return info.returns or UNKNOWN

    def _update(self, info: FunctionInfo) -> None:
        """Evaluate the body if something on which it depends has changed, which each round looks into once."""
        if info.active or self._evaluations.get(info.node, 0) >= _EVALUATIONS_PER_ROUND:
            return
        is_checked, info.round = info.round == self.round, self.round
        if info.frame is None or (not is_checked and self._is_stale(info.frame)):
            self._evaluate_body(info)

    def _holds(self, info: FunctionInfo) -> bool:
        frame = info.frame
        if frame is None or info.active or self._given(info) != frame.given:
            return False
        return not self._is_stale(frame)

    def _given(self, info: FunctionInfo) -> dict[str, Value]:
        return parameter_values(info, self.module_place, is_demo=self.is_demo)

    def _is_stale(self, frame: Frame) -> bool:
        if frame.is_open or frame.changes != self.changes:
            return True
        for (source, name), known in [*frame.reads.items()]:
            if isinstance(source, FunctionInfo):
                self._update(source)
                now = source.returns
            else:
                now = source.attribute(name) if source is not None else frame.lookup(name)
            if now is not known and now != known:
                return True
        return False

    def _evaluate_body(self, info: FunctionInfo) -> None:
        self._evaluations[info.node] = self._evaluations.get(info.node, 0) + 1
        info.active = True
        outer = self.frame
        given = self._given(info)
        self.frame = info.frame = Frame({**given}, info.parent, info, given=given)
        for path, value in annotated_fields(info).items():
            self.frame.bind_path(path, value)
        before, info.returns, info.yields = info.returns, None, None
        if isinstance(info.node, ast.Lambda):
            info.returns = self.evaluate(info.node.body)
        else:
            self._block(info.node.body)
        if info.yields is not None:
            from_loader = info.yields == LIKELY_HOST_TENSOR
            makers = {last_name(each) for each in getattr(info.node, "decorator_list", ())}
            found = LIKELY_LOADER if from_loader else sequence_of(info.yields)
            info.returns = UNKNOWN if makers & {"contextmanager", "asynccontextmanager"} else found
        if info.returns is None:
            info.returns = before
        info.active = False
        self.frame.changes = self.changes
        self.frame = outer

    def _run_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._register(node, None)
        self.frame.env[node.name] = Value(Kind.FUNCTION, node=node)

    def _register(self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: ClassInfo | None) -> FunctionInfo:
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.evaluate(part)
        info = self.functions.get(node)
        if info is None:
            info = self.functions[node] = FunctionInfo(node, self.frame, owner, self.usages.get(node, {}))
            self._receive_from_outside(info)
        if info.parent is not self.frame:
            info.parent, info.frame = self.frame, None
        return info

    def _receive_from_outside(self, info: FunctionInfo) -> None:
        if info.parent.function is not None:
            return
        name = info.name if info.owner is None else f"{info.owner.node.name}.{info.name}"
        values_of: dict[str, list[Value]] = {}
        for call in self.calls:
            if call.target == name:
                if call.heat:
                    info.outside = max(filter(None, (info.outside, call)), key=lambda each: each.heat)
                positional, keywords = arguments_of(call, self._instance)
                bound = received(info.node, Arguments(positional, keywords, False), UNKNOWN if info.owner else None)
                for parameter, value in bound.items():
                    may_differ = value.kind is Kind.UNKNOWN and info.name != "__init__"
                    values_of.setdefault(parameter, []).append(value._replace(sure=False) if may_differ else value)
        for parameter, values in values_of.items():
            info.receive({parameter: join_handed(values)})

    def _instance(self, name: str) -> Value:
        return next((each.instance for each in self.classes.values() if each.node.name == name), UNKNOWN)

    def _run_classdef(self, node: ast.ClassDef) -> None:
        bases = [self.evaluate(base) for base in node.bases]
        info = self.classes.setdefault(node, ClassInfo(node))
        before = info.bases, info.base_names, info.kind, len(info.methods)
        own = [self.classes[base.node] for base in bases if base.kind is Kind.CLASS and base.node in self.classes]
        info.derive(own, [base.name for base in bases if base.kind in (Kind.LIBRARY, Kind.UNKNOWN) and base.name])
        self.frame.env[node.name] = Value(Kind.CLASS, node=node)
        outer = self.frame
        self.frame = Frame({}, outer, outer.function, reads=outer.reads)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                method = self._register(statement, info)
                method.parent = outer
                info.methods[method.name] = method
            else:
                self._block([statement])
        for name, value in self.frame.env.items():
            info.assign(name, value)
        if not info.kind and not info.bases:
            info.guess_kind()
        self.changes += before != (info.bases, info.base_names, info.kind, len(info.methods))
        self.frame = outer

    def _run_return(self, node: ast.Return) -> None:
        value = self.evaluate(node.value) if node.value is not None else UNKNOWN
        function = self.frame.function
        if function is not None and node.value is not None:
            function.returns = value if function.returns is None else join(function.returns, value)
        self.frame.dead = True

    # -- bindings

    def assign(self, target: ast.expr, value: Value) -> None:
        if target.__class__ in (ast.Name, ast.Attribute) and is_vague(value):
            value = self.by_role(target, value)
        if isinstance(target, ast.Name):
            self.frame.bind(target.id, value)
            self.values[target] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = parts_of(value, len(target.elts))
            for each, part in zip(target.elts, parts, strict=True):
                self.assign(each, part)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, sequence_of(value))
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, value)
        elif isinstance(target, ast.Subscript):
            self._assign_item(target, value)

    def _assign_attribute(self, target: ast.Attribute, value: Value) -> None:
        base = self.evaluate(target.value)
        path = path_of(target)
        if path:
            self.frame.bind_path(path, value)
        info = self.class_of(base)
        if info is not None:
            info.assign(target.attr, value)
        self.values[target] = value

    def _assign_item(self, target: ast.Subscript, value: Value) -> None:
        base = self.evaluate(target.value)
        index = self.evaluate(target.slice)
        path = path_of(target.value)
        if base.kind is Kind.MAPPING and path:
            entries = base.entries
            if index.is_literal:
                entries[index.literal] = value
            grown = mapping(entries.items(), complete=base.sure and index.is_literal)
            self.assign(
                target.value, grown if index.is_literal else grown._replace(item=join(base.item or value, value))
            )
        elif base.kind is Kind.SEQUENCE and path:
            self.assign(target.value, sequence_of(join(base.item or value, value)))
        elif base.kind is Kind.MODULE and path and base.items:
            self.assign(target.value, base._replace(items=None, keys=()))
        elif path and base == LIKELY_HOST_TENSOR and index.kind is not Kind.NUMBER and _may_be_on_device(value):
            self.assign(target.value, base._replace(place=value.place))  # a batch is moved part by part

    def _run_binding(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        if isinstance(node, ast.AugAssign):
            value = arithmetic(node.op, self.evaluate(node.target), self.evaluate(node.value))
        elif node.value is None:
            return
        else:
            value = self.evaluate(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self.assign(target, value)

    def _run_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.frame.env.pop(target.id, None)

    def _run_import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            self.frame.env[alias.asname or name] = library(name)

    def _run_importfrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.star_imports.append(module)
                names = (name for place, name in self.rebound if place == module)
                self.frame.env.update({name: library(f"{module}.{name}") for name in names})
            else:
                self.frame.env[alias.asname or alias.name] = library(f"{module}.{alias.name}")

    # -- control flow

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            handler = _STATEMENTS.get(statement.__class__)
            if handler is not None:
                handler(self, statement)

    def _branch(self, statements: list[ast.stmt], env: dict[str, Value]) -> dict[str, Value] | None:
        """Run a block from `env`; the environment after it, or None if control never gets there."""
        self.frame.env, self.frame.dead = env, False
        self._block(statements)
        result = None if self.frame.dead else self.frame.env
        self.frame.dead = False
        return result

    def _merge(self, before: dict[str, Value], exits: list[dict[str, Value] | None]) -> None:
        alive = [env for env in exits if env is not None]
        self.frame.dead = not alive
        self.frame.env = joined(alive) if alive else before

    def _run_if(self, node: ast.If) -> None:
        self.evaluate(node.test)
        before = self.frame.env
        then = self._branch(node.body, {**before, **refined(self.values, node.test, True)})
        other = self._branch(node.orelse, {**before, **refined(self.values, node.test, False)})
        self._merge(before, [then, other])
        if then is not None and other is not None:
            self.frame.env.update(moved_by_choice(node, before, then, other))

    def _run_loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        """A `break` leaves what is known there to what stands after the loop, so that the block's end stays alive."""
        iterated = UNKNOWN if isinstance(node, ast.While) else self.evaluate(node.iter)
        before = self.frame.env
        known_exit = self._loop_exits.get(node)
        self.frame.env = joined([before, known_exit]) if known_exit else dict(before)
        entry = dict(self.frame.env)
        if isinstance(node, ast.While):
            self.evaluate(node.test)
        else:
            self.assign(node.target, element_of(iterated))
        after = self._branch(node.body, self.frame.env)
        self._loop_exits[node] = after if after is not None else self.frame.env
        self.frame.env = joined([before, self._loop_exits[node]])
        self.frame.is_open |= any(self._is_news(name, value, entry) for name, value in self.frame.env.items())
        self.frame.dead = False
        self._block(node.orelse)

    def _is_news(self, name: str, value: Value, entry: dict[str, Value]) -> bool:
        """Would another iteration, which begins with `value`, find more under a name than one from `entry` did?"""
        if name in entry:
            return entry[name] is not value and entry[name] != value
        return "." in name or (None, name) in self.frame.reads

    def _run_with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            value = self.evaluate(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value)
        self._block(node.body)

    def _run_try(self, node: ast.Try) -> None:
        before = dict(self.frame.env)
        body = self._branch([*node.body, *node.orelse], self.frame.env)
        exits = [body]
        for handler in node.handlers:
            if handler.type is not None:
                self.evaluate(handler.type)
            exits.append(self._branch(handler.body, joined([before, body]) if body is not None else dict(before)))
        self._merge(before, exits)
        dead, self.frame.dead = self.frame.dead, False
        self._block(node.finalbody)
        self.frame.dead |= dead

    def _run_match(self, node: ast.Match) -> None:
        self.evaluate(node.subject)
        before = self.frame.env
        exits: list[dict[str, Value] | None] = [dict(before)]
        for case in node.cases:
            env = dict(before)
            for name in (getattr(part, "name", None) for part in ast.walk(case.pattern)):
                if name:
                    env[name] = UNKNOWN
            exits.append(self._branch(case.body, env))
        self._merge(before, exits)

    def _run_raise(self, node: ast.Raise) -> None:
        self.evaluate_parts(node)
        self.frame.dead = True

    def _run_assert(self, node: ast.Assert) -> None:
        self.evaluate_parts(node)
        self.frame.env.update(refined(self.values, node.test, True))


def _may_be_on_device(value: Value) -> bool:
    return value.kind in (Kind.TENSOR, Kind.UNKNOWN) and value.place is not Place.HOST


_STATEMENTS: dict[type[ast.AST], Callable[[Executor, Any], object]] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), Executor._run_functiondef),
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.While), Executor._run_loop),
    **dict.fromkeys((ast.Assign, ast.AnnAssign, ast.AugAssign), Executor._run_binding),
    **dict.fromkeys((ast.With, ast.AsyncWith), Executor._run_with),
    **dict.fromkeys(TRIES, Executor._run_try),
    **dict.fromkeys((ast.Global, ast.Nonlocal), lambda self, node: self.frame.outer.update(node.names)),
    ast.ClassDef: Executor._run_classdef,
    ast.Return: Executor._run_return,
    ast.Delete: Executor._run_delete,
    ast.If: Executor._run_if,
    ast.Match: Executor._run_match,
    ast.Raise: Executor._run_raise,
    ast.Assert: Executor._run_assert,
    ast.Import: Executor._run_import,
    ast.ImportFrom: Executor._run_importfrom,
    ast.Expr: lambda self, node: self.evaluate(node.value),
}

"""Tells whether gradients are recorded at a place: by contexts and decorators around it, and by its callers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from perflint.analysis.autograd.found import GradMode
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.links import Manner
from perflint.syntax.scopes import bind
from perflint.syntax.walk import FUNCTIONS, Function, own_nodes, path_of

_OFF = frozenset(f"torch.{name}" for name in "no_grad inference_mode autograd.no_grad autograd.inference_mode".split())
_ON = frozenset({"torch.enable_grad", "torch.autograd.enable_grad"})
_SET = frozenset({"torch.set_grad_enabled", "torch.autograd.set_grad_enabled"})
_TELLING = re.compile(r"grad|eval|infer|freeze|frozen", re.IGNORECASE)  # names of contexts and decorators not analysed
_HOOK = re.compile(r"^(on_|(val|valid|validation|test|predict|prediction|eval|evaluation)_(step|epoch|loop|batch))")


class GradModes:
    """The grad modes of the places in one program."""

    def __init__(self, program: Program) -> None:
        self._program, self._flow = program, program.get(Flow)
        self._switches, self._is_old = "set_grad_enabled" in program.text, "volatile=" in program.text

    def of(self, node: ast.AST, *, callers: bool = True) -> GradMode:
        """The mode in which `node` runs; with `callers`, as far as known callers and the framework agree on it."""
        mode, function = self._local(node), self._program.function_of(node)
        if mode is None and callers and function is not None:
            modes = set(self._of_callers(function)) or {GradMode.ON}
            return modes.pop() if len(modes) == 1 else GradMode.UNKNOWN
        return mode or (self._of_uncalled(None) if callers else GradMode.ON)

    def _local(self, node: ast.AST) -> GradMode | None:
        """The mode that the function around `node`, or the module, sets there; None where it sets none."""
        for parent in self._program.ancestors(node):
            if isinstance(parent, FUNCTIONS):
                return self._first(getattr(parent, "decorator_list", ())) or self._switched(parent)
            if isinstance(parent, ast.With | ast.AsyncWith):
                mode = self._first([item.context_expr for item in parent.items][::-1])
                if mode is not None:
                    return mode
        return self._switched(self._program.tree)

    def _of_callers(self, function: Function) -> Iterator[GradMode]:
        """The modes of all that leads to a call of `function`, which itself sets none."""
        pending, seen = [function], {function}
        for each in pending:
            sites = self._program.call_sites(each)
            yield from [] if sites and not self._may_be_quiet(each) else [self._of_uncalled(each)]
            for site in sites:
                mode, around = self._local(site), self._program.function_of(site)
                if mode is None and around is not None:
                    pending += [around] if around not in seen else []
                    seen.add(around)
                else:
                    yield mode or self._of_uncalled(None)

    def _of_uncalled(self, function: Function | None) -> GradMode:
        """The mode where nothing known sets one: a switch that is never switched back holds for all that follows."""
        is_quiet = self._is_switched_off or (function is not None and self._may_be_quiet(function))
        return GradMode.UNKNOWN if is_quiet else GradMode.ON

    @cached_property
    def _is_switched_off(self) -> bool:
        functions: Sequence[ast.FunctionDef] = self._program.of_type(ast.FunctionDef)
        scopes: list[ast.FunctionDef | ast.Module] = [self._program.tree, *functions]
        return self._switches and any(self._switched(each) is not None for each in scopes)

    def _may_be_quiet(self, function: Function) -> bool:
        """May a framework, or another file, call `function` with gradients switched off?"""
        is_method = self._program.class_of(function) is not None
        is_hook = is_method and _HOOK.search(getattr(function, "name", "")) is not None
        return is_hook or self._program.is_called(function, Manner.QUIET)

    def _first(self, contexts: Iterable[ast.expr]) -> GradMode | None:
        return next(filter(None, map(self._of_context, contexts)), None)

    def _of_context(self, node: ast.expr) -> GradMode | None:
        """The mode that a context manager, or a decorator, sets; None for others."""
        function = node.func if isinstance(node, ast.Call) else node
        name = self._program.qualified(function)
        if name in _OFF:
            return GradMode.OFF
        if name in _ON:
            return GradMode.ON
        if isinstance(node, ast.Call) and name in _SET:
            return self._set(node)
        if isinstance(node, ast.IfExp):
            return GradMode.UNKNOWN if self._of_context(node.body) or self._of_context(node.orelse) else None
        if isinstance(node, ast.Name) and not isinstance(self._program.value(node).node, FUNCTIONS):
            modes = {self._of_context(each) for each in self._assigned(node)}
            if modes - {None}:
                return modes.pop() if len(modes) == 1 else GradMode.UNKNOWN
        own = self._program.value(function).node
        body = ast.walk(own) if isinstance(own, (*FUNCTIONS, ast.ClassDef)) else ()
        names = (each for each in body if isinstance(each, ast.Attribute | ast.Name))
        is_own = any(self._program.qualified(each) in _OFF | _SET for each in names)
        return GradMode.UNKNOWN if is_own or _TELLING.search(path_of(function)) else None

    def _assigned(self, name: ast.Name) -> Iterator[ast.expr]:
        for each in self._flow.graph(name).definitions(name):
            if isinstance(each, Definition) and each.given is not None:
                yield each.given

    def _set(self, call: ast.Call) -> GradMode:
        mode = bind(call, ("mode",)).get("mode")
        literal = self._program.value(mode).literal if mode is not None else None
        return (GradMode.ON if literal else GradMode.OFF) if isinstance(literal, bool) else GradMode.UNKNOWN

    def _switched(self, scope: Function | ast.Module) -> GradMode | None:
        """The mode that `scope` sets by a call, for all that runs after it, and so for all of it."""
        calls = (each for each in own_nodes(scope) if isinstance(each, ast.Call)) if self._switches else ()
        statements = (each for each in calls if isinstance(self._program.parent(each), ast.Expr))
        modes = {self._set(each) for each in statements if self._program.qualified(each.func) in _SET}
        if self._is_old and any(isinstance(each, ast.keyword) and each.arg == "volatile" for each in own_nodes(scope)):
            modes.add(GradMode.UNKNOWN)  # of torch before 0.4, for what is computed with it
        return GradMode.OFF if GradMode.OFF in modes else GradMode.UNKNOWN if modes - {GradMode.ON} else None

"""Decides which expressions start worker processes when they are iterated over."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from perflint.analysis.data.effects import method_of
from perflint.analysis.data.loaders import LoaderCall, Loaders, Setting, State
from perflint.analysis.data.origins import Origins, parts_of
from perflint.analysis.facts import Program
from perflint.analysis.links import Likelihood, Summary
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import defaults_of

_WRAPS = re.compile(
    r"builtins\.(iter|next|list|tuple|set|enumerate|zip|map|filter|reversed|sorted)|tqdm\b.*|itertools\.\w+"
    r"|rich\.progress\.track|.*\.(prepare|tqdm|trange|prepare_data_loader|MpDeviceLoader|ParallelLoader)"
)
_WRAPPING_METHODS = frozenset({"prepare", "tqdm", "track"})
_MAPPINGS = frozenset({"builtins.dict", "collections.OrderedDict"})
_WORKER_WORDS = re.compile(r"^(data_?|loader_|dataloader_)?(num_?|n_)?workers?$")

_Wanted = tuple[ast.AST, bool]  # a node, and whether what it holds is meant, at any depth


@dataclass(frozen=True)
class Reason:
    """Why processes are started, in words, and how sure that is."""

    likelihood: Likelihood
    what: str


class Workers:
    """The workers of one program's loaders; `assumed` are loaders taken to have some."""

    def __init__(self, program: Program, assumed: frozenset[ast.Call]) -> None:
        self._program = program
        self._assumed = assumed
        self._loaders = program.get(Loaders)
        self._origins = program.get(Origins)
        self.queried: set[str] = set()  # functions of other files that a start depends on

    def of(self, node: ast.AST) -> Reason | None:
        """What iterating over `node` starts."""
        return self._search((node, False), set())

    def of_parts(self, node: ast.AST) -> Reason | None:
        """What iterating over `node` starts, or over something that it holds, such as a loader of a dict."""
        return self.of(node) or self._search((node, True), set())

    def of_loader(self, loader: LoaderCall) -> Reason | None:
        """What iterating over a loader starts."""
        if loader.call in self._assumed:
            return Reason(Likelihood.CERTAIN, "it iterates a loader with workers")
        return self._of_setting(loader.workers, "the workers of a loader")

    def of_number(self, expression: ast.expr, what: str) -> Reason | None:
        """What is started where `expression` is the number of workers."""
        return self._of_setting(Setting(*self._judged(expression)), what)

    def summaries(self, call: ast.Call) -> tuple[Summary, ...]:
        """What other files tell of the function that is called."""
        self.queried.update(self._program.targets(call))
        return tuple(self._program.summaries(call))

    def reason_of_summaries(self, call: ast.Call, likelihoods: Iterable[Likelihood]) -> Reason | None:
        """The reason that summaries of other files give."""
        likelihood = max(likelihoods, default=Likelihood.NO)
        if not likelihood:
            return None
        starts = "starts" if likelihood is Likelihood.CERTAIN else "may start"
        return Reason(likelihood, f"{self._program.segment(call.func)}() {starts} processes")

    def _search(self, wanted: _Wanted, seen: set[_Wanted]) -> Reason | None:
        if wanted in seen:
            return None
        seen.add(wanted)
        node, is_held = wanted
        value = self._program.value(node)
        if not is_held and value.kind is Kind.LOADER and value.node in self._loaders.by_call:
            return self.of_loader(self._loaders.by_call[value.node])
        reasons = []
        for origin in self._origins.of(node):
            reasons += [self._search(part, seen) for part in self._sources(origin, is_held)]
            if isinstance(origin, ast.Call):
                reasons.append(self._of_call(origin, is_held))
        return max(filter(None, reasons), key=lambda reason: reason.likelihood, default=None)

    def _sources(self, origin: ast.AST, is_held: bool) -> Iterator[_Wanted]:
        """What `origin` is made of, as far as it may be a loader, or hold one."""
        if isinstance(origin, ast.Subscript | ast.Starred):
            yield origin.value, True
        elif isinstance(origin, ast.For | ast.AsyncFor | ast.comprehension):  # its target
            yield origin.iter, True
        elif isinstance(origin, ast.Call):
            yield from self._sources_of_call(origin, is_held)
        if is_held:
            for each in (*parts_of(origin), *self._put_in.get(origin, ())):
                yield each, False
                yield each, True

    def _sources_of_call(self, call: ast.Call, is_held: bool) -> Iterator[_Wanted]:
        name = self._name(call)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if (
            _WRAPS.fullmatch(name)
            or method in _WRAPPING_METHODS
            or method_of(self._program.value(call.func).node, "__iter__") is not None
        ):
            yield from ((argument, is_held) for argument in call.args)
        elif is_held and name in _MAPPINGS:
            yield from ((argument, True) for argument in call.args)
            yield from ((keyword.value, False) for keyword in call.keywords)
        elif owner is not None and method == "next":
            yield owner, is_held
        elif owner is not None and (method in ("get", "pop") or (is_held and method in ("items", "values"))):
            yield owner, True

    def _of_call(self, call: ast.Call, is_held: bool) -> Reason | None:
        loader = self._loaders.by_call.get(call)
        if loader is not None:
            return None if is_held else self.of_loader(loader)
        if _WRAPS.fullmatch(self._name(call)):
            return None
        for keyword in call.keywords:
            if keyword.arg and _WORKER_WORDS.match(keyword.arg):
                reason = self.of_number(keyword.value, f"the workers that {keyword.arg} asks for")
                return Reason(Likelihood.POSSIBLE, reason.what) if reason else None
        return self.reason_of_summaries(call, (summary.loads for summary in self.summaries(call)))

    def _name(self, call: ast.Call) -> str:
        return self._program.qualified(call.func) or self._program.value(call.func).name  # imported by a *

    @cached_property
    def _put_in(self) -> dict[ast.AST, list[ast.expr]]:
        """What is put into each container behind its making, by where it is made."""
        put: defaultdict[ast.AST, list[ast.expr]] = defaultdict(list)
        for assignment in self._program.of_type(ast.Assign):
            for target in assignment.targets:
                if isinstance(target, ast.Subscript):
                    self._put(put, target.value, assignment.value)
        for call in self._program.of_type(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1:
                self._put(put, call.func.value, call.args[0])
        return put

    def _put(self, put: dict[ast.AST, list[ast.expr]], container: ast.expr, value: ast.expr) -> None:
        for origin in self._origins.of(container):
            put[origin].append(value)

    # -- numbers of workers

    def _judged(self, expression: ast.expr) -> tuple[State, ast.expr, bool]:
        state, certain = self._loaders.judge(expression)
        return state, expression, certain

    def _of_setting(self, setting: Setting, what: str) -> Reason | None:
        if setting.state in (State.ABSENT, State.OFF, State.UNKNOWN) or self._is_for_callers(setting):
            return None
        certain = setting.state is State.ON and setting.certain
        return Reason(
            Likelihood.CERTAIN if certain else Likelihood.POSSIBLE, f"it {'starts' if certain else 'may start'} {what}"
        )

    def _is_for_callers(self, setting: Setting) -> bool:
        """Is it a parameter of which nothing is known?"""
        origins = list(self._origins.of(setting.value)) if setting.value is not None else []
        parameters = [each for each in origins if isinstance(each, ast.arg)]
        return bool(parameters) and len(parameters) == len(origins) and not any(map(self._is_supplied, parameters))

    def _is_supplied(self, parameter: ast.arg) -> bool:
        """Has it a default, or does a call leave it out, as one does where a decorator reads the command line?"""
        function = self._program.function_of(parameter)
        if function is None or parameter.arg in defaults_of(function):
            return function is not None
        sites = (site for site in self._program.call_sites(function) if isinstance(site, ast.Call))
        return any(
            self._program.callee(site) is function
            and not any(isinstance(each, ast.Starred) for each in site.args)
            and all(keyword.arg for keyword in site.keywords)
            and self._origins.given(site, function, parameter.arg) is None
            for site in sites
        )

"""Decides which expressions start worker processes when they are iterated over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from perflint.analysis.data.iteration import WRAPS, Iteration, name_of
from perflint.analysis.data.loaders import LoaderCall, Loaders, Setting, State
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.links import Likelihood, Summary
from perflint.syntax.scopes import defaults_of

_WORKER_WORDS = re.compile(r"^(data_?|loader_|dataloader_)?(num_?|n_)?workers?$")


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
        self._iteration = program.get(Iteration)
        self.queried: set[str] = set()  # functions of other files that a start depends on

    def of(self, node: ast.AST) -> Reason | None:
        """What iterating over `node` starts."""
        return self._started(node, held=False)

    def of_parts(self, node: ast.AST) -> Reason | None:
        """What iterating over `node` starts, or over something that it holds, such as a loader of a dict."""
        return self.of(node) or self._started(node, held=True)

    def _started(self, node: ast.AST, *, held: bool) -> Reason | None:
        calls = ((each, is_held) for each, is_held, _ in self._iteration.reached(node, held=held))
        reasons = (self._of_call(each, is_held) for each, is_held in calls if isinstance(each, ast.Call))
        return max(filter(None, reasons), key=lambda reason: reason.likelihood, default=None)

    def of_loader(self, loader: LoaderCall) -> Reason | None:
        """What iterating over a loader starts."""
        if loader.call in self._assumed:
            return Reason(Likelihood.CERTAIN, "it iterates a loader with workers")
        return self._of_setting(loader.workers, "the workers of a loader")

    def of_number(self, expression: ast.expr, what: str) -> Reason | None:
        """What is started where `expression` is the number of workers."""
        return self._of_setting(Setting(*self._judged(expression)), what)

    def of_processes(self, expression: ast.expr) -> Reason | None:
        """What is started where `expression` is the number of processes, the one of the program among them."""
        is_alone = isinstance(expression, ast.Constant) and expression.value == 1
        return None if is_alone else self.of_number(expression, "the processes of num_proc")

    def summaries(self, call: ast.Call) -> tuple[Summary, ...]:
        """What other files tell of the function that is called."""
        self.queried.update(self._program.targets(call))
        return tuple(self._program.summaries(call))

    def reason_of_summaries(self, call: ast.Call, likelihoods: Iterable[Likelihood]) -> Reason | None:
        """The reason that summaries of other files give."""
        likelihood = max(likelihoods, default=Likelihood.NO)
        if not likelihood or self._asks_for_none(call):
            return None
        starts = "starts" if likelihood is Likelihood.CERTAIN else "may start"
        return Reason(likelihood, f"{self._program.segment(call.func)}() {starts} processes")

    def _of_call(self, call: ast.Call, is_held: bool) -> Reason | None:
        loader = self._loaders.by_call.get(call)
        if loader is not None:
            return None if is_held else self.of_loader(loader)
        if WRAPS.fullmatch(name_of(self._program, call)):
            return None
        for keyword in call.keywords:
            if keyword.arg and _WORKER_WORDS.match(keyword.arg):
                reason = self.of_number(keyword.value, f"the workers that {keyword.arg} asks for")
                return Reason(Likelihood.POSSIBLE, reason.what) if reason else None
        return self.reason_of_summaries(call, (summary.loads for summary in self.summaries(call)))

    def _asks_for_none(self, call: ast.Call) -> bool:
        """Is the function told to take no workers, here or by a `functools.partial` of it?"""
        given = [self._program.value(each.value) for each in call.keywords if _WORKER_WORDS.match(each.arg or "")]
        preset = self._program.value(call.func).item
        if not given and preset is not None and preset.items is not None:
            known = zip(preset.keys, preset.items, strict=True)
            given = [value for name, value in known if isinstance(name, str) and _WORKER_WORDS.match(name)]
        return bool(given) and all(each.is_literal and each.literal == 0 for each in given)

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
        return any(
            given is None
            and self._program.calls(site, function)
            and not self._program.arguments(site, function).is_open
            for site, given in self._program.given(parameter)
        )

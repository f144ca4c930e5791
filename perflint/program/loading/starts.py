"""Finds the first statement at module level that starts worker processes without a main guard."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.links import Answer, Likelihood
from perflint.program.loading.draws import method_of
from perflint.program.loading.handovers import Handovers
from perflint.program.loading.loaders import LoaderCall, Setting, State, is_loader_class
from perflint.program.loading.origins import default_of
from perflint.program.values import Kind
from perflint.program.walk import COMPREHENSIONS, FUNCTIONS, Function, children, own_nodes

if TYPE_CHECKING:
    from perflint.program import Program

_ITERATES = frozenset(
    f"builtins.{name}"
    for name in "iter next list tuple set sorted enumerate zip map filter sum max min dict any all".split()
)
_WRAPS = re.compile(
    r"builtins\.\w+|tqdm\b.*|itertools\.\w+|rich\.progress\.track|.*\.(prepare|tqdm|trange|prepare_data_loader|MpDeviceLoader|ParallelLoader)"
)
_STARTS = re.compile(
    r"(torch\.)?multiprocessing\.(\w+\.)?(Pool|Manager|spawn|start_processes)|torch\.multiprocessing\.spawn\.spawn"
    r"|concurrent\.futures\.(process\.)?ProcessPoolExecutor|gym(nasium)?\.vector\.AsyncVectorEnv|.*\.SubprocVecEnv"
)
_PROCESS = re.compile(r"(torch\.)?multiprocessing\.(\w+\.)?Process")
_FORK_ONLY = re.compile(r"""(set_start_method|get_context|multiprocessing_context\s*=)\s*\(?\s*['"]fork['"]""")
WORKER_WORDS = re.compile(
    r"^(data_?|loader_|dataloader_)?(num_?|n_)?(workers?|jobs|cpus?|threads|procs?)$|^n_?jobs$|^num_?jobs$"
)


@dataclass(frozen=True)
class Start:
    """The statement that starts processes, the one of the module's body that holds it, and what does it in words."""

    statement: ast.stmt
    top: ast.stmt
    likelihood: Likelihood
    what: str


@dataclass(frozen=True)
class _Reason:
    likelihood: Likelihood
    what: str


class Starts:
    """The process starts of one program; `assumed` are loaders taken to have workers."""

    def __init__(self, program: Program, assumed: frozenset[ast.Call] = frozenset()) -> None:
        self._program = program
        self._assumed = assumed
        self._loaders = program.loaders
        self._handovers = Handovers(program)
        self._functions: dict[ast.AST, _Reason | None] = {}
        self.asked: set[str] = set()  # functions of other files that a start depends on

    def first(self) -> Start | None:
        """The first start outside a guard, if the file is a script in which there is one."""
        if _FORK_ONLY.search(self._program.text) or self._is_part_of_package():
            return None
        for top in self._program.tree.body:
            found = self._in_statement(top, top)
            if found is not None:
                return found
        return None

    def by_calling(self, function: Function) -> Likelihood:
        """How sure it is that every call of `function` starts processes, whatever it is given."""
        body = function.body if isinstance(function.body, list) else [function.body]
        nodes = (node for node in self._running_nodes(list(body)) if not self._is_conditional(node, function))
        return max((_likelihood(self._reason(node)) for node in nodes), default=Likelihood.NO)

    def _is_conditional(self, node: ast.AST, function: Function) -> bool:
        around = itertools.takewhile(lambda each: each is not function, self._program.ancestors(node))
        return any(isinstance(each, ast.If | ast.IfExp) for each in around)

    def by_iterating(self, function: Function) -> Likelihood:
        """How sure it is that iterating over what `function` returns does."""
        returns = [each for each in own_nodes(function) if isinstance(each, ast.Return) and each.value is not None]
        return max((_likelihood(self._iterating(each.value)) for each in returns if each.value), default=Likelihood.NO)

    def by_walking(self, node: ast.ClassDef) -> Likelihood:
        """How sure it is that iterating over an object of the class does, as it is a loader itself."""
        constructor = method_of(node, "__init__") if any(map(self._is_loader, node.bases)) else None
        built = [self._loaders.by_call.get(each) for each in own_nodes(constructor)] if constructor else []
        return max((_likelihood(self._loader_reason(loader)) for loader in built if loader), default=Likelihood.NO)

    def _is_loader(self, base: ast.expr) -> bool:
        return is_loader_class(self._program.qualified(base))

    def _is_part_of_package(self) -> bool:
        """Does the module import its siblings relatively, so that it cannot be run as a script?"""
        return any(isinstance(each, ast.ImportFrom) and each.level > 0 for each in self._program.tree.body)

    def _in_statement(self, statement: ast.stmt, top: ast.stmt) -> Start | None:
        from perflint.program import is_main_guard

        if is_main_guard(statement) or isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            return None
        if isinstance(statement, ast.If | ast.Try | ast.With):
            heads = [child for child in children(statement) if not isinstance(child, ast.stmt | ast.ExceptHandler)]
            if reason := self._reason_in(heads):
                return Start(statement, top, *_parts(reason))
            for block in _blocks(statement):
                for inner in block:
                    if found := self._in_statement(inner, top):
                        return found
            return None
        reason = self._reason_in([statement])
        return Start(statement, top, *_parts(reason)) if reason else None

    def _reason_in(self, roots: list[ast.AST]) -> _Reason | None:
        best: _Reason | None = None
        for node in self._running_nodes(roots):
            reason = self._reason(node)
            if reason is not None and (best is None or reason.likelihood > best.likelihood):
                best = reason
        return best

    def _running_nodes(self, roots: list[ast.AST]) -> Iterator[ast.AST]:
        """The nodes that run when `roots` do: not the bodies of definitions, nor what a main guard holds."""
        from perflint.program import is_main_guard

        stack = list(roots)
        while stack:
            node = stack.pop()
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) or (isinstance(node, ast.If) and is_main_guard(node)):
                continue
            yield node
            stack.extend(children(node))

    def _reason(self, node: ast.AST) -> _Reason | None:
        if isinstance(node, ast.For | ast.AsyncFor | ast.YieldFrom | ast.comprehension):
            return self._iterating(node.value if isinstance(node, ast.YieldFrom) else node.iter)
        if isinstance(node, COMPREHENSIONS):
            return next(filter(None, (self._iterating(generator.iter) for generator in node.generators)), None)
        return self._calling(node) if isinstance(node, ast.Call) else None

    # -- calls

    def _calling(self, call: ast.Call) -> _Reason | None:
        program = self._program
        callee = program.callee(call)
        if callee is not None:
            return self._in_function(callee)
        name = program.qualified(call.func)
        if name in _ITERATES:
            return next(filter(None, map(self._iterating, call.args)), None)
        if _STARTS.fullmatch(name) or self._starts_from_context(call):
            return _Reason(Likelihood.CERTAIN, f"{name.rpartition('.')[2] or 'it'}() starts processes")
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "start"
            and not call.args
            and self._is_process(call.func.value)
        ):
            return _Reason(Likelihood.CERTAIN, "it starts a process")
        processes = next((keyword.value for keyword in call.keywords if keyword.arg == "num_proc"), None)
        if processes is not None and isinstance(call.func, ast.Attribute):
            return self._setting_reason(Setting(*self._judged(processes)), "the processes of num_proc")
        return self._told(call, [answer.starts for answer in self._asked_of(call)]) or self._handed_over(call)

    def _asked_of(self, call: ast.Call) -> tuple[Answer, ...]:
        """What other files tell of the function that is called."""
        self.asked.update(self._program.targets(call))
        return tuple(self._program.answers(call))

    def _told(self, call: ast.Call, likelihoods: Sequence[Likelihood]) -> _Reason | None:
        likelihood = max(likelihoods, default=Likelihood.NO)
        if not likelihood:
            return None
        starts = "starts" if likelihood is Likelihood.CERTAIN else "may start"
        return _Reason(likelihood, f"{self._program.segment(call.func)}() {starts} processes")

    def _judged(self, expression: ast.expr) -> tuple[State, ast.expr, bool]:
        if isinstance(expression, ast.Constant) and expression.value == 1:
            return State.OFF, expression, True
        state, certain = self._loaders.judge(expression)
        return state, expression, certain

    def _in_function(self, function: Function) -> _Reason | None:
        if function not in self._functions:
            self._functions[function] = None  # while it is being worked out: functions may call each other
            body = function.body if isinstance(function.body, list) else [function.body]
            self._functions[function] = self._reason_in(list(body))
        return self._functions[function]

    def _starts_from_context(self, call: ast.Call) -> bool:
        """Is it `multiprocessing.get_context("spawn").Pool()`?"""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("Pool", "Manager"):
            return False
        return any(
            isinstance(origin, ast.Call)
            and self._program.qualified(origin.func).endswith("multiprocessing.get_context")
            for origin in self._loaders.origins.of(call.func.value)
        )

    def _is_process(self, node: ast.expr) -> bool:
        """Is it a Process? One that is kept in a list is known by its construction in the same function."""
        origins = self._loaders.origins.of(node)
        made = [origin for origin in origins if isinstance(origin, ast.Call)]
        if made:
            return any(self._makes_process(origin) for origin in made)
        around = self._program.function_of(node)
        return any(
            self._makes_process(call) and self._program.function_of(call) is around
            for call in self._program.of_type(ast.Call)
        )

    def _makes_process(self, call: ast.Call) -> bool:
        value = self._program.value(call.func)
        if value.kind is Kind.LIBRARY:
            return bool(_PROCESS.fullmatch(value.name))
        if isinstance(value.node, ast.ClassDef) and value.kind is Kind.CLASS:
            return any(_PROCESS.fullmatch(self._program.qualified(base)) for base in value.node.bases)
        return isinstance(call.func, ast.Attribute) and call.func.attr == "Process" and value.kind is Kind.METHOD

    # -- loaders

    def _iterating(self, node: ast.expr) -> _Reason | None:
        """What iterating over `node` starts."""
        return self._of_iterable(node, {node})

    def _of_iterable(self, node: ast.AST, seen: set[ast.AST]) -> _Reason | None:
        value = self._program.value(node)
        if value.kind is Kind.LOADER and value.node in self._loaders.by_call:
            return self._loader_reason(self._loaders.by_call[value.node])
        reasons = []
        for origin in self._loaders.origins.of(node):
            if isinstance(origin, ast.Call):
                reasons.append(self._of_call(origin, seen))
            else:
                reasons += [self._of_iterable(part, seen) for part in _unseen(_held(origin), seen)]
        return max(filter(None, reasons), key=lambda reason: reason.likelihood, default=None)

    def _of_call(self, call: ast.Call, seen: set[ast.AST]) -> _Reason | None:
        loader = self._loaders.by_call.get(call)
        if loader is not None:
            return self._loader_reason(loader)
        name = self._program.qualified(call.func) or self._program.value(call.func).name  # imported by a *
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if _WRAPS.fullmatch(name) or method in ("prepare", "tqdm", "track"):
            parts = (self._of_iterable(argument, seen) for argument in _unseen(call.args, seen))
            return next(filter(None, parts), None)
        if method in ("items", "values", "get", "next") and isinstance(call.func, ast.Attribute):
            owners = [self._of_iterable(owner, seen) for owner in _unseen([call.func.value], seen)]
            return next(filter(None, owners), None)
        for keyword in call.keywords:
            if keyword.arg and WORKER_WORDS.match(keyword.arg):
                reason = self._setting_reason(
                    Setting(*self._judged(keyword.value)), f"the workers that {keyword.arg} asks for"
                )
                return _Reason(Likelihood.POSSIBLE, reason.what) if reason else None
        return self._told(call, [answer.loads for answer in self._asked_of(call)])

    def _loader_reason(self, loader: LoaderCall) -> _Reason | None:
        if loader.call in self._assumed:
            return _Reason(Likelihood.CERTAIN, "it iterates a loader with workers")
        return self._setting_reason(loader.workers, "the workers of a loader")

    def _setting_reason(self, setting: Setting, what: str) -> _Reason | None:
        if setting.state in (State.ABSENT, State.OFF, State.UNKNOWN) or self._is_for_callers(setting):
            return None
        certain = setting.state is State.ON and setting.certain
        return _Reason(
            Likelihood.CERTAIN if certain else Likelihood.POSSIBLE, f"it {'starts' if certain else 'may start'} {what}"
        )

    def _is_for_callers(self, setting: Setting) -> bool:
        """Is it a parameter without a default, of which nothing is known?"""
        origins = list(self._loaders.origins.of(setting.value)) if setting.value is not None else []
        parameters = [each for each in origins if isinstance(each, ast.arg)]
        return bool(parameters) and len(parameters) == len(origins) and not any(map(self._default, parameters))

    def _default(self, parameter: ast.arg) -> ast.expr | None:
        function = self._program.function_of(parameter)
        return default_of(function, parameter.arg) if function is not None else None

    def _handed_over(self, call: ast.Call) -> _Reason | None:
        """What code of other files starts that is given a loader, or options that say how many workers."""
        if not self._handovers.runs_training(call):
            return None
        for expression in self._handovers.loaders_in(call):
            reason = self._iterating(expression)
            if reason is not None:
                certain = reason.likelihood if self._handovers.surely_iterates(call) else Likelihood.POSSIBLE
                return _Reason(certain, reason.what)
        for workers in self._handovers.workers_given(call):
            reason = self._setting_reason(Setting(*self._judged(workers)), "the workers that it was built with")
            if reason is not None:
                return _Reason(Likelihood.POSSIBLE, reason.what)
        if self._handovers.passes_worker_option(call):
            return _Reason(Likelihood.POSSIBLE, "it may start the workers that the command line asks for")
        return None


def _held(node: ast.AST) -> Iterable[ast.AST]:
    """What a container holds, or what holds a part of one."""
    if isinstance(node, ast.Dict | ast.DictComp):
        return node.values if isinstance(node, ast.Dict) else [node.value]
    if isinstance(node, ast.List | ast.Tuple):
        return node.elts
    return [node.value] if isinstance(node, ast.Subscript) else []


def _unseen(nodes: Iterable[ast.AST], seen: set[ast.AST]) -> list[ast.AST]:
    """Those of `nodes` that were not looked at yet."""
    new = [node for node in nodes if node not in seen]
    seen.update(new)
    return new


def _likelihood(reason: _Reason | None) -> Likelihood:
    return reason.likelihood if reason is not None else Likelihood.NO


def _parts(reason: _Reason) -> tuple[Likelihood, str]:
    return reason.likelihood, reason.what


def _blocks(statement: ast.If | ast.Try | ast.With) -> Iterator[list[ast.stmt]]:
    yield statement.body
    if isinstance(statement, ast.Try):
        yield from (handler.body for handler in statement.handlers)
    for field in ("orelse", "finalbody"):
        yield getattr(statement, field, [])

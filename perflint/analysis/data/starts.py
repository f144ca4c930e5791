"""Finds what starts worker processes: the first statement at module level that does, functions, and their results."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perflint.analysis.data.iteration import Reason, Workers
from perflint.analysis.data.loaders import Loaders, is_loader_class
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.links import Likelihood
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.source import is_main_guard
from perflint.syntax.walk import (
    COMPREHENSIONS,
    FUNCTIONS,
    TRIES,
    Function,
    body_of,
    children,
    method_of,
    own_nodes,
    receiver_of,
    returned_values,
)

_STARTING = (ast.Call, ast.For, ast.AsyncFor, ast.YieldFrom, ast.comprehension, *COMPREHENSIONS)
_ITERATES = frozenset(
    f"builtins.{name}"
    for name in "iter next list tuple set sorted enumerate zip map filter sum max min dict any all".split()
)
_STARTS = re.compile(
    r"(torch\.)?multiprocessing\.(\w+\.)?(Pool|Manager|spawn|start_processes)|torch\.multiprocessing\.spawn\.spawn"
)
_EXECUTOR = re.compile(r"concurrent\.futures\.(process\.)?ProcessPoolExecutor")  # starts them when it gets work
_PROCESS = re.compile(r"(torch\.)?multiprocessing\.(\w+\.)?Process")
_FORK_ONLY = re.compile(r"""(set_start_method|get_context|multiprocessing_context\s*=)\s*\(?\s*['"]fork['"]""")

_VERB = re.compile(r"^_*(fit|train)(_|$|[A-Z])")
_WORKERS_OF_LOADERS = re.compile(r"^(data_?|data_?loader_?)?(num_?|n_?)workers$")
_LIBRARIES = frozenset(
    "torch torchvision torchaudio builtins numpy scipy math os sys time random json re logging"
    " argparse pathlib shutil subprocess"
    " sklearn pandas matplotlib tqdm wandb PIL cv2 yaml pickle copy itertools functools collections"
    " unittest pytest doctest".split()
)
_FIT = frozenset({"fit", "test", "validate", "predict"})
_LOADER_METHODS = ("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader")


@dataclass(frozen=True)
class Start:
    """The statement that starts processes, the one of the module's body that holds it, and what does it."""

    statement: ast.stmt
    top: ast.stmt
    likelihood: Likelihood
    what: str


class Starts:
    def __init__(self, program: Program, assumed: frozenset[ast.Call] = frozenset()) -> None:
        self._program = program
        self._origins = program.get(Origins)
        self._workers = Workers(program, assumed)
        self._functions: dict[ast.AST, Reason | None] = {}

    @property
    def queried(self) -> set[str]:
        return self._workers.queried

    def first(self) -> Start | None:
        if self._is_part_of_package() or ("fork" in self._program.text and _FORK_ONLY.search(self._program.text)):
            return None
        for top in self._program.tree.body:
            found = self._in_statement(top, top)
            if found is not None:
                return found
        return None

    def by_calling(self, function: Function) -> Likelihood:
        """How sure it is that every call of `function` starts processes, whatever it is given."""
        nodes = (node for node in self._running_nodes(body_of(function)) if isinstance(node, _STARTING))
        always = (node for node in nodes if not self._is_conditional(node, function))
        return max((_likelihood(self._reason(node)) for node in always), default=Likelihood.NO)

    def _is_conditional(self, node: ast.AST, function: Function) -> bool:
        around = itertools.takewhile(lambda each: each is not function, self._program.ancestors(node))
        return any(isinstance(each, ast.If | ast.IfExp) for each in around)

    def by_iterating(self, function: Function) -> Likelihood:
        reasons = map(self._workers.of_parts, returned_values(function))
        return max(map(_likelihood, reasons), default=Likelihood.NO)

    def by_walking(self, node: ast.ClassDef) -> Likelihood:
        is_loader = any(is_loader_class(self._program.qualified(each)) for each in node.bases)
        constructor = method_of(node, "__init__") if is_loader else None
        loaders = self._program.get(Loaders).by_call
        built = [loaders[each] for each in own_nodes(constructor) if each in loaders] if constructor else []
        return max((_likelihood(self._workers.of_loader(loader)) for loader in built), default=Likelihood.NO)

    def _is_part_of_package(self) -> bool:
        return any(isinstance(each, ast.ImportFrom) and each.level > 0 for each in self._program.tree.body)

    def _in_statement(self, statement: ast.stmt, top: ast.stmt) -> Start | None:
        if is_main_guard(statement) or isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            return None
        if isinstance(statement, (ast.If, *TRIES, ast.With)):
            heads = [child for child in children(statement) if not isinstance(child, (ast.stmt, ast.ExceptHandler))]
            if reason := self._reason_in(heads):
                return Start(statement, top, reason.likelihood, reason.what)
            for block in _blocks(statement):
                for inner in block:
                    if found := self._in_statement(inner, top):
                        return found
            return None
        reason = self._reason_in([statement])
        return Start(statement, top, reason.likelihood, reason.what) if reason else None

    def _reason_in(self, roots: Sequence[ast.AST]) -> Reason | None:
        best: Reason | None = None
        for node in self._running_nodes(roots):
            reason = self._reason(node)
            if reason is not None and (best is None or reason.likelihood > best.likelihood):
                best = reason
        return best

    def _running_nodes(self, roots: Sequence[ast.AST]) -> Iterator[ast.AST]:
        stack = [*roots]
        while stack:
            node = stack.pop()
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) or is_main_guard(node):
                continue
            yield node
            stack.extend(children(node))

    def _reason(self, node: ast.AST) -> Reason | None:
        if isinstance(node, (ast.For, ast.AsyncFor, ast.YieldFrom, ast.comprehension)):
            return self._workers.of(node.value if isinstance(node, ast.YieldFrom) else node.iter)
        if isinstance(node, COMPREHENSIONS):
            return next(filter(None, (self._workers.of(generator.iter) for generator in node.generators)), None)
        return self._calling(node) if isinstance(node, ast.Call) else None

    # -- calls

    def _calling(self, call: ast.Call) -> Reason | None:
        program = self._program
        callee = program.callee(call)
        if callee is not None:
            return self._in_function(callee)
        name = program.qualified(call.func)
        if name in _ITERATES:
            return next(filter(None, map(self._workers.of, call.args)), None)
        if (walked := receiver_of(call, "__iter__")) is not None:
            return self._workers.of(walked)
        if _STARTS.fullmatch(name):
            return Reason(Likelihood.CERTAIN, f"{name.rpartition('.')[2] or 'it'}() starts processes")
        if self._gives_work(call):
            return Reason(Likelihood.CERTAIN, "an executor starts processes")
        started = receiver_of(call, "start")
        if started is not None and not call.args and self._is_process(started):
            return Reason(Likelihood.CERTAIN, "it starts a process")
        summaries = self._workers.summaries(call)
        return self._workers.reason_of_summaries(call, (summary.starts for summary in summaries)) or self._handed_over(
            call
        )

    def _in_function(self, function: Function) -> Reason | None:
        if function not in self._functions:
            self._functions[function] = None  # while it is being computed: functions may call each other
            self._functions[function] = self._reason_in(body_of(function))
        return self._functions[function]

    def _gives_work(self, call: ast.Call) -> bool:
        return any(map(_EXECUTOR.fullmatch, self._makers(receiver_of(call, "submit", "map"))))

    def _makers(self, node: ast.expr | None) -> list[str]:
        return [self._program.qualified(origin.func) for origin in self._origins.calls(node)] if node else []

    def _is_process(self, node: ast.expr) -> bool:
        if made := self._origins.calls(node):
            return any(map(self._makes_process, made))
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

    def _handed_over(self, call: ast.Call) -> Reason | None:
        if not self._runs_training(call):
            return None
        for expression in self._loaders_in(call):
            reason = self._workers.of_parts(expression)
            if reason is not None:
                certain = reason.likelihood if self._surely_iterates(call) else Likelihood.POSSIBLE
                return Reason(certain, reason.what)
        for workers in self._workers_given(call):
            reason = self._workers.of_number(workers, "the workers that it was built with")
            if reason is not None:
                return Reason(Likelihood.POSSIBLE, reason.what)
        return None

    # -- calls by which a script passes its training to code of other files

    def _runs_training(self, call: ast.Call) -> bool:
        value = self._program.value(call.func)
        if isinstance(call.func, ast.Attribute):
            owner = self._program.value(call.func.value)
            if owner.kind not in (Kind.UNKNOWN, Kind.LIBRARY, Kind.METHOD) or _is_known_library(owner.name):
                return False
            return bool(_VERB.search(call.func.attr))
        imported = value.kind is Kind.LIBRARY and not _is_known_library(value.name)
        return imported and isinstance(call.func, ast.Name) and bool(_VERB.search(call.func.id))

    def _surely_iterates(self, call: ast.Call) -> bool:
        names = self._makers(receiver_of(call, *_FIT))
        return any(name.rpartition(".")[2] == "Trainer" and "lightning" in name for name in names)

    def _loaders_in(self, call: ast.Call) -> Iterator[ast.expr]:
        for argument in arguments_of(call):
            yield argument
            value = self._program.value(argument)
            if isinstance(value.node, ast.ClassDef) and value.kind in (Kind.MODULE, Kind.INSTANCE):
                yield from self._returned(value.node)

    def _returned(self, node: ast.ClassDef) -> Iterator[ast.expr]:
        for name in _LOADER_METHODS:
            yield from returned_values(method_of(node, name))

    def _workers_given(self, call: ast.Call) -> Iterator[ast.expr]:
        """The numbers of workers that the object, whose method it is, was built with out of sight.

        Its options may be built in the same way, as those of the trainers of transformers are.
        """
        makers = list(self._unseen_makers(call.func.value)) if isinstance(call.func, ast.Attribute) else []
        options = (
            made for maker in makers for argument in arguments_of(maker) for made in self._unseen_makers(argument)
        )
        for keyword in (keyword for each in (*makers, *options) for keyword in each.keywords):
            if _WORKERS_OF_LOADERS.match(keyword.arg or ""):
                yield keyword.value

    def _unseen_makers(self, node: ast.expr) -> Iterator[ast.Call]:
        for origin in self._origins.of(node):
            if not isinstance(origin, ast.Call) or self._program.callee(origin) is not None:
                continue
            if not _is_known_library(self._program.qualified(origin.func)):
                yield origin


def _likelihood(reason: Reason | None) -> Likelihood:
    return reason.likelihood if reason is not None else Likelihood.NO


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    yield getattr(statement, "body", [])
    yield from (handler.body for handler in getattr(statement, "handlers", ()))
    for field in ("orelse", "finalbody"):
        yield getattr(statement, field, [])


def _is_known_library(name: str) -> bool:
    return name.partition(".")[0] in _LIBRARIES

"""Recognises calls by which a script passes its training to code of other files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from perflint.analysis.data.effects import method_of
from perflint.analysis.data.loaders import Loaders
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import arguments_of
from perflint.syntax.walk import FUNCTIONS, Function, own_nodes

_VERB = re.compile(r"^_*(fit|train)(_|$|[A-Z])")
_WORKER_OPTION = re.compile(r"^(data_?|data_?loader_?)?(num_?|n_?)?workers?$")
_WORKERS_OF_LOADERS = re.compile(r"^(data_?|data_?loader_?)?(num_?|n_?)workers$")
_LIBRARIES = frozenset(
    "torch torchvision torchaudio builtins numpy scipy math os sys time random json re logging"
    " argparse pathlib shutil subprocess"
    " sklearn pandas matplotlib tqdm wandb PIL cv2 yaml pickle copy itertools functools collections"
    " unittest pytest doctest".split()
)
_FIT = frozenset({"fit", "test", "validate", "predict"})
_LOADER_METHODS = ("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader")


class Handovers:
    """The hand-overs of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)

    def runs_training(self, call: ast.Call) -> bool:
        """Does a name like fit, train or run call code that cannot be seen?"""
        value = self._program.value(call.func)
        if isinstance(call.func, ast.Attribute):
            owner = self._program.value(call.func.value)
            if owner.kind not in (Kind.UNKNOWN, Kind.LIBRARY, Kind.METHOD) or _is_known_library(owner.name):
                return False
            return bool(_VERB.search(call.func.attr))
        imported = value.kind is Kind.LIBRARY and not _is_known_library(value.name)
        return imported and isinstance(call.func, ast.Name) and bool(_VERB.search(call.func.id))

    def functions_run(self, call: ast.Call) -> Iterator[Function]:
        """The functions of this file that are passed to a call that trains by its name."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if _VERB.search(name):
            for argument in arguments_of(call):
                value = self._program.value(argument)
                if value.kind is Kind.FUNCTION and isinstance(value.node, FUNCTIONS):
                    yield value.node

    def surely_iterates(self, call: ast.Call) -> bool:
        """Is it the fit of a trainer of Lightning?"""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _FIT:
            return False
        names = (
            self._program.qualified(origin.func)
            for origin in self._origins.of(call.func.value)
            if isinstance(origin, ast.Call)
        )
        return any(name.rpartition(".")[2] == "Trainer" and "lightning" in name for name in names)

    def loaders_in(self, call: ast.Call) -> Iterator[ast.expr]:
        """The expressions that may be loaders among the arguments, and those that its modules' own methods return."""
        for argument in arguments_of(call):
            yield argument
            value = self._program.value(argument)
            if isinstance(value.node, ast.ClassDef) and value.kind in (Kind.MODULE, Kind.INSTANCE):
                yield from self._returned(value.node)

    def _returned(self, node: ast.ClassDef) -> Iterator[ast.expr]:
        for name in _LOADER_METHODS:
            method = method_of(node, name)
            for each in own_nodes(method) if method is not None else ():
                if isinstance(each, ast.Return) and each.value is not None:
                    yield each.value

    def passes_worker_option(self, call: ast.Call) -> bool:
        """Does code that cannot be seen get all options of the command line, one of which is a number of workers?"""
        if not self._unused_worker_option:
            return False
        if self._gets_options(call):
            return True
        if not isinstance(call.func, ast.Attribute):
            return False
        return any(map(self._gets_options, self._unseen_makers(call.func.value)))

    def workers_given(self, call: ast.Call) -> Iterator[ast.expr]:
        """The numbers of workers that the object, whose method it is, was built with by code that cannot be seen.

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
        """The calls of other files' code, and of libraries that nothing is known of, that made the object."""
        for origin in self._origins.of(node):
            if not isinstance(origin, ast.Call) or self._program.callee(origin) is not None:
                continue
            if not _is_known_library(self._program.qualified(origin.func)):
                yield origin

    def _gets_options(self, call: ast.Call) -> bool:
        return any(self._program.value(argument).name == "argparse.Namespace" for argument in arguments_of(call))

    @cached_property
    def _unused_worker_option(self) -> bool:
        """Does the command line have an option for workers that this file does not read itself?"""
        options = {name for name in self._program.get(Loaders).command_line if _WORKER_OPTION.match(name)}
        read = {node.attr for node in self._program.of_type(ast.Attribute)}
        return bool(options - read)


def _is_known_library(name: str) -> bool:
    return name.partition(".")[0] in _LIBRARIES

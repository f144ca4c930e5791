"""Follows what loaders hand out: which batch a value is of, which code makes samples; and loops over examples."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from perflint.analysis.data.iteration import Iteration, name_of
from perflint.analysis.data.loaders import LoaderCall, Loaders, State
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.occurrences import dependents
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.walk import Function, assigned_values, method_of, name_called, own_nodes, path_of, receiver_of

_INNER = (ast.For, ast.AsyncFor, ast.comprehension)


@dataclass(frozen=True)
class Batch:
    """What loaders hand out.

    `loaders` are all that may; `wholes` the expressions of which it is a part or all. With `is_foreign`, a loader of
    another file, with pinned memory, may hand it out, too.
    """

    loaders: tuple[LoaderCall, ...]
    wholes: tuple[ast.expr, ...]
    is_foreign: bool = False

    @property
    def is_pinned(self) -> bool:
        return self.is_foreign or any(each.pinned.state is State.ON for each in self.loaders)


class Batches:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)
        self._iteration = program.get(Iteration)
        self._loaders = program.get(Loaders).by_call

    def of(self, node: ast.expr) -> Batch | None:
        """The batch that `node` is a part or view of; None if it may be anything else, or others put something in."""
        statement = self._program.statement_of(node)
        loaders: dict[LoaderCall, None] = {}
        wholes, is_foreign = [self._whole(node)], False
        for whole in wholes:  # which grows meanwhile
            for origin in self._origins.of(whole):
                if self._stored.get(origin, set()) - {statement}:
                    return None
                handed = self._walked(origin)
                if found := [self._loaders[each] for each in handed if each in self._loaders]:
                    loaders |= dict.fromkeys(found)
                    continue
                walked = origin.iter if isinstance(origin, ast.For) else _iterator(self._program, origin)
                if walked is not None and _is_pinned_elsewhere(self._program.value(walked)):
                    is_foreign = True
                    continue
                parts = [self._whole(each) for each in (*_outer(self._program, origin), *self._parted(origin))]
                if not parts:
                    return None
                wholes += [each for each in parts if each not in wholes]
        return Batch(tuple(loaders), tuple(wholes), is_foreign) if loaders or is_foreign else None

    def _walked(self, origin: ast.AST) -> Iterator[ast.AST]:
        """What makes that which a loop, or next(), takes `origin` out of."""
        walked = origin.iter if isinstance(origin, _INNER) else _iterator(self._program, origin)
        if walked is not None:
            yield from (each for each, is_held, _ in self._iteration.reached(walked) if not is_held)

    @cached_property
    def _stored(self) -> dict[ast.AST, set[ast.stmt]]:
        stored: defaultdict[ast.AST, set[ast.stmt]] = defaultdict(set)
        for part in self._program.of_type(ast.Subscript):
            if isinstance(part.ctx, ast.Store):
                for origin in self._origins.of(part.value):
                    stored[origin].add(self._program.statement_of(part))
        return stored

    def _parted(self, origin: ast.AST) -> Iterator[ast.expr]:
        if isinstance(origin, ast.expr) and (whole := self._whole(origin)) is not origin:
            yield whole

    def _whole(self, node: ast.expr) -> ast.expr:
        while True:
            if isinstance(node, ast.Subscript | ast.Attribute):
                node = node.value
                continue
            if isinstance(node, ast.Call) and len(node.args) == 1 and name_called(node) == "Variable":
                node = node.args[0]
                continue
            found = operation(self._program, node)
            if found is None or found.tensor is None or "view" not in found.traits or "move" in found.traits:
                return node
            node = found.tensor


def _is_pinned_elsewhere(loader: Value) -> bool:
    return loader.pinned and loader.node is None


def _iterator(program: Program, origin: ast.AST) -> ast.expr | None:
    if not isinstance(origin, ast.Call):
        return None
    if program.qualified(origin.func) == "builtins.next" and origin.args:
        return origin.args[0]
    return receiver_of(origin, "__next__", "next") if not origin.args else None


def _outer(program: Program, origin: ast.AST) -> Iterator[ast.expr]:
    walked = origin.iter if isinstance(origin, _INNER) else None
    if walked is None:
        return
    if not isinstance(walked, ast.Call):
        yield walked
    elif name_of(program, walked) in ("builtins.enumerate", "builtins.zip", "builtins.list", "builtins.tuple"):
        yield from walked.args
    elif name_called(walked) in ("items", "values") and isinstance(walked.func, ast.Attribute):
        yield walked.func.value


_FUNCTIONS = 6  # that are followed from one


class Work(NamedTuple):
    """A node that runs for a sample, and the variables around it that depend on the sample.

    `place` is the node itself, or the call that leads to it out of the class.
    """

    node: ast.AST
    made: frozenset[str]
    place: ast.AST


@dataclass(frozen=True)
class Sample:
    """A function that makes a sample, or, if it `is_batch`, a batch of them, and what it runs."""

    function: ast.FunctionDef
    is_batch: bool
    work: tuple[Work, ...]


def samples(program: Program) -> list[Sample]:
    """The functions that make samples or batches: `__getitem__` of datasets, and what collates."""
    handed = _collating(program)
    found = []
    for function in program.of_type(ast.FunctionDef):
        is_batch = "collate" in function.name or function in handed or _is_collator(program, function)
        if is_batch or _gives_samples(program, function):
            found.append(Sample(function, is_batch, tuple(_work(program, function))))
    return found


def _is_collator(program: Program, function: ast.FunctionDef) -> bool:
    around = program.class_around(function) if function.name == "__call__" else None
    return around is not None and "collator" in around.name.lower()


def _collating(program: Program) -> set[ast.AST]:
    given = (loader.argument("collate_fn") for loader in program.get(Loaders).calls)
    return {origin for each in given if each is not None for origin in program.get(Origins).of(each)}


def _work(program: Program, function: ast.FunctionDef) -> Iterator[Work]:
    places: dict[Function, ast.AST | None] = {function: None}
    pending = [function]
    for each in pending:
        made = dependents(each, {parameter.arg for parameter in each.args.args} - {"self", "cls"})
        for node in own_nodes(each):
            yield Work(node, made, places[each] or node)
            callee = program.callee(node)
            is_new = callee not in places and len(places) < _FUNCTIONS
            if is_new and isinstance(callee, ast.FunctionDef) and "collate" not in callee.name:
                is_own = program.class_around(callee) is program.class_around(function) is not None
                places[callee] = places[each] if is_own else places[each] or node
                pending.append(callee)


_INDEX = re.compile(r"i|n|idx|ind|index|indice|item|(item|sample)_id|\w+_(idx|index)")
_READS = re.compile(r"open|parse|imread|(\w+_)?load(_\w+|txt)?|(\w+_)?read(_\w+)?")


def _gives_samples(program: Program, function: ast.FunctionDef) -> bool:
    """Is it `__getitem__` of a dataset: of what is called so, or reads files by an index?"""
    around = program.class_around(function)
    aliases = map(path_of, assigned_values(around, "__getitem__")) if around is not None else ()
    if around is None or function.name not in ("__getitem__", *aliases) or method_of(around, "__len__") is None:
        return False
    if any(re.search("(?i)data|corpus", each) for each in (around.name, *program.base_names(around))):
        return True
    names = [each.arg for each in function.args.args]
    calls = (each for each in own_nodes(function) if isinstance(each, ast.Call))
    is_indexed = len(names) == 2 and _INDEX.fullmatch(names[1]) is not None
    return is_indexed and any(_READS.fullmatch(name_called(each)) for each in calls)


_DATASETS = re.compile(
    r"datasets\.(load\.|arrow_dataset\.|combine\.|dataset_dict\.)?(load_|Dataset|concatenate|interl)\w*(\.\w+)?"
)
_TOKENIZER = re.compile(r"transformers\.(\w+\.)*\w*Tokenizer\w*\.from_pretrained$")
_BATCH = re.compile(r"batch|chunk|loader|epoch|step", re.IGNORECASE)
_DEPTH = 8  # of methods and items


def is_hf_dataset(program: Program, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Is it made by Hugging Face's datasets, perhaps through methods and items of one?"""
    for each in program.get(Origins).of(node) if depth else ():
        if isinstance(each, ast.Call) and _DATASETS.fullmatch(program.qualified(each.func)):
            return True
        part = each.func if isinstance(each, ast.Call) else each
        if isinstance(part, ast.Attribute | ast.Subscript) and is_hf_dataset(program, part.value, depth - 1):
            return True
    return False


def is_hf_tokenizer(program: Program, node: ast.expr) -> bool:
    """May `from_pretrained` of one of transformers' tokenizers have made it?"""
    made = (each for each in program.get(Origins).of(node) if isinstance(each, ast.Call))
    return any(_TOKENIZER.match(program.qualified(each.func)) for each in made)


def walks_examples(program: Program, loop: ast.For | ast.comprehension) -> bool:
    """Does the loop walk examples, more than are written out, and no batches?"""
    walked = [each for each in program.get(Origins).of(loop.iter) if isinstance(each, ast.expr)]
    if any(isinstance(each, ast.List | ast.Tuple) and each.elts for each in walked):
        return False
    counted = program.call_of(loop.iter, "builtins.range")
    is_strided = counted is not None and len(counted.args) == 3
    nodes = (each for node in (loop.target, loop.iter) for each in ast.walk(node))
    names = " ".join(each.id for each in nodes if isinstance(each, ast.Name))
    return not is_strided and program.value(loop.iter).kind is not Kind.LOADER and not _BATCH.search(names)

"""Finds the code that makes the samples of datasets, and the batches of these."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from perflint.analysis.data.loaders import Loaders
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.dependence import dependents
from perflint.syntax.walk import Function, method_of, own_nodes

_FUNCTIONS = 6  # that are followed from one


class Work(NamedTuple):
    """A node that runs for a sample, and the variables around it that depend on the sample.

    `place` is the node itself, or, of what a function outside of the class does, the call of that.
    """

    node: ast.AST
    made: frozenset[str]
    place: ast.AST


@dataclass(frozen=True)
class Sample:
    """A function that makes a sample, or, if it `is_batch`, a batch of samples, and what it runs."""

    function: ast.FunctionDef
    is_batch: bool
    work: tuple[Work, ...]


def samples(program: Program) -> list[Sample]:
    """The functions that make samples or batches: `__getitem__` of datasets, and what collates by its name or use."""
    handed = _collating(program)
    found = []
    for function in program.of_type(ast.FunctionDef):
        is_batch = "collate" in function.name or function in handed
        if is_batch or _gives_samples(program, function):
            found.append(Sample(function, is_batch, tuple(_work(program, function))))
    return found


def _collating(program: Program) -> set[ast.AST]:
    """The functions of the file that its loaders are given to make batches, also those made by others."""
    given = (loader.argument("collate_fn") for loader in program.get(Loaders).calls)
    return {origin for each in given if each is not None for origin in program.get(Origins).of(each)}


def _work(program: Program, function: ast.FunctionDef) -> Iterator[Work]:
    """What the function runs, and other functions that it calls."""
    places: dict[Function, ast.AST | None] = {function: None}
    pending = [function]
    for each in pending:
        made = dependents(each, {parameter.arg for parameter in each.args.args} - {"self", "cls"})
        for node in own_nodes(each):
            yield Work(node, made, places[each] or node)
            callee = program.callee(node) if isinstance(node, ast.Call) else None
            is_new = callee not in places and len(places) < _FUNCTIONS
            if is_new and isinstance(callee, ast.FunctionDef) and "collate" not in callee.name:
                is_own = program.class_around(callee) is program.class_around(function) is not None
                places[callee] = places[each] if is_own else places[each] or node
                pending.append(callee)


def _gives_samples(program: Program, function: ast.FunctionDef) -> bool:
    """Is it `__getitem__` of a dataset?"""
    around = program.class_around(function)
    if function.name != "__getitem__" or around is None:
        return False
    is_sized = method_of(around, "__len__") is not None
    return is_sized and any(re.search("(?i)data|corpus", each) for each in (around.name, *program.base_names(around)))

"""The functions of other files about which a file asks: what they return, and whether they train."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from perflint import torch_ops
from perflint.analysis.call_graph import is_abstract
from perflint.analysis.facts import Program
from perflint.analysis.links import Heat
from perflint.analysis.loops.flow import LoopKind
from perflint.analysis.values.values import GUESSED, Kind, Place
from perflint.syntax.scopes import arguments_of, parameters_of
from perflint.syntax.walk import (
    COMPREHENSIONS,
    FUNCTIONS,
    LOOPS,
    bindings_of,
    elements_of,
    nodes_below,
    own_nodes,
    path_of,
    returned_values,
)

_READING_FUNCTIONS = frozenset(f"builtins.{name}" for name in "float int bool max min sorted print str".split())
_BRANCHES, _VARIABLES = (ast.If, ast.While), (ast.Name, ast.Attribute)
_MOVES = (".to(", ".cuda(")
_DEPTH = 3  # of calls between a loop and a method that subclasses define
_OPEN = frozenset({Kind.UNKNOWN, Kind.METHOD, Kind.TENSOR, Kind.SEQUENCE, Kind.MAPPING})  # what may be a tensor


Reaching = Sequence[tuple[ast.Call, Sequence[str]]]  # calls, with what they may reach in other files


def result_queries(program: Program, reaching: Reaching) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The functions of other files that may return what hot code of this one reads, walks or passes to others.

    First those with unknown results, then those whose results are guessed to be tensors.
    """
    sources = _Sources(program)
    for value in (*_hot_reads(program), *_guessed_arguments(program, reaching), *_walked(program, reaching)):
        sources.follow(value)
    return tuple(sorted(sources.unknown)), tuple(sorted(sources.likely))


def step_queries(program: Program, reaching: Reaching) -> tuple[str, ...]:
    """The functions of other files that would make a loop around their call one of steps if they trained.

    And all that a script calls, which may train as a whole, and what is given an optimizer.
    """
    found = (targets for node, targets in reaching if program.is_script or _may_step(program, node))
    return tuple(sorted({target for targets in found for target in targets}))


def _may_step(program: Program, node: ast.Call) -> bool:
    given = any(program.value(each).kind is Kind.OPTIMIZER for each in arguments_of(node))
    return given or _is_looped(program, node)


def _is_looped(program: Program, node: ast.Call, depth: int = _DEPTH) -> bool:
    """Is it in a loop that may be one of steps, or what subclasses do for a method that is called in one?"""
    callee = program.callee(node)
    for parent in program.ancestors(node):
        if isinstance(parent, FUNCTIONS):
            is_left = depth > 0 and (depth < _DEPTH or (callee is not None and is_abstract(callee)))
            return is_left and any(_is_looped(program, site, depth - 1) for site in program.call_sites(parent))
        if isinstance(parent, LOOPS):
            return program.loop_kind(parent) is LoopKind.OTHER and program.heat(parent) is Heat.ONCE
    return False


def _hot_reads(program: Program) -> Iterator[ast.expr]:
    kinds: tuple[type[ast.AST], ...] = (ast.Call, ast.FormattedValue, ast.Subscript, *_BRANCHES)
    for node in (node for kind in kinds for node in program.of_type(kind)):  # in any order, which takes no sorting
        read = _read_by(program, node)
        read = [each for each in read if program.value(each).kind in _OPEN] if read else read
        if read and program.heat(node) is not Heat.ONCE:
            yield from read


def _walked(program: Program, reaching: Reaching) -> Iterator[ast.expr]:
    """What loops take batches out of that the file moves to the device, perhaps loaders of other files.

    And the likely loaders that calls are given, which may walk them, or that are told how many workers to start.
    """
    loops: Sequence[ast.For] = program.of_type(ast.For)
    for loop in loops if any(move in program.text for move in _MOVES) else ():
        value = program.value(loop.iter)
        if value.kind in (Kind.UNKNOWN, Kind.METHOD, Kind.LOADER) and not (value.sure and value.kind is Kind.LOADER):
            yield loop.iter
    for given in (each for node, _ in reaching for each in arguments_of(node)):
        if (value := program.value(given)).kind is Kind.LOADER and not value.sure:
            yield given
    yield from (node for node, _ in reaching if any(each.arg == "num_workers" for each in node.keywords))


def _guessed_arguments(program: Program, reaching: Reaching) -> Iterator[ast.expr]:
    """The arguments of hot calls that are guesses; inside modules, there is little but tensors on the device."""
    for node, _ in reaching:
        guesses = [each for each in node.args if program.value(each).name == GUESSED]
        if guesses and not _is_of_module(program, node) and program.heat(node) is not Heat.ONCE:
            yield from guesses


def _is_of_module(program: Program, node: ast.AST) -> bool:
    owner = program.class_of(program.function_of(node))
    return owner is not None and owner.is_a("module")


def _read_by(program: Program, node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and torch_ops.does(node.func.attr, "to_host"):
            return [node.func.value]
        return node.args if node.args and program.qualified(node.func) in _READING_FUNCTIONS else []
    if isinstance(node, ast.FormattedValue):
        return [node.value]
    if isinstance(node, ast.Subscript):  # what may be a mask
        parts = (each for each in elements_of(node.slice) if isinstance(each, ast.Name))
        return [each for each in parts if program.value(each).name == GUESSED]
    assert isinstance(node, _BRANCHES)
    return [] if path_of(node.test).startswith("self.") else [node.test]  # which is a flag


class _Sources:
    """Where values come from: the calls behind an expression, through variables and functions of the file."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._seen: set[ast.AST] = set()
        self.unknown: set[str] = set()
        self.likely: set[str] = set()

    @cached_property
    def _bound(self) -> Mapping[tuple[ast.AST | None, str], list[ast.expr]]:
        found: defaultdict[tuple[ast.AST | None, str], list[ast.expr]] = defaultdict(list)
        for node in self._program.of_type(ast.Assign, ast.AugAssign, ast.For, ast.With, *COMPREHENSIONS):
            bindings: list[Any] = getattr(node, "generators", None) or getattr(node, "items", None) or [node]
            for target, value in (pair for binding in bindings for pair in bindings_of(binding)):
                for part in nodes_below(target):
                    if isinstance(part, _VARIABLES):
                        found[self._key(part)].append(value)
        return found

    def follow(self, expression: ast.expr) -> None:
        pending: list[ast.AST] = [expression]
        while pending:
            for node in own_nodes(pending.pop()):
                if node in self._seen:
                    continue
                self._seen.add(node)
                if isinstance(node, _VARIABLES) and isinstance(node.ctx, ast.Load):
                    found = self._bound.get(self._key(node)) or self._handed(node)
                    pending += found or self._bound.get((None, path_of(node)), ())
                elif isinstance(node, ast.Call):
                    callee = self._program.callee(node)
                    if callee is not None:
                        pending += returned_values(callee)
                    else:
                        self._query(node)

    def _handed(self, node: ast.expr) -> list[ast.expr]:
        function = self._program.function_of(node) if isinstance(node, ast.Name) else None
        parameters = parameters_of(function) if function is not None else ()
        given = [self._program.given(each) for each in parameters if each.arg == path_of(node)]
        return [value for sites in given for _, value in sites if value is not None]

    def _query(self, node: ast.Call) -> None:
        value = self._program.value(node)
        if value.kind is Kind.TENSOR and (not value.sure or value.place is Place.UNKNOWN):
            self.likely.update(self._program.targets(node))
        elif value.kind in (Kind.UNKNOWN, Kind.METHOD) or (value.kind is Kind.LOADER and not value.sure):
            self.unknown.update(self._program.targets(node))

    def _key(self, node: ast.AST) -> tuple[ast.AST | None, str]:
        path = path_of(node)
        return (None if path.startswith("self.") else self._program.function_of(node), path)

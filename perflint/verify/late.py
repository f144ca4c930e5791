"""Reaches fixes that first run late: finds what to shorten before them in a copy of the program.

A fix lies behind a loop where that has to end first, as an evaluation behind an epoch, or behind a test that holds in
few iterations, as in `step % 400 == 0`.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perflint.documents.disk import Unreadable
from perflint.documents.document import read
from perflint.documents.lines import at_line
from perflint.syntax.walk import reachable
from perflint.verify.messages import SHORT

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Place = tuple[str, int]  # the real path of a file of the user's, and a line of it


@dataclass(frozen=True)
class Shortcut:
    """The `loops` that end after a few iterations, the `tests` that also hold once in a while; what is `reached` so."""

    loops: frozenset[Place] = frozenset()
    tests: frozenset[Place] = frozenset()
    reached: frozenset[Place] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.reached)

    @property
    def places(self) -> frozenset[Place]:
        return self.loops | self.tests

    @property
    def notes(self) -> Iterator[str]:
        for path, line in sorted(self.loops):
            yield f"in a copy, the loop at {at_line(path, line)} ended after {SHORT} iterations, to reach more"
        for path, line in sorted(self.tests):
            yield f"in a copy, the test at {at_line(path, line)} held each {SHORT}th time, to reach more"


def shortcut(frames: Sequence[Place], late: Iterable[Place], paths: Iterable[str]) -> Shortcut:
    """What to shorten in a program that is at the places `frames`, so that it comes to those that are `late`.

    `paths` are its files. Calls are followed by their names alone. Of the places behind loops, those behind the fewest
    are reached; what nothing leads to from here is not.
    """
    trees = _trees(paths)
    calls = _Calls(trees)
    here = [(path, line) for path, line in ((os.path.realpath(path), line) for path, line in frames) if path in trees]
    active = {(path, node) for path, line in here for node in _at(trees[path], line) if isinstance(node, ast.For)}
    running = [(path, _running(trees[path], line)) for path, line in here]
    ways = [calls.leading_to(place) for place in set(late)]
    ways = [way for way in ways if any(way.is_in(path, nodes) for path, nodes in running)]
    ahead = {way: {(path, node.lineno) for path, node in active if not way.is_in(path, [node])} for way in ways}
    fewest = min(filter(None, map(len, ahead.values())), default=0)
    near = [way for way, loops in ahead.items() if len(loops) in (0, fewest)]
    tests = {
        (path, node.lineno, way)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and _is_periodic(node.test)
        for way in near
        if way.is_in(path, node.body)
    }
    reached = {way for _, _, way in tests} | {way for way in near if ahead[way]}
    return Shortcut(
        frozenset(loop for way in near for loop in ahead[way]),
        frozenset((path, line) for path, line, _ in tests),
        frozenset(way.late for way in reached),
    )


def is_evaluation(
    late: Iterable[Place], evaluating: Iterable[Place], training: Iterable[Place], paths: Iterable[str]
) -> bool:
    """Are all `late` places in functions, or loops of a module, that evaluate and don't train?

    The program was at the places `evaluating` when it asked for batches of an evaluation, and `training` at steps of an
    optimizer.
    """
    trees = _trees(paths)
    around = [{_around(trees, place) for place in places} for places in (late, evaluating, training)]
    return bool(around[0]) and None not in around[0] and around[0] <= around[1] - around[2]


def _around(trees: Mapping[str, ast.Module], place: Place) -> Place | None:
    path = os.path.realpath(place[0])
    nodes = [*_at(trees[path], place[1])] if path in trees else []
    functions = [node for node in nodes if isinstance(node, _FUNCTIONS)]
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
    found = functions[-1:] or loops[:1]  # the walk goes from the outermost inwards
    return (path, found[0].lineno) if found else None


def _at(tree: ast.Module, line: int) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and line in _span(node))


def _running(tree: ast.Module, line: int) -> list[ast.stmt]:
    functions = [node for node in _at(tree, line) if isinstance(node, _FUNCTIONS)]
    if functions:
        return min(functions, key=lambda node: len(_span(node))).body
    return [node for node in tree.body if not isinstance(node, (*_FUNCTIONS, ast.ClassDef))]


class _Calls:
    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._functions = [
            (node.name, _span(node), path, _called(node.body))
            for path, tree in trees.items()
            for node in ast.walk(tree)
            if isinstance(node, _FUNCTIONS)
        ]

    def leading_to(self, late: Place) -> _Way:
        path, line = late
        around = [name for name, span, place, _ in self._functions if place == path and line in span]
        return _Way(late, frozenset(reachable(around, self._callers)))

    def _callers(self, function: str) -> list[str]:
        return [name for name, _, _, called in self._functions if function in called]


@dataclass(frozen=True)
class _Way:
    late: Place
    names: frozenset[str]

    def is_in(self, path: str, nodes: Sequence[ast.stmt]) -> bool:
        place, line = self.late
        here = place == path and any(line in _span(node) for node in nodes)
        return here or not self.names.isdisjoint(_called(nodes))


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _called(nodes: Iterable[ast.stmt]) -> frozenset[str]:
    calls = (each.func for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call))
    return frozenset(getattr(each, "attr", "") or getattr(each, "id", "") for each in calls)


def _is_periodic(test: ast.expr) -> bool:
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test))


def _trees(paths: Iterable[str]) -> dict[str, ast.Module]:
    return {path: tree for path in dict.fromkeys(map(os.path.realpath, paths)) if (tree := _tree(path))}


def _tree(path: str) -> ast.Module | None:
    with suppress(Unreadable, OSError, SyntaxError, ValueError):
        return ast.parse(read(Path(path)).text)
    return None

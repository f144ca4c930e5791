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

from perflint.documents.document import read
from perflint.engine.errors import UserError
from perflint.verify.messages import SHORT

Place = tuple[str, int]  # the real path of a file of the user's, and a line of it


@dataclass(frozen=True)
class Shortcut:
    """The `loops` that end after a few iterations, and the `tests` that also hold once in so many times."""

    loops: frozenset[Place] = frozenset()
    tests: frozenset[Place] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.loops or self.tests)

    @property
    def places(self) -> frozenset[Place]:
        """Where all of it is."""
        return self.loops | self.tests

    @property
    def notes(self) -> Iterator[str]:
        """What was shortened, in sentences without full stops."""
        for path, line in sorted(self.loops):
            yield f"in a copy, the loop at {os.path.relpath(path)}:{line} ended after {SHORT} iterations, to reach more"
        for path, line in sorted(self.tests):
            yield f"in a copy, the test at {os.path.relpath(path)}:{line} held each {SHORT}th time, to reach more"


def shortcut(frames: Sequence[Place], late: Iterable[Place], paths: Iterable[str]) -> Shortcut:
    """What to shorten in a program that is at the places `frames`, so that it comes to those that are `late`.

    `paths` are its files. Calls are followed by their names alone. Of the places behind loops, those behind the fewest
    are reached.
    """
    trees = {path: tree for path in dict.fromkeys(map(os.path.realpath, paths)) if (tree := _tree(path))}
    calls = _Calls(trees)
    places = [(os.path.realpath(path), line) for path, line in frames]
    active = {
        (path, node)
        for path, line in places
        for node in (ast.walk(trees[path]) if path in trees else ())
        if isinstance(node, ast.For) and node.lineno <= line <= (node.end_lineno or 0)
    }
    periodic = {
        (path, node)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and _is_periodic(node.test)
    }
    ways = [calls.leading_to(place) for place in set(late)]
    ahead = [{(path, node.lineno) for path, node in active if not way.is_in(path, [node])} for way in ways]
    fewest = min(filter(None, map(len, ahead)), default=0)
    loops = {loop for each in ahead if len(each) == fewest for loop in each}
    tests = {(path, node.lineno) for path, node in periodic if any(way.is_in(path, node.body) for way in ways)}
    return Shortcut(frozenset(loops), frozenset(tests))


class _Calls:
    """The functions of a program, and the names of what each calls."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._functions = [
            (node.name, _span(node), path, _called(node.body))
            for path, tree in trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    def leading_to(self, late: Place) -> _Way:
        """The way to a place."""
        path, line = late
        names = {name for name, span, place, _ in self._functions if place == path and line in span}
        news = names
        while news:
            news = {name for name, _, _, called in self._functions if called & news} - names
            names |= news
        return _Way(late, frozenset(names))


@dataclass(frozen=True)
class _Way:
    """What leads to a place: itself, and calls of these names."""

    late: Place
    names: frozenset[str]

    def is_in(self, path: str, nodes: Sequence[ast.stmt]) -> bool:
        """Whether it is among these statements of a file, or what they call."""
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


def _tree(path: str) -> ast.Module | None:
    with suppress(UserError, OSError, SyntaxError, ValueError):
        return ast.parse(read(Path(path)).text)
    return None

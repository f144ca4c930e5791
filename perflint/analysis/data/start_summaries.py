"""Adds the processes that functions and loaders start to their summaries, and finds which summaries are needed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from perflint.analysis.data.starts import Starts
from perflint.analysis.facts import Program
from perflint.analysis.links import Summary

# Without one of these words nothing is started.
_MARKS = ("workers", "multiprocessing", "ProcessPool", "num_proc")


def with_starts(program: Program, summary: Summary, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Summary:
    """`summary`, with the processes that `function` starts."""
    if not program.get(_may_start):
        return summary
    starts = program.get(Starts)
    return replace(summary, starts=starts.by_calling(function), loads=starts.by_iterating(function))


def loader_summaries(program: Program) -> Iterator[Summary]:
    """A summary for each class of loaders that may have workers."""
    if program.get(_may_start):
        for node in program.of_type(ast.ClassDef):
            loads = program.get(Starts).by_walking(node)
            if loads:
                yield Summary(node.name, loads=loads)


def start_queries(program: Program) -> tuple[str, ...]:
    """The functions of other files that decide whether the file, run as a script, starts processes."""
    starts = program.get(Starts)
    starts.first()
    return tuple(sorted(starts.queried))


def _may_start(program: Program) -> bool:
    return any(mark in program.text for mark in _MARKS)

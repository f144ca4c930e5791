"""What a file tells others of the processes that its functions and loaders start, and what it asks them of theirs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from perflint.analysis.data.starts import Starts
from perflint.analysis.facts import Program
from perflint.analysis.links import Answer

# Without one of these words nothing is started.
_MARKS = ("workers", "multiprocessing", "ProcessPool", "SubprocVec", "AsyncVector", "num_proc")


def told_of_starts(program: Program, answer: Answer, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Answer:
    """`answer`, with what is known of the processes that `function` starts."""
    if not program.get(_may_start):
        return answer
    starts = program.get(Starts)
    return replace(answer, starts=starts.by_calling(function), loads=starts.by_iterating(function))


def loaders_told(program: Program) -> Iterator[Answer]:
    """An answer for each class of loaders that may have workers."""
    if program.get(_may_start):
        for node in program.of_type(ast.ClassDef):
            loads = program.get(Starts).by_walking(node)
            if loads:
                yield Answer(node.name, loads=loads)


def asked_of_starts(program: Program) -> tuple[str, ...]:
    """The functions of other files on which it depends whether the file, run as a script, starts processes."""
    starts = program.get(Starts)
    starts.first()
    return tuple(sorted(starts.asked))


def _may_start(program: Program) -> bool:
    return any(mark in program.text for mark in _MARKS)

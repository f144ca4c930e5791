"""Describes why a file could not be checked: its own faults in one line, ours with a traceback."""

from __future__ import annotations

import re
import sys
import traceback
from dataclasses import dataclass

from perflint.documents.places import Problem

TOO_LARGE = (RecursionError, MemoryError)
FILE_FAULTS = (SyntaxError, UnicodeError, *TOO_LARGE)

_NEWER = (
    ((3, 14), re.compile(r"\bt['\"]|^\s*except\s+[\w.]+(\s*,\s*[\w.]+)+\s*:")),
    ((3, 12), re.compile(r"^\s*type\s+\w+.*=|^\s*(async\s+)?(def|class)\s+\w+\[|\bf['\"]")),
    ((3, 11), re.compile(r"^\s*except\s*\*|\[\s*\*|,\s*\*\w+\s*\]|\*args\s*:\s*\*")),
)


@dataclass(frozen=True)
class InternalProblem(Problem):
    """A defect of perflint or of a rule, met in a file; `traceback` says where."""

    traceback: str = ""


class RuleCrash(Exception):
    """The rule called `rule` (or the model of the program, where it is "") raised `__cause__`: a defect of ours."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def problem_of(error: BaseException, text: str = "") -> Problem:
    """The problem that `error`, raised while `text` was checked, stands for."""
    if isinstance(error, SyntaxError):
        return _syntax_problem(error, text)
    if isinstance(error, TOO_LARGE):
        return Problem("is nested too deeply, or is too large, to be analysed")
    if isinstance(error, UnicodeError):
        return Problem("holds lone surrogates: it is not Python source")
    return _internal_problem(error)


def _syntax_problem(error: SyntaxError, text: str) -> Problem:
    lines = re.split(r"\r\n|\r|\n", text)
    line = error.lineno if error.lineno and error.lineno <= len(lines) else None
    hint = _hint(lines[line - 1]) if line else ""
    return Problem(f"is not valid Python: {error.msg}{hint}", line)


def _hint(line: str) -> str:
    for version, syntax in _NEWER:
        if sys.version_info < version and syntax.search(line):
            running = f"{sys.version_info.major}.{sys.version_info.minor}"
            newer = f"Python {version[0]}.{version[1]}"
            return f" (is it for {newer}? perflint runs on Python {running}, and reads what that can)"
    return ""


def _internal_problem(error: BaseException) -> InternalProblem:
    cause, where = error, ""
    if isinstance(error, RuleCrash) and error.__cause__:
        cause, where = error.__cause__, f" in the rule {error.rule}" if error.rule else " in the model of the program"
    summary = " ".join(traceback.format_exception_only(cause)[-1].split())
    return InternalProblem(
        f"internal error{where}, which is a bug: {summary}", traceback="".join(traceback.format_exception(cause))
    )

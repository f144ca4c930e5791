"""Serialises the result of one file to compact JSON for the cache and the worker processes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from perflint.analysis.links import NONE, Context, HotCall, Likelihood, Links, ParameterEffect, Says, Summary
from perflint.documents.places import PlacedEdit, Position, Problem
from perflint.engine.problems import InternalProblem
from perflint.engine.results import Diagnostic, FileResult, PlacedFix
from perflint.engine.rule import Safety, Severity


def encode(result: FileResult, links: Links = NONE) -> str:
    """`result` without its path, which the reader knows, and the file's links; empty where there is nothing to tell."""
    if result == FileResult(result.path) and links == NONE:
        return ""
    content = [[_diagnostic(each) for each in result.diagnostics], _problem(result.problem), result.skipped]
    queries = [links.result_queries, links.guess_queries, links.step_queries, links.start_queries, links.memory_queries]
    exports = [_calls(links.calls), links.functions, links.bases, _summaries(links.summaries)]
    return _dumps([*content, *exports, *queries, links.imports, links.says])


def decode_links(payload: str) -> Links:
    """The links that `encode` was given; raises as `decode` does."""
    if not payload:
        return NONE
    calls, functions, bases, summaries, *named, says = json.loads(payload)[3:]
    unknown, guessed, steps, starts, memory, imports = map(tuple, named)
    classes = tuple((name, base) for name, base in bases)
    exports = (_read_calls(calls), tuple(functions), classes, _read_summaries(summaries))
    return Links(*exports, unknown, guessed, steps, starts, memory, imports, Says(says))


def encode_contexts(contexts: Mapping[str, Context]) -> str:
    """The contexts of the files of a run, by path."""
    return _dumps(
        {
            path: [_calls(each.calls), _summaries(each.summaries), each.on_host, each.is_compiled, each.asked]
            for path, each in contexts.items()
        }
    )


def decode_contexts(payload: str) -> dict[str, Context]:
    """The contexts that `encode_contexts` was given; raises as `decode` does."""
    return {
        path: Context(_read_calls(calls), _read_summaries(summaries), on_host, is_compiled, tuple(asked))
        for path, (calls, summaries, on_host, is_compiled, asked) in json.loads(payload).items()
    }


def decode(path: str, payload: str) -> FileResult:
    """The result of the file at `path` that `encode` made `payload` of.

    Raises ValueError, TypeError or KeyError where `payload` is nothing of the sort.
    """
    if not payload:
        return FileResult(path)
    diagnostics, problem, skipped = json.loads(payload)[:3]
    return FileResult(
        path, tuple(_read_diagnostic(path, *each) for each in diagnostics), _read_problem(problem), skipped
    )


def _dumps(content: object) -> str:
    return json.dumps(content, separators=(",", ":"))


def _calls(calls: Sequence[HotCall]) -> list[Any]:
    return [[call.target, call.heat, call.positional, call.keywords] for call in calls]


def _read_calls(content: list[Any]) -> tuple[HotCall, ...]:
    return tuple(
        HotCall(target, heat, places, tuple((k, v) for k, v in named)) for target, heat, places, named in content
    )


def _summaries(summaries: Sequence[Summary]) -> list[Any]:
    return [
        [each.target, each.returns, each.trains, each.draws, each.starts, each.loads, _effects(each)]
        for each in summaries
    ]


def _effects(summary: Summary) -> list[Any] | None:
    memory = summary.memory
    return None if memory is None else [[each.name, each.writes, each.returns] for each in memory]


def _read_summaries(content: list[Any]) -> tuple[Summary, ...]:
    return tuple(
        Summary(target, returns, trains, draws, Likelihood(starts), Likelihood(loads), _read_effects(memory))
        for target, returns, trains, draws, starts, loads, memory in content
    )


def _read_effects(content: list[Any] | None) -> tuple[ParameterEffect, ...] | None:
    return None if content is None else tuple(itertools.starmap(ParameterEffect, content))


def _diagnostic(each: Diagnostic) -> list[Any]:
    return [
        *(each.rule, each.kind, each.severity, each.message, _position(each.start), _position(each.end)),
        [[fix.title, fix.safety, [_edit(edit) for edit in fix.edits], fix.requires] for fix in each.fixes],
        *(each.blocked, each.frame, each.frame_line, each.fingerprint),
    ]


def _edit(edit: PlacedEdit) -> list[Any]:
    return [_position(edit.start), _position(edit.end), edit.text]


def _position(position: Position) -> list[Any]:
    return [position.cell, position.offset, position.line, position.column]


def _problem(problem: Problem | None) -> list[Any] | None:
    if problem is None:
        return None
    if isinstance(problem, InternalProblem):
        return [problem.message, problem.line, problem.traceback]
    return [problem.message, problem.line]


def _read_problem(content: list[Any] | None) -> Problem | None:
    if content is None:
        return None
    return Problem(*content) if len(content) == 2 else InternalProblem(*content)


def _read_diagnostic(
    path: str,
    rule: str,
    kind: str,
    severity: str,
    message: str,
    start: list[Any],
    end: list[Any],
    fixes: list[Any],
    blocked: str,
    frame: list[str],
    frame_line: int,
    fingerprint: str,
) -> Diagnostic:
    return Diagnostic(
        *(path, rule, kind, Severity(severity), message, Position(*start), Position(*end)),
        tuple(itertools.starmap(_read_fix, fixes)),
        *(blocked, tuple(frame), frame_line, fingerprint),
    )


def _read_fix(title: str, safety: str, edits: list[Any], requires: str) -> PlacedFix:
    return PlacedFix(title, Safety(safety), tuple(map(_read_edit, edits)), requires)


def _read_edit(content: list[Any]) -> PlacedEdit:
    start, end, text = content
    return PlacedEdit(Position(*start), Position(*end), text)

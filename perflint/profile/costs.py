"""Finds what a profile has measured of each finding: the time that its fix can save at most."""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from perflint.documents.digest import digest
from perflint.documents.disk import Unreadable
from perflint.documents.document import decode
from perflint.engine.catalogue import rules_by_name
from perflint.engine.results import Cost, Diagnostic, FileResult, RunResult
from perflint.profile.kinds import Regime
from perflint.profile.result import LineCost, Profile, read
from perflint.project.figures import PROFILES, nearest

EMPTY: Mapping[str, bytes] = {}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)  # which take time where they are called
_OF_GROUP = {"sync": (Regime.READS, Regime.INPUT), "data": (Regime.INPUT,)}  # what fixes of a group save


def with_known_costs(result: RunResult, root: Path, open_: Mapping[str, bytes] = EMPTY) -> RunResult:
    """`result` with what profiles in the project of `root` have measured of its findings.

    Files by the paths `open_` hold other bytes than on the disk, as in an editor.
    """
    file = nearest(root.resolve(), PROFILES)
    return with_costs(result, read(file), open_) if file else result


def with_costs(result: RunResult, profiles: Iterable[Profile], open_: Mapping[str, bytes] = EMPTY) -> RunResult:
    """`result`, each finding with its cost in the first profile that has seen its code as it is now."""
    known = list(profiles)
    return replace(result, files=tuple(_costed(file, known, open_.get(file.path)) for file in result.files))


def _costed(file: FileResult, profiles: Iterable[Profile], data: bytes | None) -> FileResult:
    path = os.path.realpath(file.path)
    seen = [each for each in profiles if path in each.files] if file.diagnostics else []
    if not seen:
        return file
    code = Code.of(Path(path), data)
    costs = [(each, Costs(each, code)) for each in seen if each.files[path] == code.digest]
    return replace(file, diagnostics=tuple(_of(each, costs) for each in file.diagnostics))


def _of(diagnostic: Diagnostic, profiles: Iterable[tuple[Profile, Costs]]) -> Diagnostic:
    for profile, costs in profiles:
        ms = costs.of(diagnostic)
        if ms is not None:
            program = os.path.basename(profile.program.split()[0])  # noqa: PTH119
            return replace(diagnostic, cost=Cost(ms, profile.step_ms, program, profile.date))
    return diagnostic


@dataclass(frozen=True)
class Code:
    """A file's digest, its statements, the last line of each by the first, and the names in each line."""

    path: str
    digest: str
    ends: Mapping[int, int]
    names: Mapping[int, frozenset[str]]

    @classmethod
    def of(cls, path: Path, data: bytes | None = None) -> Code:
        """Those of the file at `path`, or of its `data`; none where it can't be read or parsed."""
        ends: dict[int, int] = {}
        names: defaultdict[int, set[str]] = defaultdict(set)
        with suppress(Unreadable, OSError, SyntaxError, ValueError, RecursionError):
            data = path.read_bytes() if data is None else data
            for node in ast.walk(ast.parse(decode(str(path), data).text)):
                if isinstance(node, ast.stmt) and not isinstance(node, _DEFINITIONS):
                    ends[node.lineno] = max(ends.get(node.lineno, 0), node.end_lineno or node.lineno)
                elif isinstance(node, ast.Name):
                    names[node.lineno].add(node.id)
        return cls(str(path), digest(data or b""), ends, {line: frozenset(each) for line, each in names.items()})

    def region(self, diagnostic: Diagnostic) -> range:
        """The lines of a finding: all of the statement that it stands at the beginning of, as of a loop."""
        first, last = diagnostic.start.program_line, diagnostic.end.program_line
        return range(first, max(last, self.ends.get(first, last)) + 1)


@dataclass(frozen=True)
class Costs:
    """What a profile says of the findings in a file."""

    profile: Profile
    code: Code

    @cached_property
    def lines(self) -> Mapping[int, LineCost]:
        """The lines of the file that have run."""
        return {each.line: each for each in self.profile.lines if each.path == self.code.path}

    def of(self, diagnostic: Diagnostic) -> float | None:
        """The milliseconds of a step that its fix can save at most; None if its code did not run in those steps."""
        group = rules_by_name()[diagnostic.rule].group if diagnostic.rule in rules_by_name() else ""
        region = range(diagnostic.start.program_line, diagnostic.end.program_line + 1)
        owned = [each for each in self.profile.made if each.path == self.code.path and each.line in region]
        if owned or group == "data":
            return sum(sum(_saved(each.own, group)) for each in owned) if owned else None
        ran = [self.lines[line] for line in self.code.region(diagnostic) if line in self.lines]
        return sum(sum(_saved(each.total, group)) for each in ran) if ran else None


def _saved(cost: Mapping[str, float], group: str) -> Iterator[float]:
    return (ms for regime, ms in cost.items() if Regime(regime) in _OF_GROUP.get(group, tuple(Regime)))

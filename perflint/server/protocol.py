"""Tells in the language server protocol what was found in a document, and what fixes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lsprotocol import types

from perflint.documents.disk import Position
from perflint.engine import UserError
from perflint.engine.results import Diagnostic, FileResult, PlacedFix
from perflint.engine.rule import Severity
from perflint.report.text import is_fixable, notes, with_notes

SOURCE = "perflint"
FIX_ALL = "source.fixAll.perflint"
_SEVERITY = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.ADVICE: types.DiagnosticSeverity.Information,
}

ToClient = Callable[[Sequence[str], types.Position], types.Position]


@dataclass(frozen=True)
class Unit:
    uri: str
    version: int | None
    lines: Sequence[str]


@dataclass(frozen=True)
class Checked:
    """What was found in a document, by the editor's units then: of a notebook, its cells by number."""

    result: FileResult
    units: dict[int | None, Unit]
    to_client: ToClient

    def diagnostics(self, cell: int | None) -> list[types.Diagnostic]:
        shown = [self._diagnostic(each) for each in self.result.diagnostics if each.start.cell == cell]
        problem = self.result.problem
        if problem and cell == min(self.units, key=lambda each: each or 0):
            line = max((problem.line or 1) - 1, 0) if cell is None else 0
            place = types.Position(line, 0)
            error = types.DiagnosticSeverity.Error
            shown.append(types.Diagnostic(types.Range(place, place), problem.message, error, source=SOURCE))
        return shown

    def actions(self, document: str, cell: int | None, asked: types.Range) -> Iterator[types.CodeAction]:
        for each in self._within(cell, asked):
            for number, fix in enumerate(each.fixes):
                yield types.CodeAction(
                    title=f"{fix.title} ({fix.safety}{'; needs ' + fix.requires if fix.requires else ''})",
                    kind=types.CodeActionKind.QuickFix,
                    diagnostics=[self._diagnostic(each)],
                    is_preferred=number == 0 and is_fixable(each),
                    data=[document, each.fingerprint, number],
                )

    def all_at_once(self, document: str) -> Iterator[types.CodeAction]:
        if any(map(is_fixable, self.result.diagnostics)):
            yield types.CodeAction("Fix all that keeps the results", FIX_ALL, data=[document])

    def edit(self, fingerprint: str, number: int) -> types.WorkspaceEdit | None:
        """A fix's change; None if the finding is gone. Raises UserError where it can't be written."""
        for each in self.result.diagnostics:
            if each.fingerprint == fingerprint:
                if number >= len(each.fixes):
                    raise UserError(each.blocked)
                return self._workspace_edit(each.fixes[number])
        return None

    def whole(self, fixed: bytes) -> types.WorkspaceEdit | None:
        unit = self.units[None]
        if fixed == "".join(unit.lines).encode():
            return None
        everything = types.Range(types.Position(0, 0), types.Position(len(unit.lines), 0))
        return types.WorkspaceEdit(document_changes=[_change(unit, [types.TextEdit(everything, fixed.decode())])])

    def hover(self, cell: int | None, place: types.Position, page: Callable[[str], str]) -> types.Hover | None:
        for each in self._within(cell, types.Range(place, place)):
            lines = [f"- **{label}**: {text}" for label, text in notes(each)]
            text = "\n\n".join([f"**{each.rule}**: {each.message}", "\n".join(lines), "---", page(each.rule)])
            content = types.MarkupContent(types.MarkupKind.Markdown, text)
            return types.Hover(content, self._range(each.start, each.end))
        return None

    def _within(self, cell: int | None, asked: types.Range) -> Iterator[Diagnostic]:
        for each in self.result.diagnostics:
            if each.start.cell == cell:
                own = self._range(each.start, each.end)
                if _key(own.start) <= _key(asked.end) and _key(asked.start) <= _key(own.end):
                    yield each

    def _diagnostic(self, each: Diagnostic) -> types.Diagnostic:
        return types.Diagnostic(
            range=self._range(each.start, each.end),
            message=with_notes(each),
            severity=_SEVERITY[each.severity],
            code=each.rule,
            source=SOURCE,
        )

    def _workspace_edit(self, fix: PlacedFix) -> types.WorkspaceEdit:
        changes = []
        for cell, unit in self.units.items():
            ranges = ((self._range(each.start, each.end), each.text) for each in fix.edits if each.start.cell == cell)
            edits = [types.TextEdit(*each) for each in ranges]
            changes += [_change(unit, edits)] if edits else []
        return types.WorkspaceEdit(document_changes=changes)

    def _range(self, start: Position, end: Position) -> types.Range:
        lines = self.units[start.cell].lines
        stop = end if end.cell == start.cell else Position(start.cell, 0, len(lines) + 1, 1)
        places = (types.Position(each.line - 1, each.column - 1) for each in (start, stop))
        return types.Range(*(self.to_client(lines, each) for each in places))


def _change(unit: Unit, edits: Sequence[types.TextEdit]) -> types.TextDocumentEdit:
    return types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(unit.uri, unit.version), edits)


def _key(place: types.Position) -> tuple[int, int]:
    return place.line, place.character

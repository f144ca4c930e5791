"""Makes the results that the reports are tried on."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from perflint.analysis.links import HotPlace
from perflint.documents.disk import PlacedEdit, Position, Problem
from perflint.engine.results import Diagnostic, FileResult, PlacedFix, RunResult
from perflint.engine.rule import Safety, Severity
from perflint.syntax.source import Source

TEXT = "import torch\n\nfor x in loader:\n    total += loss.item()\n    y = x\n"


class Diagnose(Protocol):
    """Makes a diagnostic of `target` in `text`; `fix` is the text of a fix that replaces it."""

    def __call__(
        self,
        text: str = TEXT,
        target: str = "loss.item()",
        *,
        path: str = "train.py",
        rule: str = "item-in-loop",
        message: str = "the host waits for the device in every step",
        severity: Severity = Severity.WARNING,
        cell: int | None = None,
        fixes: tuple[tuple[Safety, str], ...] = (),
        blocked: str = "",
        fingerprint: str = "0123456789abcdef",
        hot_by: HotPlace | None = None,
    ) -> Diagnostic: ...


@pytest.fixture
def diagnose() -> Diagnose:
    return _diagnose


@pytest.fixture
def run(diagnose: Diagnose) -> RunResult:
    """A run with a fixable and a blocked finding, a notebook, a clean file, a skipped one and an unreadable one."""
    fixed = diagnose(
        fixes=((Safety.EXACT, "loss.detach()"), (Safety.BEHAVIOUR, "0")),
        hot_by=HotPlace(str(Path("lib", "fit.py")), line=80),
    )
    blocked = diagnose(
        target="for x in loader:", rule="decode-loop", severity=Severity.ERROR, blocked="a state is fed back"
    )
    notebook = diagnose(
        path="nb/a b.ipynb", cell=3, severity=Severity.ADVICE, fixes=((Safety.BEHAVIOUR, "1"),), fingerprint="fe"
    )
    files = (
        FileResult("broken.py", problem=Problem("is not Python 3: invalid syntax", 7)),
        FileResult("clean.py"),
        FileResult("nb/a b.ipynb", (notebook,)),
        FileResult("nb/r.ipynb", skipped="a notebook in R"),
        FileResult("train.py", (blocked, fixed)),
        FileResult("wide.py", problem=Problem("is not valid UTF-8")),
    )
    return RunResult(files, 0.5)


def _diagnose(
    text: str = TEXT,
    target: str = "loss.item()",
    *,
    path: str = "train.py",
    rule: str = "item-in-loop",
    message: str = "the host waits for the device in every step",
    severity: Severity = Severity.WARNING,
    cell: int | None = None,
    fixes: tuple[tuple[Safety, str], ...] = (),
    blocked: str = "",
    fingerprint: str = "0123456789abcdef",
    hot_by: HotPlace | None = None,
) -> Diagnostic:
    source, offset = Source(text), text.index(target)
    start = Position(cell, offset, *source.position(offset))
    end = Position(cell, offset + len(target), *source.position(offset + len(target)))
    placed = tuple(PlacedFix(f"write {new}", safety, (PlacedEdit(start, end, new),)) for safety, new in fixes)
    first, last = max(start.line - 2, 1), min(end.line + 2, source.line_count)
    frame = tuple(source.line_text(line).rstrip("\r\n") for line in range(first, last + 1))
    return Diagnostic(
        path, rule, "loop", severity, message, start, end, placed, blocked, frame, first, fingerprint, "", hot_by
    )

"""Accepts the findings of a run: writes the comments that ignore them into the files."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perflint.analysis.links import ALONE, Context
from perflint.documents.disk import Unreadable, Unwritable
from perflint.documents.document import read
from perflint.engine import suppress
from perflint.engine.check import find
from perflint.engine.results import FileResult, RunResult
from perflint.engine.rule import Rule
from perflint.engine.unused_ignore import UnusedIgnore
from perflint.project.settings import RulesByFile

if TYPE_CHECKING:
    from perflint.project.settings import Settings


@dataclass(frozen=True)
class Ignored:
    """How many findings in how many files have a comment now, and a line for each file that was left as it was."""

    findings: int
    files: int
    errors: tuple[str, ...]


def add_ignores(result: RunResult, settings: Settings) -> Ignored:
    """Add a comment that ignores it to each finding of `result`, except those about such comments."""
    rules = RulesByFile(settings)
    findings = files = 0
    errors = []
    for file in result.files:
        try:
            added = _add(file, rules.at(Path(file.path)), settings, result.contexts.get(file.path, ALONE))
        except (Unreadable, Unwritable, ValueError) as error:
            errors.append(f"{file.path}: no comment was added: {error}")
            continue
        findings += added
        files += bool(added)
    return Ignored(findings, files, tuple(errors))


def _add(file: FileResult, rules: Sequence[Rule], settings: Settings, context: Context) -> int:
    wanted = {(each.rule, each.start) for each in file.diagnostics if each.rule != UnusedIgnore.name}
    if not wanted:
        return 0
    document = read(Path(file.path))
    found = find(document.text, rules, settings.rules, context).findings
    chosen = [each for each in found if (each.rule, document.position(each.start)) in wanted]
    text = suppress.add_ignores(document.text, chosen)
    if ast.dump(ast.parse(document.text)) != ast.dump(ast.parse(text)):
        raise ValueError("it would change the program")
    document.write(text)
    return len(chosen)

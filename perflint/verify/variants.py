"""The variants of a program that are compared: as it is, with all fixes, with one alone, and with all but one."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from perflint.catalogue import all_rules
from perflint.documents.document import Document, read
from perflint.files import discover
from perflint.links import ALONE
from perflint.patch import patch_document
from perflint.rule import Safety
from perflint.run import check_files
from perflint.selection import RulesByFile
from perflint.shim.compiling import functions
from perflint.shim.plan import PatchedFile, Plan
from perflint.shim.planning import Project, patched, plan_for
from perflint.verify.race import Recorded
from perflint.verify.spec import Variant


@dataclass(frozen=True, order=True)
class FixKey:
    """One fix of a plan: the real path and the line of the user's file, 0 for what is decided as the program runs."""

    path: str
    line: int
    rule: str
    title: str
    safety: Safety


class Variants:
    """Makes variants of a program; plans are kept in `folder`, where the project's cache isn't to be had."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._settings = replace(project.settings, unsafe=True)
        self.whole: Plan = plan_for(replace(project, settings=self._settings), folder).plan
        self.fixes = tuple(sorted(set(_fixes(self.whole))))
        checked = check_files(discover([project.root], self._settings), self._settings)
        self._contexts = {os.path.realpath(name): context for name, context in checked.contexts.items()}
        self._fingerprints = {
            (os.path.realpath(file.path), each.start.line, each.rule): each.fingerprint
            for file in checked.files
            for each in file.diagnostics
        }

    def with_fixes(self, name: str, keys: Iterable[FixKey]) -> Variant:
        """The variant that has just these fixes, none for the original. Functions with fixes tell of their calls."""
        wanted = frozenset(keys)
        files = {}
        for path in sorted({key.path for key in self.fixes if key.line}):
            document = read(Path(path))
            calls = _functions_around(document.text, {key.line for key in self.fixes if key.path == path})
            files[path] = self._patched(document, wanted)._replace(calls=calls)
        watches = self.whole.watches if any(not key.line for key in wanted) else ()
        return Variant(name, self.whole._replace(files=files, watches=watches))

    @staticmethod
    def is_loaded(key: FixKey, variant: Variant, run: Recorded) -> bool:
        """Whether a run came by the place of a fix at all: it loaded the file, or made a loader."""
        return bool(run.counts[variant.plan.slots[key.path]] if key.line else run.loaders)

    @staticmethod
    def activations(key: FixKey, variant: Variant, run: Recorded) -> int:
        """How often a fix took effect in a run of a variant that has it."""
        if not key.line:
            return run.loaders
        file, first = variant.plan.files[key.path], variant.plan.slots[key.path]
        places = [(change.rule, change.line, change.title) for change in file.changes]
        slots = (first + number for number, place in enumerate(places, 1) if place == (key.rule, key.line, key.title))
        return sum(run.counts[slot] for slot in slots)

    def fingerprint(self, key: FixKey) -> str:
        """What the finding that was fixed is known by, wherever it moves."""
        return self._fingerprints.get((key.path, key.line, key.rule), "")

    def _patched(self, document: Document, wanted: frozenset[FixKey]) -> PatchedFile:
        path = os.path.realpath(document.path)
        places = {(key.rule, key.line, key.title) for key in wanted if key.path == path}
        context = self._contexts.get(path, ALONE)
        rules = RulesByFile(self._settings).at(Path(path))
        patch = patch_document(document, rules, self._settings.rules, unsafe=True, context=context, wanted=places)
        return patched(patch)


def _functions_around(text: str, lines: Iterable[int]) -> tuple[str, ...]:
    """The functions and methods around lines of a file, but for generators, whose calls do nothing yet."""
    spans = [(name, each.lineno, each.end_lineno or 0) for name, each in functions(ast.parse(text)) if _returns(each)]
    return tuple(sorted({name for name, first, last in spans if any(first <= line <= last for line in lines)}))


def _returns(function: ast.FunctionDef) -> bool:
    return not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


def _fixes(plan: Plan) -> Iterator[FixKey]:
    for path, file in plan.files.items():
        for change in file.changes:
            yield FixKey(path, change.line, change.rule, change.title, Safety(change.safety))
    for watch in plan.watches:
        rule = next(rule.name for rule in all_rules() if rule.at_run_time == watch)
        yield FixKey(plan.root, 0, rule, f"{watch}, as the program makes them", Safety.EXACT)

"""The variants of a program that are compared: as it is, with all fixes, with one alone, and with all but one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from perflint.catalogue import all_rules
from perflint.documents.disk import Unreadable
from perflint.documents.document import read
from perflint.files import discover
from perflint.links import ALONE
from perflint.patch import patch_document
from perflint.rule import Finding, Fix, Safety
from perflint.run import check_files
from perflint.selection import RulesByFile
from perflint.shim.plan import PatchedFile, Plan
from perflint.shim.planning import Project, original_line, patched, plan_for
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
        """The variant that has just these fixes, none for the original."""
        wanted = frozenset(keys)
        if wanted == frozenset(self.fixes):
            return Variant(name, self.whole)
        paths = {key.path for key in wanted if key.line}
        files = {path: file for path in sorted(paths) if (file := self._patched(path, wanted))}
        watches = self.whole.watches if any(not key.line for key in wanted) else ()
        return Variant(name, self.whole._replace(files=files, watches=watches))

    def activations(self, key: FixKey, run: Recorded) -> int:
        """How often a fix took effect in a run of all of them."""
        if not key.line:
            return run.loaders
        file, first = self.whole.files[key.path], self.whole.slots[key.path]
        places = [(change.rule, change.line, change.title) for change in file.changes]
        slots = (first + number for number, place in enumerate(places, 1) if place == (key.rule, key.line, key.title))
        return sum(run.counts[slot] for slot in slots)

    def fingerprint(self, key: FixKey) -> str:
        """What the finding that was fixed is known by, wherever it moves."""
        return self._fingerprints.get((key.path, key.line, key.rule), "")

    def _patched(self, path: str, wanted: frozenset[FixKey]) -> PatchedFile | None:
        try:
            document = read(Path(path))
        except Unreadable:
            return None
        before = document.text
        places = {(key.rule, key.line, key.title) for key in wanted if key.path == path}

        def accept(text: str, finding: Finding, fix: Fix) -> str:
            place = (finding.rule, original_line(text, finding, before), fix.title)
            return "" if place in places else "it belongs to another variant"

        context = self._contexts.get(path, ALONE)
        rules = RulesByFile(self._settings).at(Path(path))
        patch = patch_document(document, rules, self._settings.rules, unsafe=True, context=context, accept=accept)
        return patched(patch) if patch.changed else None


def _fixes(plan: Plan) -> Iterator[FixKey]:
    for path, file in plan.files.items():
        for change in file.changes:
            yield FixKey(path, change.line, change.rule, change.title, Safety(change.safety))
    for watch in plan.watches:
        rule = next(rule.name for rule in all_rules() if rule.at_run_time == watch)
        yield FixKey(plan.root, 0, rule, f"{watch}, as the program makes them", Safety.EXACT)

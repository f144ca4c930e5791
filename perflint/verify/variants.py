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
from perflint.shim.known_loaders import WORKERS
from perflint.shim.loaders import LOADERS, Made
from perflint.shim.plan import COMPILE, PatchedFile, Plan
from perflint.shim.planning import Project, patched, plan_for
from perflint.verify.race import Recorded
from perflint.verify.spec import Variant


@dataclass(frozen=True, order=True)
class FixKey:
    """One fix of a plan, for what was found at a line of the user's file; some are made as the program runs.

    That of modules that are compiled is of the whole project, at line 0.
    """

    path: str
    line: int
    rule: str
    title: str
    safety: Safety
    at_run_time: bool = False


class Variants:
    """Makes variants of a program."""

    def __init__(self, project: Project) -> None:
        self._settings = replace(project.settings, unsafe=True)
        self.whole: Plan = plan_for(replace(project, settings=self._settings)).plan
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
        for path in sorted({key.path for key in self.fixes if not key.at_run_time}):
            document = read(Path(path))
            calls = _functions_around(document.text, {key.line for key in self.fixes if key.path == path})
            files[path] = self._patched(document, wanted)._replace(calls=calls)
        places = {(key.path, key.line) for key in wanted if key.at_run_time}
        loaders = {
            path: tuple(each for each in known if (path, each.line) in places)
            for path, known in self.whole.loaders.items()
        }
        compiles = any(key.rule == COMPILE for key in wanted)
        return Variant(name, self.whole._replace(files=files, loaders=loaders, compiles=compiles))

    def tuning(self) -> Variant | None:
        """The original, whose loaders are tuned as it runs; None where it has none to tune."""
        return Variant("tuned", self.whole._replace(files={}, tunes=True)) if self.whole.loaders else None

    @staticmethod
    def is_loaded(key: FixKey, variant: Variant, run: Recorded) -> bool:
        """Whether a run came by the place of a fix at all: loaded the file, made a loader, or called modules."""
        if key.rule == COMPILE:
            return bool(run.modules)
        return bool(_made(key, run) if key.at_run_time else run.counts[variant.plan.slots[key.path]])

    @staticmethod
    def activations(key: FixKey, variant: Variant, run: Recorded) -> int:
        """How often a fix took effect in a run of a variant that has it."""
        if key.rule == COMPILE:
            return sum(each.times for each in run.modules)
        if key.at_run_time:
            return sum(bool(each.arguments) for each in _made(key, run))
        file, first = variant.plan.files[key.path], variant.plan.slots[key.path]
        places = [(change.rule, change.line, change.title) for change in file.changes]
        slots = (first + number for number, place in enumerate(places, 1) if place == (key.rule, key.line, key.title))
        return sum(run.counts[slot] for slot in slots)

    @staticmethod
    def obstacle(key: FixKey, run: Recorded) -> str:
        """Why a fix that is made as the program runs was not made; empty where nothing is said of it."""
        if key.rule == COMPILE:
            return next((each.remark for each in run.modules if not each.times), "")
        return next((each.reason for each in _made(key, run) if each.reason), "")

    def fingerprint(self, key: FixKey) -> str:
        """What the finding that was fixed is known by, wherever it moves."""
        return self._fingerprints.get((key.path, key.line, key.rule), "")

    def _patched(self, document: Document, wanted: frozenset[FixKey]) -> PatchedFile:
        path = os.path.realpath(document.path)
        places = {(key.rule, key.line, key.title) for key in wanted if key.path == path and not key.at_run_time}
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
    rules = [rule.name for rule in all_rules() if rule.at_run_time == LOADERS and LOADERS in plan.watches]
    for path, loaders in plan.loaders.items() if rules else ():
        for each in loaders:
            safety = Safety.EXACT if WORKERS in each.proven else Safety.BEHAVIOUR
            yield FixKey(path, each.line, rules[0], "what was left out of the loader, as it is made", safety, True)
    if plan.compiles:
        title = "compile the modules that are called again and again, as `perflint run --compile` does"
        yield FixKey(plan.root, 0, COMPILE, title, Safety.ROUNDING, True)


def _made(key: FixKey, run: Recorded) -> list[Made]:
    return [each for each in run.loaders if (os.path.realpath(each.path), each.line) == (key.path, key.line)]

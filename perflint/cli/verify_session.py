"""One verification as it was asked for on the command line: its program, its settings, and where the verdict goes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from perflint.cli.session import configured
from perflint.documents import NOTEBOOK
from perflint.documents.disk import write_text
from perflint.engine import UserError
from perflint.engine.rule import Safety
from perflint.project.closure import Closure, of_program
from perflint.project.figures import FOLDER, VERDICTS, made
from perflint.project.root import project_of
from perflint.report.words import count
from perflint.shim.notebooks import left_out
from perflint.shim.planning import Project
from perflint.shim.running import launched
from perflint.shim.settings import COMPILER
from perflint.tune.trials import Trials
from perflint.verify import verdicts
from perflint.verify.agent import cover
from perflint.verify.budget import Budget, Ledger, Share, TimeUp, deadline
from perflint.verify.examine import Examination
from perflint.verify.libraries import Notes, libraries
from perflint.verify.messages import Kind, Program
from perflint.verify.monitor import Monitor
from perflint.verify.processes import Guardian
from perflint.verify.recordings import Tell
from perflint.verify.report import page
from perflint.verify.runs import Course
from perflint.verify.stages import unfound, verified
from perflint.verify.variants import Variants
from perflint.verify.verdict import Verdict

REPORT = "report.html"
_LEAVING = 4.0  # seconds to end what runs, and to write the report
_ASKED = ("warm_up", "window", "pairs", "rounds", "horizon")


class Session:
    """What was asked: a program by its name and arguments, and the options that were typed; raises UserError.

    `trials` chooses what is tried as well; fixes promise no less than is `allowed`, and what each class of promise
    gains is told `by_class`.
    """

    def __init__(
        self,
        name: str,
        arguments: tuple[str, ...],
        typed: Mapping[str, Any],
        trials: Callable[[Course, Path, Tell], Trials],
        allowed: Collection[Safety] = frozenset(Safety),
        *,
        by_class: bool = False,
    ) -> None:
        self._trials, self._allowed, self._by_class = trials, allowed, by_class
        kind = Kind.CALL if typed["call"] else Kind.MODULE if typed["is_module"] else Kind.SCRIPT
        self._typed = typed
        self._program = Program.named(name, arguments, kind)
        self._start = self._program.start
        self.root = self._root = project_of(self._start)
        self._folder = self._root / FOLDER
        self.report = self._folder / REPORT

    def verdict(self, tell: Tell, begin: float) -> Verdict:
        """Verify, and keep the verdict and the report on it in the project; raises UserError.

        The budget counts from the time `begin` of the monotonic clock.
        """
        budget, ledger = Budget(self._typed["budget"], begin=begin), Ledger()
        self._prepare(tell)
        try:
            verdict = self._reached(budget, ledger, tell)
        except TimeUp:
            verdict = unfound(str(self._program), budget)
        verdict = replace(verdict, spent=ledger.spent)
        verdicts.add(made(self._root) / VERDICTS, verdict)
        write_text(self.report, page(verdict))
        return verdict

    def _reached(self, budget: Budget, ledger: Ledger, tell: Tell) -> Verdict:
        """The verdict; raises TimeUp where fixes could not be found in time, and UserError."""
        typed, notes = self._typed, Notes()
        asked = {name: typed[name] for name in _ASKED if typed[name] is not None}
        settings = configured(self._start, typed).settings
        ledger.enter("finding fixes")
        if self._program.name.lower().endswith(NOTEBOOK) and (lacks := left_out(self._program.name)):
            tell(lacks)
        tell("looking for fixes")
        with deadline(budget.part(budget.of(Share.FINDING))):
            closure = _closure(self._program, self._root, notes)
        with closing(Guardian()) as guardian, closing(Monitor()) as monitor:
            running = budget.part(budget.left - min(_LEAVING, Share.LEAVING * budget.seconds))
            known = libraries(closure, notes)
            if known is not None and (self._by_class or typed.get("compile")):
                known = (*known, COMPILER)
            course = Course(self._program, guardian, typed["seed"], running, ledger, libraries=known)
            course.prepare()
            if notes.others:
                course = replace(course, covers=_can_cover(course, self._root))
                more = f" and {count(len(notes.others) - 1, 'place')} more" if notes.others[1:] else ""
                how = "they go to a copy" if course.covers else "only those that arguments name are put back"
                tell(f"{notes.others[0]}{more} may write files by other means than Python's own: {how}")
            trials = self._trials(course, self._root, tell)
            settings = replace(settings, extend_select=(*settings.extend_select, *trials.rules))
            whole = trials.settings
            project = Project(self._start, self._root, settings, typed["config"], whole=whole, closure=closure)
            variants = self._variants(course, project, trials, budget, tell)
            folder, by_class = guardian.folder, self._by_class
            return verified(Examination(course, variants, budget, folder, tell, monitor, asked, by_class=by_class))

    def _variants(self, course: Course, project: Project, trials: Trials, budget: Budget, tell: Tell) -> Variants:
        course.ledger.enter("finding fixes")
        finding = budget.part(budget.of(Share.FINDING) - budget.spent)
        with deadline(finding):
            variants = Variants(project, self._allowed, trials.first)
        found = {key.rule for key in variants.fixes}
        needless = {name for name, rules in trials.instead.items() if not found.isdisjoint(rules)}
        variants = variants.only([key for key in variants.fixes if key.rule not in needless])
        if not self._typed["tune_loader"] or (variant := variants.tuning()) is None:
            return variants
        tell("measuring how many workers the loaders need")
        for note in course.tune(variant, budget.of(Share.TUNING)):
            tell(note)
        with deadline(budget.part(budget.of(Share.FINDING))):
            return Variants(project, self._allowed, trials.first)

    def _prepare(self, tell: Tell) -> None:
        """See to it that a verdict can be kept; tell now if what is kept there can't be read: it will go aside."""
        folder, file = self._folder, self._folder / VERDICTS
        try:
            TemporaryFile(dir=folder if os.path.lexists(folder) else self._root).close()
        except OSError as error:
            raise UserError(f"{folder}: the verdict can't be kept there: {error.strerror}") from error
        for each in filter(Path.is_dir, (file, self.report)):
            raise UserError(f"{each}: the verdict can't be kept there: it is a folder")
        try:
            verdicts.read(file)
        except UserError:
            tell(f"{file} can't be read: it will be {verdicts.aside(file).name}")


def _can_cover(course: Course, root: Path) -> bool:
    """Whether processes may see the program's folders through a cover, which is tried."""
    probe = [sys.executable, "-m", cover.__name__, str(course.guardian.folder / "probe")]
    roots = cover.outermost((str(course.program.folder), str(root)))
    return sys.platform == "linux" and not subprocess.run([*probe, *roots], capture_output=True, check=False).returncode


def _closure(program: Program, root: Path, notes: Notes) -> Closure | None:
    """All that the program can import, which is noted."""
    name = program.name.partition(":")[0] if program.kind is Kind.CALL else program.name
    is_module = program.kind is not Kind.SCRIPT
    start, words = program.folder, launched(program.arguments)
    return of_program(name, words, is_module=is_module, folder=start, top=root, visit=notes.visit)

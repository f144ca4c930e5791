"""One verification as it was asked for on the command line: its program, its settings, and where the verdict goes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from perflint.cli.program import named
from perflint.cli.session import configured
from perflint.documents.disk import write_text
from perflint.engine.errors import UserError
from perflint.project.closure import Closure, of_program
from perflint.project.figures import FOLDER, VERDICTS, made
from perflint.shim.plan import project_of
from perflint.shim.planning import Project
from perflint.shim.running import launched
from perflint.verify import verdicts
from perflint.verify.budget import Budget, Share, TimeUp, deadline
from perflint.verify.examine import Examination
from perflint.verify.libraries import libraries, other_programs
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
_LEAVING = 3.0  # seconds to end what runs, and to write the report
_ASKED = ("warm_up", "window", "pairs", "rounds", "horizon")


class Session:
    """What was asked: a program by its name and arguments, and the options that were typed; raises UserError."""

    def __init__(self, name: str, arguments: tuple[str, ...], typed: Mapping[str, Any]) -> None:
        kind = Kind.CALL if typed["call"] else Kind.MODULE if typed["is_module"] else Kind.SCRIPT
        self._typed = typed
        self._program = named(name, arguments, kind)
        is_script = self._program.kind is Kind.SCRIPT
        self._start = Path(os.path.realpath(name)).parent if is_script else Path.cwd()
        self._root = project_of(self._start)
        self._folder = self._root / FOLDER
        self.report = self._folder / REPORT

    def verdict(self, tell: Tell) -> Verdict:
        """Verify, and keep the verdict and the report on it in the project; raises UserError."""
        typed = self._typed
        budget = Budget(typed["budget"])
        self._prepare(tell)
        asked = {name: typed[name] for name in _ASKED if typed[name] is not None}
        settings = configured(self._start, typed).settings
        closure = _closure(self._program, self._root)
        compiles = typed["compile"]
        project = Project(self._start, self._root, settings, typed["config"], compiles=compiles, closure=closure)
        with closing(Guardian()) as guardian, closing(Monitor()) as monitor:
            running = budget.part(budget.seconds - min(_LEAVING, Share.LEAVING * budget.seconds))
            course = Course(self._program, guardian, typed["seed"], running, libraries=libraries(closure))
            course.prepare()
            if places := ", ".join(other_programs(closure)):
                tell(f"{places}: of what is started there, only what its arguments name is put back")
            course.ledger.enter("finding fixes")
            try:
                variants = self._variants(course, project, budget, tell)
            except TimeUp:
                verdict = unfound(str(self._program), budget)
            else:
                verdict = verified(Examination(course, variants, budget, guardian.folder, tell, monitor, asked))
            verdict = replace(verdict, spent=course.ledger.spent)
        verdicts.add(made(self._root) / VERDICTS, verdict)
        write_text(self.report, page(verdict))
        return verdict

    def _variants(self, course: Course, project: Project, budget: Budget, tell: Tell) -> Variants:
        tell("looking for fixes")
        with deadline(budget.part(budget.of(Share.FINDING))):
            variants = Variants(project)
        if not self._typed["tune_loader"] or (variant := variants.tuning()) is None:
            return variants
        tell("measuring how many workers the loaders need")
        for note in course.tune(variant, budget.of(Share.TUNING)):
            tell(note)
        with deadline(budget.part(budget.of(Share.FINDING))):
            return Variants(project)

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


def _closure(program: Program, root: Path) -> Closure | None:
    """All that the program can import."""
    name = program.name.partition(":")[0] if program.kind is Kind.CALL else program.name
    is_module = program.kind is not Kind.SCRIPT
    return of_program(name, launched(program.arguments), is_module=is_module, folder=program.folder, top=root)

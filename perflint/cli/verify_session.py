"""One verification as it was asked for on the command line: its program, its settings, and where the verdict goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import closing
from importlib.machinery import PathFinder
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from perflint.cli import options
from perflint.engine.errors import UserError
from perflint.project.config import load
from perflint.project.figures import FOLDER, VERDICTS
from perflint.shim.plan import project_of
from perflint.shim.planning import Project
from perflint.verify import verdicts
from perflint.verify.examine import Examination
from perflint.verify.messages import Kind, Program
from perflint.verify.monitor import Monitor
from perflint.verify.processes import Guardian
from perflint.verify.protocol import Budget, Share
from perflint.verify.recordings import Tell
from perflint.verify.runs import Course
from perflint.verify.variants import Variants
from perflint.verify.verdict import Verdict

REPORT = "report.html"
_LAUNCHER = ("torchrun", "torch.distributed.run")  # a command, and the module that it is
_ASKED = ("warm_up", "window", "pairs", "rounds", "horizon")


class Session:
    """What was asked: a program by its name and arguments, and the options that were typed."""

    def __init__(self, name: str, arguments: tuple[str, ...], typed: Mapping[str, Any]) -> None:
        kind = Kind.CALL if typed["call"] else Kind.MODULE if typed["is_module"] else Kind.SCRIPT
        if (kind, name) == (Kind.SCRIPT, _LAUNCHER[0]):
            kind, name = Kind.MODULE, _LAUNCHER[1]
        self._typed = typed
        self._program = Program(kind, name, arguments, Path.cwd())
        self._start = Path(os.path.realpath(name)).parent if kind is Kind.SCRIPT else Path.cwd()
        self._root = project_of(self._start)

    def verdict(self, tell: Tell) -> Verdict:
        """Verify, and keep the verdict and the report on it in the project; raises UserError."""
        self._check()
        self._prepare(tell)
        source: dict[str, Any] = {"isolated": self._typed["isolated"], "config_path": self._typed["config"]}
        settings = load(self._start, **source, overrides=options.overrides(self._typed)).settings
        asked = {name: self._typed[name] for name in _ASKED if self._typed[name] is not None}
        with closing(Guardian()) as guardian, closing(Monitor()) as monitor:
            course = Course(self._program, guardian, self._typed["seed"])
            budget = Budget(self._typed["budget"])
            config, compiles = self._typed["config"], self._typed["compile"]
            project = Project(self._start, self._root, settings, config, compiles=compiles)
            variants = self._variants(course, project, budget, tell)
            rest = Budget(budget.left)
            verdict = Examination(course, variants, rest, guardian.folder, tell, monitor, asked).verdict()
        self._keep(verdict)
        return verdict

    def _variants(self, course: Course, project: Project, budget: Budget, tell: Tell) -> Variants:
        tell("looking for fixes")
        variants = Variants(project)
        if not self._typed["tune_loader"] or (variant := variants.tuning()) is None:
            return variants
        tell("measuring how many workers the loaders need")
        for note in course.tune(variant, budget.of(Share.TUNING), budget.first_step):
            tell(note)
        return Variants(project)

    @property
    def report(self) -> Path:
        """Where the report is."""
        return self._root / FOLDER / REPORT

    @property
    def _verdicts(self) -> Path:
        return self._root / FOLDER / VERDICTS

    def _prepare(self, tell: Tell) -> None:
        """See to it that a verdict can be kept; tell now if what is kept there can't be read: it will go aside."""
        folder = self._root / FOLDER
        try:
            TemporaryFile(dir=folder if os.path.lexists(folder) else self._root).close()
        except OSError as error:
            raise UserError(f"{folder}: the verdict can't be kept there: {error.strerror}") from error
        for file in filter(Path.is_dir, (self._verdicts, self.report)):
            raise UserError(f"{file}: the verdict can't be kept there: it is a folder")
        try:
            verdicts.read(self._verdicts)
        except UserError:
            tell(f"{self._verdicts} can't be read: it will be {verdicts.aside(self._verdicts).name}")

    def _keep(self, verdict: Verdict) -> None:
        from perflint.documents.disk import write_text
        from perflint.verify.report import page

        verdicts.add(self._verdicts, verdict)
        write_text(self.report, page(verdict))

    def _check(self) -> None:
        kind, name = self._program.kind, self._program.name
        if kind is Kind.SCRIPT:
            if not Path(name).exists():
                raise UserError(f"{name}: there is no such file to run")
            return
        if kind is Kind.CALL and ":" not in name:
            raise UserError(f"{name}: name a function as PACKAGE.MODULE:FUNCTION")
        module = name.partition(":")[0]
        outermost = module.partition(".")[0]  # finding what lies inside would import it
        if PathFinder.find_spec(outermost, [os.curdir, *sys.path]) is None:
            raise UserError(f"No module named {module}")

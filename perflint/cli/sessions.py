"""A verification or profile as asked for on the command line: its program, and where its result is kept."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any

from perflint.cli.session import configured
from perflint.documents import NOTEBOOK
from perflint.documents.disk import write_text
from perflint.engine import UserError, count
from perflint.engine.results import RunResult, figure
from perflint.engine.rule import Safety
from perflint.profile import report as profile_report
from perflint.profile.record import KINDS, LEAST, Orders, mean
from perflint.profile.result import Code, Profile, keep, with_costs
from perflint.profile.running import Manner, Ran, profile_of, run
from perflint.profile.summary import Report
from perflint.project import project_of
from perflint.project.closure import Closure, of_program
from perflint.project.files import discover
from perflint.project.run import check_files
from perflint.project.settings import Settings
from perflint.project.stored import FOLDER, VERDICTS, made
from perflint.shim.launch import left_out
from perflint.shim.plan import launched
from perflint.shim.planning import Project
from perflint.shim.settings import COMPILER
from perflint.tune import Trials
from perflint.verify import verdicts
from perflint.verify.agent import cover
from perflint.verify.examine import Examination, unfound, verified
from perflint.verify.forks import Notes, libraries
from perflint.verify.messages import BACKWARD, BATCH, CALLS, OPTIMIZER, Kind, Program
from perflint.verify.processes import Guardian, Monitor
from perflint.verify.protocol import Budget, Ledger, Share, TimeUp, deadline
from perflint.verify.recordings import Tell
from perflint.verify.report import page
from perflint.verify.running import ending
from perflint.verify.runs import Course
from perflint.verify.variants import Variants
from perflint.verify.verdict import Verdict

REPORT = "report.html"
_PAGE = "profile.html"
_ONE = {OPTIMIZER: "optimizer step", BATCH: "loader batch", BACKWARD: "backward pass", CALLS: "call"}
_LEAVING = 4.0  # seconds to end what runs, and to write the report
_ASKED = ("warm_up", "window", "pairs", "rounds", "horizon")


class _Session:
    def __init__(self, name: str, arguments: tuple[str, ...], typed: Mapping[str, Any]) -> None:
        kind = Kind.CALL if typed.get("call") else Kind.MODULE if typed["is_module"] else Kind.SCRIPT
        self._program, self._typed = Program.named(name, arguments, kind), typed
        self._start = self._program.start
        self.root = project_of(self._start)
        try:
            gettempdir()
        except OSError as error:
            raise UserError(f"programs can't be run: {error.strerror}") from error


class VerifySession(_Session):
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
        super().__init__(name, arguments, typed)
        self._trials, self._allowed, self._by_class = trials, allowed, by_class
        self.report = self.root / FOLDER / REPORT

    def verdict(self, tell: Tell, begin: float) -> Verdict:
        """Verify, and keep verdict and report in the project; raises UserError.

        The budget counts from `begin` on the monotonic clock.
        """
        budget, ledger = Budget(self._typed["budget"], begin=begin), Ledger()
        self._prepare(tell)
        try:
            verdict = self._reached(budget, ledger, tell)
        except TimeUp:
            verdict = unfound(str(self._program), budget)
        verdict = replace(verdict, spent=ledger.spent)
        verdicts.add(made(self.root) / VERDICTS, verdict)
        write_text(self.report, page(verdict))
        return verdict

    def _reached(self, budget: Budget, ledger: Ledger, tell: Tell) -> Verdict:
        typed, notes = self._typed, Notes()
        asked = {name: typed[name] for name in _ASKED if typed[name] is not None}
        settings = configured(self._start, typed).settings
        ledger.enter("finding fixes")
        if self._program.name.lower().endswith(NOTEBOOK) and (lacks := left_out(self._program.name)):
            tell(lacks)
        tell("looking for fixes")
        with deadline(budget.part(budget.of(Share.FINDING))):
            closure = _closure(self._program, self.root, notes)
        with closing(Guardian()) as guardian, closing(Monitor()) as monitor:
            running = budget.part(budget.left - min(_LEAVING, Share.LEAVING * budget.seconds))
            known = libraries(closure, notes)
            if known is not None and (self._by_class or typed.get("compile")):
                known = (*known, COMPILER)
            course = Course(self._program, guardian, typed["seed"], running, ledger, libraries=known)
            course.prepare()
            if notes.others:
                course = replace(course, covers=_can_cover(course, self.root))
                more = f" and {count(len(notes.others) - 1, 'place')} more" if notes.others[1:] else ""
                how = "they go to a copy" if course.covers else "only those that arguments name are put back"
                tell(f"{notes.others[0]}{more} may write files by other means than Python's own: {how}")
            trials = self._trials(course, self.root, tell)
            settings = replace(settings, extend_select=(*settings.extend_select, *trials.rules))
            whole = trials.settings
            project = Project(self._start, self.root, settings, typed["config"], whole=whole, closure=closure)
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
        """Check that a verdict can be kept; tell now if one there can't be read, and will go aside."""
        folder, file = self.report.parent, self.report.parent / VERDICTS
        try:
            TemporaryFile(dir=folder if os.path.lexists(folder) else self.root).close()
        except OSError as error:
            raise UserError(f"{folder}: the verdict can't be kept there: {error.strerror}") from error
        for each in filter(Path.is_dir, (file, self.report)):
            raise UserError(f"{each}: the verdict can't be kept there: it is a folder")
        try:
            verdicts.read(file)
        except UserError:
            tell(f"{file} can't be read: it will be {verdicts.aside(file).name}")


def _can_cover(course: Course, root: Path) -> bool:
    probe = [sys.executable, "-m", cover.__name__, str(course.guardian.folder / "probe")]
    roots = cover.outermost((str(course.program.folder), str(root)))
    return sys.platform == "linux" and not subprocess.run([*probe, *roots], capture_output=True, check=False).returncode


def _closure(program: Program, root: Path, notes: Notes) -> Closure | None:
    name = program.name.partition(":")[0] if program.kind is Kind.CALL else program.name
    is_module = program.kind is not Kind.SCRIPT
    start, words = program.folder, launched(program.arguments)
    return of_program(name, words, is_module=is_module, folder=start, top=root, visit=notes.visit)


class ProfileSession(_Session):
    is_kept = False

    @property
    def page(self) -> Path:
        return self.root / FOLDER / _PAGE

    def report(self, tell: Tell, trace: str) -> Report:
        """Raises UserError where there is no profile."""
        typed = self._typed
        orders = Orders(typed["steps"], typed["warm_up"], 2 * typed["steps"], trace=trace)
        ran, profile = self._run(orders, tell)
        if fewer := within(ran, orders):
            parts = f"{fewer.timed} timed, {fewer.steps} traced, after a warm-up of {fewer.warm_up}"
            whole = f"{ran.steps[fewer.unit]:,} {fewer.unit} in all: {parts}"
            tell(f"too few for a whole profile, so the program runs once more{rewound()}; {whole}")
            again, better = self._run(fewer, tell)
            if better:
                profile = replace(better, notes=(whole, *better.notes))
            ran = ran if profile and not better else again
        if profile is None:
            raise UserError(why_not(ran, orders))
        if ran.code and not ran.is_interrupted:
            profile = replace(profile, notes=(*profile.notes, f"the program {ending(ran.code, '')}"))
        try:
            keep(self.root, profile)  # first: what was seen makes candidates of blocked fixes
            report = self._report(profile, ran)
            write_text(self.page, profile_report.page(report))
            self.is_kept = True
        except OSError as error:
            tell(f"the profile can't be kept: {error.strerror}")
            report = self._report(profile, ran)
        return report

    def _run(self, orders: Orders, tell: Tell) -> tuple[Ran, Profile | None]:
        manner = Manner(self._typed["stop"], stdout=sys.stderr.fileno() if self._typed["as_json"] else None)
        with closing(Guardian()) as guardian:
            ran = run(self._program, orders, tell, guardian, manner)
        return ran, profile_of(str(self._program), ran.records, ran.workers)

    def _report(self, profile: Profile, ran: Ran) -> Report:
        settings = measurable(configured(self._start, self._typed).settings, profile)
        files = {Path(os.path.realpath(path)) for record in ran.records for path in (*record.modules, *profile.files)}
        below = [each for each in sorted(files) if each.is_relative_to(self.root) and each.is_file()]
        shown = [Path(os.path.relpath(each)) for each in below]
        result = check_files(discover(shown, settings, may_be_empty=True), settings) if below else RunResult((), 0.0)
        return Report(profile, with_costs(result, [profile]), {str(each): Code.of(each) for each in below})


def measurable(settings: Settings, profile: Profile) -> Settings:
    select = settings.extend_select if settings.select else (*settings.extend_select, "all")
    return replace(settings, extend_select=select, ignore=(*settings.ignore, *sorted(profile.idle_rules)))


def within(ran: Ran, orders: Orders) -> Orders | None:
    """Orders for a program that ended too soon, by the best kind of steps it has.

    None where that can't be, or would trace no more steps than were traced.
    """
    if ran.code or ran.is_interrupted:
        return None
    unit = next((kind for kind in KINDS if ran.steps.get(kind, 0) >= LEAST), "")
    fewer = orders.within(unit, ran.steps.get(unit, 0))
    return fewer if unit and fewer.steps > ran.steps[unit] - orders.warm_up - orders.timed else None


def rewound(source: int = 0) -> str:
    """Let standard input begin anew; what to say where it can't, as a pipe's content is gone."""
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(source).st_mode)
        if not is_pipe:
            os.lseek(source, 0, os.SEEK_SET)
    except OSError:  # closed, or a terminal
        return ""
    return ", and finds nothing in its input, a pipe" if is_pipe else ""


def why_not(ran: Ran, orders: Orders) -> str:
    if told := [note for record in ran.records for note in record.notes if not record.marks]:
        return told[-1]
    failed = f"the program {ending(ran.code, '')}" if ran.code and not ran.is_interrupted else ""
    if not ran.steps:
        return failed or (
            "nothing to profile: the program took no step of an optimizer, no batch of a loader, no backward pass, and "
            "called no module"
        )
    seen = ", ".join(count(number, _ONE.get(kind, kind), kind) for kind, number in ran.steps.items())
    timed = list(pairwise(ran.records[0].timed)) if ran.records else []
    known = f"; {count(len(timed), 'step')} took {figure(mean(timed) / 1e6)} ms each" if timed else ""
    how = f"a profile needs {LEAST} steps of a program that comes to its end, or else {orders.needed}"
    return f"{failed or 'the program ended too soon'}, after {seen}{known}: {how}"

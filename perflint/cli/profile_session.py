"""One profile as it was asked for on the command line: its program, its findings, and where it is kept."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from perflint.cli.session import configured
from perflint.documents.disk import write_text
from perflint.engine import UserError
from perflint.engine.results import RunResult, figure
from perflint.profile.record import KINDS, LEAST, Orders, mean
from perflint.profile.report import page
from perflint.profile.result import Code, Profile, keep, with_costs
from perflint.profile.running import Manner, Ran, profile_of, run
from perflint.profile.summary import Report
from perflint.project.figures import FOLDER
from perflint.project.files import discover
from perflint.project.root import project_of
from perflint.project.run import check_files
from perflint.report.words import count
from perflint.verify.messages import BACKWARD, BATCH, CALLS, OPTIMIZER, Kind, Program
from perflint.verify.processes import Guardian
from perflint.verify.running import ending

_PAGE = "profile.html"
_ONE = {OPTIMIZER: "optimizer step", BATCH: "loader batch", BACKWARD: "backward pass", CALLS: "call"}

Tell = Callable[[str], None]


class Session:
    """What was asked: a program by its name and arguments, and the options that were typed; raises UserError."""

    def __init__(self, name: str, arguments: tuple[str, ...], typed: Mapping[str, Any]) -> None:
        self._program = Program.named(name, arguments, Kind.MODULE if typed["is_module"] else Kind.SCRIPT)
        self._typed = typed
        self._start = self._program.start
        self._root = project_of(self._start)
        self.page = self._root / FOLDER / _PAGE

    def report(self, tell: Tell, trace: str) -> Report:
        """Run the program, and keep its profile and the page on it; raises UserError where there is none."""
        typed = self._typed
        orders = Orders(typed["steps"], typed["warm_up"], 2 * typed["steps"], trace=trace)
        ran, profile = self._run(orders, tell)
        if fewer := within(ran, orders):
            parts = f"{fewer.timed} timed, {fewer.steps} traced, behind a warm-up of {fewer.warm_up}"
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
            keep(self._root, profile)  # first: what was seen makes candidates of blocked fixes
            report = self._report(profile, ran)
            write_text(self.page, page(report))
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
        settings = configured(self._start, self._typed).settings
        if not settings.select:  # advice is worth what it was measured to be
            settings = replace(settings, extend_select=(*settings.extend_select, "all"))
        files = {Path(os.path.realpath(path)) for record in ran.records for path in (*record.modules, *profile.files)}
        below = [each for each in sorted(files) if each.is_relative_to(self._root) and each.is_file()]
        shown = [Path(os.path.relpath(each)) for each in below]
        result = check_files(discover(shown, settings, may_be_empty=True), settings) if below else RunResult((), 0.0)
        return Report(profile, with_costs(result, [profile]), {str(each): Code.of(each) for each in below})


def within(ran: Ran, orders: Orders) -> Orders | None:
    """How a program that came to its end too soon can be profiled: by the best kind of steps that it has.

    None where that can't be, or would trace no more steps than were traced.
    """
    if ran.code or ran.is_interrupted:
        return None
    unit = next((kind for kind in KINDS if ran.steps.get(kind, 0) >= LEAST), "")
    fewer = orders.within(unit, ran.steps.get(unit, 0))
    return fewer if unit and fewer.steps > ran.steps[unit] - orders.warm_up - orders.timed else None


def rewound(source: int = 0) -> str:
    """Let standard input begin anew; what to say where it can't, for what came through a pipe is gone."""
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

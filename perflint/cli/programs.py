"""The commands that run the user's program, run, profile, verify and tune: options, what they print, and exit codes."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflint.cli import console, options
from perflint.engine import UserError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from perflint.cli.sessions import VerifySession
    from perflint.engine.rule import Safety
    from perflint.shim.plan import Plan, Program
    from perflint.tune import Trials
    from perflint.verify.recordings import Tell
    from perflint.verify.runs import Course
    from perflint.verify.verdict import Verdict

DONE, UNPROVED, FAILED = 0, 1, 2
_UNITS = {"s": 1, "m": 60, "h": 3600}
_NOT_ASKED: dict[str, Any] = dict.fromkeys(("warm_up", "window", "pairs", "rounds", "horizon"))


def _command(short_help: str) -> Callable[[Callable[..., Any]], click.Command]:
    return click.command(short_help=short_help, context_settings={"allow_interspersed_args": False})


@_command("Run a program with the fixes applied in memory.")
@options.MODULE
@click.option("--dry-run", is_flag=True, help="Print what would be applied, and run nothing.")
@click.option("--tune-loader", is_flag=True, help="Measure how many workers loaders need; later runs have them.")
@click.option("--compile", is_flag=True, help="Compile modules that are called again and again, which may not pay.")
@click.option("--tuned", is_flag=True, help="Run what `perflint tune` has found to be the best, instead of the fixes.")
@click.option("--last", is_flag=True, help="Print the summary of the latest run that was killed, or still goes on.")
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
@options.UNSAFE
@options.SETTINGS
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def run(
    program: tuple[str, ...], is_module: bool, dry_run: bool, last: bool, quiet: bool, **typed: Any
) -> int | Callable[[], None]:
    """Run SCRIPT with ARGS as python would, with the fixes for all files that it can import applied in memory.

    These are the exact and rounding ones, unless --unsafe. With PERFLINT_DISABLE=1 the program runs unchanged.
    """
    from perflint.shim import running
    from perflint.shim.plan import Program, find_program

    if last:
        return _printed(_last_lines(program[0] if program else ""))
    if not program:
        raise click.UsageError("Missing argument 'SCRIPT [ARGS]...'.")
    if not is_module:
        find_program(program[0])
    named = Program(program[0], program[1:], is_module, quiet)
    if dry_run:
        return _printed(running.preview(_plan(named, typed, keeps=False)))
    return running.launcher(named, lambda: _plan(named, typed, keeps=True))


def _plan(program: Program, typed: Mapping[str, Any], *, keeps: bool) -> Plan:
    from perflint.cli.session import configured
    from perflint.project import project_of
    from perflint.project.closure import of_program
    from perflint.shim import running
    from perflint.shim.plan import COMPILE, keep, launched
    from perflint.shim.planning import Project, plan_for

    start, words = program.folder, launched(program.arguments)
    root = project_of(start)
    config, tunes, whole = typed["config"], typed["tune_loader"], (COMPILE,) if typed["compile"] else ()
    closure = of_program(program.name, words, is_module=program.is_module, folder=Path.cwd(), top=root)
    project = Project(start, root, configured(start, typed).settings, config, tunes, whole, closure)
    if typed["tuned"]:
        from perflint.tune import plan_of  # here: few runs are tuned

        return plan_of(project, program.name)
    planned = plan_for(project)
    if keeps:
        running.sweep()
        end = len(sys.argv) - len(program.arguments)  # of the words that asked for the program, up to its name
        is_named = sys.argv[max(end - 1, 0) :] == [program.name, *program.arguments]
        if is_named and sys.argv[1:2] == ["run"] and planned.basis.holds(planned.look):
            keep(sys.argv[2:end], program, planned)
    return planned.plan


def _last_lines(name: str) -> Iterator[str]:
    """Raises UserError where no run is left."""
    from perflint.project import project_of
    from perflint.shim import running
    from perflint.shim.plan import folder_of

    root = project_of(folder_of(name or os.curdir))
    found = running.latest(root)
    if found is None:
        raise UserError(f"{root}: no run goes on there, and none was ended from outside")
    return running.summary(found[1], found[0])


def _printed(lines: Iterable[str]) -> int:
    click.echo("".join(f"{line}\n" for line in lines), nl=False)
    return DONE


@_command("Measure where the time of a program's steps goes.")
@options.MODULE
@click.option("--steps", type=click.IntRange(1, 1000), default=10, show_default=True, help="Steps that are traced.")
@click.option("--warm-up", type=click.IntRange(1), default=10, show_default=True, help="Steps before the first one.")
@click.option("--stop", is_flag=True, help="End the program as soon as its steps are recorded.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; the program prints to standard error.")
@click.option("--trace", type=options.FILE, help="Write a trace of a few steps for Perfetto to this file.")
@click.option("-q", "--quiet", is_flag=True, help="Only the summary.")
@options.SETTINGS
@options.COLOR
@options.PROGRAM
def profile(program: tuple[str, ...], **typed: Any) -> int:
    """Run SCRIPT with ARGS as it is, and say where the time of its steps goes: by regime, by line and by finding.

    After a warm-up some steps are timed, some traced line by line, and a few looked at for shapes; then the program
    goes on to its end, or until Ctrl-C. A step is one of an optimizer, a batch of a loader, a backward pass or, where
    there are none of these, a call of the outermost module. With torchrun all ranks are compared.

    The shares of a step add up to its wall time: overhead (the GPU idles while the host works), input (it waits for a
    loader), host reads (it idles because the host waited for it), compute, memory and communication. The profile is
    kept in .perflint, where `perflint check` finds what each finding costs. Exits with 0, or with 2 if nothing was
    profiled.
    """
    options.check_environment("profile")
    from perflint.cli.sessions import ProfileSession
    from perflint.profile.summary import summary
    from perflint.project.stored import as_json
    from perflint.report.text import Style

    def tell(line: str) -> None:
        if not typed["quiet"]:
            click.echo(f"perflint: {line}", err=True)

    trace: Path | None = typed["trace"]
    session = ProfileSession(program[0], program[1:], typed)
    try:
        report = session.report(tell, str(trace.absolute()) if trace else "")
    except UserError:
        if hint := options.misplaced(program):
            tell(hint)
        raise
    if typed["as_json"]:
        console.emit(as_json(report.profile).encode())
    else:
        style = Style(console.wants_color(typed["color"]), console.width(), typed["quiet"], False)
        console.show(summary(report, style))
    if session.is_kept:
        tell(f"the page is {session.page}")
    return DONE


class _Duration(click.ParamType):  # type: ignore[type-arg]
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value))
        if not found:
            self.fail(f"{value!r} is no time: write 90s, 5m or 1h", param, ctx)
        seconds = float(found[1]) * _UNITS[found[2] or "s"]
        if not seconds:
            self.fail("there is nothing to be measured in no time", param, ctx)
        return seconds


@_command("Prove on this machine that the fixes keep the results and gain time.")
@options.MODULE
@click.option("--call", is_flag=True, help="Call PACKAGE.MODULE:FUNCTION, without arguments, each call a step.")
@click.option(
    "--budget",
    type=_Duration(),
    default="2m",
    help="The time that it may take, after which it says what is known by then; 2m is the default.",
)
@click.option("--warm-up", type=click.IntRange(1), help="Steps before the first that is measured.")
@click.option("--window", type=click.IntRange(1), help="Steps that are timed together.")
@click.option("--pairs", type=click.IntRange(1), help="Windows of each process.")
@click.option("--rounds", type=click.IntRange(3), help="Fresh processes of each variant, at most.")
@click.option("--horizon", type=click.IntRange(2), help="Steps that are compared one by one; 20 is the default.")
@click.option("--compile", is_flag=True, help="Try what compiling modules gains, as `perflint run --compile` does it.")
@click.option("--tune-loader", is_flag=True, help="First measure how many workers loaders need; `fix` writes it.")
@options.RACE
@options.SETTINGS
@options.COLOR
@options.PROGRAM
def verify(program: tuple[str, ...], **typed: Any) -> int:
    """Run SCRIPT with ARGS as it is and with every fix that there is, and compare: same results? faster? by which fix?

    What won is kept in .perflint/verdicts.json, and `perflint fix --apply --verified` applies it. Exits with 0 if the
    program is the same and faster, with 1 if not, with 2 if it could not be run.
    """
    options.check_environment("verify")

    def chosen(*_: object) -> Trials:
        from perflint.shim.plan import COMPILE
        from perflint.tune import Trials

        return Trials((COMPILE,) if typed["compile"] else ())

    return _examined(program, typed, chosen)


def _examined(
    program: tuple[str, ...],
    typed: Mapping[str, Any],
    trials: Callable[[Course, Path, Tell], Trials],
    *,
    allowed: Collection[Safety] | None = None,
    to_do: Callable[[VerifySession, Verdict], str] | None = None,
    tail: Callable[[Verdict], Iterable[str]] | None = None,
) -> int:
    """Verify a program, print the summary, and return the exit code; raises UserError.

    `trials` chooses what is tried besides fixes, of the `allowed` promises. `to_do` says what to do now, and `tail`
    what follows the summary; each class is raced then.
    """
    begin = time.monotonic()  # what is imported here takes its time as well
    from perflint.cli.sessions import VerifySession
    from perflint.engine.rule import Safety
    from perflint.report.text import Style
    from perflint.verify.statistics import Outcome
    from perflint.verify.summary import spent, summary

    def tell(line: str) -> None:
        if not typed["quiet"]:
            click.echo(f"perflint: {time.monotonic() - begin:.0f} s: {line}", err=True)

    warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # torch can do without
    kinds = frozenset(Safety) if allowed is None else allowed
    session = VerifySession(program[0], program[1:], typed, trials, kinds, by_class=tail is not None)
    verdict = session.verdict(tell, begin)
    style = Style(console.wants_color(typed["color"]), console.width(), typed["quiet"], False)
    console.show(summary(verdict, style, to_do=to_do(session, verdict) if to_do else ""))
    for line in tail(verdict) if tail else ():
        console.show(f"{line}\n")
    for line in spent(verdict) if typed["verbose"] else ():
        tell(line)
    tell(f"the report is {session.report}")
    gc.freeze()  # what is loaded by now is left to the end of the process, and not searched for garbage
    if verdict.outcome is Outcome.FAILED:
        if hint := options.misplaced(program):
            tell(hint)
        return FAILED
    least = typed["fail_under"]
    is_enough = least is None or (verdict.speed is not None and verdict.speed.low >= least)
    return DONE if verdict.outcome is Outcome.FASTER and is_enough else UNPROVED


@_command("Race what an expert would try, and keep the best that is proved.")
@options.MODULE
@click.option("--budget", type=_Duration(), default="5m", help="The time that it may take; 5m is the default.")
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["precision", "behaviour"]),
    help="Try what is proved statistically alike only: other number formats, or other random streams.",
)
@click.option("--tune-loader", is_flag=True, help="First measure how many workers loaders need.")
@options.RACE
@options.SETTINGS
@options.COLOR
@options.PROGRAM
def tune(program: tuple[str, ...], allow: tuple[str, ...], **typed: Any) -> int:
    """Race SCRIPT with ARGS against itself with settings and fixes that an expert would try, and keep the best.

    Those are the fixes of findings, the whole step as one CUDA graph, more workers, compiled modules, fused optimizers,
    channels_last, cudnn.benchmark, and with --allow precision TF32 and bfloat16. A profile says which of them may gain.
    `perflint run --tuned SCRIPT` then runs the best, without touching a file. Exits with 0 if the program is the same
    and faster, with 1 if not, with 2 if it could not be run.
    """
    options.check_environment("tune")
    from perflint.engine.rule import Safety
    from perflint.tune import Trials, fresh, keep, ladder, profiled, trials
    from perflint.verify.statistics import Outcome
    from perflint.verify.summary import advice

    allowed = frozenset({Safety.EXACT, Safety.ROUNDING, *map(Safety, allow)})
    chosen = Trials()

    def choose(course: Course, root: Path, tell: Tell) -> Trials:
        nonlocal chosen
        profile = fresh(root, str(course.program))
        if profile is None:
            tell("profiling a few steps")
            profile = profiled(course, root)
        chosen = trials(allowed, profile)
        return chosen

    def to_do(session: VerifySession, verdict: Verdict) -> str:
        if verdict.outcome is not Outcome.FASTER:
            return advice(verdict).replace("Verify again", "Tune again")
        keep(session.root, program[0], verdict.fixes)
        return f"Run it so: perflint run --tuned {'-m ' if typed['is_module'] else ''}{' '.join(program)}"

    def tail(verdict: Verdict) -> list[str]:
        left_out = [f"  {chosen.note}"] if chosen.note else []
        return ["", "best of each class", *(f"  {line}" for line in ladder(verdict, allowed)), *left_out]

    asked = {**_NOT_ASKED, "call": False, **typed}
    return _examined(program, asked, choose, allowed=allowed, to_do=to_do, tail=tail)

"""The command `verify`: its options, what it prints, and the code that it exits with."""

from __future__ import annotations

import gc
import re
import time
import warnings
from typing import TYPE_CHECKING, Any

import click

from perflint.cli import options

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from perflint.cli.verify_session import Session
    from perflint.engine.rule import Safety
    from perflint.tune.trials import Trials
    from perflint.verify.recordings import Tell
    from perflint.verify.runs import Course
    from perflint.verify.verdict import Verdict

PROVED, UNPROVED, FAILED = 0, 1, 2
_UNITS = {"s": 1, "m": 60, "h": 3600}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, such as 90s, 5m or 1h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds of a text."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value))
        if not found:
            self.fail(f"{value!r} is no time: write 90s, 5m or 1h", param, ctx)
        seconds = float(found[1]) * _UNITS[found[2] or "s"]
        if not seconds:
            self.fail("there is nothing to be measured in no time", param, ctx)
        return seconds


@click.command(
    short_help="Prove on this machine that the fixes keep the results and gain time.",
    context_settings={"allow_interspersed_args": False},
)
@options.MODULE
@click.option("--call", is_flag=True, help="Call PACKAGE.MODULE:FUNCTION, without arguments, each call a step.")
@click.option(
    "--budget",
    type=Duration(),
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
@options.SELECTION
@options.JOBS
@options.CACHE
@options.COLOR
@options.PROGRAM
def verify(program: tuple[str, ...], **typed: Any) -> int:
    """Run SCRIPT with ARGS as it is and with every fix that there is, and compare: same results? faster? by which fix?

    What won is kept in .perflint/verdicts.json, and `perflint fix --apply --verified` applies it. Exits with 0 if the
    program is the same and faster, with 1 if not, with 2 if it could not be run.
    """
    from perflint.shim.plan import COMPILE
    from perflint.tune.trials import Trials

    trials = Trials((COMPILE,) if typed["compile"] else ())
    return examined(program, typed, lambda *_: trials)


def examined(
    program: tuple[str, ...],
    typed: Mapping[str, Any],
    trials: Callable[[Course, Path, Tell], Trials],
    *,
    allowed: Collection[Safety] | None = None,
    to_do: Callable[[Session, Verdict], str] | None = None,
    tail: Callable[[Verdict], Iterable[str]] | None = None,
) -> int:
    """Verify a program, print the summary, and return the exit code; raises UserError.

    `trials` chooses what is tried besides fixes; `allowed`: the classes of promises, all of them by default.
    `to_do` says what to do now, and `tail` what comes after the summary; each class is raced then.
    """
    begin = time.monotonic()  # what is imported here takes its time as well
    options.check_environment("verify")
    from perflint.cli import console
    from perflint.cli.verify_session import Session
    from perflint.engine.rule import Safety
    from perflint.report.style import Style
    from perflint.verify.grade import Outcome
    from perflint.verify.summary import spent, summary

    def tell(line: str) -> None:
        if not typed["quiet"]:
            click.echo(f"perflint: {time.monotonic() - begin:.0f} s: {line}", err=True)

    warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # torch can do without
    kinds = frozenset(Safety) if allowed is None else allowed
    session = Session(program[0], program[1:], typed, trials, kinds, by_class=tail is not None)
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
    return PROVED if verdict.outcome is Outcome.FASTER and is_enough else UNPROVED

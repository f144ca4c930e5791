"""The command `tune`: its options, and what it prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perflint.cli import options
from perflint.cli.verify import Duration, examined

if TYPE_CHECKING:
    from pathlib import Path

    from perflint.cli.verify_session import Session
    from perflint.tune.trials import Trials
    from perflint.verify.recordings import Tell
    from perflint.verify.runs import Course
    from perflint.verify.verdict import Verdict

_NOT_ASKED: dict[str, Any] = dict.fromkeys(("warm_up", "window", "pairs", "rounds", "horizon"))


@click.command(
    short_help="Race what an expert would try, and keep the best that is proved.",
    context_settings={"allow_interspersed_args": False},
)
@options.MODULE
@click.option("--budget", type=Duration(), default="5m", help="The time that it may take; 5m is the default.")
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["precision", "behaviour"]),
    help="Try what is proved statistically alike only: other number formats, or other random streams.",
)
@click.option("--tune-loader", is_flag=True, help="First measure how many workers loaders need.")
@options.RACE
@options.SELECTION
@options.JOBS
@options.CACHE
@options.COLOR
@options.PROGRAM
def tune(program: tuple[str, ...], allow: tuple[str, ...], **typed: Any) -> int:
    """Race SCRIPT with ARGS against itself with settings and fixes that an expert would try, and keep the best.

    Those are the fixes of findings, the whole step as one CUDA graph, more workers, compiled modules, fused optimizers,
    channels_last, cudnn.benchmark, and with --allow precision TF32 and bfloat16. A profile says which of them may gain.
    `perflint run --tuned SCRIPT` then runs the best, without touching a file. Exits with 0 if the program is the same
    and faster, with 1 if not, with 2 if it could not be run.
    """
    from perflint.engine.rule import Safety
    from perflint.tune.kept import keep
    from perflint.tune.ladder import ladder
    from perflint.tune.trials import Trials, fresh, trials
    from perflint.verify.grade import Outcome
    from perflint.verify.summary import advice

    allowed = frozenset({Safety.EXACT, Safety.ROUNDING, *map(Safety, allow)})

    chosen = Trials()

    def choose(course: Course, root: Path, tell: Tell) -> Trials:
        nonlocal chosen
        from perflint.tune.profiled import profiled  # here: once its packages are known to be there

        profile = fresh(root, str(course.program))
        if profile is None:
            tell("profiling a few steps")
            profile = profiled(course, root)
        chosen = trials(allowed, profile)
        return chosen

    def to_do(session: Session, verdict: Verdict) -> str:
        if verdict.outcome is not Outcome.FASTER:
            return advice(verdict).replace("Verify again", "Tune again")
        keep(session.root, program[0], verdict.fixes)
        return f"Run it so: perflint run --tuned {'-m ' if typed['is_module'] else ''}{' '.join(program)}"

    def tail(verdict: Verdict) -> list[str]:
        left_out = [f"  {chosen.note}"] if chosen.note else []
        return ["", "best of each class", *(f"  {line}" for line in ladder(verdict, allowed)), *left_out]

    asked = {**_NOT_ASKED, "call": False, **typed}
    return examined(program, asked, choose, allowed=allowed, to_do=to_do, tail=tail)

"""The command `profile`: its options, what it prints, and the code that it exits with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perflint.cli import options

DONE, FAILED = 0, 2


@click.command(
    short_help="Measure where the time of a program's steps goes.",
    context_settings={"allow_interspersed_args": False},
)
@options.MODULE
@click.option("--steps", type=click.IntRange(1, 1000), default=10, show_default=True, help="Steps that are traced.")
@click.option("--warm-up", type=click.IntRange(1), default=10, show_default=True, help="Steps before the first one.")
@click.option("--stop", is_flag=True, help="End the program as soon as its steps are recorded.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; the program prints to standard error.")
@click.option("--trace", type=options.FILE, help="Write a trace of a few steps for Perfetto to this file.")
@click.option("-q", "--quiet", is_flag=True, help="Only the summary.")
@options.SELECTION
@options.JOBS
@options.CACHE
@options.COLOR
@options.PROGRAM
def profile(program: tuple[str, ...], **typed: Any) -> int:
    """Run SCRIPT with ARGS as it is, and say where the time of its steps goes: by regime, by line and by finding.

    Behind a warm-up some steps are timed, some traced line by line, and a few looked at for shapes; then the program
    goes on to its end, or until Ctrl-C. A step is one of an optimizer, a batch of a loader, a backward pass or, where
    there are none of these, a call of the outermost module. With torchrun all ranks are compared.

    The shares of a step add up to its wall time: overhead (the GPU idles while the host works), input (it waits for a
    loader), host reads (it idles because the host waited for it), compute, memory and communication. The profile is
    kept in .perflint, where `perflint check` finds what each finding costs. Exits with 0, or with 2 if nothing was
    profiled.
    """
    options.check_environment("profile")
    from perflint.cli import console
    from perflint.cli.profile_session import Session
    from perflint.engine.errors import UserError
    from perflint.profile.result import as_json
    from perflint.profile.summary import summary
    from perflint.report.style import Style

    def tell(line: str) -> None:
        if not typed["quiet"]:
            click.echo(f"perflint: {line}", err=True)

    trace: Path | None = typed["trace"]
    session = Session(program[0], program[1:], typed)
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
    tell(f"the page is {session.page}")
    return DONE

"""The command `run`: its options, and what it prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from perflint.cli import options

CLEAN = 0


@click.command(
    short_help="Run a program with the fixes applied in memory.", context_settings={"allow_interspersed_args": False}
)
@options.MODULE
@click.option("--dry-run", is_flag=True, help="Print what would be applied, and run nothing.")
@click.option("--tune-loader", is_flag=True, help="Measure how many workers loaders need; later runs have them.")
@click.option("--compile", is_flag=True, help="Compile modules that are called again and again, which may not pay.")
@click.option("--tuned", is_flag=True, help="Run what `perflint tune` has found to be the best, instead of the fixes.")
@click.option("--last", is_flag=True, help="Print the summary of the latest run that was killed, or still goes on.")
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
@options.UNSAFE
@options.SELECTION
@options.JOBS
@options.CACHE
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def run(
    program: tuple[str, ...], is_module: bool, dry_run: bool, last: bool, quiet: bool, **typed: Any
) -> int | Callable[[], None]:
    """Run SCRIPT with ARGS as python would, with the fixes for all files that it can import applied in memory.

    These are the exact and rounding ones, unless --unsafe. With PERFLINT_DISABLE=1 the program runs unchanged.
    """
    from perflint.cli import run_request
    from perflint.shim.running import Program

    if last:
        return _printed(run_request.last_lines(program[0] if program else ""))
    if not program:
        raise click.UsageError("Missing argument 'SCRIPT [ARGS]...'.")
    named = Program(program[0], program[1:], is_module, quiet)
    return _printed(run_request.preview(named, typed)) if dry_run else run_request.launcher(named, typed)


def _printed(lines: Iterable[str]) -> int:
    click.echo("".join(f"{line}\n" for line in lines), nl=False)
    return CLEAN

"""The commands: what they print, and the code that they exit with."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflint import __version__, report
from perflint.cli import about, answers, console, options
from perflint.cli.programs import profile, run, tune, verify
from perflint.engine import UserError, count
from perflint.project import collect_seldom

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perflint.cli.session import Session
    from perflint.documents.disk import Problem
    from perflint.engine.results import RunResult
    from perflint.project.patch import Patch
    from perflint.report.text import Style

CLEAN, FOUND, FAILED = 0, 1, 2
INTERRUPTED = 130  # what shells say of a command that Ctrl-C ended


_OF_RUFF = {  # what those who come from ruff type, and what does it here
    "--fix": "--apply",
    "-e": "--exit-zero",
    "-n": "--no-cache",
    "-w": "--watch",
    "--show-files": "--verbose says which are left out",
    "--show-settings": "perflint config",
    "--target-version": "the Python that runs perflint says which syntax is valid",
    "rule": "perflint explain",
    "linter": "perflint rules",
    "format": "perflint fix --apply",
    "clean": "delete .perflint_cache",
    "version": "perflint --version",
    "--unsafe-fixes": "--unsafe",
    "--fix-only": "perflint fix --apply",
    "--show-fixes": "perflint fix",
    "--preview": "--select ALL reports advice, too",
    "--no-fix": "check writes nothing without --fix",
    "--add-noqa": "--add-ignore",
    "--format": "--output-format",
    "--exclude": "extend-exclude in pyproject.toml",
    "--extend-exclude": "extend-exclude in pyproject.toml",
    "--ignore-noqa": "remove the comments; `unused-ignore` names those that ignore nothing",
}


class _Cli(click.Group):
    """A group whose commands return their exit code, and in which a user's mistake is one line."""

    def main(self, *args: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            outcome = super().main(*args, **extra)
        except (click.ClickException, UserError) as error:
            fail(_message(error) if isinstance(error, click.ClickException) else str(error))
            sys.exit(FAILED)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            fail(f"{error.filename or 'a temporary file'}: {error.strerror}")
            sys.exit(FAILED)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        if not callable(outcome):
            sys.exit(outcome)
        return outcome  # a program, whose errors and interrupts are its own

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click would print a line break
            ctx.exit(INTERRUPTED)


@click.group(cls=_Cli, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> int:
    """Finds what makes a PyTorch program starve its GPU, and rewrites it.

    Exit codes: 0 for clean, 1 for findings (check) or a diff (fix), 2 for a mistake or a file that can't be read.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return FAILED


@cli.command(short_help="Report what is slow.")
@options.PATHS
@options.CHECK
@options.UNSAFE
@options.SETTINGS
@options.FILES
def check(
    paths: tuple[Path, ...],
    write_baseline: Path | None,
    add_ignore: bool,
    fixes: bool,
    diff: bool,
    watch: bool,
    **typed: Any,
) -> int:
    """Report what is slow in PATHS: files, folders, or - for standard input. The default is the working directory.

    Exits with 1 if there are findings, with 2 if there is a file that could not be checked.
    """
    from perflint.cli.session import Session, watched

    collect_seldom()
    session = Session.of(paths, typed)
    accepts = bool(write_baseline or add_ignore)
    refused = {
        "--add-ignore and --write-baseline both accept the findings; choose one": add_ignore and write_baseline,
        "the findings in standard input can't be accepted": session.reads_stdin and accepts,
        "standard input can't be written or watched; `perflint fix -` prints the fixed program": session.reads_stdin
        and (fixes or diff or watch),
        "--unsafe is about what --fix writes; add --fix, or --diff": typed["unsafe"] and not (fixes or diff),
        "findings can't be accepted and fixed, or watched, at once; choose one": accepts and (fixes or diff or watch),
        "--diff shows what --fix would write, and nothing else": diff
        and (fixes or watch or typed["output_file"] or typed["statistics"]),
    }
    name = session.settings.output_format
    refused[f"--statistics has no {name}; choose {', '.join(report.COUNTED)}"] = (
        typed["statistics"] and name not in report.COUNTED
    )
    for reason in (each for each, holds in refused.items() if holds):
        raise UserError(reason)
    if diff:
        return _fix(session, typed, apply=False)
    if accepts:
        result, _ = _run(session, typed)
        if write_baseline:
            return _write_baseline(result, write_baseline)
        return _add_ignores(session.less_baseline(result)[0], session)
    if not (fixes or watch or typed["output_file"]):
        return _check(session, typed, question=answers.asked(session, typed["config"]))
    later = console.changes(lambda: watched(paths, typed)) if watch else ()
    code = _check(session, typed, fixes=fixes)
    for _ in later:
        code = _check_again(paths, typed, fixes=fixes)
    return code


def _check_again(paths: tuple[Path, ...], typed: dict[str, Any], *, fixes: bool) -> int:
    from perflint.cli.session import Session

    try:
        return _check(Session.of(paths, typed), typed, fixes=fixes)
    except UserError as error:
        fail(str(error))
        return FAILED


def _check(
    session: Session, typed: dict[str, Any], *, fixes: bool = False, question: answers.Question | None = None
) -> int:
    failed = _fix(session, typed, apply=True) == FAILED if fixes else False
    result, notes = _run(session, typed)
    result, accepted = session.less_baseline(result)
    code, text = _report(_measured(session, result), session, (*notes, *accepted), typed)
    if question and code != FAILED:
        is_for_humans = session.settings.output_format in report.FOR_HUMANS
        took = f"{result.seconds:.2f} s" if is_for_humans and not typed["quiet"] else ""
        answers.keep(question, text, took, code, is_for_humans=is_for_humans)
    return FAILED if failed else code


@cli.command(short_help="Show or write the fixes.")
@options.PATHS
@options.APPLY
@options.UNSAFE
@options.VERIFIED
@options.EXIT_ZERO
@options.SETTINGS
@options.FILES
def fix(paths: tuple[Path, ...], apply: bool, verified: bool, exit_zero: bool, **typed: Any) -> int:
    """Show as a unified diff how PATHS would be fixed; with --apply, fix them. With - it is a filter.

    Exits with 1 if there is a diff, with 2 if there is a file that could not be read, fixed or written.
    """
    from perflint.cli.session import Session

    collect_seldom()
    session = Session.of(paths, typed)
    if session.reads_stdin:
        if verified:
            raise UserError("what was verified are files; standard input is none")
        patch, data = session.fix_stdin(sys.stdin.buffer.read())
        console.emit(data)
        return _tell_fixes([patch], (), _style(typed, err=True), written=True)
    return _fix(session, {**typed, "exit_zero": exit_zero}, apply=apply, verified=verified)


def _fix(session: Session, typed: dict[str, Any], *, apply: bool, verified: bool = False) -> int:
    from perflint.project.patch import patch_files, write_all

    won = session.won() if verified else None
    session = session.selecting(won.rules) if won else session
    discovery, notes = session.discover()
    if won and won.settings:
        notes = (*notes, f"kept, but in no file: {', '.join(won.settings)}; `perflint run --tuned` makes them")
    with console.progress(not typed["quiet"]) as progress:
        patches = patch_files(discovery, session.settings, progress, won.places if won else None)
    errors: tuple[str, ...] = ()
    if apply:
        patches, errors = write_all(patches)
    else:
        _show_diffs(patches, typed)
    code = _tell_fixes(patches, errors, _style(typed, notes, err=not apply), written=apply)
    return CLEAN if typed["exit_zero"] and code == FOUND else code


_ABOUT = (about.explain, about.rules, about.docs, about.config, about.completion, about.server)
for command in (*_ABOUT, run, verify, profile, tune):
    cli.add_command(command)


def _run(session: Session, typed: dict[str, Any]) -> tuple[RunResult, tuple[str, ...]]:
    from perflint.project.run import check_files
    from perflint.report import WITH_EDITS

    edits = session.settings.output_format in WITH_EDITS
    if session.reads_stdin:
        return session.check_stdin(sys.stdin.buffer.read(), edits=edits), ()
    discovery, notes = session.discover()
    with console.progress(not typed["quiet"]) as progress:
        return check_files(discovery, session.settings, edits=edits, progress=progress), notes


def _measured(session: Session, result: RunResult) -> RunResult:
    from perflint.project.stored import PROFILES, VERDICTS, nearest

    root = session.settings.root
    if nearest(root.resolve(), VERDICTS):  # mostly there is none: spare the import
        from perflint.verify.verdicts import with_gains

        try:
            result = with_gains(result, root)
        except UserError as error:  # findings count without them, too
            fail(f"no gains are shown: {error}")
    if nearest(root.resolve(), PROFILES):
        from perflint.profile.result import with_known_costs

        result = with_known_costs(result, root)
    return result


def _report(result: RunResult, session: Session, notes: tuple[str, ...], typed: dict[str, Any]) -> tuple[int, str]:
    name, file = session.settings.output_format, typed["output_file"]
    render = report.render_statistics if typed["statistics"] else report.render
    text = render(name, result, _style(typed, notes, to_file=bool(file)))
    if file:
        console.write_file(file, text)
        if not typed["quiet"]:
            click.echo(f"{count(len(result.diagnostics), 'finding')}: {file}", err=True)
    elif name in report.FOR_HUMANS:
        console.show(text)
    else:
        console.emit(text.encode())
    _tell_defects(entry.problem for entry in result.problems)
    if result.problems:
        return FAILED, text
    return FOUND if result.diagnostics and not typed["exit_zero"] else CLEAN, text


def _write_baseline(result: RunResult, path: Path) -> int:
    from perflint.engine import baseline

    number = baseline.write(path, result)
    click.echo(f"Accepted {count(number, 'finding')}: {path}")
    return _tell_problems(result)


def _add_ignores(result: RunResult, session: Session) -> int:
    from perflint.cli.session import add_ignores

    ignored = add_ignores(result, session.settings)
    click.echo(f"Added comments for {count(ignored.findings, 'finding')} to {count(ignored.files, 'file')}.")
    for error in ignored.errors:
        fail(error)
    return max(_tell_problems(result), FAILED if ignored.errors else CLEAN)


def _tell_problems(result: RunResult) -> int:
    from perflint.report.text import problem_place

    for file in result.problems:
        fail(f"{problem_place(file)}: {file.problem.message if file.problem else ''}")
    _tell_defects(file.problem for file in result.problems)
    return FAILED if result.problems else CLEAN


def _show_diffs(patches: Sequence[Patch], typed: dict[str, Any]) -> None:
    from perflint.cli.session import colored
    from perflint.project.patch import readable_diff, unified_diff

    style = _style(typed)
    for patch in patches:
        if style.color:
            console.show(colored(readable_diff(patch), style))
        else:
            console.emit(unified_diff(patch))


def _tell_fixes(patches: Sequence[Patch], errors: Sequence[str], style: Style, *, written: bool) -> int:
    from perflint.cli.session import fix_report

    # What standard output holds is a diff, or the filtered program; a report stands beside it.
    console.show(fix_report(patches, style, applied=written, errors=errors), err=True)
    _tell_defects(patch.problem for patch in patches)
    if errors or any(patch.problem for patch in patches):
        return FAILED
    return CLEAN if written or not any(patch.changed for patch in patches) else FOUND


def _tell_defects(problems: Iterable[Problem | None]) -> None:
    for traceback in sorted({problem.traceback for problem in problems if problem and problem.traceback}):
        console.show(traceback, err=True)


def _style(typed: dict[str, Any], notes: tuple[str, ...] = (), *, err: bool = False, to_file: bool = False) -> Style:
    from perflint.report.text import Style

    color = not to_file and console.wants_color(typed["color"], err=err)
    return Style(color, None if to_file else console.width(), typed["quiet"], typed["verbose"], notes)


def _message(error: click.ClickException) -> str:
    message = error.format_message()
    if isinstance(error, click.NoSuchOption) and (instead := _instead_of(error.option_name)):
        return f"{message.partition(' (')[0].partition(' Did')[0]} Here: {instead}"
    if not message.startswith("No such command '"):
        return message
    word = message.split("'")[1]
    if word in _OF_RUFF:
        return f"No such command '{word}'. Here: {_OF_RUFF[word]}"
    return f"{message} To check it: perflint check {word}" if Path(word).exists() else message


def _instead_of(option: str) -> str:
    of_check = any(option in each.opts for each in check.params)
    return _OF_RUFF.get(option, "`perflint check` has it" if of_check else "")


def fail(message: str) -> None:
    console.show(f"perflint: {' '.join(message.split())}\n", err=True)

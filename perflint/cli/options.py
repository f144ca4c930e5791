"""The options that commands share, and how what was typed becomes settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from perflint.engine import UserError
from perflint.report import FORMATS

Command = TypeVar("Command", bound=Callable[..., Any])

_LISTS = ("select", "extend-select", "ignore", "per-file-ignores")
_SETTINGS = (*_LISTS, "force-exclude", "jobs", "cache-dir", "unsafe", "output-format", "baseline")


def complete_rule(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from perflint.engine.catalogue import rules_by_name

    return _completions("", incomplete, rules_by_name())


def complete_selectors(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from perflint.engine.catalogue import rules_by_name
    from perflint.engine.rule import GROUPS

    before, comma, last = incomplete.rpartition(",")
    return _completions(before + comma, last, ("all", *GROUPS, *rules_by_name()))


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _completions("", incomplete, documents())


def documents() -> dict[str, str]:
    from importlib.resources import files

    found = sorted((files("perflint") / "docs").iterdir(), key=lambda each: each.name)
    return {each.name[:-3]: each.read_text(encoding="utf-8") for each in found if each.name.endswith(".md")}


def _completions(prefix: str, incomplete: str, words: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(prefix + word) for word in words if word.startswith(incomplete)]


def _all_of(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


_NEEDED = ("torch", "psutil", "jinja2")  # by commands that run programs step by step
FILE = click.Path(path_type=Path, dir_okay=False)
_RULES: dict[str, Any] = {"multiple": True, "shell_complete": complete_selectors, "metavar": "RULES"}

_ANY = click.Path(path_type=Path, allow_dash=True, readable=False)  # what can't be read is a problem of that file
PATHS = click.argument("paths", nargs=-1, type=_ANY, metavar="[PATHS]...")
REPORT = _all_of(
    click.option("--output-format", type=click.Choice(FORMATS), help="How to report; full is the default."),
    click.option("--baseline", type=FILE, help="Leave out the findings that this file holds."),
)
UNSAFE = click.option(
    "--unsafe", is_flag=True, help="Also fix where randomness, precision, dependencies or style change."
)
VERIFIED = click.option("--verified", is_flag=True, help="Just the fixes that `perflint verify` has found worth it.")
EXIT_ZERO = click.option("--exit-zero", is_flag=True, help="Exit with 0 instead of 1.")
APPLY = click.option(
    "--apply/--diff", default=False, help="Write the fixed files, or show the difference, which is the default."
)
CHECK = _all_of(
    REPORT,
    click.option("-o", "--output-file", type=FILE, help="Write the report to this file."),
    click.option("--statistics", is_flag=True, help="Count the findings of each rule instead of showing them."),
    EXIT_ZERO,
    click.option("--fix", "fixes", is_flag=True, help="Write the fixes first, as `fix --apply` does; report the rest."),
    click.option("--diff", is_flag=True, help="Show what --fix would write, as `fix` does, and report nothing."),
    click.option("--watch", is_flag=True, help="Check again whenever one of the files changes, until Ctrl-C."),
    click.option("--write-baseline", type=FILE, help="Accept today's findings: put them into this file."),
    click.option("--add-ignore", is_flag=True, help="Accept today's findings: give each a comment that ignores it."),
)
SETTINGS = _all_of(
    click.option("--select", **_RULES, help="Only these rules or groups, with commas between, whatever is configured."),
    click.option("--extend-select", **_RULES, help="These as well."),
    click.option("--ignore", **_RULES, help="Not these."),
    click.option(
        "--per-file-ignores",
        multiple=True,
        metavar="PATTERN:RULE",
        help="Not this rule or group in files that match; with commas between, or repeated.",
    ),
    click.option("--force-exclude", is_flag=True, help="Leave out excluded files even when they are named."),
    click.option("--isolated", is_flag=True, help="Read no configuration file."),
    click.option("--config", type=FILE, help="Read this configuration file instead of the nearest one."),
    click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes; by default one per core."),
    click.option("--no-cache", is_flag=True, help="Neither read nor write the cache."),
    click.option("--cache-dir", type=click.Path(path_type=Path, file_okay=False), help="Where the cache lives."),
)
COLOR = click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
FILES = _all_of(
    click.option("--stdin-filename", type=click.Path(path_type=Path), help="The file that standard input stands for."),
    COLOR,
    click.option("-q", "--quiet", is_flag=True, help="No summary."),
    click.option("-v", "--verbose", is_flag=True, help="Also say which files and rules were left out, and why."),
)
MODULE = click.option("-m", "is_module", is_flag=True, help="Run a module, as python -m does.")
PROGRAM = click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
RACE = _all_of(
    click.option(
        "--fail-under",
        type=click.FloatRange(min=0, min_open=True),
        metavar="RATIO",
        help="Exit with 1 unless the program is so many times as fast.",
    ),
    click.option(
        "--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="The seed that random numbers begin with."
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress, only the result."),
    click.option("-v", "--verbose", is_flag=True, help="Also say where the time went."),
)


def check_environment(command: str) -> None:
    """Raises UserError."""
    if sys.platform == "win32":
        raise UserError(f"{command} doesn't run on Windows: run it in WSL")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        where = "into the environment of your program, in a clone of perflint"
        raise UserError(f"{command} needs {', '.join(missing)}: pip install '.[gpu]' {where}")


def overrides(typed: Mapping[str, Any]) -> dict[str, object]:
    given: dict[str, object] = {}
    for key in _SETTINGS:
        value = typed.get(key.replace("-", "_"))
        if value:
            given[key] = _words(key, value) if key in _LISTS else value
    if "per-file-ignores" in given:
        given["per-file-ignores"] = _by_pattern(given["per-file-ignores"])
    if typed.get("no_cache"):
        given["cache"] = False
    return given


def _words(key: str, typed: Iterable[str]) -> list[str]:
    words = [word.strip() for text in typed for word in text.split(",") if word.strip()]
    if not words:
        raise click.BadParameter("names no rule", param_hint=f"--{key}")
    return words


def _by_pattern(pairs: object) -> dict[str, list[str]]:
    assert isinstance(pairs, list)
    table: dict[str, list[str]] = {}
    for pair in pairs:
        pattern, colon, selector = pair.rpartition(":")
        if not colon or not pattern:
            raise click.BadParameter(f"expected PATTERN:RULE, got {pair!r}", param_hint="--per-file-ignores")
        table.setdefault(pattern, []).append(selector)
    return table


def misplaced(program: Sequence[str]) -> str:
    own = {name for each in click.get_current_context().command.params for name in each.opts}
    name, *arguments = program
    given = [each for each in arguments if each.startswith("--") and each.partition("=")[0] in own]
    went = "and so went to it: perflint's own options stand in front of it"
    return f"{' '.join(given)} stood behind {name}, {went}" if given else ""

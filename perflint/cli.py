"""The commands: what they print, and the code that they exit with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflint import __version__, options
from perflint.__main__ import INTERRUPTED
from perflint.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflint.config import Resolved
    from perflint.rule import Rule

CLEAN, FOUND, FAILED = 0, 1, 2


class _Cli(click.Group):
    """A group whose commands return their exit code, and in which a user's mistake is one line."""

    def main(self, *args: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            sys.exit(super().main(*args, **extra))
        except (click.ClickException, UserError) as error:
            message = error.format_message() if isinstance(error, click.ClickException) else str(error)
            _fail(" ".join(message.split()))
            sys.exit(FAILED)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(INTERRUPTED)


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


@cli.command()
@click.argument("rule", required=False, shell_complete=options.complete_rule)
@options.COLOR
def explain(rule: str | None, color: str) -> int:
    """Explain a rule: the defect, an example, how safe its fix is and how fast it was measured to be.

    Without RULE: the rules by group, and the words used for severity and safety.
    """
    from perflint import console, explain
    from perflint.catalogue import rules_by_name
    from perflint.config_values import unknown

    known = rules_by_name()
    if rule and rule not in known:
        raise UserError(unknown("rule", rule, known))
    text = explain.page(known[rule]) if rule else explain.overview(known.values())
    console.show_markdown(text, console.wants_color(color))
    return CLEAN


@cli.command()
@click.option("--output-format", type=click.Choice(["text", "markdown", "json"]), default="text", show_default=True)
def rules(output_format: str) -> int:
    """List the rules."""
    from perflint import console, explain
    from perflint.catalogue import all_rules

    formats = {"markdown": explain.as_markdown, "json": explain.as_json}
    if output_format in formats:
        console.emit(formats[output_format](all_rules()).encode())
    else:
        console.show(explain.as_text(all_rules(), console.width() or 120))
    return CLEAN


@cli.command()
@options.PATHS
@options.SELECTION
@options.EFFORT
@options.FORMAT
@options.BASELINE
@options.UNSAFE
def config(paths: tuple[Path, ...], **typed: Any) -> int:
    """Show every setting for PATHS, and where it came from."""
    from perflint import console
    from perflint.config_listing import listing

    console.show(listing(_resolve(paths, typed)))
    return CLEAN


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the script that lets SHELL complete commands, options and rules.

    For bash: `eval "$(perflint completion bash)"` in ~/.bashrc; zsh likewise; fish: save it as
    ~/.config/fish/completions/perflint.fish.
    """
    from click.shell_completion import get_completion_class

    machinery = get_completion_class(shell)
    assert machinery is not None
    click.echo(machinery(cli, {}, "perflint", "_PERFLINT_COMPLETE").source())
    return CLEAN


def _resolve(paths: Sequence[Path], typed: dict[str, Any]) -> Resolved:
    """The settings for `paths`: the configuration is that of the folder which holds them all."""
    import os

    from perflint.config import load

    folders = [path if path.is_dir() else path.parent for path in paths]
    start = Path(os.path.commonpath([folder.resolve() for folder in folders])) if folders else Path.cwd()
    return load(start, isolated=typed["isolated"], config_path=typed["config"], overrides=options.overrides(typed))


def _selected(resolved: Resolved) -> tuple[Rule, ...]:
    from perflint.catalogue import selected_rules

    rules = selected_rules(resolved.settings.selection)
    if not rules:
        raise UserError("the selection leaves no rule to check; `perflint config` shows where it comes from")
    return rules


def _fail(message: str) -> None:
    from perflint import console

    console.show(f"perflint: {message}\n", err=True)

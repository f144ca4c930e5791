"""Commands about perflint itself: its rules, settings and shell completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perflint.cli import options
from perflint.engine.errors import UserError


@click.command(short_help="Explain a rule.")
@click.argument("rule", required=False, shell_complete=options.complete_rule)
@options.COLOR
def explain(rule: str | None, color: str) -> int:
    """Explain a rule: the defect, an example, how safe its fix is and how fast it was measured to be.

    Without RULE: the rules by group, and the words used for severity and safety.
    """
    from perflint.cli import console, explain
    from perflint.engine.catalogue import rules_by_name
    from perflint.project.config_values import unknown

    known = rules_by_name()
    if rule and rule not in known:
        raise UserError(unknown("rule", rule, known))
    text = explain.page(known[rule]) if rule else explain.overview(known.values())
    console.show_markdown(text, console.wants_color(color))
    return 0


@click.command()
@click.option("--output-format", type=click.Choice(["text", "markdown", "json"]), default="text", show_default=True)
def rules(output_format: str) -> int:
    """List the rules."""
    from perflint.cli import console, explain
    from perflint.engine.catalogue import all_rules

    formats = {"markdown": explain.as_markdown, "json": explain.as_json}
    if output_format in formats:
        console.emit(formats[output_format](all_rules()).encode())
    else:
        console.show(explain.as_text(all_rules(), console.width() or 120))
    return 0


@click.command(short_help="Show the settings and their origins.")
@options.PATHS
@options.SELECTION
@options.JOBS
@options.CACHE
@options.REPORT
@options.UNSAFE
def config(paths: tuple[Path, ...], **typed: Any) -> int:
    """Show every setting for PATHS, and where it came from."""
    from perflint.cli import console
    from perflint.cli.config_listing import listing
    from perflint.cli.session import resolve

    console.show(listing(resolve(paths, typed)))
    return 0


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the script that lets SHELL complete commands, options and rules.

    For bash: `eval "$(perflint completion bash)"` in ~/.bashrc; zsh likewise; fish: save it as
    ~/.config/fish/completions/perflint.fish.
    """
    from click.shell_completion import get_completion_class

    machinery = get_completion_class(shell)
    assert machinery is not None
    click.echo(machinery(ctx.find_root().command, {}, "perflint", "_PERFLINT_COMPLETE").source())
    return 0

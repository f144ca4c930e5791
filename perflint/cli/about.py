"""Commands about perflint itself: its rules, settings and shell completion."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflint.cli import console, options
from perflint.engine import UserError

if TYPE_CHECKING:
    from perflint.project.settings import Resolved

_UNSET = {
    "jobs": "one per core",
    "cache-dir": ".perflint_cache in that folder",
    "baseline": "none",
}


@click.command(short_help="Explain a rule.")
@click.argument("rule", required=False, shell_complete=options.complete_rule)
@options.COLOR
def explain(rule: str | None, color: str) -> int:
    """Explain a rule: the defect, an example, how safe its fix is and how fast it was measured to be.

    Of a group: its rules. Without RULE: the rules by group.
    """
    from perflint import report
    from perflint.engine.catalogue import rules_by_name
    from perflint.project.settings import unknown

    known = rules_by_name()
    grouped = [each for each in known.values() if rule in (None, each.group)]
    if rule and rule not in known and not grouped:
        raise UserError(unknown("rule", rule, known))
    text = report.page(known[rule]) if rule in known else report.overview(grouped)
    console.show_markdown(text, console.wants_color(color))
    return 0


@click.command(short_help="Show a document.")
@click.argument("topic", required=False, shell_complete=options.complete_topic)
@options.COLOR
def docs(topic: str | None, color: str) -> int:
    """Show a document of perflint.

    Without TOPIC: what there is to read.
    """
    from perflint.project.settings import unknown

    known = options.documents()
    if topic and topic not in known:
        raise UserError(unknown("topic", topic, known))
    console.show_markdown(known[topic] if topic else _titles(known), console.wants_color(color))
    return 0


@click.command()
@click.option("--output-format", type=click.Choice(["text", "markdown", "json"]), default="text", show_default=True)
def rules(output_format: str) -> int:
    """List the rules."""
    from perflint import report
    from perflint.engine.catalogue import all_rules

    formats = {"markdown": report.as_markdown, "json": report.as_json}
    if output_format in formats:
        console.emit(formats[output_format](all_rules()).encode())
    else:
        console.show(report.as_text(all_rules(), console.width() or 120))
    return 0


@click.command(short_help="Show the settings and their origins.")
@options.PATHS
@options.SETTINGS
@options.REPORT
@options.UNSAFE
def config(paths: tuple[Path, ...], **typed: Any) -> int:
    """Show every setting for PATHS, and where it came from."""
    from perflint.cli.session import resolve

    console.show(_listing(resolve(paths, typed)))
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


@click.command(short_help="Serve an editor.")
def server() -> int:
    """Speak the language server protocol over standard input and output, for editors.

    Findings appear as you type, fixes as code actions, the pages of rules at a hover: `perflint docs editors`.
    """
    try:
        from perflint.server import editor
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is missing: pip install '.[server]' in a clone of perflint") from None
    editor.server().start_io()
    return 0


def _titles(documents: Mapping[str, str]) -> str:
    titles = ((topic, text.partition("\n")[0].removeprefix("# ")) for topic, text in documents.items())
    lines = [f"- `perflint docs {topic}`: {title}" for topic, title in titles]
    return "\n".join(["# Documents", "", *lines, "", "`perflint explain RULE` shows the page of a rule."]) + "\n"


def _listing(resolved: Resolved) -> str:
    lines = list(_lines(resolved))
    column = min(max((len(line) for line, origin in lines if origin), default=0), 60)
    text = "".join(f"{line:<{column}}  # {origin}\n" if origin else f"{line}\n" for line, origin in lines)
    return f"# patterns and relative paths start from {resolved.settings.root}\n{text}"


def _lines(resolved: Resolved) -> Iterator[tuple[str, str]]:
    from perflint.project.settings import READERS

    for key in READERS:
        value = getattr(resolved.settings, key.replace("-", "_"))
        line = (
            f"# {key}: {_UNSET[key]}"
            if value is None
            else f"{key} = {_table(value) if key == 'per-file-ignores' else _toml(value)}"
        )
        yield line, resolved.origins[key]
    for name, given in resolved.settings.rules.items():
        yield "", ""
        yield f"[rules.{name}]", ""
        for key, value in given.items():
            yield f"{key} = {_toml(value)}", resolved.origins[f"rules.{name}.{key}"]


def _table(pairs: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    return f"{{ {', '.join(f'{_toml(pattern)} = {_toml(names)}' for pattern, names in pairs)} }}" if pairs else "{}"


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)

"""The command `perflint server`."""

from __future__ import annotations

import click

from perflint.engine.errors import UserError


@click.command(short_help="Serve an editor.")
def server() -> int:
    """Speak the language server protocol over standard input and output, for editors.

    Findings appear as you type, fixes as code actions, the pages of rules at a hover: `perflint docs editors`.
    """
    try:
        from perflint.server import editor
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is missing: pip install pygls") from None
    editor.server().start_io()
    return 0

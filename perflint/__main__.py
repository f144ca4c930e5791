"""Runs the command line: `perflint`, or `python -m perflint`."""

from __future__ import annotations

import sys
from collections.abc import Callable


def main() -> None:
    """Run the command line and exit, or run the program that it was asked to run."""
    from perflint.errors import UserError

    try:
        program = _known(sys.argv) or _asked_for()
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        program()
    except UserError as error:
        from perflint.cli import FAILED, fail

        fail(str(error))
        sys.exit(FAILED)


def _known(argv: list[str]) -> Callable[[], None] | None:
    """The program that is asked for by words that asked for one before: it starts without the command line's import."""
    if argv[1:2] != ["run"]:
        return None
    from perflint.shim.receipts import find
    from perflint.shim.running import launcher

    found = find(argv[2:])
    return launcher(found[0], lambda: found[1]) if found else None


def _asked_for() -> Callable[[], None]:
    from perflint.cli import cli

    program: Callable[[], None] = cli(prog_name="perflint")
    return program


if __name__ == "__main__":
    main()

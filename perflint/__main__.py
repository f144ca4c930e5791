"""Runs the command line: `perflint`, or `python -m perflint`."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Run the command line and exit, or run the program that it was asked to run."""
    folder = _folder()
    sys.path[: len(folder)] = []
    try:
        from perflint.engine import UserError

        program = _known(sys.argv) or _asked_for()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        sys.path[:0] = folder
    try:
        program()
    except UserError as error:
        from perflint.cli.commands import FAILED, fail

        fail(str(error))
        sys.exit(FAILED)


def _folder() -> list[str]:
    """The working folder where `python -m` has put it in sys.path: what we import is not to come from there.

    Unless we do ourselves, as processes that we start have to find us there.
    """
    if __name__ != "__main__" or getattr(sys.flags, "safe_path", False):
        return []
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # without pathlib
    try:
        here = os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return []
    return [each for each in sys.path[:1] if each in ("", here) and here != ours]


def _known(argv: list[str]) -> Callable[[], None] | None:
    """The program that is asked for by words that asked for one before: it starts without the command line's import.

    What was checked before is answered at once.
    """
    if argv[1:2] == ["check"]:
        from perflint.cli.answers import answer

        if (code := answer()) is not None:
            sys.exit(code)
    if argv[1:2] != ["run"]:
        return None
    from perflint.shim.plan import find
    from perflint.shim.running import launcher

    found = find(argv[2:])
    return launcher(found[0], lambda: found[1]) if found else None


def _asked_for() -> Callable[[], None]:
    from perflint.cli.commands import cli

    program: Callable[[], None] = cli(prog_name="perflint")
    return program


if __name__ == "__main__":
    main()

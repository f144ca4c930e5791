"""Runs the command line: `perflint`, or `python -m perflint`."""

import sys

INTERRUPTED = 130  # what shells say of a command that Ctrl-C ended


def main() -> None:
    """Run the command line and exit."""
    try:
        from perflint.cli import cli

        cli(prog_name="perflint")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()

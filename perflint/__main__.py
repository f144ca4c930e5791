"""Runs the command line: `perflint`, or `python -m perflint`."""

import sys


def main() -> None:
    """Run the command line and exit, or run the program that it was asked to run."""
    try:
        from perflint.cli import cli
    except KeyboardInterrupt:
        sys.exit(130)
    program = cli(prog_name="perflint")
    program()


if __name__ == "__main__":
    main()

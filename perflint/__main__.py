"""Runs the command line: `perflint`, or `python -m perflint`."""

import sys


def main() -> None:
    """Run the command line and exit."""
    try:
        from perflint.cli import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli(prog_name="perflint")


if __name__ == "__main__":
    main()

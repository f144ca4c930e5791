"""Rules of other distributions are found by their entry points."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RULE = '''"""Finds nothing.

## What it does
## Why it is slow
## Example
## Use instead
## Fix safety
## Measured
"""

from perflint.engine.rule import Rule


class Nothing(Rule):
    group = "sync"

    def check(self, program, options):
        return iter(())
'''


def install(site: Path, entry_points: str) -> Path:
    """Put a distribution into the folder `site`, with a package of one rule."""
    (site / "theirs").mkdir(parents=True)
    (site / "theirs" / "__init__.py").touch()
    (site / "theirs" / "their_rule.py").write_text(RULE)
    (site / "theirs-1.dist-info").mkdir()
    (site / "theirs-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (site / "theirs-1.dist-info" / "entry_points.txt").write_text(entry_points)
    return site


def rules(site: Path) -> list[str]:
    """The names of the rules where `site` is on the path, in an interpreter of its own: they are found but once."""
    code = "from perflint.engine.catalogue import all_rules; print(*(rule.name for rule in all_rules()))"
    script = f"import sys; sys.path.append({str(site)!r}); {code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_a_distribution_adds_its_package_of_rules(tmp_path: Path) -> None:
    site = install(tmp_path / "site", "[perflint.rules]\ntheirs = theirs\n")
    assert "their-rule" in rules(site)


def test_other_entry_points_add_nothing(tmp_path: Path) -> None:
    site = install(tmp_path / "site", "[console_scripts]\ntheirs = theirs:main\n")
    assert "their-rule" not in rules(site)

"""The folder in which a project's caches are kept."""

from pathlib import Path

FOLDER = ".perflint_cache"

_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file marks a cache of perflint's, see https://bford.info/cachedir/\n"
)


def make(folder: Path) -> None:
    """Make the cache `folder` if it is not there, marked as one for git and for backups; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        (folder / ".gitignore").write_text("*\n")
        (folder / "CACHEDIR.TAG").write_text(_TAG)

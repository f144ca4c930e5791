"""The settings of a project, as data; `perflint.project.config` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perflint.engine.rule import OptionValue

if TYPE_CHECKING:
    from perflint.engine.catalogue import Selection

_INCLUDE = ("*.py", "*.pyw", "*.ipynb")
_EXCLUDE = (
    *(".git/", ".hg/", ".svn/", ".bzr/", ".jj/", ".venv/", "venv/", "site-packages/", "__pypackages__/"),
    *("__pycache__/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".pytype/", ".hypothesis/", ".perflint_cache/"),
    *(".tox/", ".nox/", ".eggs/", "*.egg-info/", ".direnv/", ".pants.d/", "buck-out/", "build/", "_build/", "dist/"),
    *("node_modules/", ".ipynb_checkpoints/"),
)


@dataclass(frozen=True)
class Settings:
    """Every setting; `root` is the folder that patterns and relative paths start from.

    `rules` holds the options of each rule that has any, with the defaults filled in.
    """

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = _EXCLUDE
    extend_exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = _INCLUDE
    respect_gitignore: bool = True
    force_exclude: bool = False
    jobs: int | None = None
    cache: bool = True
    cache_dir: Path | None = None
    unsafe: bool = False
    output_format: str = "full"
    baseline: Path | None = None
    rules: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    root: Path = field(default_factory=Path.cwd)

    @property
    def selection(self) -> Selection:
        """Which rules are on."""
        from perflint.engine.catalogue import Selection

        return Selection(self.select, self.extend_select, self.ignore)

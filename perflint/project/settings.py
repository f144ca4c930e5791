"""The settings of a project, as data; `perflint.project.config` reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perflint.engine.catalogue import rules_by_name, selected_rules
from perflint.engine.errors import UserError
from perflint.engine.rule import OptionValue, Rule, Severity
from perflint.project.exclude import layer

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


class RulesByFile:
    """The rules that settings leave on, and those of them that `per-file-ignores` leave on in a file.

    Raises UserError where no rule is on at all, which must not pass for a clean run.
    """

    def __init__(self, settings: Settings) -> None:
        self.selected = selected_rules(settings.selection)
        if not self.selected:
            raise UserError("no rule is on: everything selected is also ignored; `perflint config` shows where")
        root = settings.root.resolve()
        try:
            self._off = [(layer([pattern], root, ""), words) for pattern, words in settings.per_file_ignores]
        except ValueError as error:
            raise UserError(f"per-file-ignores: {error}") from error

    def at(self, path: Path) -> tuple[Rule, ...]:
        """The rules that are on in the file at `path`."""
        if not self._off:
            return self.selected
        real = path.resolve()
        off = {word for pattern, words in self._off if pattern.covers(real) for word in words}
        return tuple(rule for rule in self.selected if off.isdisjoint(("all", rule.group, rule.name)))


def reasons_off(settings: Settings) -> Iterator[str]:
    """A line for each rule that is off, with the reason."""
    on = {rule.name for rule in selected_rules(settings.selection)}
    for rule in rules_by_name().values():
        if rule.name not in on:
            yield f"{rule.name} is off: {_reason(rule, settings)}"


def _reason(rule: Rule, settings: Settings) -> str:
    words = ("all", rule.group, rule.name)
    asked_for = any(word in (*settings.select, *settings.extend_select) for word in words)
    if not asked_for and settings.select:
        return "it is not selected"
    if not asked_for and rule.severity is Severity.ADVICE:
        return "it is advice, which must be selected"
    return f"it is ignored, as {next(word for word in reversed(words) if word in settings.ignore)}"

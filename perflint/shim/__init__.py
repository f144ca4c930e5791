"""Runs programs with the fixes applied in memory: the import hook, the launcher, and what they report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflint.shim.running import Run


@contextmanager
def installed(
    root: Path | str = ".", *, select: Sequence[str] = (), ignore: Sequence[str] = (), unsafe: bool = False
) -> Iterator[Run]:
    """Patch what is imported from the project at `root` inside the block, here and in child processes.

    `select` and `ignore` name rules or groups as for `perflint run`, on top of the project's configuration. What was
    imported stays patched. Raises UserError for an unknown rule or folder, and an unreadable configuration.
    """
    from perflint.engine import UserError
    from perflint.project.settings import load  # here: this package is imported by every process of a run, as it starts
    from perflint.shim.planning import Project, plan_for
    from perflint.shim.running import begin

    given = {"select": list(select), "ignore": list(ignore), "unsafe": unsafe}
    folder = Path(root).resolve()
    if not folder.is_dir():
        raise UserError(f"{root}: there is no such folder")
    settings = load(folder, overrides={name: value for name, value in given.items() if value}).settings
    run = begin(plan_for(Project(folder, folder, settings)).plan)
    try:
        yield run
    finally:
        run.end()

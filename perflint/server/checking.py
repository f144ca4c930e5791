"""Checks what an editor holds: one text in the project that lies around it on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perflint.analysis.links import ALONE, Context
from perflint.documents.disk import Unreadable
from perflint.documents.document import decode
from perflint.engine.check import check_bytes
from perflint.engine.results import FileResult, RunResult
from perflint.profile.costs import with_known_costs
from perflint.project.config import COMMAND_LINE, DEFAULT, load
from perflint.project.files import discover, forced_out
from perflint.project.patch import patch_document
from perflint.project.root import project_of
from perflint.project.run import check_files
from perflint.project.settings import RulesByFile, Settings
from perflint.verify.verdicts import with_gains


@dataclass(frozen=True)
class Workspace:
    """The folder of a project, its settings, and what its files on disk tell of each other, by path."""

    root: Path
    settings: Settings
    contexts: Mapping[str, Context]

    @classmethod
    def around(cls, folder: Path, overrides: Mapping[str, object]) -> Workspace:
        """The workspace of what lies in `folder`, not read yet; `overrides` are settings by key. Raises UserError."""
        root = project_of(folder)
        resolved = load(folder, overrides={**overrides, "force-exclude": True})
        is_configured = any(each not in (DEFAULT, COMMAND_LINE) for each in resolved.origins.values())
        settings = resolved.settings if is_configured else replace(resolved.settings, root=root)
        return cls(root, settings, {})

    def read(self) -> Workspace:
        """This workspace with what its files tell of each other now; from the cache where they are as they were."""
        discovery = discover([self.root], self.settings, may_be_empty=True)
        return replace(self, contexts=check_files(discovery, self.settings).contexts)

    def check(self, path: Path, data: bytes, *, edits: bool = False) -> FileResult:
        """What is to report of the file at `path` that holds `data` in the editor; with the edits of fixes if asked."""
        if reason := forced_out(path, self.settings):
            return FileResult(str(path), skipped=reason)
        rules = RulesByFile(self.settings).at(path)
        result, _ = check_bytes(str(path), data, rules, self.settings.rules, self._context(path), edits=edits)
        known = with_gains(RunResult((result,), 0.0), self.root)
        return with_known_costs(known, self.root, {str(path): data}).files[0]

    def fixed(self, path: Path, data: bytes) -> bytes:
        """`data` with all fixes that need no asking; `data` itself where there are none, or it can't be read."""
        try:
            document = decode(str(path), data)
        except Unreadable:
            return data
        rules, context = RulesByFile(self.settings).at(path), self._context(path)
        patch = patch_document(document, rules, self.settings.rules, unsafe=self.settings.unsafe, context=context)
        return document.encode(patch.after) if patch.changed else data

    def _context(self, path: Path) -> Context:
        return self.contexts.get(str(path), ALONE)

"""Checks one file of a run, in this process or in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perflint.analysis.links import ALONE, Context
from perflint.documents.disk import Unreadable, read_bytes
from perflint.engine.results import FileResult
from perflint.engine.rule import Options, Rule
from perflint.project.cache import Keys, in_context


@dataclass(frozen=True)
class Task:
    """A file to check, by the rules of this number; `context` is what other files tell of it."""

    path: str
    rules: int
    context: Context = ALONE

    @property
    def surroundings(self) -> str:
        """What the result depends on beside the file; empty for nothing."""
        return repr(self.context) if self.context else ""


@dataclass(frozen=True)
class Checked:
    """A file's result, encoded, and the key to remember it under: none where it might be another the next time."""

    payload: str
    key: bytes | None = None


@dataclass(frozen=True)
class Checker:
    """All that checking a file takes: the sets of rules of the run, and, unless it has no cache, the keys of each.

    `edits`: the results have the edits of fixes.
    """

    rules: tuple[tuple[Rule, ...], ...]
    options: Mapping[str, Options]
    keys: tuple[Keys, ...] = ()
    edits: bool = False

    def key(self, task: Task, data: bytes) -> bytes | None:
        """The key of a file that holds `data`."""
        if not self.keys:
            return None
        return in_context(self.keys[task.rules].key(task.path, data), task.surroundings)

    def check(self, task: Task) -> Checked:
        """Read the file and check it; whatever goes wrong is its result."""
        from perflint.engine.check import check_bytes  # here, because a run whose files are all known does without
        from perflint.project.payload import encode

        try:
            data = read_bytes(Path(task.path))
        except Unreadable as error:
            return Checked(encode(FileResult(task.path, problem=error.problem)))
        rules = self.rules[task.rules]
        result, links = check_bytes(task.path, data, rules, self.options, task.context, edits=self.edits)
        # What a file could not be checked for may be memory, or a defect of ours that is gone the next time.
        return Checked(encode(result, links), None if result.problem else self.key(task, data))

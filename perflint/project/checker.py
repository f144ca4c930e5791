"""Checks one file of a run, in this process or in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perflint.analysis.links import ALONE, Context
from perflint.documents.disk import Unreadable, read_bytes
from perflint.engine.results import FileResult
from perflint.engine.rule import Options, Rule
from perflint.project.cache import Keys, in_context


@dataclass(frozen=True)
class Task:
    """A file to check, by the rules of this number; `context` is what other files tell of it.

    `held` is what stands for its content on disk, if anything does.
    """

    path: str
    rules: int
    context: Context = ALONE
    held: bytes | None = None

    @property
    def surroundings(self) -> str:
        """What the result depends on beside the file; empty for nothing."""
        return repr(self.context) if self.context else ""

    def read(self) -> bytes:
        """The content of the file; raises Unreadable."""
        return read_bytes(Path(self.path)) if self.held is None else self.held


@dataclass(frozen=True)
class Checked:
    """A file's result, encoded, and the key to remember it under: none where it might be another the next time."""

    payload: str
    key: bytes | None = None


class Work(Protocol):
    """Something that is done with each of many files, and remembered."""

    def key(self, task: Task, data: bytes) -> bytes | None:
        """The key of the result for a file that holds `data`; None where nothing is remembered."""

    def __call__(self, task: Task) -> Checked:
        """The result."""


@dataclass(frozen=True)
class Linker:
    """Works out the links of a file that is not checked itself; if `in_outline`, an outline of them with its words."""

    keys: Keys | None
    in_outline: bool = False

    def key(self, task: Task, data: bytes) -> bytes | None:
        """The key of a file that holds `data`."""
        if self.keys is None:
            return None
        return in_context(self.keys.key(task.path, data), "outline" if self.in_outline else task.surroundings)

    def __call__(self, task: Task) -> Checked:
        """Read the file; one that can't be read has no links."""
        from perflint.documents.document import decode
        from perflint.engine.check import links_in
        from perflint.project.payload import encode, encode_outline

        try:
            data = task.read()
            document = decode(task.path, data)
        except Unreadable:
            return Checked("")
        result, links = links_in(document, task.context, outline=self.in_outline)
        payload = encode_outline(result, links, document.text) if self.in_outline else encode(result, links)
        return Checked(payload, None if result.problem else self.key(task, data))


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

    def __call__(self, task: Task) -> Checked:
        """Read the file and check it; whatever goes wrong is its result."""
        from perflint.engine.check import check_bytes  # here, because a run whose files are all known does without
        from perflint.project.payload import encode

        try:
            data = task.read()
        except Unreadable as error:
            return Checked(encode(FileResult(task.path, problem=error.problem)))
        rules = self.rules[task.rules]
        result, links = check_bytes(task.path, data, rules, self.options, task.context, edits=self.edits)
        # What a file could not be checked for may be memory, or a defect of ours that is gone the next time.
        return Checked(encode(result, links), None if result.problem else self.key(task, data))

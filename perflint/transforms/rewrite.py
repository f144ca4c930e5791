"""What a proof yields: a change of the program as data, written out when somebody asks for its edits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.analysis.program import Program
from perflint.syntax.source import Edit, Source
from perflint.transforms.operations import Operation

if TYPE_CHECKING:
    import libcst  # which checks do without


@dataclass(frozen=True)
class Rewrite:
    """Operations on a program, all at once."""

    source: Source
    operations: tuple[Operation, ...]

    def __call__(self) -> tuple[Edit, ...]:
        from perflint.transforms.render import render  # here: only who needs the text of fixes needs libcst

        return render(self.source, self.operations)


@dataclass(frozen=True)
class Codemod:
    """A change of the program by a function from its libcst module to the changed one."""

    source: Source
    change: Callable[[libcst.Module], libcst.Module]

    def __call__(self) -> tuple[Edit, ...]:
        from perflint.transforms.render import changed

        return changed(self.source, self.change)


def rewrite(program: Program, *operations: Operation) -> Rewrite:
    """The change of `program` that consists of `operations`."""
    return Rewrite(program.source, operations)

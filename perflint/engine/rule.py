"""All that the author of a rule needs: Rule, Finding, Fix, Edit, and their scales."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from perflint.analysis.links import HotPlace
from perflint.syntax.source import Edit, Fix, Safety, Terms, Unrenderable

if TYPE_CHECKING:
    from perflint.analysis.program import Program

__all__ = [
    "GROUPS",
    "Edit",
    "Finding",
    "Fix",
    "Option",
    "OptionValue",
    "Options",
    "Rule",
    "Safety",
    "Severity",
    "Terms",
    "Unrenderable",
]

GROUPS = ("overhead", "sync", "data", "memory", "compute", "measure")

OptionValue = bool | int | str
Options = Mapping[str, OptionValue]


class Severity(str, Enum):
    """How sure a finding is to hurt."""

    ERROR = "error"  # the program breaks
    WARNING = "warning"  # it costs time for sure
    ADVICE = "advice"  # it depends on the run; off unless selected by name

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """One defect, at the characters [start, end) of the checked text.

    `kind` is the rule's own word for the variant it saw. `fixes` are candidates, the preferred one first; where there
    is none, `blocked` says what stands in the way. `hot_by` is what makes the code hot, where that is the defect.
    `is_part`: it is a part of a finding before it, and told with that one; a comment may ignore it all the same.
    """

    rule: str
    start: int
    end: int
    message: str
    kind: str
    severity: Severity
    fixes: tuple[Fix, ...] = ()
    blocked: str = ""
    hot_by: HotPlace | None = None
    is_part: bool = False


@dataclass(frozen=True)
class Option:
    """A setting of one rule, read from `[tool.perflint.rules.<rule>]`; its default's type is the type it accepts."""

    default: OptionValue
    help: str
    least: int = 0  # the smallest whole number that it accepts


class Rule(ABC):
    """One defect: the name is its file's, with hyphens; the page is its file's docstring.

    `triggers`: the text of a file in which the rule can fire contains one of these (the cheap screen). Empty: any file.
    `at_run_time`: what `perflint run` does instead of the rule's fixes, because a run knows more than the text; see
    `perflint.shim.session`. Empty: it applies the fixes.
    `needs_gpu`: where there is no GPU, the defect costs nothing.
    `regimes`: what bounds the steps in which `perflint tune` tries the fixes of a rule that is advice, on a GPU.
    `setting`: that of `perflint tune` which its fixes make in the source, and in whose place they are tried there.
    """

    name: ClassVar[str]
    page: ClassVar[str]
    group: ClassVar[str]
    severity: ClassVar[Severity] = Severity.WARNING
    triggers: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[Mapping[str, Option]] = {}
    needs_gpu: ClassVar[bool] = False
    at_run_time: ClassVar[str] = ""
    regimes: ClassVar[tuple[str, ...]] = ()
    setting: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        module = cls.__module__.rpartition(".")[2]
        cls.name = module.replace("_", "-")

    @abstractmethod
    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield this rule's findings in `program`; `options` holds every option, defaults filled in."""
        raise AssertionError

    def part(self, span: tuple[int, int], kind: str) -> Finding:
        """A part of a finding before it, which is not reported by itself."""
        return Finding(self.name, *span, "", kind, self.severity, is_part=True)

    def finding(
        self,
        span: tuple[int, int],
        message: str,
        *,
        kind: str,
        fixes: tuple[Fix, ...] = (),
        blocked: str = "",
        severity: Severity | None = None,
        hot_by: HotPlace | None = None,
    ) -> Finding:
        """A finding of this rule at `span`, the characters [start, end) of the program's text."""
        return Finding(self.name, *span, message, kind, severity or self.severity, fixes, blocked, hot_by)

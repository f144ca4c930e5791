"""All that the author of a rule needs: Rule, Finding, Fix, Edit, and their scales."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from perflint.analysis.program import Program

GROUPS = ("overhead", "sync", "data", "memory", "compute", "measure")

OptionValue = bool | int | str
Options = Mapping[str, OptionValue]


class Safety(str, Enum):
    """What a fix promises about results; `perflint verify` holds it to that."""

    EXACT = "exact"  # bitwise the same results
    ROUNDING = "rounding"  # the same mathematics in another order of floats
    BEHAVIOUR = "behaviour"  # random streams, precision, types or memory change

    def __str__(self) -> str:
        return self.value


class Severity(str, Enum):
    """How sure a finding is to hurt."""

    ERROR = "error"  # the program breaks
    WARNING = "warning"  # it costs time for sure
    ADVICE = "advice"  # it depends on the run; off unless selected by name

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, order=True)
class Edit:
    """Replace the characters [start, end) of the checked text by `text`."""

    start: int
    end: int
    text: str


class Unrenderable(Exception):
    """A fix that cannot be written, and why."""


Change = tuple[Edit, ...] | Callable[[], tuple[Edit, ...]]


@dataclass(frozen=True)
class Fix:
    """A patch: all of its edits are applied, or none.

    `change` gives the edits when they are asked for, or is them (see `perflint.transforms.rewrite`). `requires` names
    the distribution that the fixed program imports and the original one doesn't, if there is one.
    """

    title: str
    safety: Safety
    change: Change = field(compare=False)
    requires: str = ""

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """What the change does to the text; raises Unrenderable."""
        return self.change() if callable(self.change) else self.change

    @property
    def is_safe(self) -> bool:
        """Is it applied without being asked for?"""
        return is_safe(self.safety, self.requires)

    def __reduce__(self) -> tuple[type[Fix], tuple[object, ...]]:
        """What goes to other processes: the edits, if they are written, and not the program that they are made of."""
        return Fix, (self.title, self.safety, self.__dict__.get("edits", ()), self.requires)


def is_safe(safety: Safety, requires: str) -> bool:
    """Is a fix applied without being asked for: the same results, and nothing new to install?"""
    return safety is not Safety.BEHAVIOUR and not requires


@dataclass(frozen=True)
class Finding:
    """One defect, at the characters [start, end) of the checked text.

    `kind` is the rule's own word for the variant it saw. `fixes` are candidates, the preferred one first; where there
    is none, `blocked` says what stands in the way.
    """

    rule: str
    start: int
    end: int
    message: str
    kind: str
    severity: Severity
    fixes: tuple[Fix, ...] = ()
    blocked: str = ""


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
    """

    name: ClassVar[str]
    page: ClassVar[str]
    group: ClassVar[str]
    severity: ClassVar[Severity] = Severity.WARNING
    triggers: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[Mapping[str, Option]] = {}
    at_run_time: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        module = cls.__module__.rpartition(".")[2]
        cls.name = module.replace("_", "-")

    @abstractmethod
    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield this rule's findings in `program`; `options` holds every option, defaults filled in."""
        raise AssertionError

    def finding(
        self,
        span: tuple[int, int],
        message: str,
        *,
        kind: str,
        fixes: tuple[Fix, ...] = (),
        blocked: str = "",
        severity: Severity | None = None,
    ) -> Finding:
        """A finding of this rule at `span`, the characters [start, end) of the program's text."""
        return Finding(self.name, *span, message, kind, severity or self.severity, fixes, blocked)

"""Puts findings in order of their weight, and those of one defect together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from perflint.engine.results import Diagnostic
from perflint.engine.rule import GROUPS, Rule, Severity

_NAMES = re.compile(r"`[^`]*`|'[^']*'|\d+")  # of the user's code, and numbers
_ALIKE = 3  # findings of one defect that are still shown one by one


@dataclass(frozen=True)
class Group:
    """One defect: the finding that is shown with its code, and where else it stands."""

    first: Diagnostic
    others: tuple[Diagnostic, ...] = ()


def grouped(diagnostics: Iterable[Diagnostic], rules: Iterable[Rule], *, each: bool) -> list[Group]:
    """What was profiled by its cost, then errors before warnings before advice, in each the groups of rules in order.

    With `each`, one by one.

    Findings are of one defect where rule, kind and obstacle are the same but for the names in the user's code.
    """
    order = {rule.name: (GROUPS.index(rule.group) if rule.group in GROUPS else len(GROUPS)) for rule in rules}
    together: defaultdict[object, list[Diagnostic]] = defaultdict(list)
    for number, one in enumerate(diagnostics):
        words = (_NAMES.sub("", text) for text in (one.message, one.blocked, *(fix.title for fix in one.fixes)))
        together[number if each else (one.rule, one.kind, one.severity, one.measured, one.cost, *words)].append(one)
    groups: list[Group] = []
    for alike in together.values():
        is_long = len(alike) > _ALIKE
        groups += [Group(alike[0], tuple(alike[1:]))] if is_long else map(Group, alike)
    severities = list(Severity)

    def weight(group: Group) -> tuple[float, int, int]:
        first = group.first
        return -first.cost.ms if first.cost else 0.0, severities.index(first.severity), order.get(first.rule, 9)

    return sorted(groups, key=weight)

"""Discovers the rules, checks that each is whole, and selects among them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from abc import ABCMeta
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from perflint.engine import unused_ignore
from perflint.engine.rule import GROUPS, Rule, Severity

PAGE_HEADINGS = (
    "What it does",
    "Why it is slow",
    "Example",
    "Use instead",
    "Fix safety",
)  # `Measured` follows once it is
ENTRY_POINT_GROUP = "perflint.rules"


class UnknownRule(ValueError):
    """A selector that is neither a rule, nor a group, nor `all`."""


@dataclass(frozen=True)
class Selection:
    """What the user asked for: each entry a rule's name, a group or `all`."""

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, sorted by name.

    Raises TypeError where a rule's file is not whole, which is its author's mistake and not the user's.
    """
    modules = [unused_ignore, *(module for package in _packages() for module in _modules(package))]
    rules = [_rule_of(module) for module in modules]
    return tuple(sorted(rules, key=lambda rule: rule.name))


def rules_by_name() -> dict[str, Rule]:
    return {rule.name: rule for rule in all_rules()}


def selected_rules(selection: Selection) -> tuple[Rule, ...]:
    """The rules that `selection` leaves on: all but advice by default; the more specific word wins, then `ignore`."""
    return tuple(rule for rule in all_rules() if _is_on(rule, selection))


def check_selectors(selectors: Iterable[str]) -> None:
    for selector in selectors:
        if message := unknown(selector):
            raise UnknownRule(message)


def unknown(selector: str) -> str:
    """That there is no such rule or group, with the nearest known word; empty where there is."""
    known = ("all", *GROUPS, *rules_by_name())
    near = difflib.get_close_matches(selector.replace("_", "-"), known, n=1)
    hint = f"did you mean {near[0]}?" if near else "`perflint rules` lists them"
    return "" if selector in known else f"no rule or group is called {selector!r}; {hint}"


def _is_on(rule: Rule, selection: Selection) -> bool:
    wanted = max((_specificity(rule, s) for s in (*selection.select, *selection.extend_select)), default=0)
    if not selection.select and rule.severity is not Severity.ADVICE:
        wanted = max(wanted, 1)
    unwanted = max((_specificity(rule, s) for s in selection.ignore), default=0)
    return wanted > unwanted


def _specificity(rule: Rule, selector: str) -> int:
    return {"all": 1, rule.group: 2, rule.name: 3}.get(selector, 0)


def _packages() -> Iterable[ModuleType]:
    import perflint.rules

    yield perflint.rules
    if _may_offer_rules(sys.path):
        from importlib.metadata import entry_points  # here: it takes longer to import than all that a commit hook needs

        for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
            yield entry.load()


def _may_offer_rules(folders: Iterable[str]) -> bool:
    """Does a distribution in `folders` mention our entry points, or is one of them an archive that may hold one?"""
    return any(
        folder.is_file() or any(map(_mentions_rules, folder.glob("*.*-info/entry_points.txt")))
        for folder in map(Path, folders)
    )


def _mentions_rules(file: Path) -> bool:
    try:
        return ENTRY_POINT_GROUP.encode() in file.read_bytes()
    except OSError:
        return True


def _modules(package: ModuleType) -> Iterable[ModuleType]:
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_"):
            yield importlib.import_module(f"{package.__name__}.{info.name}")


def _rule_of(module: ModuleType) -> Rule:
    own = [
        v
        for v in vars(module).values()
        if type(v) is ABCMeta and issubclass(v, Rule) and v.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise TypeError(f"{module.__file__}: a rule's file defines exactly one Rule, this one {len(own)}")
    rule = own[0]
    rule.page = module.__doc__ or ""
    missing = [heading for heading in PAGE_HEADINGS if f"\n## {heading}\n" not in rule.page]
    if missing:
        raise TypeError(f"{module.__file__}: the page lacks the headings {', '.join(missing)}")
    if rule.group not in GROUPS:
        raise TypeError(f"{module.__file__}: {rule.group!r} is not one of the groups {', '.join(GROUPS)}")
    return rule()

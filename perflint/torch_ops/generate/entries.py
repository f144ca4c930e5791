"""Entries of the table as text: what the overloads of one function give, and which arguments tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perflint.torch_ops.generate.signatures import Overload, Parameter

_TELLING = ("number", "tensor", "true", "given", "any")
_TRAIT_ORDER = ("pointwise", "reduction", "view", "random", "factory", "like")


@dataclass(frozen=True)
class Outcome:
    """What one overload gives."""

    result: str
    dtype: str = ""
    syncs: bool = False
    traits: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The outcome as table.py reads it."""
        words = [self.result]
        words += [f"dtype={self.dtype}"] if self.dtype else []
        words += ["syncs"] if self.syncs else []
        return " ".join(words + [trait for trait in _TRAIT_ORDER if trait in self.traits])

    @property
    def key(self) -> tuple[str, bool, bool]:
        """Overloads which agree in this are one: the rest of their traits is put together."""
        return self.result, self.syncs, "pointwise" in self.traits


def entry_text(overloads: Sequence[Overload], outcome_of: Callable[[Overload], Outcome], *, method: bool) -> str:
    """The entry of a function with these overloads."""
    groups: dict[tuple[str, bool, bool], list[tuple[Overload, Outcome]]] = {}
    for overload in sorted(overloads, key=lambda each: len(each.required)):
        outcome = outcome_of(overload)
        groups.setdefault(outcome.key, []).append((overload, outcome))
    base, *others = groups.values()
    variants: list[str] = []
    seen = [overload for overload, _ in base]
    for group in others:
        rest = [overload for other in others if other is not group for overload, _ in other]
        conditions = dict.fromkeys(_condition(overload, seen, rest, method) for overload, _ in group)
        variants += [f"{condition} {_together(group).text}" for condition in conditions if condition]
    return " | ".join([_together(base).text, *variants])


def _together(group: Sequence[tuple[Overload, Outcome]]) -> Outcome:
    outcomes = [outcome for _, outcome in group]
    dtypes = {outcome.dtype for outcome in outcomes}
    traits = frozenset().union(*(outcome.traits for outcome in outcomes))
    return Outcome(outcomes[0].result, dtypes.pop() if len(dtypes) == 1 else "", outcomes[0].syncs, traits)


def _condition(overload: Overload, base: Sequence[Overload], rest: Sequence[Overload], method: bool) -> str:
    """Which argument tells that a call is this overload and not one of `base`; "" if none does."""
    for index, parameter in sorted(enumerate(overload.parameters), key=lambda each: not each[1].required):
        if parameter.wants not in _TELLING or (method and index == 0):
            continue
        if any(_same(_rival(other, index, parameter), parameter) for other in base):
            continue
        alone = not any(_rival(other, index, parameter) for other in [*base, *rest])
        position = "" if parameter.keyword_only else str(index - method)
        wants = "given" if alone and parameter.wants != "true" else parameter.wants
        return f"{parameter.name}@{position}:{wants}" if wants != "any" else ""
    return ""


def _rival(other: Overload, index: int, parameter: Parameter) -> Parameter | None:
    """The parameter of `other` that an argument for `parameter` would go to."""
    for each in other.parameters:
        if each.name == parameter.name:
            return None if each.wants == "absent" else each
    if parameter.keyword_only or index >= len(other.parameters):
        return None
    rival = other.parameters[index]
    return None if rival.keyword_only or rival.wants == "absent" else rival


def _same(rival: Parameter | None, parameter: Parameter) -> bool:
    return rival is not None and (rival.wants == parameter.wants or "any" in (rival.wants, parameter.wants))

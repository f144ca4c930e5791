"""Which fixes a patch keeps: those that do as they promised and whose gain was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perflint.verify.grade import Grade
from perflint.verify.samples import PATCHED, Samples, only, without
from perflint.verify.statistics import against_original, compare
from perflint.verify.verdict import FixVerdict
from perflint.verify.wording import ratio_with_interval


def attributed(fixes: Sequence[FixVerdict], samples: Samples) -> tuple[FixVerdict, ...]:
    """The fixes with what a race measured of each: alone, and of the patch without it."""
    if len(fixes) == 1:  # alone it is the whole patch, and the patch without it the original
        whole = against_original(samples, PATCHED)
        return (replace(fixes[0], alone=whole, without=whole),)
    return tuple(
        replace(
            fix,
            alone=against_original(samples, only(fix.name)),
            without=compare(samples, [without(fix.name)], [PATCHED]),
        )
        for fix in fixes
    )


def decided(fixes: Sequence[FixVerdict], own: Grade, floor: float) -> tuple[FixVerdict, ...]:
    """The fixes, each kept or dropped and why.

    Two runs of the original are alike by the grade `own`, and differ in speed by the noise floor `floor`: a gain has to
    exceed it, for among many fixes some are beyond their interval by chance.
    """
    faults = {fix.name: _fault(fix, own, floor) for fix in fixes}
    winners: dict[str, FixVerdict] = {}
    for fix in sorted(fixes, key=_gain):
        if not faults[fix.name]:
            winners[fix.finding] = fix
    reasons = {fix.name: faults[fix.name] or _rivalry(fix, winners[fix.finding]) for fix in fixes}
    return tuple(replace(fix, kept=not reasons[fix.name], reason=reasons[fix.name] or _merit(fix)) for fix in fixes)


def _gain(fix: FixVerdict) -> float:
    return fix.alone.ratio if fix.alone else 0.0


def _rivalry(fix: FixVerdict, winner: FixVerdict) -> str:
    return "" if fix is winner else f"another candidate is faster: {winner.title}"


def _fault(fix: FixVerdict, own: Grade, floor: float) -> str:
    """Why a fix is dropped; empty where it is kept."""
    if not fix.activations:
        return "it never ran"
    if not fix.likeness.keeps(fix.safety, own):
        evidence = next(iter(fix.likeness.evidence), f"the results are {fix.likeness.grade}")
        return f"it promised {fix.safety} results, but {evidence}"
    measured = [estimate for estimate in (fix.alone, fix.without) if estimate]
    if fix.without and fix.without.high < 1 / (1 + floor):
        return f"the patch is faster without it: {ratio_with_interval(fix.without)}"
    if not any(estimate.low > 1 + floor for estimate in measured):
        return f"no gain was measured: {ratio_with_interval(measured[0])}" if measured else "it was not measured"
    return ""


def _merit(fix: FixVerdict) -> str:
    alone = f"{ratio_with_interval(fix.alone)} alone" if fix.alone else ""
    on_top = (
        f"{ratio_with_interval(fix.without)} on top of the others" if fix.without and fix.without != fix.alone else ""
    )
    return ", ".join(filter(None, [alone, on_top, interaction(fix)]))


def interaction(fix: FixVerdict) -> str:
    """How the gain of a fix depends on the other fixes, where it is sure to; empty where not."""
    if not fix.alone or not fix.without:
        return ""
    if fix.without.low > fix.alone.high:
        return "gains more beside the others"
    return "gains less beside the others" if fix.without.high < fix.alone.low else ""

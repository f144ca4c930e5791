"""Which fixes a patch keeps: those that do as they promised and whose gain was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perflint.verify.grade import Grade
from perflint.verify.samples import PATCHED, Samples, only, without
from perflint.verify.statistics import Estimate, against_original, compare
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
    faults = {fix.name: _wrong(fix, own, floor) or _too_little(fix, floor) for fix in fixes}
    winners: dict[str, FixVerdict] = {}
    for fix in sorted(fixes, key=_gain):
        if not faults[fix.name]:
            winners[fix.finding] = fix
    reasons = {fix.name: faults[fix.name] or _rivalry(fix, winners[fix.finding]) for fix in fixes}
    return tuple(replace(fix, kept=not reasons[fix.name], reason=reasons[fix.name] or _merit(fix)) for fix in fixes)


def gains_nothing(fixes: Sequence[FixVerdict], own: Grade, floor: float) -> list[FixVerdict]:
    """Of decided fixes those that are right and of which no gain was measured: they may gain something together.

    Of several candidates of one finding only the best is one of them, and none beside one that is kept.
    """
    taken = {fix.finding for fix in fixes if fix.kept}
    best = {
        fix.finding: fix
        for fix in sorted(fixes, key=_gain)
        if fix.finding not in taken and not _wrong(fix, own, floor) and _too_little(fix, floor)
    }
    return [fix for fix in fixes if best.get(fix.finding) is fix]


def gained_together(fixes: Sequence[FixVerdict], loose: Sequence[FixVerdict], gain: Estimate) -> tuple[FixVerdict, ...]:
    """The fixes, of which those that are `loose` are kept as well, for together they gain so much."""
    names = {fix.name for fix in loose}
    reason = f"{ratio_with_interval(gain)} together with the others that gain little alone"
    return tuple(replace(fix, kept=True, is_joint=True, reason=reason) if fix.name in names else fix for fix in fixes)


def _gain(fix: FixVerdict) -> float:
    return fix.alone.ratio if fix.alone else 0.0


def _rivalry(fix: FixVerdict, winner: FixVerdict) -> str:
    return "" if fix is winner else f"another candidate is faster: {winner.title}"


def _wrong(fix: FixVerdict, own: Grade, floor: float) -> str:
    """Why a fix is dropped whatever the others do; empty where it need not be."""
    if not fix.activations:
        return fix.reason or "it never ran"
    if not fix.likeness.keeps(fix.safety, own):
        evidence = next(iter(fix.likeness.evidence), f"the results are {fix.likeness.grade}")
        return f"it promised {fix.safety} results, but {evidence}"
    if fix.without and fix.without.high < 1 / (1 + floor):
        return f"the patch is faster without it: {ratio_with_interval(fix.without)}"
    return ""


def _too_little(fix: FixVerdict, floor: float) -> str:
    """Why its gain is none; empty where it is one."""
    measured = [estimate for estimate in (fix.alone, fix.without) if estimate]
    if any(estimate.low > 1 + floor for estimate in measured):
        return ""
    return f"no gain was measured: {ratio_with_interval(measured[0])}" if measured else "it was not measured"


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

"""Why a fix is kept or dropped, in words."""

from __future__ import annotations

from perflint.verify.compare.grade import Grade
from perflint.verify.measure.statistics import Estimate, is_slower
from perflint.verify.verdict import FixVerdict
from perflint.verify.wording import ratio_with_interval


def wrong(fix: FixVerdict, own: Grade) -> str:
    """Why a fix is not even raced; empty where it is. Two runs of the original are alike by the grade `own`."""
    if not fix.activations:
        return fix.reason or "it never ran"
    if fix.likeness.keeps(fix.safety, own):
        return ""
    evidence = next(iter(fix.likeness.evidence), f"the results are {fix.likeness.grade}")
    return f"it promised {fix.safety} results, but {evidence}"


def merit(fix: FixVerdict) -> str:
    """What earns a fix its place."""
    alone = f"{ratio_with_interval(fix.alone)} alone" if fix.alone else ""
    on_top = f"{ratio_with_interval(fix.on_top)} on top of the others" if fix.on_top else ""
    return ", ".join(filter(None, [alone, on_top, interaction(fix)]))


def joint_merit(fix: FixVerdict, gain: Estimate | None) -> str:
    """What earns a fix its place that is kept for the `gain` of several together."""
    others = "the others that gain little alone" if fix.alone else "the others, there was no time to race each"
    return f"{ratio_with_interval(gain)} together with {others}" if gain else ""


def too_little(fix: FixVerdict, last: Estimate | None, *, was_chosen: bool) -> str:
    """Why a fix is dropped that is right; in the `last` race the patch had it, for which it `was_chosen` or not."""
    if was_chosen and last:
        return f"its gain was not seen again: {ratio_with_interval(last)}"
    if fix.on_top and is_slower(fix.on_top, 0.0):
        return f"the patch is faster without it: {ratio_with_interval(fix.on_top)}"
    if gain := fix.gain or last:
        return f"no gain was measured: {ratio_with_interval(gain)}"
    return "there was no time to race it"


def interaction(fix: FixVerdict) -> str:
    """How the gain of a fix depends on the other fixes, where it is sure to; empty where not."""
    if not fix.alone or not fix.on_top:
        return ""
    if fix.on_top.low > fix.alone.high:
        return "gains more beside the others"
    return "gains less beside the others" if fix.on_top.high < fix.alone.low else ""

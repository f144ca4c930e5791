"""Says why a fix is kept or dropped."""

from __future__ import annotations

import math

from perflint.verify import statistics
from perflint.verify.statistics import Estimate
from perflint.verify.summary import ratio_with_interval
from perflint.verify.verdict import FixVerdict, Grade


def wrong(fix: FixVerdict, own: Grade) -> str:
    if not fix.activations:
        return fix.reason or "it never ran"
    if fix.likeness.keeps(fix.safety, own):
        return ""
    evidence = next(iter(fix.likeness.evidence), f"the results are {fix.likeness.grade}")
    if fix.likeness.grade is Grade.UNKNOWN:
        return evidence
    return f"it promised {fix.safety} results, but {evidence}"


def merit(fix: FixVerdict) -> str:
    alone = f"{ratio_with_interval(fix.alone)} alone" if fix.alone else ""
    on_top = f"{ratio_with_interval(fix.on_top)} on top of the others" if fix.on_top else ""
    interaction = ""
    if fix.alone and fix.on_top and fix.on_top.low > fix.alone.high:
        interaction = "gains more beside the others"
    elif fix.alone and fix.on_top and fix.on_top.high < fix.alone.low:
        interaction = "gains less beside the others"
    return ", ".join(filter(None, [alone, on_top, interaction]))


def joint_merit(fix: FixVerdict, gain: Estimate | None) -> str:
    others = "the others that gain little alone" if fix.alone else "the others, there was no time to race each"
    return f"{ratio_with_interval(gain)} together with {others}" if gain else ""


def too_little(fix: FixVerdict, last: Estimate | None, *, was_chosen: bool) -> str:
    if was_chosen and last and not is_short(last):
        return f"its gain was not seen again: {ratio_with_interval(last)}"
    if fix.on_top and statistics.is_slower(fix.on_top, 0.0):
        return f"the patch is faster without it: {ratio_with_interval(fix.on_top)}"
    if gain := (last if was_chosen else fix.gain) or last:
        is_none = statistics.rules_out(gain, 0.0) or math.isinf(gain.high)
        told = "no gain was measured" if is_none else "a gain can't be told from noise"
        said = "there was no time for enough rounds" if is_short(gain) else told
        return f"{said}: {ratio_with_interval(gain)}"
    return "there was no time to race it"


def is_short(gain: Estimate) -> bool:
    return math.isinf(gain.high) and gain.ratio > 1

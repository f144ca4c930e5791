"""Tells which fixes change what a program computes beyond the steps that are compared one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perflint.verify.grade import Grade, Likeness
from perflint.verify.messages import Variant
from perflint.verify.recordings import Further
from perflint.verify.statistics import PATCHED
from perflint.verify.verdict import FixVerdict

Fixes = Sequence[FixVerdict]


def beyond_horizon(
    further: Further, exact: Fixes, patched: Callable[[Fixes], Variant], fitting: Callable[[Fixes, str], Variant | None]
) -> tuple[Likeness, dict[str, Likeness]]:
    """How alike the `exact` fixes are there, all together that don't exclude each other, and some by their names.

    `patched` makes the variant with some fixes, `fitting` none where they exclude each other.
    """
    together: list[FixVerdict] = []
    for fix in exact:
        if fitting([*together, fix], PATCHED):
            together.append(fix)
    rivals = [fix for fix in exact if fix not in together]
    whole, *others = further.likenesses([patched(fixes) for fixes in (together, *([fix] for fix in rivals))])
    found = dict(zip((fix.name for fix in rivals), others, strict=True))
    if whole.grade in (Grade.DIFFERENT, Grade.ROUNDING):
        alone = further.likenesses([patched([fix]) for fix in together]) if len(together) > 1 else [whole]
        found |= _blamed([fix.name for fix in together], whole, alone)
        rest = [fix for fix in together if found[fix.name].grade is not Grade.DIFFERENT]
        left = further.likenesses([patched(rest)]) if 1 < len(rest) < len(together) else []
        found |= {fix.name: each for each in left if each.grade is Grade.DIFFERENT for fix in rest}
    return whole, found


def _blamed(names: Sequence[str], whole: Likeness, alone: Sequence[Likeness]) -> dict[str, Likeness]:
    """Which fixes make all together what they are: those that are so alone, or else any of them."""
    found = dict(zip(names, alone, strict=True))
    is_known = any(likeness.grade is whole.grade for likeness in alone)
    return found if is_known else dict.fromkeys(names, whole)

"""Verifies a program as a whole: what runs early, and in a shortened copy what runs late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perflint.verify.examine import Examination
from perflint.verify.protocol import Budget, Share, TimeUp
from perflint.verify.running import Fault
from perflint.verify.statistics import Outcome
from perflint.verify.summary import duration
from perflint.verify.variants import FixKey
from perflint.verify.verdict import NO_TIME, FixVerdict, Grade, Likeness, Verdict, begun


def verified(examination: Examination) -> Verdict:
    """The verdict on all fixes: on those that run late from a shortened copy, where there is a way to shorten it."""
    try:
        late, shortcut = examination.late()
    except (Fault, TimeUp) as failure:
        return examination.failed(failure)
    if not shortcut:
        return examination.verdict()
    early = [key for key in examination.fixes if key not in late]
    share = Share.EARLY if examination.has_room(len(early), Share.EARLY) else Share.LATE
    first = examination.part(early, share).verdict() if early else None
    if first and not examination.has_time:
        return _left_open(first, [examination.unreached(key, _too_late(first)) for key in late])
    notes = tuple(shortcut.notes)
    for note in notes:
        examination.tell(note)
    second = examination.part(late, Share.LATE, shortcut).verdict()
    if second.failure and not first:
        return examination.verdict()
    fixes = (*second.fixes, *_unseen(examination, late, second))
    told = () if second.failure else notes
    second = replace(second, fixes=fixes, excluded=(*told, *second.excluded), is_shortened=True)
    return _merged(first, second) if first and first.fixes else second


def unfound(program: str, budget: Budget) -> Verdict:
    failure = f"looking for fixes in all that it imports takes more than {budget.of(Share.FINDING):.0f} s"
    return begun(program, failure=f"{failure}; what was found by then is kept", longer=budget.longer())


def _unseen(examination: Examination, late: Sequence[FixKey], verdict: Verdict) -> list[FixVerdict]:
    known = {(fix.path, fix.line, fix.rule, fix.title) for fix in verdict.fixes}
    missing = [key for key in late if (key.path, key.line, key.rule, key.title) not in known]
    reason = "it never ran, not in a shortened copy of the program either"
    if verdict.failure and verdict.longer:
        reason = _too_late(verdict)
    elif verdict.failure:
        reason = f"it runs late, and in a shortened copy {verdict.failure}"
    return [examination.unreached(key, reason) for key in missing]


def _too_late(verdict: Verdict) -> str:
    return f"it runs late, and there was no time to reach it: --budget {duration(verdict.longer)} may"


def _left_open(first: Verdict, late: Sequence[FixVerdict]) -> Verdict:
    """The verdict on what runs early; where none of that takes effect, nothing is known of those that run `late`."""
    if first.is_idle:
        first = replace(first, is_idle=False, likeness=Likeness(Grade.UNKNOWN, (NO_TIME,)))
    return replace(first, fixes=(*first.fixes, *late))


def _merged(first: Verdict, second: Verdict) -> Verdict:
    """The verdict on both: on the shortened copy where there alone is something gained."""
    is_second = first.is_idle or (second.outcome is Outcome.FASTER and first.outcome is not Outcome.FASTER)
    lead = second if is_second else first
    fixes = [replace(fix, reason=f"{fix.reason}, in the shortened copy") if fix.kept else fix for fix in second.fixes]
    hunks = tuple(hunk for each in (first, second) if each.outcome is Outcome.FASTER for hunk in each.hunks)
    excluded = dict.fromkeys((*second.excluded, *first.excluded))
    return replace(
        lead,
        fixes=(*first.fixes, *fixes),
        hunks=hunks or lead.hunks,
        excluded=tuple(excluded),
        longer=max(first.longer, second.longer),
    )

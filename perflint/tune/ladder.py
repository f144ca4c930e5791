"""Says what the best program of each class of promise gains."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from perflint.engine.rule import Safety
from perflint.verify.grade import Outcome
from perflint.verify.statistics import Estimate, against_original, within
from perflint.verify.summary import ratio_with_interval, size
from perflint.verify.verdict import Verdict, weakest

_OPEN = (Outcome.UNSURE, Outcome.UNCHECKED, Outcome.FAILED)  # of which nobody knows what they gain


def ladder(verdict: Verdict, allowed: Collection[Safety]) -> Iterator[str]:
    """A line for each class: the best program of this class, its gain and memory, and what it is made of."""
    kept = [fix for fix in verdict.fixes if fix.kept]
    top = weakest(kept)
    for safety in Safety:
        parts = ", ".join(fix.rule for fix in kept if fix.safety is safety)
        if safety not in allowed:
            yield f"{safety}: not tried (--allow {safety})"
        elif not parts or verdict.outcome is not Outcome.FASTER:
            yield f"{safety}: {Outcome.UNSURE if verdict.outcome in _OPEN else 'nothing gained'}"
        elif safety is top:
            memory = f", {size(verdict.after.device_bytes)} of GPU memory" if verdict.after.device_bytes else ""
            yield f"{safety}: {_gain(verdict.speed)}{memory}: {parts}"
        else:
            yield f"{safety}: {_gain(against_original(verdict.samples, within(str(safety))))}: {parts}"


def _gain(estimate: Estimate | None) -> str:
    return ratio_with_interval(estimate) if estimate else "not timed alone"

"""Grades how alike two runs are, by what they computed, printed and ended with."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perflint.verify.grade import Grade, Likeness
from perflint.verify.race import Recorded
from perflint.verify.same import Comparison, Difference

_OWN_ERROR = 3.0  # times the original's own rounding error, or its own spread, that a patched result may have
_NEAR_ERROR = 8.0  # the same where torch.testing calls the values close
_EPSILON = 2.0**-23  # float32: what one rounding makes of a value
_DERIVED = ("parameter", "optimizer")  # Adam makes whole steps of the rounding of small gradients
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_NEAR = 1e-3  # relative: what rounding may make of a printed number


@dataclass(frozen=True)
class Standard:
    """The original, and how two of its runs differ: a spread that is nobody's fault."""

    run: Recorded
    again: Recorded | None = None
    own: Comparison | None = None

    @property
    def prints_the_same(self) -> bool:
        """Whether what the original prints, times for example, is the same each time."""
        return self.again is None or _prints_alike(self.run.output, self.again.output)


def likeness(standard: Standard, after: Recorded, compared: Comparison) -> Likeness:
    """How alike a run is to the original."""
    before, own = standard.run, standard.own
    if before.code != after.code:
        return Likeness(Grade.DIFFERENT, (f"it {_end(after)}, where the original {_end(before)}",))
    if compared.parted:
        return Likeness(Grade.DIFFERENT, compared.parted)
    if not compared.values:
        return Likeness(Grade.UNKNOWN, ("it has no losses, gradients, parameters or outputs that could be compared",))
    spread = _spread(own.differences if own else ())
    failed = [each for each in compared.differences if not _is_near(each, spread, compared.referenced)]
    if failed:
        return Likeness(Grade.DIFFERENT, tuple(_parting(each) for each in _by_size(failed)[:3]))
    if standard.prints_the_same and not _prints_alike(before.output, after.output):
        return Likeness(Grade.DIFFERENT, ("it prints something else",))
    seen = f"{compared.values} values of {compared.steps} steps"
    if compared.is_bitwise:
        return Likeness(Grade.BITWISE, (f"{seen} are bitwise equal",))
    worst = _by_size(compared.differences)[0]
    return Likeness(Grade.ROUNDING, (f"{seen} are equal but for rounding, at most {_size(worst)}", _parting(worst)))


def _end(run: Recorded) -> str:
    if run.code is None:
        return "runs on"
    last = run.errors.strip().splitlines()[-1:] if run.code else []
    return " with ".join([f"ends with exit code {run.code}", *last])


def _spread(differences: Sequence[Difference]) -> Mapping[str, float]:
    """By how much a value differs at most from run to run of the original."""
    spread: dict[str, float] = {}
    for each in differences:
        spread[each.name] = max(each.error or 0.0, spread.get(each.name, 0.0))
    return spread


def _is_near(difference: Difference, spread: Mapping[str, float], referenced: bool) -> bool:
    """Whether a difference is rounding, or no more than the original differs from itself.

    Where other steps are `referenced`, compared with double precision, what is derived from gradients is left to them.
    """
    if difference.error is None:  # of a step that goes on from another state
        return True
    if not math.isfinite(difference.error):
        return False
    if difference.error <= _OWN_ERROR * spread.get(difference.name, 0.0):
        return True
    if difference.reference is None or difference.changed is None:
        return difference.is_close or (referenced and difference.name.startswith(_DERIVED))
    allowed = _NEAR_ERROR if difference.is_close else _OWN_ERROR
    return difference.changed <= allowed * max(difference.reference, _EPSILON)


def _by_size(differences: Sequence[Difference]) -> list[Difference]:
    return sorted(differences, key=lambda each: (each.step, -(each.error or 0.0)))


def _size(difference: Difference) -> str:
    return "an unknown amount" if difference.error is None else f"{difference.error:.2g} of the value"


def _parting(difference: Difference) -> str:
    words = f"at step {difference.step} {difference.name} differs by {_size(difference)}"
    if difference.reference is None or difference.changed is None:
        return words
    return f"{words}: its error is {difference.changed:.2g}, the original's {difference.reference:.2g}"


def _prints_alike(before: str, after: str) -> bool:
    """Whether two texts are the same but for the last digits of their numbers."""
    if before == after:
        return True
    if _NUMBER.sub("0", before) != _NUMBER.sub("0", after):
        return False
    numbers = (map(float, _NUMBER.findall(text)) for text in (before, after))
    return all(math.isclose(old, new, rel_tol=_NEAR, abs_tol=_NEAR) for old, new in zip(*numbers, strict=True))

"""Grades how alike two runs are, by what they computed, printed, wrote and ended with."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perflint.verify.agent.state import DERIVED, OPTION
from perflint.verify.compare import arrays
from perflint.verify.compare.grade import Grade, Likeness
from perflint.verify.compare.same import EPSILON, OUTPUT, Comparison, Difference, logged
from perflint.verify.compare.texts import parting
from perflint.verify.measure.race import Recorded
from perflint.verify.run.output import ending

_OWN_SPREAD = 3.0  # times what the original differs from itself that a patched result may
_LUCK = 3  # steps whose spread counts together: runs may be as good as equal in a number at one step by chance
_OWN_ERROR, _COARSE_ERROR = 2.0, 3.0  # times the original's own rounding error; for few elements or digits
_NEAR_ERROR = 8.0  # the same where torch.testing calls the values close, which is up to a hundred roundings
_NO_ROUNDING = 0.05  # of the largest values of the kind: whoever errs by more was not computed in double precision
_DRIFT = 1e-3  # of a value: what rounding may grow to in the steps behind one from the same state
_GROWTH = 10.0  # times the original's own error, the same: half precision and TF32 begin with larger ones
_MOST_DRIFT = 0.05  # of a value, whatever the original's own error
_DERIVED_DRIFT = 0.1  # of the largest values of the kind: Adam makes whole steps of the rounding of small gradients
_SAID = 3  # differences that are told

_Spread = Mapping[tuple[int, str], float]


@dataclass(frozen=True)
class Standard:
    """The original, another run of it, and how it differs from runs of itself: a spread that is nobody's fault."""

    run: Recorded
    again: Recorded | None = None
    own: tuple[Comparison, ...] = ()

    @property
    def is_repeatable(self) -> bool:
        """Whether its runs are known to be bitwise equal."""
        return bool(self.own) and all(comparison.is_bitwise for comparison in self.own)

    @property
    def spread(self) -> _Spread:
        """By how much a value differs at most from run to run, by its step and name."""
        spread: dict[tuple[int, str], float] = {}
        for each in (difference for comparison in self.own for difference in comparison.differences):
            place = each.step, each.name
            spread[place] = max(each.error or 0.0, spread.get(place, 0.0))
        return spread


def likeness(standard: Standard, after: Recorded, compared: Comparison) -> Likeness:
    """How alike a run is to the original."""
    parted = (*ends(standard.run, after), *compared.parted, *compared.order)
    if parted:
        return Likeness(Grade.DIFFERENT, parted)
    if not compared.steps:
        words = "it has come to no step: an optimizer's, a batch of a loader, or a call of a function with a fix"
        return Likeness(Grade.UNKNOWN, (words,))
    if not compared.values:
        words = "it has no losses, gradients or outputs, and changes no parameters, that could be compared"
        return Likeness(Grade.UNKNOWN, (words,))
    spread = standard.spread
    own = _own_errors(compared, is_repeatable=standard.is_repeatable)
    grades = {each: _closeness(each, spread, _drift(each, own)) for each in compared.differences}
    failed = [each for each, grade in grades.items() if grade is Grade.DIFFERENT]
    if failed:
        return Likeness(Grade.DIFFERENT, tuple(map(_parting, _by_size(failed)[:_SAID])))
    said = tuple(_said_otherwise(standard, after, exact=compared.is_bitwise))
    if said:
        return Likeness(Grade.DIFFERENT, said[:_SAID])
    return _same(compared, [each for each, grade in grades.items() if grade is Grade.ALIKE])


def _same(compared: Comparison, beyond: Sequence[Difference]) -> Likeness:
    """The likeness of what is the same, where some values are `beyond` rounding."""
    seen = f"{compared.values} values of {compared.steps} steps"
    if compared.is_bitwise:
        return Likeness(Grade.BITWISE, (f"{seen} are bitwise equal",))
    worst = _by_size(beyond or compared.differences)[0]
    if beyond:
        words = f"{seen} are equal, or differ by no more than from run to run of the original"
        return Likeness(Grade.ALIKE, (words, _parting(worst)))
    held = () if compared.referenced else ("none was held against double precision, which could not be had of them",)
    words = f"{seen} are equal but for rounding, at most {_size(worst)}"
    return Likeness(Grade.ROUNDING, (words, _parting(worst), *held))


def ends(before: Recorded, after: Recorded) -> Iterator[str]:
    """How one run ends and the other doesn't."""
    old, new = (_end(run) for run in (before, after))
    if old != new:
        yield f"it {new}, where the original {old}"


def _end(run: Recorded) -> str:
    if run.stuck:
        return f"hung: {run.stuck}"
    return "ran on" if run.code is None else ending(run.code, run.errors)


def _own_errors(compared: Comparison, *, is_repeatable: bool) -> Mapping[str, float] | None:
    """The original's largest errors, by what they are of; None where double precision doesn't decide.

    Of an original that is not repeatable nothing is known: they are not all of rounding.
    """
    known = [each for each in compared.differences if each.reference is not None]
    if not compared.referenced or not all(map(_is_known, known)):
        return None
    own: dict[str, float] = {}
    for each in known if is_repeatable else ():
        own[_of(each)] = max(each.reference or 0.0, own.get(_of(each), 0.0))
    return own


def _of(difference: Difference) -> str:
    """All outputs count as one: what became of those of other steps is compared, too."""
    return OUTPUT if difference.name.startswith(OUTPUT) else difference.name


def _drift(difference: Difference, own: Mapping[str, float] | None) -> float:
    """By how much of itself a value may have drifted behind the steps that double precision decides."""
    if own is None:
        return 0.0
    if difference.name.startswith(DERIVED):
        return _DERIVED_DRIFT
    return max(_DRIFT, min(_GROWTH * own.get(_of(difference), 0.0), _MOST_DRIFT))


def _closeness(difference: Difference, spread: _Spread, drift: float) -> Grade:
    """Whether a difference is rounding or `drift`, or else no more than the original differs from itself."""
    if difference.error is None:  # a digest, of what goes on from another state, or stands beside a sample
        return Grade.ROUNDING
    if not math.isfinite(difference.error):
        return Grade.DIFFERENT
    if _is_rounding(difference, difference.error, drift):
        return Grade.ROUNDING
    own = max(spread.get((difference.step + ahead, difference.name), 0.0) for ahead in range(_LUCK))
    return Grade.ALIKE if difference.error <= _OWN_SPREAD * own else Grade.DIFFERENT


def _is_rounding(difference: Difference, error: float, drift: float) -> bool:
    reference, changed = difference.reference, difference.changed
    if reference is None or changed is None or not _is_known(difference):
        return difference.is_close or _has_drifted(difference, error, drift)
    allowed = _NEAR_ERROR if difference.is_close else _COARSE_ERROR if difference.is_coarse else _OWN_ERROR
    return changed <= allowed * max(reference, EPSILON)


def _is_known(difference: Difference) -> bool:
    """Whether there is a double precision result of a value that can be one."""
    size = difference.of_kind / difference.error if difference.of_kind and difference.error else 1.0
    return difference.reference is not None and difference.reference * size <= _NO_ROUNDING


def _has_drifted(difference: Difference, error: float, drift: float) -> bool:
    of_kind = difference.of_kind if difference.name.startswith(DERIVED) else None
    return (error if of_kind is None else of_kind) <= drift and not difference.name.startswith(OPTION)


def _by_size(differences: Sequence[Difference]) -> list[Difference]:
    """The first and largest ones, of what others follow from before those."""
    return sorted(differences, key=lambda each: (each.step, each.name.startswith(DERIVED), -(each.error or 0.0)))


def _size(difference: Difference) -> str:
    return "an unknown amount" if difference.error is None else f"{difference.error:.2g} of the value"


def _parting(difference: Difference) -> str:
    words = f"at step {difference.step} {difference.name} differs by {_size(difference)}"
    if difference.reference is None or difference.changed is None:
        return words
    return f"{words}: its error is {difference.changed:.2g}, the original's {difference.reference:.2g}"


def _said_otherwise(standard: Standard, after: Recorded, *, exact: bool) -> Iterator[str]:
    """What a run prints, logs or writes that the original doesn't."""
    before, again = standard.run, standard.again or standard.run
    texts = {"it prints something else": [_printed(run) for run in (before, again, after)]}
    texts["it logs something else"] = [logged(run.folder) for run in (before, again, after)]
    for words, (old, same, new) in texts.items():
        if found := parting(old, same, new, exact=exact):
            yield f"{words}: {found}"
    yield from _written_otherwise(before.files, again.files, after.files, exact=exact)


def _printed(run: Recorded) -> str:
    """What it printed, line by line in any order where there are several ranks, which print at once."""
    has_ranks = any(run.folder.glob("rank *"))
    return "\n".join(sorted(run.output.splitlines())) if has_ranks else run.output


_Files = Mapping[str, Path | None]


def _written_otherwise(before: _Files, again: _Files, after: _Files, *, exact: bool) -> Iterator[str]:
    """What is to be said of files: those whose names differ from run to run can't be told from one another."""
    for path in sorted((before.keys() & again.keys()) - after.keys()):
        yield f"it does not write {os.path.relpath(path)}"
    for path in sorted(after.keys() - before.keys()) if before.keys() == again.keys() else ():
        yield f"it writes {os.path.relpath(path)}, and the original does not"
    for path in sorted(before.keys() & again.keys() & after.keys()):
        old, same, new = (_content(files[path]) for files in (before, again, after))
        if found := _content_parts(old, same, new, exact=exact):
            yield f"it writes something else to {os.path.relpath(path)}{found}"


def _content(file: Path | None) -> bytes | None:
    return file.read_bytes() if file else None


def _content_parts(old: bytes | None, same: bytes | None, new: bytes | None, *, exact: bool) -> str | None:
    """How the content of a file differs, None where it does not; None for a content is a file that was removed."""
    if old == new or (old is None) != (same is None):
        return None
    if old is None or same is None or new is None:
        return ": it is removed" if new is None else ": it is not removed"
    try:
        texts = [content.decode() for content in (old, same, new)]
    except UnicodeDecodeError:
        if exact:
            return "" if old == same else None
        found = arrays.parting(old, new) if old == same else ""
    else:
        found = parting(texts[0], texts[1], texts[2], exact=exact)
    return f": {found}" if found else None

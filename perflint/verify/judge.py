"""Grades how alike two runs are by what they computed, printed, logged, wrote and ended with, and where they part."""

from __future__ import annotations

import io
import math
import os
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflint.verify.agent.recorder import OUTPUT
from perflint.verify.agent.state import AVERAGE, DERIVED, GRADIENT, OPTION
from perflint.verify.compare import EPSILON, REPLAY, Comparison, Difference, compare, logged
from perflint.verify.running import ending
from perflint.verify.runs import Recorded
from perflint.verify.statistics import LEAST_ROUNDS, ORIGINALS, PATCHED
from perflint.verify.verdict import NO_TIME, Grade, Likeness

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_VOLATILE = re.compile(  # dates, times of the day, and memory in use
    r"\d{4}[-/]\d\d[-/]\d\d|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"
    r"|\d+(?:\.\d+)? ?[KMGT]i?B\b|(?i:\bmem(?:ory)?(?: \w+){0,2} ?[:=] ?)\d+(?:\.\d+)?"
)
_NEAR = 1e-3  # relative: what rounding may make of a printed number, or of an array
_PRECISE = 4  # digits: no two times agree in so many
_WORDS = -1
_LONG = 1000  # characters: a line of data can be a megabyte
_UNREADABLE = (ImportError, ValueError, OSError, EOFError, zipfile.BadZipFile)


def parting(before: str, again: str, after: str, *, exact: bool) -> str:
    """How `after` differs from `before` where `again`, another run of that program, does not; "" if nowhere.

    A number that differs between these two is compared in no line that reads the same. Unless `exact`, numbers may
    differ in their last digits.
    """
    return next((said for said, near in _partings([before, again], after) if exact or not near), "")


def parting_in_all(originals: Sequence[str], others: Sequence[str], *, exact: bool = True) -> str:
    """How all `others` differ from the `originals` where those agree; "" if one doesn't.

    Numbers of few digits don't count: they may be times. Unless `exact`, numbers may differ in their last digits.
    """
    partings = (_partings(originals, other, _PRECISE) for other in others)
    found = [next((said for said, near in each if exact or not near), "") for each in partings]
    return found[0] if found and all(found) else ""


def _partings(originals: Sequence[str], other: str, digits: int = 0) -> Iterator[tuple[str, bool]]:
    first, *twins = (_VOLATILE.sub("", text).splitlines() for text in originals)
    if any(len(twin) != len(first) for twin in twins):
        return  # their lines don't correspond
    loose = {place for twin in twins for pair in zip(first, twin, strict=True) for place, _, _ in _differing(*pair)}
    for number, (line, new) in enumerate(zip_longest(first, _VOLATILE.sub("", other).splitlines()), 1):
        if line is None:
            yield f"line {number}, {_quoted(new)}, is too much", False
        elif new is None:
            yield f"line {number}, {_quoted(line)}, is missing", False
        elif (_NUMBER.sub("", line), _WORDS) not in loose:
            said = f"line {number} is {_quoted(new, line)} and not {_quoted(line, new)}"
            for place, near, precision in _differing(line, new):
                if place not in loose and precision >= digits:
                    yield said, near


def words(text: str) -> str:
    return " ".join(_NUMBER.sub(" ", _VOLATILE.sub(" ", text)).split())


_Place = tuple[str, int]  # a line without its numbers, and the index of one of them


def _differing(line: str, other: str) -> Iterator[tuple[_Place, bool, float]]:
    rest = _NUMBER.sub("", line)
    if _NUMBER.split(line) != _NUMBER.split(other):
        yield (rest, _WORDS), False, math.inf
        return
    for number, (old, new) in enumerate(zip(_NUMBER.findall(line), _NUMBER.findall(other), strict=True)):
        if old != new:
            mantissa = old.lower().partition("e")[0]
            yield (rest, number), _is_near(old, new), len(re.sub(r"\D", "", mantissa).lstrip("0"))


def _is_near(old: str, new: str) -> bool:
    mantissa, _, exponent = old.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    last = float(f"1e{int(exponent or 0) - digits}") if digits or exponent else 0.0
    return math.isfinite(last) and math.isclose(float(old), float(new), rel_tol=_NEAR, abs_tol=1.5 * last)


def _quoted(line: str, other: str = "") -> str:
    if len(line) <= _LONG:
        return f'"{line}"'
    parted = (place for place, (one, two) in enumerate(zip(line, other, strict=False)) if one != two)
    place = next(parted, min(len(line), len(other)))
    begin = max(line.rfind(" ", 0, place) + 1, place - _LONG)
    return f'"{line[begin : place + _LONG].split(" ")[0]}" at character {begin + 1}'


def parting_of_files(old: bytes | None, same: bytes | None, new: bytes | None, *, exact: bool) -> str | None:
    """How a file's content differs, None where it does not; a content of None is a removed file."""
    if old == new or (old is None) != (same is None):
        return None
    if old is None or same is None or new is None:
        return ": it is removed" if new is None else ": it is not removed"
    try:
        texts = [content.decode() for content in (old, same, new)]
    except UnicodeDecodeError:
        if exact:
            return "" if old == same else None
        found = parting_of_arrays(old, new) if old == same else ""
    else:
        found = parting(texts[0], texts[1], texts[2], exact=exact)
    return f": {found}" if found else None


def parting_of_arrays(before: bytes, after: bytes) -> str:
    old, new = _arrays(before), _arrays(after)
    if not old:
        return ""
    if old.keys() != new.keys():
        return "it holds other arrays"
    return next((f"{name or 'it'} holds other values" for name in old if not _are_near(old[name], new[name])), "")


def _arrays(content: bytes) -> Arrays:
    try:
        import numpy as np

        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        named = {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        return {name: array for name, array in named.items() if isinstance(array, np.ndarray)}
    except _UNREADABLE:
        return {}


def _are_near(before: Any, after: Any) -> bool:
    import numpy as np

    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if before.dtype.kind not in "fc":
        return bool((before == after).all())
    finite = np.isfinite(before) & np.isfinite(after)
    old, new = (each[finite].astype(complex) for each in (before, after))
    is_near = np.linalg.norm(new - old) <= _NEAR * np.linalg.norm(old)
    return bool(is_near and np.array_equal(before[~finite], after[~finite], equal_nan=True))


_OWN_SPREAD = 3.0  # times the original's own run-to-run difference that a patched result may differ
_LUCK = 3  # steps whose spread counts together: runs may agree on a number at one step by chance
_OWN_ERROR, _COARSE_ERROR = 2.0, 3.0  # times the original's own rounding error; for few elements or digits
_NEAR_ERROR = 8.0  # the same where torch.testing calls the values close, which is up to a hundred roundings
_AVERAGED = 2.0**-15  # of an optimizer's averages: fused and capturable kernels round 1 - beta, of 0.999 by 1.3e-5
_NO_ROUNDING = 0.05  # of the largest values of the kind: a larger error is not due to rounding
_DRIFT = 1e-3  # of a value: what rounding may grow to in the steps after a restart
_GROWTH = 10.0  # times the original's own error, the same: half precision and TF32 start with larger ones
_MOST_DRIFT = 0.05  # of a value, whatever the original's own error
_DERIVED_DRIFT = 0.1  # of the largest values of the kind: Adam makes whole steps of the rounding of small gradients
_SAID = 3
_NO_STEPS = (
    "its first process comes to no step: an optimizer's, a batch of a loader, a backward pass, or a call of a function "
    "with a fix"
)
_NO_VALUES = "it has no losses, gradients or outputs, and changes no parameters, that could be compared"

_Spread = Mapping[tuple[int, str], float]


@dataclass(frozen=True)
class Standard:
    """The original, another run of it, how its `own` runs differ, and the folder of its run in double precision."""

    run: Recorded
    again: Recorded | None = None
    own: tuple[Comparison, ...] = ()
    reference: Path | None = None

    @property
    def is_repeatable(self) -> bool:
        return bool(self.own) and all(comparison.is_bitwise for comparison in self.own)

    def common(self, other: Recorded) -> int | None:
        runs = [run for run in (self.run, self.again, other) if run]
        return min(run.last for run in runs) if any(run.is_cut for run in runs) else None

    def compared(self, other: Recorded) -> Comparison:
        return compare(self.run.folder, other.folder, self.reference, self.common(other))


def likeness(standard: Standard, after: Recorded, compared: Comparison) -> Likeness:
    """How alike a run is to the original; if one is cut, over fewer steps and without output and files.

    Where all recorded values are bitwise equal, printed numbers may still be rounded differently.
    """
    is_cut = standard.common(after) is not None
    if parted := (*(() if is_cut else ends(standard.run, after)), *compared.parted, *compared.order):
        return Likeness(Grade.DIFFERENT, parted)
    if not compared.steps or not compared.values:
        nothing = _NO_VALUES if compared.steps else _NO_STEPS
        return Likeness(Grade.UNKNOWN, (NO_TIME if is_cut else nothing,))
    own, grades = _graded(standard, compared)
    if failed := [each for each, grade in grades.items() if grade is Grade.DIFFERENT]:
        return Likeness(Grade.DIFFERENT, tuple(map(_parting, _by_size(failed)[:_SAID])))
    if said := () if is_cut else tuple(_said_otherwise(standard, after, exact=False)):
        return Likeness(Grade.DIFFERENT, said[:_SAID])
    seen = f"{compared.values} values of {compared.steps} steps"
    if compared.is_bitwise:
        near = () if is_cut else tuple(_said_otherwise(standard, after, exact=True))
        grade = Grade.ROUNDING if near else Grade.BITWISE
        return Likeness(grade, (*near[:_SAID], f"{seen} are bitwise equal"))
    beyond = [each for each, grade in grades.items() if grade is Grade.ALIKE]
    first = _by_size(beyond or compared.differences)[0]
    if beyond:
        words = f"{seen} are equal, or differ by no more than from run to run of the original"
        return Likeness(Grade.ALIKE, (words, _parting(first)))
    unknown = () if own is not None else ("not all could be compared to double precision",)
    largest = max((each.error for each in compared.differences if each.error is not None), default=None)
    most = "" if largest is None else f", at most {largest:.2g} of the value"
    return Likeness(Grade.ROUNDING, (f"{seen} are equal but for rounding{most}", _parting(first), *unknown))


def drift(standard: Standard, compared: Comparison) -> int:
    """The last step at which results differ too much, but not at steps that restart; else 0.

    The differences may have grown from rounding by then.
    """
    _, grades = _graded(standard, compared)
    failed = [each.step for each, grade in grades.items() if grade is Grade.DIFFERENT]
    is_late = bool(compared.restarted) and compared.restarted.isdisjoint(failed)
    return max(failed, default=0) if is_late and not compared.parted and not compared.order else 0


def _graded(standard: Standard, compared: Comparison) -> tuple[Mapping[str, float] | None, Mapping[Difference, Grade]]:
    spread, own = _spread(standard.own), _own_errors(compared, is_repeatable=standard.is_repeatable)
    drifts = {each: _drift(each, own, compared.restarted) for each in compared.differences}
    # With several optimizers, gradients are computed from what others have stepped just before.
    behind_steps = any(each.name.startswith(GRADIENT) and each.name.count(".") > 1 for each in compared.differences)
    least = {each: _AVERAGED if behind_steps or each.name.startswith(AVERAGE) else 0.0 for each in compared.differences}
    return own, {each: _closeness(each, spread, drift, least[each]) for each, drift in drifts.items()}


def _spread(comparisons: Iterable[Comparison]) -> _Spread:
    spread: dict[tuple[int, str], float] = {}
    for each in (difference for comparison in comparisons for difference in comparison.differences):
        place = each.step, each.name
        spread[place] = max(each.error or 0.0, spread.get(place, 0.0))
    return spread


def _near(spread: _Spread, difference: Difference) -> float:
    return max(spread.get((difference.step + ahead, difference.name), 0.0) for ahead in range(_LUCK))


def ends(before: Recorded, after: Recorded) -> Iterator[str]:
    old, new = (_end(run) for run in (before, after))
    if old != new:
        yield f"it {new}, where the original {old}"


def _end(run: Recorded) -> str:
    if run.stuck:
        return f"hung: {run.stuck}"
    return "ran on" if run.code is None else ending(run.code, run.errors)


def _own_errors(compared: Comparison, *, is_repeatable: bool) -> Mapping[str, float] | None:
    """The original's largest rounding errors, by value; None where double precision doesn't decide.

    Of an original that is not repeatable none is known: its errors are not all due to rounding.
    """
    known = [each for each in compared.differences if each.reference is not None]
    if not compared.referenced or not all(map(_is_known, known)):
        return None
    own: dict[str, float] = {}
    for each in known if is_repeatable else ():
        own[_group(each)] = max(each.reference or 0.0, own.get(_group(each), 0.0))
    return own


def _group(difference: Difference) -> str:
    return OUTPUT if difference.name.startswith(OUTPUT) else difference.name


def _drift(difference: Difference, own: Mapping[str, float] | None, restarted: Collection[int]) -> float:
    """The relative error that may accumulate after steps that restart from the original's state.

    At those, double precision decides, or closeness where it draws other random numbers; so it does for replays, which
    run the kernels that they were captured from.
    """
    if difference.name.startswith(REPLAY) or (own is None and (not restarted or difference.step in restarted)):
        return 0.0
    if difference.name.startswith(DERIVED):
        return _DERIVED_DRIFT
    grown = _GROWTH * (own or {}).get(_group(difference), 0.0)
    return max(_DRIFT, min(grown, _MOST_DRIFT))


def _closeness(difference: Difference, spread: _Spread, drift: float, least: float) -> Grade:
    if difference.error is None:  # a digest, of what goes on from another state, or stands beside a sample
        return Grade.ROUNDING
    if not math.isfinite(difference.error):
        return Grade.DIFFERENT
    if _is_rounding(difference, difference.error, drift, least):
        return Grade.ROUNDING
    return Grade.ALIKE if difference.error <= _OWN_SPREAD * _near(spread, difference) else Grade.DIFFERENT


def _is_rounding(difference: Difference, error: float, drift: float, least: float) -> bool:
    reference, changed = difference.reference, difference.changed
    if reference is not None and changed is not None and _is_known(difference):
        allowed = _NEAR_ERROR if difference.is_close else _COARSE_ERROR if difference.is_coarse else _OWN_ERROR
        least /= difference.share if difference.is_coarse else 1.0  # a single value may be next to nothing
        return changed <= max(allowed * max(reference, EPSILON), least)
    of_kind = difference.of_kind if difference.name.startswith(DERIVED) else None
    is_option = difference.name.startswith(OPTION)
    has_drifted = not is_option and (error if of_kind is None else of_kind) <= max(drift, least)
    return difference.is_close or has_drifted


def _is_known(difference: Difference) -> bool:
    return difference.reference is not None and difference.reference * difference.share <= _NO_ROUNDING


def _by_size(differences: Sequence[Difference]) -> list[Difference]:
    return sorted(differences, key=lambda each: (each.step, each.name.startswith(DERIVED), -(each.error or 0.0)))


def _size(difference: Difference) -> str:
    return "an unknown amount" if difference.error is None else f"{difference.error:.2g} of the value"


def _parting(difference: Difference) -> str:
    words = f"at step {difference.step} {difference.name} differs by {_size(difference)}"
    if difference.reference is None or difference.changed is None:
        return words
    return f"{words}: its error is {difference.changed:.2g}, the original's {difference.reference:.2g}"


def _said_otherwise(standard: Standard, after: Recorded, *, exact: bool) -> Iterator[str]:
    runs = standard.run, standard.again or standard.run, after
    texts = {"prints": [_printed(run) for run in runs], "logs": [logged(run.folder) for run in runs]}
    for verb, (old, same, new) in texts.items():
        if found := parting(old, same, new, exact=exact):
            yield f"it {verb} something else: {found}"
    yield from _written_otherwise(*(run.files for run in runs), exact=exact)


def _printed(run: Recorded) -> str:
    has_ranks = any(run.folder.glob("rank *"))
    return "\n".join(sorted(run.output.splitlines())) if has_ranks else run.output


_Files = Mapping[str, Path | None]


def _written_otherwise(before: _Files, again: _Files, after: _Files, *, exact: bool) -> Iterator[str]:
    for path in sorted((before.keys() & again.keys()) - after.keys()):
        yield f"it does not write {os.path.relpath(path)}"
    for path in sorted(after.keys() - before.keys()) if before.keys() == again.keys() else ():
        yield f"it writes {os.path.relpath(path)}, and the original does not"
    for path in sorted(before.keys() & again.keys() & after.keys()):
        contents = [file.read_bytes() if (file := files[path]) else None for files in (before, again, after)]
        if (found := parting_of_files(*contents, exact=exact)) is not None:
            yield f"it writes something else to {os.path.relpath(path)}{found}"


def said_otherwise(printed: Iterable[Mapping[str, str]]) -> Iterator[Likeness]:
    rounds = [each for each in printed if PATCHED in each]
    if len(rounds) < LEAST_ROUNDS:
        return
    originals, patched = [each[name] for each in rounds for name in ORIGINALS], [each[PATCHED] for each in rounds]
    for grade, exact in ((Grade.DIFFERENT, False), (Grade.ROUNDING, True)):
        if found := parting_in_all(originals, patched, exact=exact):
            yield Likeness(grade, (f"as it raced, it printed something else: {found}",))

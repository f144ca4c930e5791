"""The file of verdicts, `verdicts.json`: the last one for each program on each device, with all that was measured.

It holds an object with `version`, which is 1, and `verdicts`, a list of objects, the newest first. Such an object has
the fields of `perflint.verify.verdict.Verdict`, nested as the data is there; times are in seconds, memory in bytes, and
a number that isn't finite is the string "nan", "inf" or "-inf". Its `result` repeats what follows from the rest:

    sentence            the verdict in one sentence
    outcome             "faster", "slower", "nothing to gain", "can't tell", "different", "not checkable",
                        "nothing to fix" or "failed"
    is_same, is_faster  whether the patch keeps what its fixes promise, and is faster than noise explains
    speed, aa           how many times as fast the patch is, and the original against itself: `ratio`, `low` and `high`
                        (its 95 % interval), `pairs` of windows, `rounds`; null where it was not measured
    floor               the noise floor: how far from 1 the original is against itself
    step_seconds        the median time of a step before and after
    break_even_steps    how many steps win back what the patch takes longer to set up

A window in `samples` has `variant`, `round`, `number`, `seconds` and `steps`. Variants are "original", "original
again", "patched", and "only NAME" or "without NAME" for the fix of that name by itself and the patch without it. New
fields may be added to version 1; whoever reads it is to pass over what they don't know.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perflint.documents.disk import write_text
from perflint.errors import UserError
from perflint.verify.codec import decoded, encoded
from perflint.verify.verdict import Verdict
from perflint.verify.wording import sentence

VERSION = 1


def read(path: Path) -> tuple[Verdict, ...]:
    """The verdicts in the file at `path`, none where there is no such file; UserError where it can't be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise UserError(f"{path}: it has version {content['version']}, and this perflint reads version {VERSION}")
        return tuple(decoded(Verdict, each) for each in content["verdicts"])
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: it is no file of verdicts: {error}") from error


def add(path: Path, verdict: Verdict) -> None:
    """Put `verdict` into the file at `path`, in place of the last one on its program and device; raises UserError."""
    others = [each for each in read(path) if (each.program, each.device) != (verdict.program, verdict.device)]
    content = {"version": VERSION, "verdicts": [as_object(each) for each in (verdict, *others)]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def as_object(verdict: Verdict) -> dict[str, Any]:
    """The verdict as an object of the file."""
    result = {
        "sentence": sentence(verdict),
        "outcome": verdict.outcome,
        "is_same": verdict.is_same,
        "is_faster": verdict.is_faster,
        "speed": verdict.speed,
        "aa": verdict.aa,
        "floor": verdict.floor,
        "step_seconds": verdict.step_seconds,
        "break_even_steps": verdict.break_even_steps,
    }
    values: dict[str, Any] = encoded(verdict)
    return {"result": encoded(result), **values}

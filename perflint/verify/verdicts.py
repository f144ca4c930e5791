"""The file of verdicts, `verdicts.json`: the last one on each program and device. `verdicts.md` has its fields."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from perflint.documents.disk import write_text
from perflint.engine.errors import UserError
from perflint.verify.codec import decoded, encoded
from perflint.verify.verdict import Verdict
from perflint.verify.wording import sentence

VERSION = 1


def read(path: Path) -> tuple[Verdict, ...]:
    """The verdicts in the file at `path`, none where there is no such file; UserError where it can't be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise _useless(path, f"it is not of version {VERSION}, which this perflint reads")
        found = (decoded(Verdict, each) for each in content["verdicts"])
        return tuple(_with_paths(each, lambda name: os.path.normpath(_project(path) / name)) for each in found)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _useless(path, f"it can't be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _useless(path, "it holds no verdicts that can be read") from error


def aside(path: Path) -> Path:
    """Where a file at `path` that can't be read goes when a verdict is added."""
    return path.with_suffix(".old")


def _useless(path: Path, why: str) -> UserError:
    return UserError(f"{path}: {why}: delete it or verify again")


def add(path: Path, verdict: Verdict) -> None:
    """Put `verdict` into the file at `path`, in place of the last one on its program and device; raises UserError.

    A file that can't be read goes aside.
    """
    known = _kept(path)
    others = [each for each in known or () if (each.program, each.device) != (verdict.program, verdict.device)]
    kept = (_with_paths(each, lambda name: os.path.relpath(name, _project(path))) for each in (verdict, *others))
    content = {"version": VERSION, "verdicts": [as_object(each) for each in kept]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if known is None:
            path.replace(aside(path))
        write_text(path, json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def _with_paths(verdict: Verdict, change: Callable[[str], str]) -> Verdict:
    """The verdict with the paths of its fixes changed: they are kept relative to the project, which may be copied."""
    return replace(verdict, fixes=tuple(replace(fix, path=change(fix.path)) for fix in verdict.fixes))


def _project(file: Path) -> Path:
    return Path(os.path.realpath(file.parent.parent))


def _kept(path: Path) -> tuple[Verdict, ...] | None:
    try:
        return read(path)
    except UserError:
        return None


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
        "busy": (verdict.before.busy, verdict.after.busy),
    }
    values: dict[str, Any] = encoded(verdict)
    return {"result": encoded(result), **values}

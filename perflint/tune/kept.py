"""Keeps the best variant that tuning has found of a program, for `perflint run --tuned`, and says what it gains."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perflint.documents.disk import write_text
from perflint.engine import UserError
from perflint.engine.rule import Safety
from perflint.project.figures import FOLDER, made
from perflint.shim.plan import Plan
from perflint.shim.planning import Project
from perflint.shim.settings import KNOWN
from perflint.verify.grade import Outcome
from perflint.verify.statistics import Estimate, against_original, within
from perflint.verify.summary import ratio_with_interval, size
from perflint.verify.variants import FixKey, Variants
from perflint.verify.verdict import FixVerdict, Verdict, weakest

TUNED = "tuned.json"
_VERSION = 1
_OPEN = (Outcome.UNSURE, Outcome.UNCHECKED, Outcome.FAILED)  # of which nobody knows what they gain


@dataclass(frozen=True)
class Kept:
    """A fix or setting that was kept: its rule, the path of its file in the project, its line and title."""

    rule: str
    path: str
    line: int
    title: str

    def is_of(self, key: FixKey, root: Path) -> bool:
        """Whether it is this fix of the project at `root`."""
        return self == Kept(key.rule, _inside(key.path, root), key.line, key.title)


def keep(root: Path, program: str, fixes: Iterable[FixVerdict]) -> Path:
    """Keep the fixes that won for a program of the project at `root`; return the file; raises UserError."""
    file = made(root) / TUNED
    known = _read(file) if file.exists() else {}
    found = [Kept(fix.rule, _inside(fix.path, root), fix.line, fix.title) for fix in fixes if fix.kept]
    known[program] = [tuple(vars(each).values()) for each in found]
    write_text(file, json.dumps({"version": _VERSION, "programs": known}, indent=1))
    return file


def load(root: Path, program: str) -> tuple[Kept, ...]:
    file = root / FOLDER / TUNED
    known = _read(file) if file.exists() else {}
    if program not in known:
        raise UserError(f"{program} was not tuned: perflint tune {program}")
    return tuple(Kept(*each) for each in known[program])


def plan_of(project: Project, program: str) -> Plan:
    """The plan of a program as it was tuned; raises UserError where it has changed since then."""
    kept = load(project.root, program)
    whole = tuple(each.rule for each in kept if each.rule in KNOWN)
    more = tuple(dict.fromkeys(each.rule for each in kept if each.rule not in KNOWN))  # advice among them
    settings = replace(project.settings, extend_select=(*project.settings.extend_select, *more))
    variants = Variants(replace(project, settings=settings, whole=whole))
    keys = [key for key in variants.fixes if any(each.is_of(key, project.root) for each in kept)]
    lost = [each for each in kept if not any(each.is_of(key, project.root) for key in keys)]
    if lost:
        place = f"{lost[0].rule} at {lost[0].path}:{lost[0].line}"
        raise UserError(f"{program} has changed since it was tuned ({place}): perflint tune {program}")
    plan = variants.with_fixes("tuned", keys).plan
    return plan._replace(files={path: file._replace(calls=()) for path, file in plan.files.items() if file.changes})


def _inside(path: str, root: Path) -> str:
    return Path(os.path.relpath(os.path.realpath(path), os.path.realpath(root))).as_posix()


def _read(file: Path) -> dict[str, list[tuple[Any, ...]]]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["version"] != _VERSION:
            raise ValueError
        return dict(content["programs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} can't be read: remove it, and tune again") from error


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

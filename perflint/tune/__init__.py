"""Tunes a program: chooses by a profile what an expert would try, and keeps the best that is proved.

`perflint run --tuned` makes a plan of what is kept.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import DEVNULL
from typing import NamedTuple

from perflint.engine import UserError
from perflint.engine.catalogue import all_rules
from perflint.engine.rule import Safety, Severity
from perflint.profile import result
from perflint.profile.record import Orders
from perflint.profile.result import Code, Profile
from perflint.profile.running import Manner, profile_of, run
from perflint.project import stored
from perflint.shim.plan import Plan
from perflint.shim.planning import Project
from perflint.shim.settings import KNOWN
from perflint.verify.agent.steps import host
from perflint.verify.processes import gpu_names
from perflint.verify.protocol import Share
from perflint.verify.runs import Course
from perflint.verify.statistics import Estimate, Outcome, against_original, within
from perflint.verify.summary import ratio_with_interval, size
from perflint.verify.variants import FixKey, Variants
from perflint.verify.verdict import FixVerdict, Verdict, weakest

_LEAST = 0.1  # of a step: what shortens less can't gain more than that
TUNED = "tuned.json"
_VERSION = 2
_OPEN = (Outcome.UNSURE, Outcome.UNCHECKED, Outcome.FAILED)  # of which nobody knows what they gain
_STEPS, _WARM_UP = 5, 5  # that are traced, and before those


@dataclass(frozen=True)
class Trials:
    """The `settings` and `rules` to try beside the fixes found anyway; those of the rules `first` come first.

    A setting is tried `instead` of rules only where none of them has a fix, which does the same in the source, or gains
    the same and starts sooner. `note` says what was left out, and why.
    """

    settings: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    instead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    note: str = ""


def trials(allowed: Collection[Safety], profile: Profile | None = None) -> Trials:
    """What promises no less than is allowed and may gain by the profile, if any: the most gain first.

    Advice is tried only where it names regimes, and on a GPU.
    """
    has_gpu = profile.is_gpu if profile else bool(gpu_names())
    has_ranks = profile is not None and len(profile.ranks) > 1
    possible = {
        name: each
        for name, each in KNOWN.items()
        if (has_gpu or not each.needs_gpu) and (has_ranks or not each.needs_ranks)
    }
    settings = {name: each.regimes for name, each in possible.items() if Safety(each.safety) in allowed}
    on_gpu = all_rules() if has_gpu else ()
    rules = {each.name: each.regimes for each in on_gpu if each.severity is Severity.ADVICE and each.regimes}

    def share(regimes: Collection[str]) -> float:
        return sum(profile.shares.get(each, 0.0) for each in regimes) if profile else 1.0

    left_out = [name for name, regimes in {**rules, **settings}.items() if regimes and share(regimes) < _LEAST]
    note = ""
    if left_out and profile:
        bounds = ", ".join(f"{name} {part:.0%}" for name, part in profile.shares.items() if part >= _LEAST)
        little = f"what takes less than {_LEAST:.0%} of a step"
        note = f"a step is {bounds} ({profile.date[:10]}); not tried, as it shortens {little}: {', '.join(left_out)}"
    kept = sorted((name for name in rules if name not in left_out), key=lambda name: -share(rules[name]))
    tried = tuple(name for name in settings if name not in left_out)
    forms = {each.setting: each.name for each in on_gpu if each.setting}
    instead = {name: [rule] for name, rule in forms.items() if name in tried and profile and profile.is_gpu}
    rivals = [name for name in kept if profile and name not in forms.values()]
    shortened = {each for name in rivals for each in rules[name]}
    slow = (name for name in tried if KNOWN[name].starts_slowly)
    instead |= {name: rivals for name in slow if rivals and share({*settings[name]} - shortened) < _LEAST}
    return Trials(tried, tuple(kept), tuple(kept) if profile else (), instead, note)


def fresh(root: Path, program: str) -> Profile | None:
    file = stored.nearest(root.resolve(), stored.PROFILES)
    known = next((each for each in (result.read(file) if file else ()) if each.program == program), None)
    with suppress(OSError, SyntaxError, PackageNotFoundError):
        is_same = known and all(Code.of(Path(path)).digest == digest for path, digest in known.files.items())
        return known if known and is_same and _is_of_here(known) else None
    return None


def _is_of_here(profile: Profile) -> bool:
    return profile.device in (gpu_names() or {host()}) and profile.versions.get("torch") == version("torch")


def keep(root: Path, program: str, fixes: Iterable[FixVerdict]) -> Path:
    file = stored.made(root) / TUNED
    known = {**_known(file), program: tuple(_told(fix, root) for fix in fixes if fix.kept)}
    stored.store(file, _VERSION, "programs", (_Tuned(*each) for each in known.items()), indent=1)
    return file


def plan_of(project: Project, program: str) -> Plan:
    """Raises UserError where the program has changed since it was tuned."""
    known = _known(project.root / stored.FOLDER / TUNED)
    if program not in known:
        raise UserError(f"{program} was not tuned: perflint tune {program}")
    rules = dict.fromkeys(rule for rule, *_ in known[program])  # advice among them
    whole, more = (tuple(each for each in rules if (each in KNOWN) == is_whole) for is_whole in (True, False))
    settings = replace(project.settings, extend_select=(*project.settings.extend_select, *more))
    variants = Variants(replace(project, settings=settings, whole=whole))
    found = {key: told for key in variants.fixes if (told := _told(key, project.root)) in known[program]}
    for lost in known[program]:
        if lost not in found.values():
            rule, path, line, _ = lost
            place = f"{rule} at {path}:{line}"
            raise UserError(f"{program} has changed since it was tuned ({place}): perflint tune {program}")
    plan = variants.with_fixes("tuned", found).plan
    return plan._replace(files={path: file._replace(calls=()) for path, file in plan.files.items() if file.changes})


class _Told(NamedTuple):
    rule: str
    path: str
    line: int
    title: str


class _Tuned(NamedTuple):
    program: str
    fixes: tuple[_Told, ...]


def _told(fix: FixKey | FixVerdict, root: Path) -> _Told:
    path = Path(os.path.relpath(os.path.realpath(fix.path), os.path.realpath(root))).as_posix()
    return _Told(fix.rule, path, fix.line, fix.title)


def _known(file: Path) -> dict[str, tuple[_Told, ...]]:
    try:
        return {each.program: each.fixes for each in stored.load(file, _VERSION, "programs", _Tuned)}
    except stored.DAMAGED as error:
        raise UserError(f"{file} can't be read: remove it, and tune again") from error


def ladder(verdict: Verdict, allowed: Collection[Safety]) -> Iterator[str]:
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


def profiled(course: Course, root: Path) -> Profile | None:
    course.ledger.enter("profile")
    orders = Orders(_STEPS, _WARM_UP, 2 * _STEPS, **course.kept(str(root)))
    seconds = course.budget.of(Share.PROFILE)
    manner = Manner(True, seconds, 0.0, DEVNULL, DEVNULL, course.libraries)
    with course.undone():
        ran = run(course.program, orders, lambda _: None, course.guardian, manner)
    found = profile_of(str(course.program), ran.records, ran.workers)
    if found is not None:
        with suppress(OSError):
            result.keep(root, found)
    return found

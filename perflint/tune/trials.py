"""Chooses what tuning tries: the settings and rules that may gain where a profile says that the time of a step goes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from perflint.engine.catalogue import all_rules
from perflint.engine.rule import Safety, Severity
from perflint.profile.result import Code, Profile, read
from perflint.project.figures import PROFILES, nearest
from perflint.shim.settings import KNOWN
from perflint.verify.agent.steps import host
from perflint.verify.monitor import gpu_names

_LEAST = 0.1  # of a step: what shortens less can't gain more than that


@dataclass(frozen=True)
class Trials:
    """The `settings` and `rules` to try beside the fixes that are found anyway; those of the rules `first` come first.

    A setting is tried `instead` of rules: only where none of them has a fix, which makes it in the source, or shortens
    the same and starts sooner. `note` says what was left out, and why; it is empty where nothing was.
    """

    settings: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    instead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    note: str = ""


def trials(allowed: Collection[Safety], profile: Profile | None = None) -> Trials:
    """What promises no less than is allowed and, where there is a profile, may gain by it: the most gain first.

    Rules that are advice are tried only if they name regimes, and on a GPU.
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
    """The latest profile of a program in the folder `root`, if its files, torch and the device are still the same."""
    file = nearest(root.resolve(), PROFILES)
    known = next((each for each in (read(file) if file else ()) if each.program == program), None)
    with suppress(OSError, SyntaxError, PackageNotFoundError):
        is_same = known and all(Code.of(Path(path)).digest == digest for path, digest in known.files.items())
        return known if known and is_same and _is_of_here(known) else None
    return None


def _is_of_here(profile: Profile) -> bool:
    """Whether a profile was taken with this torch, on a GPU of this machine, or on this host where there is none."""
    return profile.device in (gpu_names() or {host()}) and profile.versions.get("torch") == version("torch")

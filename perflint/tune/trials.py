"""Chooses what tuning tries: the settings and rules that may gain in the regime that a profile has found."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perflint.engine.catalogue import all_rules
from perflint.engine.rule import Safety, Severity
from perflint.profile.costs import Code
from perflint.profile.kept import read
from perflint.profile.result import Profile
from perflint.project.figures import PROFILES, nearest
from perflint.shim.settings import KNOWN


@dataclass(frozen=True)
class Trials:
    """The `settings` and `rules` to try, beside the fixes that are found anyway: those of `first` before others.

    `note` says what was left out, and why; it is empty where nothing was.
    """

    settings: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    note: str = ""


def trials(allowed: Collection[Safety], profile: Profile | None = None) -> Trials:
    """What promises no less than is allowed and, where there is a profile, may gain in its regime.

    Rules that are advice are tried only if they name regimes.
    """
    regime = profile.regime if profile else ""
    settings = {name: each.regimes for name, each in KNOWN.items() if Safety(each.safety) in allowed}
    rules = {each.name: each.regimes for each in all_rules() if each.severity is Severity.ADVICE and each.regimes}
    left_out = [name for name, regimes in {**rules, **settings}.items() if regime and regimes and regime not in regimes]
    note = ""
    if left_out and profile:
        note = f"not tried where steps are bound by {regime}, as profiled on {profile.date[:10]}: {', '.join(left_out)}"
    return Trials(
        tuple(name for name in settings if name not in left_out),
        tuple(name for name in rules if name not in left_out),
        tuple(name for name, regimes in rules.items() if regime and regime in regimes),
        note,
    )


def profiled(root: Path, program: str) -> Profile | None:
    """The latest profile of a program in the folder `root`, if the files that it has run are still the same."""
    file = nearest(root.resolve(), PROFILES)
    known = next((each for each in (read(file) if file else ()) if each.program == program), None)
    with suppress(OSError, SyntaxError):
        if known and all(Code.of(Path(path)).digest == digest for path, digest in known.files.items()):
            return known
    return None

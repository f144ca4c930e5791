"""Profiles a few steps of a program that is to be tuned."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL

from perflint.profile.record import Orders
from perflint.profile.result import Profile, keep
from perflint.profile.running import Manner, profile_of, run
from perflint.verify.agent.cover import outermost
from perflint.verify.budget import Share
from perflint.verify.runs import Course

_STEPS, _WARM_UP = 5, 5  # that are traced, and before those


def profiled(course: Course, root: Path) -> Profile | None:
    """A profile of a few steps, which is kept for the project in the folder `root`; None if the program takes none."""
    course.ledger.enter("profile")
    journal, roots = str(course.guardian.journal), (str(course.program.folder), str(root))
    cover = outermost(roots) if course.covers else ()
    orders = Orders(_STEPS, _WARM_UP, 2 * _STEPS, journal=journal, roots=roots, cover=cover)
    seconds = course.budget.of(Share.PROFILE)
    manner = Manner(True, seconds, 0.0, DEVNULL, DEVNULL, course.libraries)
    with course.undone():
        ran = run(course.program, orders, lambda _: None, course.guardian, manner)
    found = profile_of(str(course.program), ran.records, ran.workers)
    if found is not None:
        with suppress(OSError):
            keep(root, found)
    return found

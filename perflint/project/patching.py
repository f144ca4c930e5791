"""Fixes many files, in as many processes as pay off."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perflint.analysis.links import ALONE, Context
from perflint.documents.disk import Unwritable
from perflint.documents.places import Problem
from perflint.engine.problems import problem_of
from perflint.engine.results import RunResult
from perflint.engine.rule import Options, Rule
from perflint.project.cores import available_cores
from perflint.project.patch import Patch, Place, patch_file
from perflint.project.run import check_files
from perflint.project.seen import seen_in, with_seen
from perflint.project.selection import RulesByFile
from perflint.project.workers import work

if TYPE_CHECKING:
    from perflint.project.files import Discovery
    from perflint.project.settings import Settings

_FEW = 8  # files that are patched before other processes would have started

Progress = Callable[[int, int], None]
Choice = Callable[[RunResult], Mapping[str, frozenset[Place]]]  # what is wanted in each file, of all that was found


def patch_files(
    discovery: Discovery, settings: Settings, progress: Progress | None = None, wanted: Choice | None = None
) -> tuple[Patch, ...]:
    """The patch of each file that was found, sorted by path, of what is `wanted` alone if asked; nothing is written."""
    rules = RulesByFile(settings)
    contexts: Mapping[str, Context] = with_seen(
        {}, {str(each): str(each) for each in discovery.files}, seen_in(settings.root.resolve())
    )
    places: Mapping[str, frozenset[Place]] = {}
    if wanted or len(discovery.files) + len(discovery.around) > 1:
        result = check_files(discovery, settings)
        contexts, places = result.contexts, wanted(result) if wanted else {}
    tasks = [
        _Task(
            path, rules.at(path), contexts.get(str(path), ALONE), places.get(str(path), frozenset()) if wanted else None
        )
        for path in discovery.files
    ]
    patches = [Patch(str(path), problem=Problem(reason)) for path, reason in discovery.unreadable]
    with closing(_patches(tasks, settings)) as results:
        for number, patch in enumerate(results, 1):
            patches.append(patch)
            if progress:
                progress(number, len(tasks))
    return tuple(sorted(patches, key=lambda patch: patch.path))


def write_all(patches: Sequence[Patch]) -> tuple[tuple[Patch, ...], tuple[str, ...]]:
    """Write the files that `patches` change; the patches that are in force now, and why the others are not."""
    outcomes = [(patch, _write(patch)) for patch in patches]
    return tuple(patch for patch, error in outcomes if not error), tuple(error for _, error in outcomes if error)


def _write(patch: Patch) -> str:
    try:
        patch.write()
    except Unwritable as error:
        return str(error)
    return ""


def _patches(tasks: Sequence[_Task], settings: Settings) -> Generator[Patch, None, None]:
    patcher = _Patcher(settings.rules, settings.unsafe)
    jobs = settings.jobs or available_cores()
    if jobs == 1 or len(tasks) <= _FEW:
        yield from map(patcher, tasks)
        return
    with closing(work(patcher, tasks, jobs)) as results:
        for number, patch in results:
            lost = Problem("was not fixed: the process that worked on it was killed")
            yield patch or Patch(str(tasks[number].path), problem=lost)


@dataclass(frozen=True)
class _Task:
    path: Path
    rules: tuple[Rule, ...]
    context: Context
    wanted: frozenset[Place] | None


@dataclass(frozen=True)
class _Patcher:
    """Patches a file in whichever process; what nobody will need of the patch does not travel back."""

    options: Mapping[str, Options]
    unsafe: bool

    def __call__(self, task: _Task) -> Patch:
        try:
            patch = patch_file(
                task.path,
                task.rules,
                self.options,
                unsafe=self.unsafe or task.wanted is not None,
                context=task.context,
                wanted=task.wanted,
            )
        except Exception as error:
            return Patch(str(task.path), problem=problem_of(error))
        return patch if patch.changed else replace(patch, before="", after="", document=None)

"""Counts the loops over time in public files, how many have a fix, and what stands in the way of the others.

Run: python -m tests.bench.loops ROOT LIST [--jobs N] [--json OUT]

LIST names files below ROOT, one a line, of which each folder is a repository: the project around its files. A loop has
a fix, too, where the fixes of other rules make way for one, as `perflint fix --unsafe` applies them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from perflint.project.files import discover, in_project
from perflint.project.patch import patch_files
from perflint.project.run import check_files
from perflint.project.settings import load

RULE = "decode-loop"
LATER = "made way for by other fixes"
_SHOWN = 12  # obstacles of each kind of loop
_PLACES = re.compile(r"`[^`]*`|'[^']*'|line \d+: ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("list", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    typed = parser.parse_args()
    found = []
    with (typed.json or Path(os.devnull)).open("w", encoding="utf-8", buffering=1) as rows:
        for each in loops(typed.root.resolve(), typed.list.read_text().splitlines(), typed.jobs):
            found.append(each)
            rows.write(f"{json.dumps(astuple(each))}\n")
    print("\n".join(summary(found)))


@dataclass(frozen=True)
class Loop:
    """A loop over time, and by which fixes it is rewritten; `blocked` where there are none."""

    path: str
    cell: int | None
    line: int
    kind: str
    titles: tuple[str, ...]
    blocked: str


def loops(root: Path, names: Iterable[str], jobs: int) -> Iterator[Loop]:
    """The loops over time in the named files, repository by repository."""
    by_repository: defaultdict[Path, list[Path]] = defaultdict(list)
    for name in names:
        by_repository[root / name.split("/")[0]].append(root / name)
    for repository, files in by_repository.items():
        os.chdir(repository)
        chosen = load(repository, isolated=True, config_path=None, overrides={"select": [RULE]}).settings
        chosen = replace(chosen, cache=False, jobs=jobs)
        found = discover([file for file in files if file.is_file()], chosen)
        reported = check_files(in_project(found, repository, chosen), chosen).diagnostics
        blocked = {each.path for each in reported if not each.fixes}
        fixing = load(repository, isolated=True, config_path=None, overrides={"unsafe": True}).settings
        fixing = replace(fixing, cache=False, jobs=jobs)
        todo = in_project(discover(sorted(map(Path, blocked)), fixing), repository, fixing)
        patches = patch_files(todo, fixing) if blocked else ()
        left = {(patch.path, each.start) for patch in patches for each in patch.left if each.rule == RULE}
        for each in reported:
            titles = tuple(fix.title for fix in each.fixes)
            if not titles and (each.path, each.start) not in left:
                titles = (LATER,)
            path = os.path.relpath(os.path.realpath(each.path), root)
            yield Loop(path, each.start.cell, each.start.line, each.kind, titles, each.blocked)
        print(f"{repository.name}: {len(files)} files", flush=True)


def summary(found: Iterable[Loop]) -> Iterator[str]:
    """How many loops of each kind have a fix, and the obstacles of the others by their number."""
    by_kind: defaultdict[str, list[Loop]] = defaultdict(list)
    for each in found:
        by_kind[each.kind].append(each)
    for kind, loops_of in sorted(by_kind.items()):
        yield f"{kind}: {sum(bool(each.titles) for each in loops_of)} of {len(loops_of)} have a fix"
        obstacles = Counter(_PLACES.sub("_", each.blocked) for each in loops_of if not each.titles)
        yield from (f"  {number:4d} {obstacle[:160]}" for obstacle, number in obstacles.most_common(_SHOWN))


if __name__ == "__main__":
    main()

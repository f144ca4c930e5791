"""Counts the loops over time in public files, how many have a fix, and what stands in the way of the others.

Run: python -m tests.bench.loops ROOT LIST [--jobs N] [--json OUT]

LIST names files below ROOT, of which each folder is a repository: the project around its files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from perflint.engine.results import Diagnostic
from perflint.project.files import discover, in_project
from perflint.project.run import check_files
from perflint.project.settings import load

RULE = "decode-loop"
_SHOWN = 12  # obstacles of each kind of loop
_PLACES = re.compile(r"`[^`]*`|'[^']*'|line \d+: ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("list", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    typed = parser.parse_args()
    found = [*loops(typed.root.resolve(), typed.list.read_text().split(), typed.jobs)]
    if typed.json:
        rows = [
            (path, each.start.line, each.kind, [fix.title for fix in each.fixes], each.blocked) for path, each in found
        ]
        typed.json.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    print("\n".join(summary([each for _, each in found])))


def loops(root: Path, names: Iterable[str], jobs: int) -> Iterator[tuple[str, Diagnostic]]:
    """The findings in the named files, repository by repository."""
    by_repository: defaultdict[Path, list[Path]] = defaultdict(list)
    for name in names:
        by_repository[root / name.split("/")[0]].append(root / name)
    for repository, files in by_repository.items():
        os.chdir(repository)
        settings = load(repository, isolated=True, config_path=None, overrides={"select": [RULE]}).settings
        settings = replace(settings, cache=False, jobs=jobs)
        found = discover([file for file in files if file.is_file()], settings)
        for each in check_files(in_project(found, repository, settings), settings).diagnostics:
            yield os.path.relpath(os.path.realpath(each.path), root), each
        print(f"{repository.name}: {len(files)} files", flush=True)


def summary(found: Iterable[Diagnostic]) -> Iterator[str]:
    """How many loops of each kind have a fix, and the obstacles of the others by their number."""
    by_kind: defaultdict[str, list[Diagnostic]] = defaultdict(list)
    for each in found:
        by_kind[each.kind].append(each)
    for kind, loops_of in sorted(by_kind.items()):
        yield f"{kind}: {sum(bool(each.fixes) for each in loops_of)} of {len(loops_of)} have a fix"
        obstacles = Counter(_PLACES.sub("_", each.blocked) for each in loops_of if not each.fixes)
        yield from (f"  {number:4d} {obstacle[:160]}" for obstacle, number in obstacles.most_common(_SHOWN))


if __name__ == "__main__":
    main()

"""Finds the programs in a run, each a script with all that it imports: where they compute, what they compile.

Where these compute, and whether they are compiled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from perflint.analysis.links import Links, Says


def on_host(links: Mapping[str, Links], imports: Mapping[str, Collection[str]]) -> dict[str, bool]:
    """Whether files stay on the host, by path, for those of which the others tell it; `imports` holds paths.

    A file does so where no program speaks of a device that it is part of, nor any file that belongs to one of these.
    A script does not, whatever it tries out itself, where one of those speaks of a device that import it.
    """
    says = {path: each.says for path, each in links.items()}
    if not any(Says.SCRIPT in each for each in says.values()):
        return {}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for path, others in imports.items():
        for other in others:
            importers[other].add(path)
    used = _gathered(says, imports)  # by each file and those that import it
    whole = _gathered(_gathered(says, importers), imports)
    told = {path: False for path, each in says.items() if Says.SCRIPT in each and Says.DEVICE in used[path]}
    linked = {path for path in says if imports.get(path) or path in importers}
    return told | {path: True for path in linked if whole[path].stays_on_host}


def compiled(links: Mapping[str, Links], imports: Mapping[str, Collection[str]]) -> set[str]:
    """The files that compile with torch.jit, and all that these import, at last; `imports` holds paths."""
    says = {path: each.says & Says.COMPILES for path, each in links.items()}
    return {path for path, each in _gathered(says, imports).items() if each}


def _gathered(says: Mapping[str, Says], followed: Mapping[str, Collection[str]]) -> dict[str, Says]:
    """What each file says together with all from which one comes to it along the edges `followed`."""
    gathered = dict(says)
    pending = [path for path, each in says.items() if each]
    while pending:
        path = pending.pop()
        for other in followed.get(path, ()):
            joined = gathered[other] | gathered[path]
            if joined != gathered[other]:
                gathered[other] = joined
                pending.append(other)
    return gathered

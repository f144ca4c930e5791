"""Finds the programs in a run, each a script with all that it imports: where they compute, and what they import."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TypeVar

from perflint.analysis.links import OF_IMPORTS, Links, Says

_Said = TypeVar("_Said", Says, frozenset[str])
_TOLD = OF_IMPORTS | Says.DEVICE


def on_host(links: Mapping[str, Links], imports: Mapping[str, Collection[str]]) -> dict[str, bool]:
    """Whether files stay on the host, by path, for those of which the others tell it; `imports` holds paths.

    A file does so where no program speaks of a device that it is part of, nor any file that belongs to one of these.
    A script does not, whatever it tries out itself, where one of those speaks of a device that import it.
    """
    says = {path: each.says for path, each in links.items()}
    if not any(Says.SCRIPT in each for each in says.values()):
        return {}
    importers = _importers(imports)
    used = _gathered(says, imports)  # by each file and those that import it
    whole = _gathered(_gathered(says, importers), imports)
    told = {path: False for path, each in says.items() if Says.SCRIPT in each and Says.DEVICE in used[path]}
    linked = {path for path in says if imports.get(path) or path in importers}
    return told | {path: True for path in linked if whole[path].stays_on_host}


def said(links: Mapping[str, Links], imports: Mapping[str, Collection[str]]) -> dict[str, Says]:
    """What each file that asks is told by those that import it, through others too; `imports` holds paths."""
    says = {path: each.says & _TOLD for path, each in links.items()}
    found = {path: each & links[path].says_query for path, each in _gathered(says, imports).items()}
    return {path: each for path, each in found.items() if each}


def edited(links: Mapping[str, Links], imports: Mapping[str, Collection[str]]) -> dict[str, tuple[str, ...]]:
    """The attributes for which each file asks that are edited by those that import it, through others too."""
    wanted = frozenset(name for each in links.values() for name in each.edit_queries)
    gathered = _gathered({path: wanted.intersection(each.edits) for path, each in links.items()}, imports)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, others in imports.items():
        for other in others:
            found[other] |= gathered[path].intersection(links[other].edit_queries)
    return {path: tuple(sorted(names)) for path, names in found.items() if names}


def rebound(
    links: Mapping[str, Links], stars: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[tuple[str, str], ...]]:
    """The names to which modules give another meaning, by the files that import all of these modules' names.

    `stars` holds the paths of the modules, by their names in the importing file.
    """
    told = {
        path: tuple(sorted((name, each) for name, place in modules.items() for each in links[place].rebinds))
        for path, modules in stars.items()
    }
    return {path: names for path, names in told.items() if names}


def _importers(imports: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, others in imports.items():
        for other in others:
            found[other].add(path)
    return found


def _gathered(says: Mapping[str, _Said], followed: Mapping[str, Collection[str]]) -> dict[str, _Said]:
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

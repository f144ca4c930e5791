"""Ties the files of a run together: which functions of a file the hot code of other files calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import PurePath

from perflint.links import HotCall, Links

_NAMESAKES = 8  # classes with a method of one name, beyond which the name says nothing of the class


def calls_into(links: Mapping[str, Links]) -> dict[str, tuple[HotCall, ...]]:
    """For each file that hot code of others calls, by path, those calls, their targets as the file itself knows them.

    Imports are followed as Python does with the folder of a script, or the root of a project, on its path.
    """
    modules = _Modules(links)
    offered = {path: frozenset(each.functions) for path, each in links.items()}
    wanted = {name.rpartition(".")[2] for names in offered.values() for name in names}
    found: defaultdict[str, set[HotCall]] = defaultdict(set)
    for path, each in links.items():
        for call in each.calls:
            if call.target.lstrip("?").rpartition(".")[2] in wanted:
                for place, name in modules.reached(path, call.target):
                    if name in offered[place] and place != path:
                        found[place].add(replace(_weakened(call), target=name))
    return {path: tuple(sorted(calls)) for path, calls in found.items()}


def _weakened(call: HotCall) -> HotCall:
    """`call`, of whose arguments nothing is sure where it is not sure either whom it reaches."""
    if not call.target.startswith("?"):
        return call
    weaker = str.maketrans("DdHh", "gg--")
    keywords = tuple((name, code.translate(weaker)) for name, code in call.keywords)
    return replace(call, positional=call.positional.translate(weaker), keywords=keywords)


class _Modules:
    """The modules of a run, found by their names."""

    def __init__(self, links: Mapping[str, Links]) -> None:
        self._paths: defaultdict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        for path in links:
            parts = _parts(path)
            if parts:
                self._paths[parts[-1]].append((parts, path))
        self._module = cache(self._find_module)
        self._methods: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for path, each in links.items():
            for name in each.functions:
                if "." in name:
                    self._methods[name.rpartition(".")[2]].append((path, name))
        self._subclasses: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for path, each in links.items():
            for name, base in each.bases:
                bases = [(path, base[1:])] if base.startswith("@") else self._definitions(path, base)
                for place, base_name in bases:
                    self._subclasses[place, base_name].append((path, name))

    def reached(self, path: str, target: str) -> Iterable[tuple[str, str]]:
        """The files in which `target`, as the file at `path` knows it, may be defined, and its name there."""
        if target.startswith("?"):
            methods = self._methods.get(target[1:], ())
            yield from methods if len(methods) <= _NAMESAKES else ()
            return
        if not target.startswith("@"):
            yield from self._definitions(path, target)
            return
        owner, _, method = target[1:].partition(".")
        pending, seen = [(path, owner)], {(path, owner)}
        while pending:
            for place, name in self._subclasses.get(pending.pop(), ()):
                if (place, name) not in seen:
                    seen.add((place, name))
                    pending.append((place, name))
                    yield place, f"{name}.{method}"

    def _definitions(self, path: str, target: str) -> Iterable[tuple[str, str]]:
        dots = len(target) - len(target.lstrip("."))
        parts = tuple(part for part in target.split(".") if part)
        folder = _parts_of_folder(path)
        if dots > 1:
            folder = folder[: len(folder) - (dots - 1)]
        for length in range(len(parts) - 1, 0, -1):
            place = self._module(folder, parts[:length], dots > 0)
            if place is not None:
                yield place, ".".join(parts[length:])
                return

    def _find_module(self, folder: tuple[str, ...], name: tuple[str, ...], relative: bool) -> str | None:
        """The file of the module called `name`, imported in `folder`: there, or from the nearest folder above."""
        for parts, path in self._paths.get(name[-1], ()):
            if relative and parts == folder + name:
                return path
        if relative:
            return None
        roots = [
            (len(root), path)
            for parts, path in self._paths.get(name[-1], ())
            if parts[-len(name) :] == name and folder[: len(root := parts[: -len(name)])] == root
        ]
        return max(roots)[1] if roots else None


def _parts(path: str) -> tuple[str, ...]:
    pure = PurePath(path)
    return pure.parent.parts if pure.name == "__init__.py" else (*pure.parent.parts, pure.stem)


@cache
def _parts_of_folder(path: str) -> tuple[str, ...]:
    return PurePath(path).parent.parts

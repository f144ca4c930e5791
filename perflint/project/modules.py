"""Finds the modules of a run by their names, and what functions, classes and methods of them a name may mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import PurePath

from perflint.analysis.links import Links
from perflint.syntax.walk import grouped, reachable

NAMESAKES = 8  # classes with a method of one name, beyond which the name says nothing of the class
_HANDS = 4  # modules that hand a function on to each other


def last(target: str) -> str:
    """The own name of a function or class, of what a `HotCall` names as its target."""
    return target.lstrip("?").rpartition(".")[2]


class _Files:
    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = grouped((parts[-1], (parts, path)) for path in paths if (parts := _module_path(path)))
        self._module = cache(self._find_module)
        self.imported = cache(self._find_imported)
        self.definition = cache(self._find_definition)

    def _find_imported(self, path: str, name: str) -> str | None:
        folder, parts, relative = _resolved(path, name)
        places = (self._module(folder, parts[:length], relative) for length in range(len(parts), 0, -1))
        return next((place for place in places if place is not None), None)

    def _find_definition(self, path: str, target: str) -> tuple[str, str] | None:
        folder, parts, relative = _resolved(path, target)
        for length in range(len(parts) - 1, 0, -1):
            place = self._module(folder, parts[:length], relative)
            if place is not None:
                return place, ".".join(parts[length:])
        return None

    def _find_module(self, folder: tuple[str, ...], name: tuple[str, ...], relative: bool) -> str | None:
        # Where nothing above the importing file has it, the search path may name the folder of the only one there is.
        for parts, path in self._paths.get(name[-1], ()):
            if relative and parts == folder + name:
                return path
        if relative:
            return None
        places = [
            (parts[: -len(name)], path) for parts, path in self._paths.get(name[-1], ()) if parts[-len(name) :] == name
        ]
        roots = [(len(root), path) for root, path in places if folder[: len(root)] == root]
        return max(roots)[1] if roots else places[0][1] if len(places) == 1 else None


_files_at = lru_cache(maxsize=2)(_Files)


class Modules:
    def __init__(self, links: Mapping[str, Links]) -> None:
        self._files = _files_at(tuple(links))
        self._places = cache(self._find_places)
        self._defined = {(path, summary.target) for path, each in links.items() for summary in each.summaries}
        self._methods = grouped((last(place[1]), place) for place in sorted(self._defined) if "." in place[1])
        self._owners = {(path, name.partition(".")[0]) for path, name in self._defined}
        self._owners |= {(path, name) for path, each in links.items() for name, _ in each.bases}
        self._starred = {path: [*_starred(each)] for path, each in links.items()}
        self._offered = {(path, name) for path, each in links.items() for name in each.functions}
        self._hands_on = {path: grouped(each.hands_on) for path, each in links.items()}
        derived = [
            ((path, name), found)
            for path, each in links.items()
            for name, base in each.bases
            for found in self._derived_from(path, base)
        ]
        self._bases, self._subclasses = grouped(derived), grouped((base, place) for place, base in derived)

    def reached(self, path: str, target: str) -> Sequence[tuple[str, str]]:
        """The files in which `target`, as the file at `path` knows it, may be defined, and its name there.

        What a package hands on is found where it is defined.
        """
        return self._places(path, target)

    def _find_places(self, path: str, target: str) -> Sequence[tuple[str, str]]:
        if target.startswith("?"):
            return [*self._offered & {*self.methods(target[1:])}]
        if target.startswith("@"):
            owner, _, method = target[1:].partition(".")
            return [(place, f"{name}.{method}") for place, name in _closure((path, owner), self._subclasses)]
        return [self._inherited(self._origin(place)) for place in self.definitions(path, target)]

    def answering(self, path: str, target: str) -> Sequence[tuple[str, str]]:
        return self.methods(target[1:]) if target.startswith("?") else self.reached(path, target)

    def _derived_from(self, path: str, base: str) -> Iterable[tuple[str, str]]:
        return [(path, base[1:])] if base.startswith("@") else map(self._origin, self.definitions(path, base))

    def _origin(self, place: tuple[str, str]) -> tuple[str, str]:
        for _ in range(_HANDS):
            path, name = place
            first, dot, rest = name.partition(".")
            if (path, first) in self._owners:
                break
            given = self._hands_on[path]
            targets = [*given.get(first, ()), *(f"{target}.{first}" for target in given.get("*", ()))]
            found = (each for target in targets for each in self.definitions(path, f"{target}{dot}{rest}"))
            place = next(found, place)
        return place

    def methods(self, name: str) -> Sequence[tuple[str, str]]:
        methods = self._methods.get(name, ())
        return methods if len(methods) <= NAMESAKES else ()

    def named(self, path: str, place: str, name: str) -> str:
        """What the file at `path` may call the class at `place`; empty where it could not import it."""
        if path == place:
            return name
        parts = (*_module_path(place), name)
        dotted = (".".join(parts[start:]) for start in range(len(parts) - 2, -1, -1))  # the shortest is no library's
        return next((each for each in dotted if [*self.definitions(path, each)] == [(place, name)]), "")

    def imported(self, path: str, names: Iterable[str]) -> set[str]:
        return {place for name in names if (place := self._files.imported(path, name)) not in (path, None)}

    def starred(self, links: Mapping[str, Links]) -> dict[str, dict[str, str]]:
        """The other files of the modules of which each file imports all names, by their names there."""
        names = {path: [*_starred(each)] for path, each in links.items()}
        found = {path: {name: self.imported(path, [name]) for name in each} for path, each in names.items() if each}
        return {path: {name: min(places) for name, places in each.items() if places} for path, each in found.items()}

    def _inherited(self, place: tuple[str, str]) -> tuple[str, str]:
        path, name = place
        owner, _, method = name.partition(".")
        if place in self._defined or not method:
            return place
        inherited = ((base, f"{name}.{method}") for base, name in _closure((path, owner), self._bases))
        return next((each for each in inherited if each in self._defined), place)

    def definitions(self, path: str, target: str) -> Iterable[tuple[str, str]]:
        """Where a function or class may be defined that the file at `path` knows as `target`, and its name there.

        What is imported by a star may come from any of several modules: from the one that defines it.
        """
        if not (starred := self._starred[path]):
            alone = self._files.definition(path, target)
            return [alone] if alone is not None else []
        own = max((each for each in starred if target.startswith(f"{each}.")), key=len, default=None)
        others = [each + target[len(own) :] for each in starred if each != own] if own is not None else []
        found = [place for each in (target, *others) if (place := self._files.definition(path, each)) is not None]
        defining = (each for each in found if (each[0], each[1].partition(".")[0]) in self._owners)
        return [next(defining, found[0])] if found else []


def _starred(links: Links) -> Iterator[str]:
    return (name[:-2] for name in links.imports if name.endswith(".*"))


def _closure(
    start: tuple[str, str], related: Mapping[tuple[str, str], list[tuple[str, str]]]
) -> Iterator[tuple[str, str]]:
    return islice(reachable([start], lambda each: related.get(each, ())), 1, None)


def _resolved(path: str, name: str) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """The folder in which the file at `path` looks for a dotted name, its parts, and whether it looks only there."""
    dots = len(name) - len(name.lstrip("."))
    folder = _folder_path(path)
    if dots > 1:
        folder = folder[: len(folder) - (dots - 1)]
    return folder, tuple(part for part in name.split(".") if part), dots > 0


def _module_path(path: str) -> tuple[str, ...]:
    pure = PurePath(path)
    return pure.parent.parts if pure.name == "__init__.py" else (*pure.parent.parts, pure.stem)


@cache
def _folder_path(path: str) -> tuple[str, ...]:
    return PurePath(path).parent.parts

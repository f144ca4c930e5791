"""Finds those files of a project that tell something of the ones which are checked: whom these ask, and who calls them.

What a file tells depends on what others tell of it in turn. So this is asked again whenever more is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from perflint.analysis.links import NONE, Links
from perflint.project.modules import NAMESAKES, Modules, last
from perflint.project.payload import Outline
from perflint.syntax.walk import reachable


class Surroundings:
    """The files of a project around those that are `checked`, by name, each with its outline."""

    def __init__(self, outlines: Mapping[str, Outline], checked: Iterable[str]) -> None:
        self._checked = [*checked]
        self.links = {name: each.links for name, each in outlines.items()}
        self._outlines = outlines
        modules = Modules({**self.links, **dict.fromkeys(self._checked, NONE)})
        imported = ((name, modules.imported(name, each.imported)) for name, each in outlines.items())
        self._importing = _files_of(imported)
        self._using = _files_of((name, each.words) for name, each in outlines.items())
        self._defining = _files_of((name, each.classes) for name, each in outlines.items())

    def telling(self, links: Mapping[str, Links]) -> set[str]:
        """The files whose links tell something of those that are checked, or may when they are known.

        `links` are those known by now; of the other files an outline is.
        """
        modules = Modules({**self.links, **links})
        callers = [*self._checked]
        found = {*callers}
        for path in callers:  # those whose heat counts, as they call what is checked, directly or not
            if path in links:
                bases, named = {*_bases(path, links[path], modules)}, {*self._callers(path, links[path], modules)}
                found |= bases | named
                calling = (each for each in named if each in links and _calls(each, links[each], path, modules))
                callers += sorted({*bases, *calling}.difference(callers))
        asked = [*callers]
        for path in asked:
            if path in links:
                news = {*self._asked(path, links[path], modules), *self._editors(path, links[path])}
                asked += sorted(news.difference(asked))
                found |= news
        return found

    def _callers(self, path: str, links: Links, modules: Modules) -> Iterator[str]:
        """The files that may call functions of the one at `path` of which it counts who calls them, and how."""
        functions = {*links.functions, *(name for name, _ in links.manner_queries)}
        owners = {each.partition(".")[0] for each in (*functions, *(name for name, _ in links.bases))}
        names = {*map(last, functions), *owners}
        names |= {f".{name}" for name in names}
        packages = [str(each / "__init__.py") for each in PurePath(path).parents]
        beside = (each for package in packages for each in self._importing.get(package, ()))
        own = f".{_own_name(path)}"
        importers = {*self._importing.get(path, ()), *(each for each in beside if own in self._outlines[each].words)}
        handed = reachable(sorted(importers), self._handed_on)
        yield from (each for each in handed if not names.isdisjoint(self._outlines[each].words))
        for method in {last(each) for each in functions if "." in each}:
            if modules.methods(method):
                yield from self._using.get(f".{method}", ())

    def _handed_on(self, path: str) -> Iterable[str]:
        """The files that import one which hands on what it imports itself."""
        return self._importing.get(path, ()) if self.links.get(path, NONE).hands_on else ()

    def _editors(self, path: str, links: Links) -> Iterator[str]:
        """The files that import one, through others too, and name attributes of which it asks who edits them."""
        names = {form for each in links.edit_queries for form in (each, f".{each}")}
        importers = [path] if names else []
        for each in importers:
            importers += [other for other in self._importing.get(each, ()) if other not in importers]
        yield from (each for each in importers[1:] if not names.isdisjoint(self._outlines[each].words))

    def _asked(self, path: str, links: Links, modules: Modules) -> Iterator[str]:
        """The files that a file asks: of functions that it calls, of classes that it derives from."""
        for target in links.queries:
            yield from (place for place, _ in modules.answering(path, target, handed_on=target in links.origin_queries))
        yield from _bases(path, links, modules)
        for _, base in links.bases:
            yield from self._defining.get(last(base), ())[:NAMESAKES]


def _files_of(names: Iterable[tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    """The files that have each name, in order."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, each in names:
        for name in each:
            found[name].append(path)
    return dict(found)


def _calls(path: str, links: Links, other: str, modules: Modules) -> bool:
    """Does a file call a function of another, in code that is hot or may be?"""
    targets = {*(each.target for each in links.calls), *links.cold_targets}
    return any(place == other for target in targets for place, _ in modules.reached(path, target))


def _bases(path: str, links: Links, modules: Modules) -> Iterator[str]:
    """The files with the bases of classes of one."""
    for _, base in links.bases:
        if not base.startswith("@"):
            yield from (place for place, _ in modules.definitions(path, base))


def _own_name(path: str) -> str:
    """The last part of the name by which a file is imported."""
    pure = PurePath(path)
    return pure.parent.name if pure.name == "__init__.py" else pure.stem

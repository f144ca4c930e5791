"""Resolves calls and queries between the files of a run: the call graph of its hot code, and the summaries needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import PurePath

from perflint.analysis.links import Context, HotCall, Links, Says, Summary, nearest
from perflint.analysis.values.classes import MODULES, kind_of_base
from perflint.project.programs import edited, on_host, rebound, said

_LIKELY = "d"  # the guess itself, which answers no query about it
_HANDS = 4  # modules that hand a function on to each other
_NAMESAKES = 8  # classes with a method of one name, beyond which the name says nothing of the class


def contexts_of(links: Mapping[str, Links]) -> dict[str, Context]:
    """The context of each file, by path, where it is not empty.

    Calls name their targets as the called file does, summaries as the calling file does. Imports are resolved as Python
    does with the folder of a script, or the root of a project, on its path.
    """
    modules = _Modules(links)
    calls, summaries = _calls(links, modules), _summaries(links, modules)
    imports = {path: modules.imported(path, each.imports) for path, each in links.items()}
    host = on_host(links, imports)
    told, edits, rebinds = said(links, imports), edited(links, imports), rebound(links, modules.starred(links))
    asked, quiet = _asked(links, modules), _quiet(links, modules)
    derived = _derived(links, modules)
    paths = {**calls, **summaries, **host, **asked, **quiet, **told, **edits, **rebinds, **derived}
    return {
        path: Context(
            *(calls.get(path, ()), summaries.get(path, ()), host.get(path)),
            *(told.get(path, Says.NOTHING), edits.get(path, ()), rebinds.get(path, ())),
            *(asked.get(path, ()), quiet.get(path, ()), derived.get(path, ())),
        )
        for path in paths
    }


def _asked(links: Mapping[str, Links], modules: _Modules) -> dict[str, tuple[str, ...]]:
    """The functions of each file of whose effects others ask."""
    return _named(modules, {path: each.effect_queries for path, each in links.items()}, handed_on=True)


def _quiet(links: Mapping[str, Links], modules: _Modules) -> dict[str, tuple[str, ...]]:
    """The functions that others call without gradients, of each file that asks for them."""
    found = _named(modules, {path: each.quiet for path, each in links.items()})
    return {path: names for path, names in found.items() if links[path].quiet_query}


def _named(
    modules: _Modules, targets: Mapping[str, Iterable[str]], *, handed_on: bool = False
) -> dict[str, tuple[str, ...]]:
    """The functions of each file that others name, by `targets` of these; if asked, as packages hand them on."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, names in targets.items():
        for target in names:
            for place, name in modules.answering(path, target, handed_on=handed_on):
                if place != path:
                    found[place].add(name)
    return {path: tuple(sorted(names)) for path, names in found.items()}


def _derived(links: Mapping[str, Links], modules: _Modules) -> dict[str, tuple[str, ...]]:
    """The classes with a base that is a module's, of those for which the file at each path asks."""
    asking = {path: each.module_queries for path, each in links.items() if each.module_queries}
    if not asking:
        return {}
    known: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for path, each in links.items():
        for name, base in each.bases:
            known[path, name].append(base)
    namesakes: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for place in known:
        namesakes[place[1]].append(place)

    def bases(place: tuple[str, str]) -> Iterator[tuple[str, str]]:
        for base in known.get(place, ()):
            found = [(place[0], base[1:])] if base.startswith("@") else list(modules.definitions(place[0], base))
            exact = [each for each in found if each in known]
            yield from exact or namesakes[_last(base)][:_NAMESAKES]  # what a package hands on has its own name

    def is_module(place: tuple[str, str]) -> bool:
        closure, seen = [place], {place}
        for each in closure:
            if any(kind_of_base(base) in MODULES for base in known.get(each, ())):
                return True
            new = [base for base in bases(each) if base not in seen]
            closure += new
            seen.update(new)
        return False

    found = {path: tuple(name for name in names if is_module((path, name))) for path, names in asking.items()}
    return {path: names for path, names in found.items() if names}


def _calls(links: Mapping[str, Links], modules: _Modules) -> dict[str, tuple[HotCall, ...]]:
    offered = {path: frozenset(each.functions) for path, each in links.items()}
    wanted = {_last(name) for names in offered.values() for name in names}
    found: defaultdict[str, set[HotCall]] = defaultdict(set)
    for path, each in links.items():
        for call in each.calls:
            if _last(call.target) in wanted:
                for place, name in modules.reached(path, call.target):
                    if name in offered[place] and place != path:
                        by = call.by if call.by.file else replace(call.by, file=path)
                        found[place].add(replace(_weakened(call), target=name, by=by))
    return {path: nearest(calls) for path, calls in found.items()}


def _weakened(call: HotCall) -> HotCall:
    """`call` with its arguments as guesses, where its target is only a guess."""
    if not call.target.startswith("?"):
        return call
    weaker = str.maketrans("DdHh", "gg--")
    keywords = tuple((name, code.translate(weaker)) for name, code in call.keywords)
    return replace(call, positional=call.positional.translate(weaker), keywords=keywords)


def _summaries(links: Mapping[str, Links], modules: _Modules) -> dict[str, tuple[Summary, ...]]:
    known = {(path, summary.target): summary for path, each in links.items() for summary in each.summaries}
    useful = {_last(summary.target) for summary in known.values() if not summary.is_empty}
    found: dict[str, tuple[Summary, ...]] = {}
    for path, each in links.items():
        answered = []
        for target in sorted(each.queries):
            if _last(target) not in useful:
                continue
            places = modules.answering(path, target, handed_on=target in each.effect_queries)
            summary = _agreed({known[place] for place in places if place in known and place[0] != path})
            if summary is not None and (
                summary.trains
                or (not _tells_no_effects(summary) and target in each.effect_queries)
                or (summary.starts_processes and target in each.start_queries)
                or (summary.returns not in ("", _LIKELY) and target in each.guess_queries)
                or (summary.returns_tensor and target in each.result_queries)
            ):
                answered.append(replace(summary, target=target))
        if answered:
            found[path] = tuple(answered)
    return found


def _tells_no_effects(summary: Summary) -> bool:
    told = (summary.memory, summary.differentiates) != (None, None)
    return not (told or summary.decorates or summary.computes)


def _agreed(summaries: set[Summary]) -> Summary | None:
    """What all the `summaries` say; None where they differ."""
    said = {replace(summary, target="") for summary in summaries}
    return said.pop() if len(said) == 1 else None


def _last(target: str) -> str:
    return target.lstrip("?").rpartition(".")[2]


class _Modules:
    """The modules of a run, found by their names."""

    def __init__(self, links: Mapping[str, Links]) -> None:
        self._paths: defaultdict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        for path in links:
            parts = _module_path(path)
            if parts:
                self._paths[parts[-1]].append((parts, path))
        self._module = cache(self._find_module)
        self._defined = {(path, summary.target) for path, each in links.items() for summary in each.summaries}
        self._methods = _by_name(self._defined)
        self._offered = _by_name({(path, name) for path, each in links.items() for name in each.functions})
        self._hands_on = {path: each.hands_on for path, each in links.items() if each.hands_on}
        self._bases: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        self._subclasses: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for path, each in links.items():
            for name, base in each.bases:
                bases = [(path, base[1:])] if base.startswith("@") else self.definitions(path, base)
                for found in bases:
                    self._bases[path, name].append(found)
                    self._subclasses[found].append((path, name))

    def reached(self, path: str, target: str) -> Iterable[tuple[str, str]]:
        """The files in which `target`, as the file at `path` knows it, may be defined, and its name there."""
        if target.startswith("?"):
            methods = self._offered.get(target[1:], ())
            yield from methods if len(methods) <= _NAMESAKES else ()
        elif target.startswith("@"):
            owner, _, method = target[1:].partition(".")
            for place, name in _closure((path, owner), self._subclasses):
                yield place, f"{name}.{method}"
        else:
            yield from map(self._inherited, self.definitions(path, target))

    def answering(self, path: str, target: str, *, handed_on: bool = False) -> Iterable[tuple[str, str]]:
        """As `reached`, but also the methods for which it does not matter who calls them.

        If asked, a function that a package hands on is found where it is defined.
        """
        if not target.startswith("?"):
            reached = self.reached(path, target)
            return map(self._origin, reached) if handed_on else reached
        methods = self._methods.get(target[1:], ())
        return methods if len(methods) <= _NAMESAKES else ()

    def _origin(self, place: tuple[str, str]) -> tuple[str, str]:
        """Where a function is defined that modules may hand on to each other."""
        for _ in range(_HANDS):
            if place in self._defined:
                break
            path, name = place
            first, dot, rest = name.partition(".")
            given = [target for alias, target in self._hands_on.get(path, ()) if alias == first]
            given += [f"{target}.{first}" for alias, target in self._hands_on.get(path, ()) if alias == "*"]
            found = (each for target in given for each in self.definitions(path, f"{target}{dot}{rest}"))
            place = next(found, place)
        return place

    def imported(self, path: str, names: Iterable[str]) -> set[str]:
        """The other files of the modules which the file at `path` imports by these names."""
        return {place for name in names for place in self._of_import(path, name) if place != path}

    def starred(self, links: Mapping[str, Links]) -> dict[str, dict[str, str]]:
        """The other files of the modules of which each file imports all names, by their names there."""
        names = {path: [name[:-2] for name in each.imports if name.endswith(".*")] for path, each in links.items()}
        found = {path: {name: self.imported(path, [name]) for name in each} for path, each in names.items() if each}
        return {path: {name: min(places) for name, places in each.items() if places} for path, each in found.items()}

    def _of_import(self, path: str, name: str) -> Iterator[str]:
        folder, parts, relative = _resolved(path, name)
        for length in range(len(parts), 0, -1):
            place = self._module(folder, parts[:length], relative)
            if place is not None:
                yield place
                return

    def _inherited(self, place: tuple[str, str]) -> tuple[str, str]:
        """Where the method is defined which a class at `place` has, if need be from a base."""
        path, name = place
        owner, _, method = name.partition(".")
        if place in self._defined or not method:
            return place
        inherited = ((base, f"{name}.{method}") for base, name in _closure((path, owner), self._bases))
        return next((each for each in inherited if each in self._defined), place)

    def definitions(self, path: str, target: str) -> Iterable[tuple[str, str]]:
        """Where a function or class may be defined that the file at `path` knows as `target`, and its name there."""
        folder, parts, relative = _resolved(path, target)
        for length in range(len(parts) - 1, 0, -1):
            place = self._module(folder, parts[:length], relative)
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


def _by_name(places: set[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """The methods among the functions at `places`, by their own names."""
    methods: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for place in sorted(places):
        if "." in place[1]:
            methods[_last(place[1])].append(place)
    return methods


def _closure(
    start: tuple[str, str], related: Mapping[tuple[str, str], list[tuple[str, str]]]
) -> Iterator[tuple[str, str]]:
    """The classes that are `related` to the one at `start`, the nearest first."""
    pending, seen = [start], {start}
    for each in pending:
        for other in related.get(each, ()):
            if other not in seen:
                seen.add(other)
                pending.append(other)
                yield other


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

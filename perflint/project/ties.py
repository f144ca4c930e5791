"""What the files of a run tell each other: calls of hot code, summaries, their programs, and who tells whom.

What a file tells depends on what others tell of it in turn. So `Surroundings` are asked again whenever more is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any, TypeVar

from perflint.analysis.links import (
    LOADERS,
    NONE,
    OF_IMPORTS,
    Context,
    HotCall,
    Links,
    Manner,
    Says,
    Summary,
    nearest,
)
from perflint.analysis.values.classes import MODULES, kind_of_base
from perflint.project.cache import Outline
from perflint.project.modules import NAMESAKES, Modules, last
from perflint.syntax.walk import grouped, reachable

_CERTAIN = ("trains", "draws", "computes", "records", "drops", "counts", "repeats", "evaluates")
_LIKELY = "d"  # the guess itself, which answers no query about it


def contexts_of(links: Mapping[str, Links]) -> dict[str, Context]:
    """The context of each file, by path, where it is not empty.

    Calls name their targets as the called file does, summaries as the calling file does. Imports are resolved as Python
    does with the folder of a script, or the root of a project, on its path.
    """
    links = dict(sorted(links.items()))
    modules = Modules(links)
    calls, summaries = _calls(links, modules), _summaries(links, modules)
    imports = {path: modules.imported(path, each.imports) for path, each in links.items()}
    host = on_host(links, imports)
    told, edits, rebinds = _said(links, imports), _edited(links, imports), _rebound(links, modules.starred(links))
    asked = _named(modules, {path: each.effect_queries for path, each in links.items()})
    drawing = _named(modules, {path: each.draw_queries for path, each in links.items()})
    manners = _manners(links, modules)
    derived = _derived(links, modules)
    paths = {**calls, **summaries, **host, **asked, **drawing, **manners, **told, **edits, **rebinds, **derived}
    return {
        path: Context(
            *(calls.get(path, ()), summaries.get(path, ()), host.get(path)),
            *(told.get(path, Says.NOTHING), edits.get(path, ()), rebinds.get(path, ())),
            asked=asked.get(path, ()),
            drawing=drawing.get(path, ()),
            manners=manners.get(path, ()),
            modules=derived.get(path, ()),
        )
        for path in paths
    }


def _manners(links: Mapping[str, Links], modules: Modules) -> dict[str, tuple[tuple[str, Manner], ...]]:
    found: defaultdict[str, defaultdict[str, Manner]] = defaultdict(lambda: defaultdict(lambda: Manner.PLAIN))
    asked = {path: dict(each.manner_queries) for path, each in links.items()}
    wanted = {last(name) for each in asked.values() for name in each}
    wanted |= {alias for each in links.values() for alias, target in each.hands_on if last(target) != alias}
    for path, each in links.items():
        for target, manner in _used(each).items():
            for place, name in modules.answering(path, target) if last(target) in wanted else ():
                if place != path and (told := manner & asked[place].get(name, Manner.PLAIN)):
                    found[place][name] |= told
    return {path: tuple(sorted(each.items())) for path, each in found.items()}


def _used(links: Links) -> dict[str, Manner]:
    used = dict.fromkeys((*links.cold_targets, *(each.target for each in links.calls)), Manner.CALLED)
    return used | {target: manner | used.get(target, Manner.PLAIN) for target, manner in links.manners}


def _named(modules: Modules, targets: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    asking = ((path, target) for path, names in targets.items() for target in names)
    found = grouped(each for path, target in asking for each in modules.answering(path, target) if each[0] != path)
    return {path: tuple(sorted({*names})) for path, names in found.items()}


def _derived(links: Mapping[str, Links], modules: Modules) -> dict[str, tuple[str, ...]]:
    asking = {path: each.module_queries for path, each in links.items() if each.module_queries}
    if not asking:
        return {}
    known = grouped(((path, name), base) for path, each in links.items() for name, base in each.bases)
    namesakes = grouped((place[1], place) for place in known)

    def bases(place: tuple[str, str]) -> Iterator[tuple[str, str]]:
        for base in known.get(place, ()):
            found = [(place[0], base[1:])] if base.startswith("@") else list(modules.definitions(place[0], base))
            exact = [each for each in found if each in known]
            yield from exact or namesakes.get(last(base), [])[:NAMESAKES]  # what a package hands on has its own name

    def is_module(place: tuple[str, str]) -> bool:
        lineage = reachable([place], bases)
        return any(kind_of_base(base) in MODULES for each in lineage for base in known.get(each, ()))

    found = {path: tuple(name for name in names if is_module((path, name))) for path, names in asking.items()}
    return {path: names for path, names in found.items() if names}


def _calls(links: Mapping[str, Links], modules: Modules) -> dict[str, tuple[HotCall, ...]]:
    offered = {path: frozenset(each.functions) for path, each in links.items()}
    offers = {name.removesuffix(".__init__") for names in offered.values() for name in names}
    wanted = {*map(last, offers)}
    found: defaultdict[str, set[HotCall]] = defaultdict(set)
    for path, each in links.items():
        for call in each.calls:
            if last(call.target) in wanted:
                for place, reached in modules.reached(path, call.target):
                    name = next((each for each in (reached, f"{reached}.__init__") if each in offered[place]), "")
                    if name and place != path:
                        by = call.by if call.by.file else replace(call.by, file=path)
                        classes = tuple(_classes(modules, path, place, call))
                        found[place].add(replace(_weakened(call), target=name, classes=classes, by=by))
    return {path: nearest(calls) for path, calls in found.items()}


def _classes(modules: Modules, path: str, place: str, call: HotCall) -> Iterator[tuple[str, str]]:
    """The classes of what the call from the file at `path` gives, as the one at `place` knows them."""
    for at, name in call.classes if not call.target.startswith("?") else ():
        found = [(path, name[1:])] if name.startswith("@") else modules.reached(path, name)
        if len(found) == 1 and (known := modules.named(place, *found[0])):
            yield at, known


def _weakened(call: HotCall) -> HotCall:
    """`call` with its arguments as guesses, where its target is only a guess."""
    if not call.target.startswith("?"):
        return call
    weaker = str.maketrans("DdBbHhp", "gggg--l")
    keywords = tuple((name, code.translate(weaker)) for name, code in call.keywords)
    return replace(call, positional=call.positional.translate(weaker), keywords=keywords)


def _summaries(links: Mapping[str, Links], modules: Modules) -> dict[str, tuple[Summary, ...]]:
    known = {(path, summary.target): summary for path, each in links.items() for summary in each.summaries}
    useful = {last(summary.target) for summary in known.values() if not summary.is_empty}
    found: dict[str, tuple[Summary, ...]] = {}
    for path, each in links.items():
        answered = []
        for target in sorted(each.queries.union(each.draw_queries)):
            if last(target) not in useful:
                continue
            asks_effects = target in each.effect_queries
            places = modules.answering(path, target)
            found_there = {known[place] for place in places if place in known and place[0] != path}
            summary = _agreed(found_there if asks_effects else {each.without_effects for each in found_there})
            if summary is None and asks_effects and target.startswith("@"):  # whichever subclass it is
                told = [each.differentiates for each in found_there if each.differentiates is not None]
                summary = Summary(target, differentiates=max(told, default=None))
            if summary is not None and target in each.effects_alone:
                summary = replace(summary, returns="")
            draws = summary is not None and summary.draws and target in each.draw_queries
            if summary is not None and target in each.queries and _tells(summary, target, each):
                answered.append(replace(summary, target=target, draws=draws))
            elif draws:
                answered.append(Summary(target, draws=True))
        if answered:
            found[path] = tuple(answered)
    return found


def _tells(summary: Summary, target: str, asking: Links) -> bool:
    """Does the `summary` tell a file something that it asks of the `target`, other than whether it draws data?"""
    return (
        summary.trains
        or summary.repeats
        or summary.evaluates
        or summary.tells_effects
        or summary.returns == LOADERS
        or (summary.drops and target in asking.first_queries)
        or (summary.starts_processes and target in asking.start_queries)
        or (summary.returns_loader and target in asking.result_queries)
        or (summary.returns not in ("", _LIKELY) and target in asking.guess_queries)
        or (summary.returns_tensor and target in asking.result_queries)
    )


def _agreed(summaries: set[Summary]) -> Summary | None:
    """What all the `summaries` say: of several functions, one of which is called, what holds of each of them."""
    if len(summaries) < 2:
        return next(iter(summaries), None)
    certain: dict[str, Any] = {name: all(getattr(each, name) for each in summaries) for name in _CERTAIN}
    memory = {each.memory for each in summaries}
    differentiates = [each.differentiates for each in summaries if each.differentiates is not None]
    returns = {each.returns for each in summaries}
    return replace(
        Summary("", returns.pop() if len(returns) == 1 else ""),
        starts=min(each.starts for each in summaries),
        loads=min(each.loads for each in summaries),
        memory=memory.pop() if len(memory) == 1 else None,
        differentiates=max(differentiates) if len(differentiates) == len(summaries) else None,
        **certain,
    )


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
                calling = (each for each in named if each in links and _calls_into(each, links[each], path, modules))
                callers += sorted({*bases, *calling}.difference(callers))
        asked = [*callers]
        for path in asked:
            if path in links:
                news = {*self._asked(path, links[path], modules), *self._editors(path, links[path])}
                asked += sorted(news.difference(asked))
                found |= news
        return found

    def _callers(self, path: str, links: Links, modules: Modules) -> Iterator[str]:
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
        return self._importing.get(path, ()) if self.links.get(path, NONE).hands_on else ()

    def _editors(self, path: str, links: Links) -> Iterator[str]:
        names = {form for each in links.edit_queries for form in (each, f".{each}")}
        importers = [path] if names else []
        for each in importers:
            importers += [other for other in self._importing.get(each, ()) if other not in importers]
        yield from (each for each in importers[1:] if not names.isdisjoint(self._outlines[each].words))

    def _asked(self, path: str, links: Links, modules: Modules) -> Iterator[str]:
        for target in links.queries.union(links.draw_queries):
            yield from (place for place, _ in modules.answering(path, target))
        yield from _bases(path, links, modules)
        for _, base in links.bases:
            yield from self._defining.get(last(base), ())[:NAMESAKES]


def _files_of(names: Iterable[tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    return grouped((name, path) for path, each in names for name in each)


def _calls_into(path: str, links: Links, other: str, modules: Modules) -> bool:
    targets = {*(each.target for each in links.calls), *links.cold_targets}
    return any(place == other for target in targets for place, _ in modules.reached(path, target))


def _bases(path: str, links: Links, modules: Modules) -> Iterator[str]:
    for _, base in links.bases:
        if not base.startswith("@"):
            yield from (place for place, _ in modules.definitions(path, base))


def _own_name(path: str) -> str:
    pure = PurePath(path)
    return pure.parent.name if pure.name == "__init__.py" else pure.stem


_Said = TypeVar("_Said", int, frozenset[str])  # flags as a number: joining enums takes ten times as long
_TOLD = OF_IMPORTS | Says.DEVICE


def on_host(links: Mapping[str, Links], imports: Mapping[str, Collection[str]]) -> dict[str, bool]:
    """Whether files stay on the host, by path, for those of which the others tell it; `imports` holds paths.

    A file does so where no program speaks of a device that it is part of, nor any file that belongs to one of these.
    A script does not, whatever it tries out itself, where one of those speaks of a device that import it.
    """
    says = {path: each.says for path, each in links.items()}
    if not any(Says.SCRIPT in each for each in says.values()):
        return {}
    importers = _files_of(imports.items())
    flags = {path: each.value for path, each in says.items()}
    used = _gathered(flags, imports)  # by each file and those that import it
    whole = _gathered(_gathered(flags, importers), imports)
    told = {path: False for path, each in says.items() if Says.SCRIPT in each and Says.DEVICE in Says(used[path])}
    linked = {path for path in says if imports.get(path) or path in importers}
    return told | {path: True for path in linked if Says(whole[path]).stays_on_host}


def _said(links: Mapping[str, Links], imports: Mapping[str, Collection[str]]) -> dict[str, Says]:
    """What each file that asks is told by those that import it, and of formats and devices by those that it imports.

    Both through others, too; `imports` holds paths.
    """
    says = {path: (each.says & _TOLD).value for path, each in links.items()}
    own = {path: (each.says & (Says.FORMATS | Says.DEVICE)).value for path, each in links.items()}
    of_imported = _gathered(own, _files_of(imports.items())) if any(own.values()) else {}
    found = {
        path: Says(each | of_imported.get(path, 0)) & links[path].says_query
        for path, each in _gathered(says, imports).items()
    }
    return {path: each for path, each in found.items() if each}


def _edited(links: Mapping[str, Links], imports: Mapping[str, Collection[str]]) -> dict[str, tuple[str, ...]]:
    wanted = frozenset(name for each in links.values() for name in each.edit_queries)
    gathered = _gathered({path: wanted.intersection(each.edits) for path, each in links.items()}, imports)
    pairs = ((path, other) for path, others in imports.items() for other in others)
    told = grouped((other, name) for path, other in pairs for name in gathered[path] & {*links[other].edit_queries})
    return {path: tuple(sorted({*names})) for path, names in told.items()}


def _rebound(
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


def _gathered(says: Mapping[str, _Said], followed: Mapping[str, Collection[str]]) -> dict[str, _Said]:
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

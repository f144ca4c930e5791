"""Resolves calls and queries between the files of a run: the call graph of its hot code, and the summaries needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from perflint.analysis.links import Context, HotCall, Links, Manner, Says, Summary, nearest
from perflint.analysis.values.classes import MODULES, kind_of_base
from perflint.project.modules import NAMESAKES, Modules, last
from perflint.project.programs import edited, on_host, rebound, said
from perflint.syntax.walk import reachable

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
    told, edits, rebinds = said(links, imports), edited(links, imports), rebound(links, modules.starred(links))
    asked, manners = _asked(links, modules), _manners(links, modules)
    derived = _derived(links, modules)
    paths = {**calls, **summaries, **host, **asked, **manners, **told, **edits, **rebinds, **derived}
    return {
        path: Context(
            *(calls.get(path, ()), summaries.get(path, ()), host.get(path)),
            *(told.get(path, Says.NOTHING), edits.get(path, ()), rebinds.get(path, ())),
            asked=asked.get(path, ()),
            manners=manners.get(path, ()),
            modules=derived.get(path, ()),
        )
        for path in paths
    }


def _asked(links: Mapping[str, Links], modules: Modules) -> dict[str, tuple[str, ...]]:
    """The functions of each file of whose effects others ask."""
    return _named(modules, {path: each.effect_queries for path, each in links.items()}, handed_on=True)


def _manners(links: Mapping[str, Links], modules: Modules) -> dict[str, tuple[tuple[str, Manner], ...]]:
    """How others call the functions of each file, as far as it asks."""
    found: defaultdict[str, defaultdict[str, Manner]] = defaultdict(lambda: defaultdict(lambda: Manner.PLAIN))
    asked = {path: dict(each.manner_queries) for path, each in links.items()}
    for manner in Manner:
        named = {path: _used(each, manner) for path, each in links.items()}
        for path, names in _named(modules, named, handed_on=manner is Manner.CALLED).items():
            for name in names:
                if asked[path].get(name, Manner.PLAIN) & manner:
                    found[path][name] |= manner
    return {path: tuple(sorted(each.items())) for path, each in found.items()}


def _used(links: Links, manner: Manner) -> list[str]:
    """What a file calls in this manner."""
    used = [name for name, how in links.manners if how & manner]
    if manner is not Manner.CALLED:
        return used
    return [*used, *links.cold_targets, *(each.target for each in links.calls)]


def _named(
    modules: Modules, targets: Mapping[str, Iterable[str]], *, handed_on: bool = False
) -> dict[str, tuple[str, ...]]:
    """The functions of each file that others name, by `targets` of these; if asked, as packages hand them on."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, names in targets.items():
        for target in names:
            for place, name in modules.answering(path, target, handed_on=handed_on):
                if place != path:
                    found[place].add(name)
    return {path: tuple(sorted(names)) for path, names in found.items()}


def _derived(links: Mapping[str, Links], modules: Modules) -> dict[str, tuple[str, ...]]:
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
            yield from exact or namesakes[last(base)][:NAMESAKES]  # what a package hands on has its own name

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
                        found[place].add(replace(_weakened(call), target=name, by=by))
    return {path: nearest(calls) for path, calls in found.items()}


def _weakened(call: HotCall) -> HotCall:
    """`call` with its arguments as guesses, where its target is only a guess."""
    if not call.target.startswith("?"):
        return call
    weaker = str.maketrans("DdHhp", "gg--l")
    keywords = tuple((name, code.translate(weaker)) for name, code in call.keywords)
    return replace(call, positional=call.positional.translate(weaker), keywords=keywords)


def _summaries(links: Mapping[str, Links], modules: Modules) -> dict[str, tuple[Summary, ...]]:
    known = {(path, summary.target): summary for path, each in links.items() for summary in each.summaries}
    useful = {last(summary.target) for summary in known.values() if not summary.is_empty}
    found: dict[str, tuple[Summary, ...]] = {}
    for path, each in links.items():
        answered, origins = [], each.origin_queries
        for target in sorted(each.queries):
            if last(target) not in useful:
                continue
            asks_effects = target in each.effect_queries
            places = modules.answering(path, target, handed_on=target in origins)
            found_there = {known[place] for place in places if place in known and place[0] != path}
            summary = _agreed(found_there if asks_effects else {each.without_effects for each in found_there})
            if summary is not None and (
                summary.trains
                or summary.tells_effects
                or (summary.drops and target in each.drop_queries)
                or (summary.starts_processes and target in each.start_queries)
                or (summary.returns_loader and target in each.result_queries)
                or (summary.returns not in ("", _LIKELY) and target in each.guess_queries)
                or (summary.returns_tensor and target in each.result_queries)
            ):
                answered.append(replace(summary, target=target))
        if answered:
            found[path] = tuple(answered)
    return found


def _agreed(summaries: set[Summary]) -> Summary | None:
    """What all the `summaries` say; None where they differ."""
    records = all(each.records for each in summaries)
    said = {replace(each, target="", records=records) for each in summaries}
    return said.pop() if len(said) == 1 else None

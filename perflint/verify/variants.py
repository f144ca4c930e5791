"""The variants of a program: the original, any subset of its fixes, and copies that come sooner to what runs late.

A fix runs late after a loop that has to end first, as an evaluation after an epoch, or after a test that rarely holds,
as `step % 400 == 0`: these are shortened in a copy.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from perflint.analysis.links import ALONE
from perflint.documents.disk import Unreadable
from perflint.documents.document import Document, read
from perflint.documents.lines import at_line
from perflint.engine.catalogue import all_rules
from perflint.engine.rule import Safety
from perflint.project import patch
from perflint.project.files import RulesByFile
from perflint.project.run import check_files
from perflint.shim.compiling import functions
from perflint.shim.hooks import change
from perflint.shim.plan import PatchedFile, Plan
from perflint.shim.planning import WORKERS, Project, patched, plan_for
from perflint.shim.session import LOADERS
from perflint.shim.settings import COMPILING, KNOWN
from perflint.syntax.walk import reachable
from perflint.verify.messages import SHORT, Loop, Variant
from perflint.verify.runs import Recorded
from perflint.verify.statistics import ORIGINAL
from perflint.verify.verdict import FixVerdict, Grade, Likeness

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Place = tuple[str, int]


@dataclass(frozen=True)
class Shortcut:
    """`loops` that end after a few iterations, `tests` that also hold once in a while, and what is `reached` so."""

    loops: frozenset[Place] = frozenset()
    tests: frozenset[Place] = frozenset()
    reached: frozenset[Place] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.reached)

    @property
    def places(self) -> frozenset[Place]:
        return self.loops | self.tests

    @property
    def notes(self) -> Iterator[str]:
        for path, line in sorted(self.loops):
            yield f"in a copy, the loop at {at_line(path, line)} ended after {SHORT} iterations, to reach more"
        for path, line in sorted(self.tests):
            yield f"in a copy, the test at {at_line(path, line)} held each {SHORT}th time, to reach more"


def shortcut(frames: Sequence[Place], late: Iterable[Place], paths: Iterable[str]) -> Shortcut:
    """What to shorten in a program that is at `frames`, so that it comes to the `late` places.

    `paths` are its files. Calls are followed by name alone. Of places behind loops, those behind the fewest are
    reached.
    """
    trees = _trees(paths)
    calls = _Calls(trees)
    here = [(path, line) for path, line in ((os.path.realpath(path), line) for path, line in frames) if path in trees]
    active = {(path, node) for path, line in here for node in _at(trees[path], line) if isinstance(node, ast.For)}
    running = [(path, _running(trees[path], line)) for path, line in here]
    ways = [calls.leading_to(place) for place in set(late)]
    ways = [way for way in ways if any(way.is_in(path, nodes) for path, nodes in running)]
    ahead = {way: {(path, node.lineno) for path, node in active if not way.is_in(path, [node])} for way in ways}
    fewest = min(filter(None, map(len, ahead.values())), default=0)
    near = [way for way, loops in ahead.items() if len(loops) in (0, fewest)]
    tests = {
        (path, node.lineno, way)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and _is_periodic(node.test)
        for way in near
        if way.is_in(path, node.body)
    }
    reached = {way for _, _, way in tests} | {way for way in near if ahead[way]}
    return Shortcut(
        frozenset(loop for way in near for loop in ahead[way]),
        frozenset((path, line) for path, line, _ in tests),
        frozenset(way.late for way in reached),
    )


def is_evaluation(
    late: Iterable[Place], evaluating: Iterable[Place], training: Iterable[Place], paths: Iterable[str]
) -> bool:
    """Are all `late` places in functions, or a module's loops, that evaluate and don't train?

    The program was `evaluating` where it asked for batches of an evaluation, `training` at steps of an optimizer.
    """
    trees = _trees(paths)
    around = [{_around(trees, place) for place in places} for places in (late, evaluating, training)]
    return bool(around[0]) and None not in around[0] and around[0] <= around[1] - around[2]


def _around(trees: Mapping[str, ast.Module], place: Place) -> Place | None:
    path = os.path.realpath(place[0])
    nodes = [*_at(trees[path], place[1])] if path in trees else []
    functions = [node for node in nodes if isinstance(node, _FUNCTIONS)]
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
    found = functions[-1:] or loops[:1]  # the walk goes from the outermost inwards
    return (path, found[0].lineno) if found else None


def _at(tree: ast.Module, line: int) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and line in _span(node))


def _running(tree: ast.Module, line: int) -> list[ast.stmt]:
    functions = [node for node in _at(tree, line) if isinstance(node, _FUNCTIONS)]
    if functions:
        return min(functions, key=lambda node: len(_span(node))).body
    return [node for node in tree.body if not isinstance(node, (*_FUNCTIONS, ast.ClassDef))]


class _Calls:
    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._functions = [
            (node.name, _span(node), path, _called(node.body))
            for path, tree in trees.items()
            for node in ast.walk(tree)
            if isinstance(node, _FUNCTIONS)
        ]

    def leading_to(self, late: Place) -> _Way:
        path, line = late
        around = [name for name, span, place, _ in self._functions if place == path and line in span]
        return _Way(late, frozenset(reachable(around, self._callers)))

    def _callers(self, function: str) -> list[str]:
        return [name for name, _, _, called in self._functions if function in called]


@dataclass(frozen=True)
class _Way:
    late: Place
    names: frozenset[str]

    def is_in(self, path: str, nodes: Sequence[ast.stmt]) -> bool:
        place, line = self.late
        here = place == path and any(line in _span(node) for node in nodes)
        return here or not self.names.isdisjoint(_called(nodes))


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _called(nodes: Iterable[ast.stmt]) -> frozenset[str]:
    calls = (each.func for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call))
    return frozenset(getattr(each, "attr", "") or getattr(each, "id", "") for each in calls)


def _is_periodic(test: ast.expr) -> bool:
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test))


def _trees(paths: Iterable[str]) -> dict[str, ast.Module]:
    return {path: tree for path in dict.fromkeys(map(os.path.realpath, paths)) if (tree := _tree(path))}


def _tree(path: str) -> ast.Module | None:
    with suppress(Unreadable, OSError, SyntaxError, ValueError):
        return ast.parse(read(Path(path)).text)
    return None


@dataclass(frozen=True, order=True)
class FixKey:
    """A fix at a line of a file, or of the whole project at line 0."""

    path: str
    line: int
    rule: str
    title: str
    safety: Safety
    at_run_time: bool = False

    @property
    def place(self) -> patch.Place:
        return (self.rule, self.line, self.title)


@dataclass(frozen=True)
class Effect:
    """Whether a run reached a fix (loaded its file, made its loader, called modules), and how often it took effect.

    `obstacle` says why a fix at run time was not made, if so.
    """

    is_reached: bool
    times: int
    obstacle: str = ""


class Variants:
    """Makes variants of a program, with fixes of the `allowed` promises, those of the rules `first` first."""

    def __init__(
        self, project: Project, allowed: Collection[Safety] = frozenset(Safety), first: Collection[str] = ()
    ) -> None:
        self._settings = replace(project.settings, unsafe=True)
        project = replace(project, settings=self._settings)
        self.whole: Plan = plan_for(project).plan
        discovery = project.discover()
        self.paths = tuple(map(str, discovery.files))
        checked = check_files(discovery, self._settings)
        self._contexts = {os.path.realpath(name): context for name, context in checked.contexts.items()}
        self._found = {os.path.realpath(file.path): file.diagnostics for file in checked.files if file.diagnostics}
        found = {*_fixes(self.whole), *self._candidates()}
        kept = (key for key in found if key.safety in allowed)
        self.fixes = tuple(sorted(kept, key=lambda key: (key.rule not in first, key)))
        self.shortened = Shortcut()
        self._patches: dict[tuple[str, frozenset[patch.Place]], PatchedFile] = {}

    def with_fixes(self, name: str, keys: Iterable[FixKey]) -> Variant:
        wanted = frozenset(keys)
        files: dict[str, PatchedFile] = {}
        loops: list[Loop] = []
        paths = {key.path for key in self.fixes if not key.at_run_time} | {path for path, _ in self.shortened.places}
        for path in sorted(paths):
            document = read(Path(path))
            lines, tree = {key.line for key in self.fixes if key.path == path}, ast.parse(document.text)
            calls = _functions_around(tree, lines)
            loops += dict.fromkeys(_loops_around(path, tree, lines))
            files[path] = self._patched(path, document, wanted)._replace(calls=calls)
        places = {(key.path, key.line) for key in wanted if key.at_run_time}
        loaders = {
            path: tuple(each for each in known if (path, each.line) in places)
            for path, known in self.whole.loaders.items()
        }
        settings = _compatible(self.whole.settings, {key.rule for key in wanted})
        return Variant(name, self.whole._replace(files=files, loaders=loaders, settings=settings), tuple(loops))

    def watched(self) -> Variant:
        """The original, counting where fixes would be, by their lines."""
        variant = self.with_fixes(ORIGINAL, ())
        files = {
            path: file._replace(probes=tuple(_watched({key.line for key in self.fixes if key.path == path}, file.text)))
            for path, file in variant.plan.files.items()
        }
        return replace(variant, plan=variant.plan._replace(files=files))

    def late(self, ran: Collection[str]) -> tuple[FixKey, ...]:
        loaded = (key for key in self.fixes if not key.at_run_time and change(key.path, 0) in ran)
        return tuple(key for key in loaded if change(key.path, key.line) not in ran)

    def loaded(self, ran: Collection[str]) -> tuple[FixKey, ...]:
        return tuple(key for key in self.fixes if key.at_run_time or change(key.path, 0) in ran)

    def only(self, keys: Collection[FixKey], shortened: Shortcut = Shortcut()) -> Variants:  # it is frozen
        made = copy(self)
        made.fixes, made.shortened, made._patches = tuple(key for key in self.fixes if key in keys), shortened, {}
        return made

    def tuning(self) -> Variant | None:
        return Variant("tuned", self.whole._replace(files={}, tunes=True)) if self.whole.loaders else None

    @staticmethod
    def holds(variant: Variant, key: FixKey) -> bool:
        if key.rule in KNOWN:
            return key.rule in variant.plan.settings
        return key.at_run_time or key.place in _places(variant.plan.files[key.path])

    @staticmethod
    def effect(key: FixKey, variant: Variant, run: Recorded) -> Effect:
        if key.rule in KNOWN:
            of_modules = key.rule in COMPILING
            seen = [each for each in run.settings if each.name == key.rule or (of_modules and each.name not in KNOWN)]
            left = (each.remark for each in seen if not each.times)
            return Effect(bool(seen), sum(each.times for each in seen), next(left, ""))
        if key.at_run_time:
            made = [each for each in run.loaders if (os.path.realpath(each.path), each.line) == (key.path, key.line)]
            reasons = (each.reason for each in made if each.reason)
            return Effect(bool(made), sum(bool(each.arguments) for each in made), next(reasons, ""))
        numbered = enumerate(_places(variant.plan.files[key.path]), 1)
        times = (run.counts.get(change(key.path, number), 0) for number, place in numbered if place == key.place)
        return Effect(change(key.path, 0) in run.counts, sum(times))

    def verdict(self, name: str, key: FixKey, times: int, reason: str) -> FixVerdict:
        return FixVerdict(
            name,
            key.rule,
            key.path,
            key.line,
            key.title,
            key.safety,
            self.fingerprint(key),
            Likeness(Grade.UNKNOWN),
            times,
            reason=reason,
            at_run_time=key.at_run_time,
        )

    def fingerprint(self, key: FixKey) -> str:
        """The finding's, which stays when its line moves."""
        found = [
            each
            for each in self._found.get(key.path, ())
            if (each.rule, each.start.program_line) == (key.rule, key.line)
        ]
        same = [each for each in found if key.title in {fix.title for fix in each.fixes}]
        return next((each.fingerprint for each in (*same, *found)), "")

    def _candidates(self) -> Iterator[FixKey]:
        for path in self.whole.files:
            for each in self._found.get(path, ()):
                for fix in each.fixes if len(each.fixes) > 1 else ():
                    yield FixKey(path, each.start.program_line, each.rule, fix.title, fix.safety)

    def _patched(self, path: str, document: Document, wanted: frozenset[FixKey]) -> PatchedFile:
        places = frozenset(key.place for key in wanted if key.path == path and not key.at_run_time)
        if (path, places) not in self._patches:
            context, rules = self._contexts.get(path, ALONE), RulesByFile(self._settings).at(Path(path))
            options = self._settings.rules
            found = patch.patch_document(document, rules, options, unsafe=True, context=context, wanted=places)
            file = patched(found)
            short = {line for place, line in self.shortened.places if place == path}
            lines = (number for number, line in enumerate(file.lines, 1) if line in short)
            self._patches[path, places] = file._replace(shortened=tuple(lines))
        return self._patches[path, places]


def _watched(lines: Iterable[int], text: str) -> Iterator[tuple[int, int]]:
    starts = sorted(node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt))
    for line in sorted(lines):
        if before := [start for start in starts if start <= line]:
            yield before[-1], line


def _places(file: PatchedFile) -> list[patch.Place]:
    return [(fix.rule, fix.line, fix.title) for fix in file.changes]


def _functions_around(tree: ast.Module, lines: Iterable[int]) -> tuple[str, ...]:
    around = ((name, each) for name, each in functions(tree) if any(line in _span(each) for line in lines))
    yields = (ast.Yield, ast.YieldFrom)
    return tuple(sorted({name for name, each in around if not any(isinstance(n, yields) for n in ast.walk(each))}))


def _loops_around(path: str, tree: ast.Module, lines: Iterable[int]) -> Iterator[Loop]:
    for line in lines:
        outside = takewhile(lambda node: not isinstance(node, (*_FUNCTIONS, ast.ClassDef)), _at(tree, line))
        if loop := next((node for node in outside if isinstance(node, ast.For | ast.While)), None):
            yield Loop(path, loop.lineno, _span(loop).stop - 1)


def _fixes(plan: Plan) -> Iterator[FixKey]:
    for path, file in plan.files.items():
        for fix in file.changes:
            yield FixKey(path, fix.line, fix.rule, fix.title, Safety(fix.safety))
    rules = [rule.name for rule in all_rules() if rule.at_run_time == LOADERS and LOADERS in plan.watches]
    for path, loaders in plan.loaders.items() if rules else ():
        for each in loaders:
            safety = Safety.EXACT if WORKERS in each.proven else Safety.BEHAVIOUR
            yield FixKey(path, each.line, rules[0], "what was left out of the loader, as it is made", safety, True)
    for name in plan.settings:
        yield FixKey(plan.root, 0, name, KNOWN[name].title, Safety(KNOWN[name].safety), True)


def _compatible(names: Sequence[str], wanted: Collection[str]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        if name in wanted and not {*KNOWN[name].rivals} & {*found}:
            found.append(name)
    return tuple(found)

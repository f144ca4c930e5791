"""What iterating over a value asks for iterators in turn, which expressions start workers, and which loops anew."""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from perflint.analysis.call_graph import loops_around
from perflint.analysis.data.loaders import LoaderCall, Loaders, Setting, State
from perflint.analysis.data.origins import Origins, parts_of
from perflint.analysis.facts import Program
from perflint.analysis.links import Likelihood, Summary
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of, defaults_of, handed_on, parameters_of
from perflint.syntax.walk import (
    COMPREHENSIONS,
    Loop,
    integer,
    method_of,
    name_called,
    path_of,
    receiver_of,
    returned_values,
)

WRAPS = re.compile(
    r"builtins\.(iter|next|list|tuple|set|enumerate|zip|map|filter|reversed|sorted)|tqdm\b.*|itertools\.\w+"
    r"|rich\.progress\.track|.*\.(prepare|tqdm|trange|setup_dataloaders|prepare_data_loader|MpDeviceLoader|ParallelLoader)"
)
_WRAPPING_METHODS = frozenset({"prepare", "setup_dataloaders", "tqdm", "track"})
_MAPPINGS = frozenset({"builtins.dict", "collections.OrderedDict"})
_NO_LOADERS = frozenset({Kind.TENSOR, Kind.NUMBER, Kind.STRING, Kind.NUMPY, Kind.NONE, Kind.MODULE})

_Wanted = tuple[ast.AST, bool]  # a node, and whether what it holds is meant, at any depth


class Iteration:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)

    def reached(self, node: ast.AST, *, held: bool = False) -> Iterator[tuple[ast.AST, bool, bool]]:
        """The origins of what is asked for iterators with `node`, or with what it holds.

        Each with whether what that holds is meant, and whether nothing further is behind it.
        """
        stack: list[_Wanted] = [(node, held)]
        seen = set(stack)
        while stack:
            wanted, is_held = stack.pop()
            value = self._program.value(wanted)
            if not is_held and value.kind is Kind.LOADER and value.node is not None:
                yield value.node, False, True
                continue
            for origin in self._origins.of(wanted):
                parts = list(self._sources(origin, is_held))
                yield origin, is_held, not parts
                stack += [part for part in parts if part not in seen]
                seen.update(parts)

    def walks(self, made: ast.AST) -> list[ast.AST]:
        return self._walks[made]

    @cached_property
    def _walks(self) -> defaultdict[ast.AST, list[ast.AST]]:
        found: defaultdict[ast.AST, list[ast.AST]] = defaultdict(list)
        for walk, walked in self._walked():
            for origin in dict.fromkeys(each for each, held, _ in self.reached(walked) if not held):
                found[origin].append(walk)
        return found

    def _walked(self) -> Iterator[tuple[ast.AST, ast.expr]]:
        for loop in self._program.of_type(ast.For):
            yield loop, loop.iter
        for made in self._program.of_type(*COMPREHENSIONS):
            generators: list[ast.comprehension] = made.generators  # type: ignore[attr-defined]
            yield from ((made, each.iter) for each in generators)
        for each in self._program.of_type(ast.YieldFrom):
            yield each, each.value
        for call in self._program.of_type(ast.Call):
            name = self._program.qualified(call.func) if call.args else ""
            if name == "builtins.iter" or (name == "builtins.next" and isinstance(call.args[0], ast.Call)):
                yield call, call.args[0]
            elif (walked := receiver_of(call, "__iter__")) is not None:
                yield call, walked
            yield from ((call, each.value) for each in call.args if isinstance(each, ast.Starred))

    def _sources(self, origin: ast.AST, is_held: bool) -> Iterator[_Wanted]:
        if isinstance(origin, ast.Subscript | ast.Starred):
            yield origin.value, True
        elif isinstance(origin, ast.For | ast.AsyncFor | ast.comprehension):  # its target
            yield origin.iter, True
        elif isinstance(origin, ast.Call):
            yield from self._sources_of_call(origin, is_held)
        if is_held:
            for each in (*parts_of(origin), *self._put_in.get(origin, ())):
                yield each, False
                yield each, True

    def _sources_of_call(self, call: ast.Call, is_held: bool) -> Iterator[_Wanted]:
        name = name_of(self._program, call)
        owner = receiver_of(call)
        method = name_called(call) if owner is not None else ""
        callee = self._program.callee(call)
        handed = self._program.arguments(call, callee).get(handed_on(callee)) if callee is not None else None
        has_iterator = method_of(self._program.value(call.func).node, "__iter__") is not None
        if name == "builtins.next":  # takes an item out
            yield from ((argument, True) for argument in call.args)
        elif handed is not None:
            yield handed, is_held
        elif WRAPS.fullmatch(name) or method in _WRAPPING_METHODS or has_iterator:
            yield from ((argument, is_held) for argument in call.args)
        elif is_held and name in _MAPPINGS:
            yield from ((argument, True) for argument in call.args)
            yield from ((keyword.value, False) for keyword in call.keywords)
        elif owner is not None and (method in ("get", "next", "pop") or (is_held and method in ("items", "values"))):
            yield owner, True

    @cached_property
    def _put_in(self) -> dict[ast.AST, list[ast.expr]]:
        put: defaultdict[ast.AST, list[ast.expr]] = defaultdict(list)
        for assignment in self._program.of_type(ast.Assign):
            for target in assignment.targets:
                if isinstance(target, ast.Subscript):
                    self._put(put, target.value, assignment.value)
        for call in self._program.of_type(ast.Call):
            if (container := receiver_of(call, "append")) is not None and len(call.args) == 1:
                self._put(put, container, call.args[0])
        return put

    def _put(self, put: dict[ast.AST, list[ast.expr]], container: ast.expr, value: ast.expr) -> None:
        if self._program.value(value).kind not in _NO_LOADERS:
            for origin in self._origins.of(container):
                put[origin].append(value)


def name_of(program: Program, call: ast.Call) -> str:
    return program.qualified(call.func) or program.value(call.func).name


_WORKER_WORDS = re.compile(r"^(data_?|loader_|dataloader_)?(num_?|n_)?workers?$")


@dataclass(frozen=True)
class Reason:
    likelihood: Likelihood
    what: str


class Workers:
    """The workers of one program's loaders; `assumed` are loaders taken to have some."""

    def __init__(self, program: Program, assumed: frozenset[ast.Call]) -> None:
        self._program = program
        self._assumed = assumed
        self._loaders = program.get(Loaders)
        self._origins = program.get(Origins)
        self._iteration = program.get(Iteration)
        self.queried: set[str] = set()  # functions of other files that a start depends on

    def of(self, node: ast.AST) -> Reason | None:
        return self._started(node, held=False)

    def of_parts(self, node: ast.AST) -> Reason | None:
        return self.of(node) or self._started(node, held=True)

    def _started(self, node: ast.AST, *, held: bool) -> Reason | None:
        calls = ((each, is_held) for each, is_held, _ in self._iteration.reached(node, held=held))
        reasons = (self._of_call(each, is_held) for each, is_held in calls if isinstance(each, ast.Call))
        return max(filter(None, reasons), key=lambda reason: reason.likelihood, default=None)

    def of_loader(self, loader: LoaderCall) -> Reason | None:
        if loader.call in self._assumed:
            return Reason(Likelihood.CERTAIN, "it iterates a loader with workers")
        return self._of_setting(loader.workers, "the workers of a loader")

    def of_number(self, expression: ast.expr, what: str) -> Reason | None:
        state, certain = self._loaders.judge(expression)
        return self._of_setting(Setting(state, expression, certain), what)

    def summaries(self, call: ast.Call) -> tuple[Summary, ...]:
        self.queried.update(self._program.targets(call))
        return tuple(self._program.summaries(call))

    def reason_of_summaries(self, call: ast.Call, likelihoods: Iterable[Likelihood]) -> Reason | None:
        likelihood = max(likelihoods, default=Likelihood.NO)
        if not likelihood or self._asks_for_none(call):
            return None
        starts = "starts" if likelihood is Likelihood.CERTAIN else "may start"
        return Reason(likelihood, f"{self._program.segment(call.func)}() {starts} processes")

    def _of_call(self, call: ast.Call, is_held: bool) -> Reason | None:
        loader = self._loaders.by_call.get(call)
        if loader is not None:
            return None if is_held else self.of_loader(loader)
        if WRAPS.fullmatch(name_of(self._program, call)):
            return None
        for keyword in call.keywords:
            if keyword.arg and _WORKER_WORDS.match(keyword.arg):
                reason = self.of_number(keyword.value, f"the workers that {keyword.arg} asks for")
                return Reason(Likelihood.POSSIBLE, reason.what) if reason else None
        return self.reason_of_summaries(call, (summary.loads for summary in self.summaries(call)))

    def _asks_for_none(self, call: ast.Call) -> bool:
        given = [self._program.value(each.value) for each in call.keywords if _WORKER_WORDS.match(each.arg or "")]
        preset = self._program.value(call.func).item
        if not given and preset is not None and preset.items is not None:
            known = zip(preset.keys, preset.items, strict=True)
            given = [value for name, value in known if isinstance(name, str) and _WORKER_WORDS.match(name)]
        return bool(given) and all(each.is_literal and each.literal == 0 for each in given)

    # -- numbers of workers

    def _of_setting(self, setting: Setting, what: str) -> Reason | None:
        if setting.state in (State.ABSENT, State.OFF, State.UNKNOWN) or self._is_for_callers(setting):
            return None
        certain = setting.state is State.ON and setting.certain
        return Reason(
            Likelihood.CERTAIN if certain else Likelihood.POSSIBLE, f"it {'starts' if certain else 'may start'} {what}"
        )

    def _is_for_callers(self, setting: Setting) -> bool:
        origins = list(self._origins.of(setting.value)) if setting.value is not None else []
        parameters = [each for each in origins if isinstance(each, ast.arg)]
        return bool(parameters) and len(parameters) == len(origins) and not any(map(self._is_supplied, parameters))

    def _is_supplied(self, parameter: ast.arg) -> bool:
        """Has it a default, or does a call leave it out, as one does where a decorator reads the command line?"""
        function = self._program.function_of(parameter)
        if function is None or parameter.arg in defaults_of(function):
            return function is not None
        return any(
            given is None
            and self._program.calls(site, function)
            and not self._program.arguments(site, function).is_open
            for site, given in self._program.given(parameter)
        )


_TRAINING = re.compile(r"train|(^|[^a-z])tr([^a-z]|$)", re.IGNORECASE)
_VALIDATION = re.compile(r"(^|[^a-z])(va|val|valid|validation|dev|cv)([^a-z]|$)", re.IGNORECASE)
_ONCE = re.compile(r"test|infer|predict|extract|export", re.IGNORECASE)
_SHUFFLING = re.compile(r"(Distributed|Random|Weighted\w*)Sampler$")
_KEEPING = re.compile(r"prepare|setup|^builtins\.|^torch\.|print$|append$", re.IGNORECASE)
_EPOCHS = frozenset({"max_epochs", "num_epochs", "epochs", "num_train_epochs"})


@dataclass(frozen=True)
class Restarts:
    """What walks a loader anew: `loops` in this file, each around a walk; `handed` are calls that may walk it.

    `elsewhere`: no walk is in this file, and the loader is made for training.
    """

    loops: tuple[Loop, ...] = ()
    handed: tuple[ast.Call, ...] = ()
    elsewhere: bool = False

    def __bool__(self) -> bool:
        return bool(self.loops) or self.elsewhere


def is_only_peeked(program: Program, loader: LoaderCall) -> bool:
    """Is nothing but a first batch taken of it, by `next(iter(loader))`, whatever workers prepare besides?"""
    made, origins = program.parent(loader.call), program.get(Origins)
    names = {path_of(each) for each in made.targets} if isinstance(made, ast.Assign) else set()
    parts = program.of_type(ast.Name, ast.Attribute)
    read = [each for each in parts if path_of(each) in names and isinstance(getattr(each, "ctx", None), ast.Load)]
    uses = [[*itertools.islice(program.ancestors(each), 2)] for each in read if loader.call in origins.of(each)]
    taken = [[program.qualified(each.func) for each in use if isinstance(each, ast.Call)] for use in uses]
    return bool(taken) and all(each == ["builtins.iter", "builtins.next"] for each in taken)


def restarts(program: Program, loader: LoaderCall) -> Restarts:
    """What starts the workers of `loader` more than once, outside of which it was made."""
    made = loader.call
    if _is_endless(program, loader):
        return Restarts()
    walks = program.get(Iteration).walks(made)
    makers = {made, *program.ancestors(made), *walks}
    makers |= {around for each in loops_around(program, made) for around in (each, *program.ancestors(each))}
    handed = [each for each in _handed(program, made) if _loops(program, each, makers)]
    found = ((walk, each) for walk in (*walks, *handed) for each in _loops(program, walk, makers))
    loops = dict.fromkeys(each for walk, each in found if _hands(program, each, walk, made))
    is_elsewhere = not walks and not loops and _is_for_training(program, loader)
    return Restarts(tuple(loops), tuple(handed), is_elsewhere)


def _loops(program: Program, walk: ast.AST, makers: set[ast.AST]) -> list[Loop]:
    around = (each for each in loops_around(program, walk) if each not in makers)
    return [each for each in around if not _takes_loaders(program, each)]


def _takes_loaders(program: Program, loop: Loop) -> bool:
    return isinstance(loop, ast.For) and program.value(loop.target).kind is Kind.LOADER


def _hands(program: Program, loop: Loop, walk: ast.AST, made: ast.Call) -> bool:
    function = program.function_of(walk)
    if not isinstance(walk, ast.For) or function is None or program.function_of(loop) is function:
        return True
    names = {each.id for each in ast.walk(walk.iter) if isinstance(each, ast.Name)}
    if names.isdisjoint(each.arg for each in parameters_of(function) if each.arg != "self"):
        return True
    parts = (each for each in ast.walk(loop) if isinstance(each, ast.Name | ast.Attribute))
    reached = (found for each in parts for found in program.get(Iteration).reached(each))
    return any(origin is made and not held for origin, held, _ in reached)


def _is_endless(program: Program, loader: LoaderCall) -> bool:
    sampler = loader.argument("sampler")
    origins = program.get(Iteration).reached(sampler) if sampler is not None else ()
    calls = (each for each, _, _ in origins if isinstance(each, ast.Call))
    told = ((*(each.arg or "" for each in call.keywords), *map(path_of, call.args)) for call in calls)
    return any(each.rpartition(".")[2] in _EPOCHS | {"num_samples"} for names in told for each in names)


def _handed(program: Program, made: ast.AST) -> Iterator[ast.Call]:
    origins = program.get(Origins)
    for call, each in _given(program):
        if (program.value(each).node is made or made in origins.of(each)) and _may_walk(program, call):
            yield call


def _given(program: Program) -> Iterator[tuple[ast.Call, ast.expr]]:
    for call in program.of_type(ast.Call):
        yield from ((call, each) for each in arguments_of(call) if path_of(each))


def _may_walk(program: Program, call: ast.Call) -> bool:
    name = program.qualified(call.func) or path_of(call.func)
    return program.callee(call) is None and not _KEEPING.search(name) and not WRAPS.fullmatch(name)


def _is_for_training(program: Program, loader: LoaderCall) -> bool:
    """Does it shuffle, drop a rest, is it called so, or made beside or instead of such a one?

    What is called so but told to keep the order is likely walked for features.
    """
    name = _name(program, loader.call)
    if _ONCE.search(name) or _trains_for_one_epoch(program) or _is_unused(program, loader.call):
        return False
    if _shuffles(program, loader):
        return True
    if _TRAINING.search(name):
        is_in_order = program.get(Loaders).setting(loader.call, "shuffle", loader.offset).state is State.OFF
        return not is_in_order or loader.argument("sampler") is not None
    loaders = program.get(Loaders)
    here = _makers(program, loader.call)
    others = [each for each in (*loaders.calls, *loaders.derived) if not here.isdisjoint(_makers(program, each.call))]
    others = [each for each in others if each.call is not loader.call]
    shuffling = [each for each in others if _shuffles(program, each)]
    is_plain = loader.argument("sampler") is None and loader.argument("batch_sampler") is None
    if name and is_plain and any(_name(program, each.call) == name for each in shuffling):
        return True  # one or the other, for what the caller asks
    is_beside = bool(shuffling) or any(_TRAINING.search(_name(program, each.call)) for each in others)
    return _VALIDATION.search(name) is not None and is_beside


def _makers(program: Program, made: ast.Call) -> set[ast.AST]:
    """The function around it, and its class if it is a method that Lightning asks for a loader."""
    function = program.function_of(made)
    gives = function is not None and getattr(function, "name", "").endswith("_dataloader")
    return {each for each in (function, program.class_around(made) if gives else None) if each is not None}


def _is_unused(program: Program, made: ast.Call) -> bool:
    targets = getattr(program.statement_of(made), "targets", ())
    function = program.function_of(made)
    if function is None or not all(isinstance(each, ast.Name) for each in targets):
        return False
    names = {each.id for each in targets}
    read = (each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
    return bool(names) and names.isdisjoint(read)


def _shuffles(program: Program, loader: LoaderCall) -> bool:
    settings = [program.get(Loaders).setting(loader.call, name, loader.offset) for name in ("shuffle", "drop_last")]
    sampler = loader.argument("sampler")
    origins = program.get(Iteration).reached(sampler) if sampler is not None else ()
    makers = (program.qualified(each.func) for each, _, _ in origins if isinstance(each, ast.Call))
    return any(each.state in (State.ON, State.CHOICE) for each in settings) or any(map(_SHUFFLING.search, makers))


def _trains_for_one_epoch(program: Program) -> bool:
    return any(each.arg in _EPOCHS and integer(each.value) == 1 for each in program.of_type(ast.keyword))


def _name(program: Program, made: ast.Call) -> str:
    statement, function = program.statement_of(made), program.function_of(made)
    targets = [path_of(each) for each in getattr(statement, "targets", ())]
    given = {path_of(part) for each in returned_values(function) for part in ast.walk(each)} - {""}
    is_maker = isinstance(statement, ast.Return) or not given.isdisjoint(targets)
    return " ".join([*targets, getattr(function, "name", "") if is_maker else ""])

"""Computes the links of a file to others: its hot calls, its function summaries, and its queries for theirs."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from perflint import torch_ops
from perflint.analysis.autograd.effects import Effects, is_loss
from perflint.analysis.autograd.graph_use import drops_graph, needs_gradients
from perflint.analysis.call_graph import CallGraph, handlers_in_file, overridden
from perflint.analysis.data.loaders import Loaders, State
from perflint.analysis.data.origins import edits_of
from perflint.analysis.data.restarts import rewalked
from perflint.analysis.data.starts import Starts
from perflint.analysis.facts import Program
from perflint.analysis.found import GradMode, Heat
from perflint.analysis.heat.freshness import draws_data
from perflint.analysis.heat.syncs import is_needed
from perflint.analysis.links import ALONE, LOADERS, NOWHERE, Context, HotCall, Links, Manner, Says, Summary, nearest
from perflint.analysis.loops.flow import LoopKind
from perflint.analysis.loops.kinds import Loops
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.values.codes import ELSEWHERE, SHARED, argument_code, named_functions, result_code
from perflint.analysis.values.device_use import imported, rebinds_of
from perflint.analysis.values.operations import moves_first
from perflint.analysis.values.values import GUESSED, Kind, Place
from perflint.syntax.scopes import arguments_of, handed_on, is_static, parameters_of
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, LOOPS, bindings_of, own_nodes, path_of, returned_values

_READING_FUNCTIONS = frozenset(f"builtins.{name}" for name in "float int bool max min sorted print str".split())
_BRANCHES, _VARIABLES = (ast.If, ast.While), (ast.Name, ast.Attribute)
_MOVES = (".to(", ".cuda(")
_OPEN = frozenset({Kind.UNKNOWN, Kind.METHOD, Kind.TENSOR, Kind.SEQUENCE, Kind.MAPPING})  # what may be a tensor


Reaching = Sequence[tuple[ast.Call, Sequence[str]]]  # calls, with what they may reach in other files


def result_queries(program: Program, reaching: Reaching) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The functions of other files that may return what hot code of this one reads, walks or passes to others.

    First those with unknown results, then those whose results are guessed to be tensors.
    """
    sources = _Sources(program)
    for value in (*_hot_reads(program), *_guessed_arguments(program, reaching), *_walked(program, reaching)):
        sources.follow(value)
    return tuple(sorted(sources.unknown)), tuple(sorted(sources.likely))


def step_queries(program: Program, reaching: Reaching) -> tuple[str, ...]:
    """The functions of other files that would make a loop around their call one of steps if they trained.

    And all that a script calls, which may train as a whole.
    """
    found = (targets for node, targets in reaching if program.is_script or _is_looped(program, node))
    return tuple(sorted({target for targets in found for target in targets}))


def _is_looped(program: Program, node: ast.Call) -> bool:
    for parent in program.ancestors(node):
        if isinstance(parent, FUNCTIONS):
            return False
        if isinstance(parent, LOOPS):
            return program.loop_kind(parent) is LoopKind.OTHER and program.heat(parent) is Heat.ONCE
    return False


def _hot_reads(program: Program) -> Iterator[ast.expr]:
    """The expressions whose values hot code may read."""
    kinds: tuple[type[ast.AST], ...] = (ast.Call, ast.FormattedValue, *_BRANCHES)
    for node in (node for kind in kinds for node in program.of_type(kind)):  # in any order, which takes no sorting
        read = [each for each in _read_by(program, node) if program.value(each).kind in _OPEN]
        if read and program.heat(node) is not Heat.ONCE:
            yield from read


def _walked(program: Program, reaching: Reaching) -> Iterator[ast.expr]:
    """What loops take batches out of that the file moves to the device, where it may be a loader of another file's.

    And the likely loaders that calls are given, which may walk them, or that are told how many workers to start.
    """
    loops: Sequence[ast.For] = program.of_type(ast.For)
    for loop in loops if any(move in program.text for move in _MOVES) else ():
        value = program.value(loop.iter)
        if value.kind in (Kind.UNKNOWN, Kind.METHOD, Kind.LOADER) and not (value.sure and value.kind is Kind.LOADER):
            yield loop.iter
    for given in (each for node, _ in reaching for each in node.args):
        if (value := program.value(given)).kind is Kind.LOADER and not value.sure:
            yield given
    yield from (node for node, _ in reaching if any(each.arg == "num_workers" for each in node.keywords))


def _guessed_arguments(program: Program, reaching: Reaching) -> Iterator[ast.expr]:
    """The arguments of hot calls that are guesses; inside modules, there is little but tensors on the device."""
    for node, _ in reaching:
        guesses = [each for each in node.args if program.value(each).name == GUESSED]
        if guesses and not _is_of_module(program, node) and program.heat(node) is not Heat.ONCE:
            yield from guesses


def _is_of_module(program: Program, node: ast.AST) -> bool:
    owner = program.class_of(program.function_of(node))
    return owner is not None and owner.is_a("module")


def _read_by(program: Program, node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.FormattedValue):
        return [node.value]
    if isinstance(node, _BRANCHES):
        return [] if path_of(node.test).startswith("self.") else [node.test]  # which is a flag
    assert isinstance(node, ast.Call)
    if isinstance(node.func, ast.Attribute) and torch_ops.does(node.func.attr, "to_host"):
        return [node.func.value]
    return node.args if program.qualified(node.func) in _READING_FUNCTIONS else []


class _Sources:
    """Where values come from: the calls behind an expression, through variables and functions of the file."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._seen: set[ast.AST] = set()
        self.unknown: set[str] = set()
        self.likely: set[str] = set()

    @cached_property
    def _bound(self) -> Mapping[tuple[ast.AST | None, str], list[ast.expr]]:
        """What each variable of a function, or attribute of any object, is given."""
        found: defaultdict[tuple[ast.AST | None, str], list[ast.expr]] = defaultdict(list)
        for node in self._program.of_type(ast.Assign, ast.AugAssign, ast.For, ast.With, *COMPREHENSIONS):
            bindings: list[Any] = getattr(node, "generators", None) or getattr(node, "items", None) or [node]
            for target, value in (pair for binding in bindings for pair in bindings_of(binding)):
                for part in [target] if isinstance(target, ast.Name) else ast.walk(target):
                    if isinstance(part, _VARIABLES):
                        found[self._key(part)].append(value)
        return found

    def follow(self, expression: ast.expr) -> None:
        """Find the calls behind `expression` that reach other files."""
        pending: list[ast.AST] = [expression]
        while pending:
            for node in own_nodes(pending.pop()):
                if node in self._seen:
                    continue
                self._seen.add(node)
                if isinstance(node, _VARIABLES) and isinstance(node.ctx, ast.Load):
                    found = self._bound.get(self._key(node)) or self._handed(node)
                    pending += found or self._bound.get((None, path_of(node)), ())
                elif isinstance(node, ast.Call):
                    callee = self._program.callee(node)
                    if callee is not None:
                        pending += returned_values(callee)
                    else:
                        self._query(node)

    def _handed(self, node: ast.expr) -> list[ast.expr]:
        function = self._program.function_of(node) if isinstance(node, ast.Name) else None
        parameters = parameters_of(function) if function is not None else ()
        given = [self._program.given(each) for each in parameters if each.arg == path_of(node)]
        return [value for sites in given for _, value in sites if value is not None]

    def _query(self, node: ast.Call) -> None:
        value = self._program.value(node)
        if value.kind is Kind.TENSOR and (not value.sure or value.place is Place.UNKNOWN):
            self.likely.update(self._program.targets(node))
        elif value.kind in (Kind.UNKNOWN, Kind.METHOD) or (value.kind is Kind.LOADER and not value.sure):
            self.unknown.update(self._program.targets(node))

    def _key(self, node: ast.AST) -> tuple[ast.AST | None, str]:
        path = path_of(node)
        return (None if path.startswith("self.") else self._program.function_of(node), path)


_STARTING = ("workers", "multiprocessing", "ProcessPool")  # without one of them, nothing starts processes
_SWITCHES = ("no_grad", "inference_mode", "set_grad_enabled")
_STAYING = "persistent_workers"
_DEPTH = 3  # of calls through which an action is followed


def links_of(program: Program, context: Context = ALONE) -> Links:
    """The links of a file.

    They repeat the queries that `context` answers: a cached result must not lose them.
    """
    named = list(named_functions(program.tree))
    functions = tuple(name for name, node in named if program.is_cold(node))
    bases = tuple((node.name, base) for node in program.of_type(ast.ClassDef) for base in program.base_names(node))
    summaries = (*(_summary(program, context, name, node) for name, node in named), *_loader_summaries(program))
    called = [(node, (*program.targets(node), *overridden(program, node))) for node in program.of_type(ast.Call)]
    reaching = [(node, targets) for node, targets in called if targets]
    heats = {node: program.heat(node) for node, _ in reaching}
    calls = nearest(_hot_calls(program, reaching, heats))
    answered = {summary.target for summary in context.summaries if not summary.without_effects.is_empty}
    needed = (*result_queries(program, reaching), step_queries(program, reaching), _start_queries(program))
    unknown, guessed, steps, starts = (tuple(sorted({*targets, *answered})) for targets in needed)
    told = {summary.target for summary in context.summaries if summary.tells_effects}
    effects = tuple(sorted(program.asked.effects | told))
    of_first = {summary.target for summary in context.summaries if summary.tells_of_first}
    firsts = tuple(sorted(program.asked.firsts | of_first))
    imports, says = _membership(program)
    return Links(
        *(calls, functions, bases, summaries, unknown, guessed, steps, starts, effects, firsts, imports, says),
        says_query=program.asked.says,
        edits=edits_of(program),
        edit_queries=tuple(sorted(program.asked.edits)),
        rebinds=rebinds_of(program),
        manners=_manners(program, context, reaching, heats),
        manner_queries=_manner_queries(program, context),
        module_queries=tuple(sorted({*program.asked.modules, *context.modules})),
        hands_on=tuple(_handed_on(program)),
        cold_targets=() if program.is_test else tuple(sorted(_cold_targets(program, reaching, heats))),
    )


def _cold_targets(program: Program, reaching: Reaching, heats: Mapping[ast.Call, Heat]) -> set[str]:
    cold = (each for each in reaching if not heats[each[0]] and program.function_of(each[0]) is not None)
    return {target for _, targets in cold for target in targets}


def _summary(
    program: Program, context: Context, name: str, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> Summary:
    trains = program.trains_once(function)
    summary = Summary(
        name,
        _returns(program, function),
        trains,
        trains and program.get(CallGraph).reaches(function, draws_data),
        drops=drops_graph(program, function),
        moves=moves_first(program, function),
        repeats=not trains and program.get(Loops).trains_repeatedly(function),
    )
    if name in context.asked:
        effects = program.get(Effects)
        summary = replace(summary, memory=program.get(Memory).exported(function))
        needs = needs_gradients(program, function)
        summary = replace(summary, differentiates=needs, records=effects.records(function))
    if not program.get(_may_start):
        return summary
    starts = program.get(Starts)
    return replace(summary, starts=starts.by_calling(function), loads=starts.by_iterating(function))


def _returns(program: Program, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The code for what it returns: of a generator that hands on what it is given, the place of that argument."""
    if program.get(_may_yield) and (name := handed_on(function)):
        skipped = program.class_of(function) is not None and not is_static(function)
        return str([each.arg for each in parameters_of(function)].index(name) - skipped)
    return result_code(program.returned(function))


def _loader_summaries(program: Program) -> Iterator[Summary]:
    """A summary for each class of loaders that may have workers, or are built as torch's are."""
    for node in program.of_type(ast.ClassDef) if "Loader" in program.text else ():
        summary = Summary(node.name, LOADERS if program.get(Loaders).takes_options(node) else "")
        if program.get(_may_start):
            summary = replace(summary, loads=program.get(Starts).by_walking(node))
        if not summary.is_empty:
            yield summary


def _start_queries(program: Program) -> set[str]:
    """The functions of other files that decide whether the file, run as a script, starts processes."""
    program.get(Starts).first()
    return program.get(Starts).queried


def _may_yield(program: Program) -> bool:
    return "yield" in program.text


def _may_start(program: Program) -> bool:
    return any(mark in program.text for mark in _STARTING)


def links_without_torch(program: Program) -> Links:
    """The links of a file that handles no tensors, as far as is known: others may hand it some."""
    named = dict(named_functions(program.tree)).items()
    summaries = tuple(Summary(name, _returns(program, each)) for name, each in named)
    return replace(outline_of(program), summaries=summaries)


def outline_of(program: Program) -> Links:
    """The links of a file that its syntax tells, without the values of anything."""
    functions = tuple(dict(named_functions(program.tree)))
    imports, says = _membership(program)
    return Links(
        functions=functions,
        summaries=tuple(map(Summary, functions)),
        imports=imports,
        says=says,
        hands_on=tuple(_handed_on(program)),
        rebinds=rebinds_of(program),
    )


def _handed_on(program: Program) -> Iterator[tuple[str, str]]:
    """What the file imports for others, by its name here: as packages do, it doesn't use it itself."""
    used = {node.id for node in program.of_type(ast.Name)}
    for node in program.of_type(ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names if module.partition(".")[0] not in ELSEWHERE else ():
            if (alias.asname or alias.name) not in used and program.function_of(node) is None:
                target = alias.name if module.endswith(".") else f".{alias.name}"
                yield alias.asname or alias.name, module + target if alias.name != "*" else module


def _membership(program: Program) -> tuple[tuple[str, ...], Says]:
    """What the file imports and says as a part of programs; tests are part of none."""
    return ((), Says.NOTHING) if program.is_test else (imported(program.tree), program.says)


def _hot_calls(program: Program, reaching: Reaching, heats: Mapping[ast.Call, Heat]) -> Iterator[HotCall]:
    for node, targets in reaching:
        positional = "".join(argument_code(program.value(argument)) for argument in node.args)
        keywords = tuple((k.arg, argument_code(program.value(k.value))) for k in node.keywords if k.arg is not None)
        heat = heats[node]
        if heat or not SHARED.isdisjoint(positional) or any(not SHARED.isdisjoint(code) for _, code in keywords):
            by = program.hot_by(node)
            for target in targets:
                yield HotCall(target, int(heat), positional, keywords, by or NOWHERE)


def _manner_queries(program: Program, context: Context) -> tuple[tuple[str, Manner], ...]:
    """The functions of which the program asks, or has been told, how others call them."""
    found = dict(program.asked.manners)
    for name, manner in context.manners:
        found[name] = found.get(name, Manner.PLAIN) | manner
    return tuple(sorted(found.items()))


def _manners(
    program: Program, context: Context, reaching: Reaching, heats: Mapping[ast.Call, Heat]
) -> tuple[tuple[str, Manner], ...]:
    """What is called in another manner than plainly: without gradients as the function around the call has it."""
    switches = any(word in program.text for word in _SWITCHES)
    found: defaultdict[str, Manner] = defaultdict(lambda: Manner.PLAIN)
    for node, targets in () if program.is_test else reaching:
        manner = Manner.PLAIN
        if switches and program.grad_mode(node, callers=False) is not GradMode.ON:
            manner |= Manner.QUIET
        if any(handlers_in_file(program, node)):
            manner |= Manner.HANDLED
        if heats[node] and _is_needed(program, node):
            manner |= Manner.NEEDED
        manner |= _mode_given(program, node)
        if _gives_workers(program, node):
            manner |= Manner.WORKED
        if not heats[node] and program.function_of(node) is None:
            manner |= Manner.CALLED
        for target in targets if manner else ():
            found[target] |= manner
    for target in () if program.is_test else _handed_over(program):
        found[target] |= Manner.CALLED
    makes_loaders = any(each.returns_loader for each in context.summaries) and not program.is_test
    for target in rewalked(program) if makes_loaders else ():
        found[target] |= Manner.REWALKED
    return tuple(sorted(found.items()))


def _handed_over(program: Program) -> Iterator[str]:
    """What the file imports and uses otherwise than to call it."""
    statements: Sequence[ast.Import | ast.ImportFrom] = program.of_type(ast.Import, ast.ImportFrom)
    imported = {alias.asname or alias.name.partition(".")[0] for each in statements for alias in each.names}
    for name in (each for each in program.of_type(ast.Name) if each.id in imported):
        node: ast.AST = name
        around = program.parent(node)
        while isinstance(around, ast.Attribute):
            node, around = around, program.parent(around)
        if around is not None and not (isinstance(around, ast.Call) and around.func is node):
            found = program.value(node)
            is_whole = found.kind in (Kind.LIBRARY, Kind.UNKNOWN) and "." in found.name
            if is_whole and found.name.partition(".")[0] not in ELSEWHERE:
                yield found.name


def _mode_given(program: Program, node: ast.Call) -> Manner:
    """Whether the modules that a call is given are in training mode, or in evaluation mode."""
    modules = [
        each for each in arguments_of(node) if program.value(each).kind is Kind.MODULE and not is_loss(program, each)
    ]
    if not modules:
        return Manner.PLAIN
    modes = program.training_modes(node)
    is_evaluated = all(modes.get(path_of(each)) is False for each in modules)
    return Manner.EVALUATED if is_evaluated else Manner.TRAINED


def _gives_workers(program: Program, node: ast.Call) -> bool:
    """Does the call name a number of workers, and not say that they stay?"""
    if not any(each.arg in ("num_workers", None) for each in node.keywords):
        return False
    settings = (program.get(Loaders).setting(node, each, len(node.args)) for each in ("num_workers", _STAYING))
    return [each.state for each in settings] == [State.ON, State.ABSENT]


def _is_needed(program: Program, node: ast.Call) -> bool:
    """Does what the call gives go into an environment's step? Then the function has to bring it to the host."""
    return program.get(_may_step) and is_needed(program, node, _DEPTH)


def _may_step(program: Program) -> bool:
    return ".step(" in program.text

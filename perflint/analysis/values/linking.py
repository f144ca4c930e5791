"""Computes the links of a file to others: its hot calls, its function summaries, and its queries for theirs."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from perflint.analysis.autograd.effects import Effects, is_loss
from perflint.analysis.autograd.graph_use import drops_graph, needs_gradients
from perflint.analysis.call_graph import CallGraph, handlers_in_file, overridden, says_nothing
from perflint.analysis.data.loaders import Loaders
from perflint.analysis.data.origins import edits_of
from perflint.analysis.data.starts import Starts
from perflint.analysis.facts import Program
from perflint.analysis.heat.freshness import draws_data
from perflint.analysis.heat.syncs import is_needed
from perflint.analysis.links import (
    ALONE,
    LOADERS,
    NOWHERE,
    Context,
    GradMode,
    Heat,
    HotCall,
    Likelihood,
    Links,
    Manner,
    Says,
    Summary,
    nearest,
)
from perflint.analysis.loops.kinds import SWITCHES, Loops
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.values.codes import SHARED, argument_code, class_name, named_functions, result_code
from perflint.analysis.values.hints import imported, rebinds_of
from perflint.analysis.values.queries import Reaching, result_queries, step_queries
from perflint.analysis.values.values import ELSEWHERE, OR, Kind
from perflint.syntax.scopes import arguments_of, handed_on, is_static, parameters_of
from perflint.syntax.walk import path_of

_STARTING = ("workers", "multiprocessing", "ProcessPool")  # without one of them, nothing starts processes
_DEPTH = 3  # of calls through which an action is followed


def links_of(program: Program, context: Context = ALONE) -> Links:
    """The links of a file.

    They repeat the queries that `context` answers: a cached result must not lose them.
    """
    named = list(named_functions(program.tree))
    functions = tuple(name for name, node in named if program.is_cold(node))
    bases = tuple((node.name, base) for node in program.of_type(ast.ClassDef) for base in program.base_names(node))
    telling = (_summary(program, context, name, node) for name, node in named if not says_nothing(node))
    summaries = (*telling, *_loader_summaries(program))
    called = [(node, (*program.targets(node), *overridden(program, node))) for node in program.of_type(ast.Call)]
    reaching = [(node, targets) for node, targets in called if targets]
    heats = {node: program.heat(node) for node, _ in reaching}
    calls = nearest(_hot_calls(program, reaching, heats))
    results = (replace(summary.without_effects, draws=False) for summary in context.summaries)
    answered = {summary.target for summary in results if not summary.is_empty}
    needed = (*result_queries(program, reaching), step_queries(program, reaching), _start_queries(program))
    unknown, guessed, steps, starts = (tuple(sorted({*targets, *answered})) for targets in needed)
    told = {summary.target for summary in context.summaries if summary.tells_effects}
    effects = tuple(sorted(program.asked.effects | told))
    drawing = {summary.target for summary in context.summaries if summary.draws}
    draws = tuple(sorted(program.asked.draws | drawing))
    of_first = {summary.target for summary in context.summaries if summary.drops}
    firsts = tuple(sorted(program.asked.firsts | of_first))
    imports, says = _membership(program)
    return Links(
        *(calls, functions, bases, summaries, unknown, guessed, steps, starts, draws, effects, firsts, imports, says),
        says_query=program.asked.says,
        edits=edits_of(program),
        edit_queries=tuple(sorted(program.asked.edits)),
        rebinds=rebinds_of(program),
        manners=_manners(program, reaching, heats),
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
    is_asked = name in context.asked
    starts = program.get(Starts) if program.get(_may_start) else None
    return Summary(
        name,
        _returns(program, function),
        trains,
        draws=name in context.drawing and program.get(CallGraph).reaches(function, draws_data),
        drops=drops_graph(program, function),
        repeats=not trains and program.get(Loops).trains_repeatedly(function),
        evaluates=not trains and program.get(Loops).evaluates_once(function),
        memory=program.get(Memory).exported(function) if is_asked else None,
        differentiates=needs_gradients(program, function) if is_asked else None,
        records=is_asked and program.get(Effects).records(function),
        starts=starts.by_calling(function) if starts is not None else Likelihood.NO,
        loads=starts.by_iterating(function) if starts is not None else Likelihood.NO,
    )


def _returns(program: Program, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The code for what it returns: of a generator that hands on what it is given, the place of that argument."""
    if program.get(_may_yield) and (name := handed_on(function)):
        skipped = program.class_of(function) is not None and not is_static(function)
        return str([each.arg for each in parameters_of(function)].index(name) - skipped)
    return result_code(program.returned(function))


def _loader_summaries(program: Program) -> Iterator[Summary]:
    for node in program.of_type(ast.ClassDef) if "Loader" in program.text else ():
        summary = Summary(node.name, LOADERS if program.get(Loaders).takes_options(node) else "")
        if program.get(_may_start):
            summary = replace(summary, loads=program.get(Starts).by_walking(node))
        if not summary.is_empty:
            yield summary


def _start_queries(program: Program) -> set[str]:
    program.get(Starts).first()
    return program.get(Starts).queried


def _may_yield(program: Program) -> bool:
    return "yield" in program.text


def _may_start(program: Program) -> bool:
    return any(mark in program.text for mark in _STARTING)


def links_without_torch(program: Program) -> Links:
    """The links of a file that handles no tensors, as far as is known: others may hand it some."""
    named = dict(named_functions(program.tree)).items()
    told = ((name, each) for name, each in named if not says_nothing(each))
    summaries = tuple(Summary(name, _returns(program, each)) for name, each in told)
    return replace(outline_of(program), summaries=summaries, edits=edits_of(program))


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
    """What the file imports for others, by its name here: as packages do, it lists it at most, and doesn't use it."""
    lists = (
        each for each in program.tree.body if isinstance(each, ast.Assign) and path_of(each.targets[0]) == "__all__"
    )
    listed = {node for each in lists for node in ast.walk(each)}
    used = {name for name, nodes in program.names.items() if not listed.issuperset(nodes)}
    for node in program.of_type(ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names if module.partition(".")[0] not in ELSEWHERE else ():
            if (alias.asname or alias.name) not in used and program.function_of(node) is None:
                target = alias.name if module.endswith(".") else f".{alias.name}"
                yield alias.asname or alias.name, module + target if alias.name != "*" else module


def _membership(program: Program) -> tuple[tuple[str, ...], Says]:
    return ((), Says.NOTHING) if program.is_test else (imported(program.tree), program.says)


def _hot_calls(program: Program, reaching: Reaching, heats: Mapping[ast.Call, Heat]) -> Iterator[HotCall]:
    for node, targets in reaching:
        positional = "".join(argument_code(program.value(argument)) for argument in node.args)
        keywords = tuple((k.arg, argument_code(program.value(k.value))) for k in node.keywords if k.arg is not None)
        heat = heats[node]
        given = {
            **{str(at): each for at, each in enumerate(node.args)},
            **{k.arg: k.value for k in node.keywords if k.arg},
        }
        classes = tuple((at, name) for at, each in given.items() if (name := class_name(program.value(each))))
        if (
            heat
            or classes
            or not SHARED.isdisjoint(positional)
            or any(not SHARED.isdisjoint(code) for _, code in keywords)
        ):
            by = program.hot_by(node)
            for target in targets:
                yield HotCall(target, int(heat), positional, keywords, classes, by or NOWHERE)


def _manner_queries(program: Program, context: Context) -> tuple[tuple[str, Manner], ...]:
    found = dict(program.asked.manners)
    for name, manner in context.manners:
        found[name] = found.get(name, Manner.PLAIN) | manner
    return tuple(sorted(found.items()))


def _manners(program: Program, reaching: Reaching, heats: Mapping[ast.Call, Heat]) -> tuple[tuple[str, Manner], ...]:
    switches = any(word in program.text for word in SWITCHES)
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
        if not heats[node] and program.function_of(node) is None:
            manner |= Manner.CALLED
        for target in targets if manner else ():
            found[target] |= manner
    for target in () if program.is_test else _handed_over(program):
        found[target] |= Manner.CALLED
    return tuple(sorted(found.items()))


def _handed_over(program: Program) -> Iterator[str]:
    statements: Sequence[ast.Import | ast.ImportFrom] = program.of_type(ast.Import, ast.ImportFrom)
    imported = {alias.asname or alias.name.partition(".")[0] for each in statements for alias in each.names}
    mentions: list[ast.AST] = [each for name in imported for each in program.names.get(name, ())]
    for node in mentions:
        around = program.parent(node)
        while isinstance(around, ast.Attribute):
            node, around = around, program.parent(around)
        if around is not None and not (isinstance(around, ast.Call) and around.func is node):
            found = program.value(node)
            is_whole = found.kind in (Kind.LIBRARY, Kind.UNKNOWN) and "." in found.name
            if is_whole and found.name.partition(".")[0] not in ELSEWHERE:
                yield from found.name.split(OR)


def _mode_given(program: Program, node: ast.Call) -> Manner:
    modules = [
        each for each in arguments_of(node) if program.value(each).kind is Kind.MODULE and not is_loss(program, each)
    ]
    if not modules:
        return Manner.PLAIN
    modes = program.training_modes(node)
    is_evaluated = all(modes.get(path_of(each)) is False for each in modules)
    return Manner.EVALUATED if is_evaluated else Manner.TRAINED


def _is_needed(program: Program, node: ast.Call) -> bool:
    return program.get(_may_step) and is_needed(program, node, _DEPTH)


def _may_step(program: Program) -> bool:
    return ".step(" in program.text

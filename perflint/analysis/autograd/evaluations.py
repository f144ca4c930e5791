"""Finds code that runs models only to evaluate them, though gradients are recorded: loops, and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from perflint.analysis.autograd.modes import TrainingModes
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.links import Effect, Fate, GradMode, Manner
from perflint.analysis.loops.flow import LoopKind
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import defaults_of
from perflint.syntax.walk import LOOPS, PlainLoop, own_nodes, path_of

_EVALUATION = re.compile(
    r"(^|_)(eval|val(?!u)|test|infer|predict|score|extract|sampl|generat|decod|translat|transcri|visuali|render)",
    re.IGNORECASE,
)
_INHERITED = frozenset({"forward", "__call__", "__init__", "__getitem__", "loss", "step"})
_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
_OPEN = frozenset({Fate.DIFFERENTIATED, Fate.KEPT, Fate.RETURNED, Fate.LOST})


def evaluations(program: Program) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """The code that evaluates where gradients are recorded, each with what to switch them off for.

    First loops over batches, with the function around where that does nothing else; then functions; then other loops,
    those that train in some phases only, and statements that call what trains with arguments that tell it not to.
    """
    loops: Sequence[ast.For] = program.of_type(ast.For)
    for loop in loops:
        if program.loop_kind(loop) is LoopKind.STEP and _evaluates(program, loop):
            around = program.function_of(loop)
            is_all = isinstance(around, ast.FunctionDef) and _only_evaluates(program, around)
            yield loop, around if is_all and isinstance(around, ast.FunctionDef) else loop
    functions: Sequence[ast.FunctionDef] = program.of_type(ast.FunctionDef)
    given = [each for each in functions if program.is_called(each, Manner.EVALUATED)]
    sets_modes = bool(given) or program.get(TrainingModes).may_evaluate
    trains = "backward(" in program.text
    for function in functions:
        may_be = sets_modes or (trains and _EVALUATION.search(function.name))
        if may_be and function.name not in _INHERITED and _is_evaluation(program, function):
            yield function, function
    others: Sequence[PlainLoop] = program.of_type(ast.For, ast.While)
    for other in others if sets_modes else ():
        if _modes(program, other) == {False} and _evaluates(program, other):
            yield other, other
    for inner in (each for loop in loops for each in _phases(program, loop)) if trains else ():
        yield inner, inner
    for call in program.of_type(ast.Call) if trains else ():
        statement = program.statement_of(call)
        if isinstance(statement, _SIMPLE) and is_told_to_evaluate(program, call):
            yield statement, statement


def evaluated(program: Program) -> set[ast.AST]:
    """The nodes of all that evaluates."""
    return {node for _, place in evaluations(program) for node in ast.walk(place)}


def is_told_to_evaluate(program: Program, call: ast.Call) -> bool:
    """Does the function differentiate what models compute, but for constants that this call gives, or leaves?"""
    function = program.callee(call)
    bound = program.arguments(call, function) if function is not None else None
    given = {**defaults_of(function), **bound.given} if function and bound and not bound.is_open else {}
    told = {name: each.value for name, each in given.items() if isinstance(each, ast.Constant)}
    if not told or function is None or program.grad_mode(call) is not GradMode.ON:
        return False
    own = own_nodes(function)
    is_bound = any(isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each.id in told for each in own)
    if is_bound or not _only_runs(program, function, own, told):
        return False
    return not any(each.fate in (Fate.DIFFERENTIATED, Fate.KEPT) for each in program.graph_uses(call))


def _phases(program: Program, loop: ast.For) -> Iterator[ast.For]:
    target, phases = loop.target, program.value(loop.iter).items or ()
    if not isinstance(target, ast.Name):
        return
    others = [object()]  # than those that the loop asks for, where not all are known
    values = [each.literal for each in phases] if all(each.is_literal for each in phases) and phases else others
    around = own_nodes(program.scope_of(loop))
    names = [each for each in own_nodes(loop) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    if [each for each in names if each.id == target.id] != [target] or program.grad_mode(loop) is not GradMode.ON:
        return
    for inner in (each for each in own_nodes(loop) if isinstance(each, ast.For) and each is not loop):
        is_step = program.loop_kind(inner) is LoopKind.STEP and program.grad_mode(inner.body[0]) is GradMode.ON
        is_told = is_step and any(_only_runs(program, inner, around, {target.id: each}) for each in values)
        if is_told and not any(each.fate is Fate.KEPT for each in program.graph_uses(inner)):
            yield inner


def _only_runs(program: Program, place: ast.AST, own: Sequence[ast.AST], told: Mapping[str, object]) -> bool:
    """Does `place` run models, and its scope, `own`, differentiate nothing, if variables are as `told`?"""
    skipped = {node for each in own if isinstance(each, ast.If) for node in _skipped(program, each, told)}
    calls = [each for each in own if isinstance(each, ast.Call)] if skipped else []
    ends = {each for each in calls if program.effects(each, Effect.DIFFERENTIATES)}
    runs = [each for each in program.effects(place, Effect.RECORDS) if isinstance(each, ast.Call)]
    if not ends or not ends <= skipped or any(each in skipped or program.is_frozen(each.func) for each in runs):
        return False
    inside = {*own_nodes(place)}
    return any(each in inside and each not in skipped and program.effects(each, Effect.RECORDS) for each in calls)


def _skipped(program: Program, branch: ast.If, told: Mapping[str, object]) -> Iterator[ast.AST]:
    outcome = _outcome(program, branch.test, told)
    unused = () if outcome is None else branch.orelse if outcome else branch.body
    return (node for each in unused for node in ast.walk(each))


def _outcome(program: Program, test: ast.expr, told: Mapping[str, object]) -> bool | None:
    if isinstance(test, ast.Name) and test.id not in told:
        assigned = program.get(Flow).assigned(test)
        is_one = len(assigned) == 1 and isinstance(assigned[0], ast.Compare | ast.UnaryOp | ast.BoolOp)
        return _outcome(program, assigned[0], told) if is_one else None
    if isinstance(test, ast.Name):
        return bool(told[test.id])
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        outcome = _outcome(program, test.operand, told)
        return None if outcome is None else not outcome
    if isinstance(test, ast.BoolOp):
        found = {_outcome(program, each, told) for each in test.values}
        settling = isinstance(test.op, ast.Or)
        return settling if settling in found else None if None in found else not settling
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id in told:
        operator, other = test.ops[-1], test.comparators[-1]
        compares = isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot) and len(test.ops) == 1
        if compares and isinstance(other, ast.Constant):
            return (told[test.left.id] == other.value) is isinstance(operator, ast.Eq | ast.Is)
    return None


def _is_evaluation(program: Program, function: ast.FunctionDef) -> bool:
    own = own_nodes(function)
    runs = program.effects(function, Effect.RECORDS)
    contexts = (each for each in own if isinstance(each, ast.With))
    if any(program.grad_mode(each.body[0], callers=False) is not GradMode.ON for each in contexts):
        return False
    direct = {run for _, run in _direct(program, function) if run in runs}
    if not direct:
        return False
    modes = _modes(program, function)
    if modes != {False} and not _is_named(program, function, direct):
        return False
    if not _evaluates(program, function):
        return False
    is_named = _EVALUATION.search(function.name) is not None
    return (is_named and modes == {False}) or not any(each.fate in _OPEN for each in program.graph_uses(function))


def _is_named(program: Program, function: ast.FunctionDef, runs: set[ast.Call]) -> bool:
    """Does its name say that it evaluates what the file trains: modules that it calls, not their methods?"""
    called = ((program.value(each.func).kind, isinstance(each.func, ast.Name)) for each in runs)
    is_whole = any(kind is Kind.MODULE or (kind is Kind.TENSOR and named) for kind, named in called)
    return is_whole and "backward(" in program.text and _EVALUATION.search(function.name) is not None


def _modes(program: Program, place: ast.AST) -> set[bool | None]:
    """The modes of the modules that `place` runs, or else hands on to be run; None where one isn't known."""
    own = set(own_nodes(place))
    runs = [each for each in program.effects(place, Effect.RUNS_MODULE) if isinstance(each, ast.Call)]
    found = {_mode(program.training_modes(site), path_of(each.func)) for site, each in _direct(program, place)}
    handed = (pair for each in runs for pair in _handed(program, own, each))
    return found or {_mode(program.training_modes(call), path_of(module)) for call, module in handed}


def _direct(program: Program, place: ast.AST) -> Iterator[tuple[ast.Call, ast.Call]]:
    """The runs of modules by `place`, and by methods that it calls on `self`: where, and which."""
    own = dict.fromkeys(own_nodes(place))
    calls = (each for each in own if isinstance(each, ast.Call) and path_of(each.func).startswith("self."))
    methods = {callee: each for each in calls if (callee := program.callee(each)) is not None}
    for run in program.effects(place, Effect.RUNS_MODULE):
        site = run if run in own else methods.get(program.function_of(run))  # type: ignore[arg-type]
        if isinstance(run, ast.Call) and isinstance(site, ast.Call):
            yield site, run


def _handed(program: Program, own: set[ast.AST], run: ast.Call) -> Iterator[tuple[ast.Call, ast.expr]]:
    name = path_of(run.func).partition(".")[0]
    for call in own:
        callee = program.callee(call) if isinstance(call, ast.Call) else None
        if isinstance(call, ast.Call) and callee is not None and callee is program.function_of(run):
            module = program.arguments(call, callee).get(name)
            if module is not None:
                yield call, module


def _mode(modes: dict[str, bool], path: str) -> bool | None:
    while path and path not in modes:
        path = path.rpartition(".")[0]
    return modes.get(path)


def _evaluates(program: Program, place: ast.For | ast.While | ast.FunctionDef) -> bool:
    """Does it run a model that may be in evaluation mode, with gradients, and never ask for one?"""
    runs = program.effects(place, Effect.RUNS_MODULE)
    point = next((site for site, _ in _direct(program, place)), place)
    if program.grad_mode(place if isinstance(place, LOOPS) else point) is not GradMode.ON:
        return False
    modes = program.training_modes(point)
    paths = {path_of(each.func) for each in runs if isinstance(each, ast.Call)}
    is_batches = isinstance(place, ast.For) and program.loop_kind(place) is LoopKind.STEP
    if (is_batches and False not in modes.values()) or any(_mode(modes, path) for path in paths):
        return False
    if any(program.is_frozen(each.func) for each in runs if isinstance(each, ast.Call)):
        return False
    return _is_recorded(program, place, runs) and not program.effects(place, Effect.DIFFERENTIATES)


def _is_recorded(program: Program, place: ast.AST, runs: list[ast.AST]) -> bool:
    recorded = set(program.effects(place, Effect.RECORDS))
    return bool(recorded) and all(each in recorded or _is_unknown_method(program, each) for each in runs)


def _is_unknown_method(program: Program, run: ast.AST) -> bool:
    is_method = isinstance(run, ast.Call) and program.value(run.func).kind is Kind.METHOD
    return is_method and program.grad_mode(run, callers=False) is GradMode.ON


def _only_evaluates(program: Program, function: ast.FunctionDef) -> bool:
    """Is it named for evaluating, and does nothing in it train, or run without gradients already?"""
    runs = program.effects(function, Effect.RUNS_MODULE)
    if not _EVALUATION.search(function.name) or runs != program.effects(function, Effect.RECORDS):
        return False
    return not program.effects(function, Effect.DIFFERENTIATES)

"""Tells how often code runs: by the loops around it and around its calls, or beside an optimizer's step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from perflint.analysis.autograd.effects import runs_backward, runs_module, steps_optimizer
from perflint.analysis.call_graph import callers, loops_around
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.heat.freshness import steps_an_environment
from perflint.analysis.heat.rarity import RARE, is_escape, is_mostly_true, is_periodic, makes_rare
from perflint.analysis.links import Heat, HotPlace
from perflint.analysis.loops.flow import LoopKind
from perflint.analysis.values.classes import STEP_METHODS, TRAINER_STEPS
from perflint.analysis.values.operations import computes_loss
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import defaults_of, parameters_of
from perflint.syntax.walk import (
    COMPREHENSIONS,
    FUNCTIONS,
    LOOPS,
    Function,
    Loop,
    children,
    integer,
    nodes_below,
    own_nodes,
    path_of,
    reachable,
    receiver_of,
    stores,
)

# The expressions around another that don't tell how often it runs.
_PLAIN = {*ast.expr.__subclasses__(), ast.keyword, ast.comprehension} - {*FUNCTIONS, *COMPREHENSIONS, *RARE}
_STEPPING = frozenset({"step", "optimize", "optimize_parameters"})  # unlike `update`, which many call once a rollout
_ENGINE = re.compile(r"ignite\.engine\.(engine\.)?Engine")  # which calls what it is made of for each batch


class Switch(NamedTuple):
    """A parameter, and the truth value for which the guarded code runs."""

    parameter: str
    wanted: bool


class _Hot(NamedTuple):
    """How often code runs, and by what: a loop, a function called in every step, or a place elsewhere."""

    heat: Heat
    by: ast.AST | HotPlace | None = None


_COLD = _Hot(Heat.ONCE)


class Heats:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._functions: dict[ast.AST, _Hot] = {}

    def heat(self, node: ast.AST) -> Heat:
        return self._climb(node).heat

    def hot_loop(self, node: ast.AST) -> ast.AST | None:
        by = self._climb(node).by
        if not isinstance(by, LOOPS + COMPREHENSIONS) or by not in self._program.ancestors(node):
            return None
        return by if self._program.function_of(by) is self._program.function_of(node) else None

    def hot_by(self, node: ast.AST) -> HotPlace | None:
        by = self._climb(node).by
        if by is None or isinstance(by, HotPlace):
            return by
        return HotPlace(line=getattr(by, "lineno", 0), runs=getattr(by, "name", ""))

    def _climb(self, node: ast.AST) -> _Hot:
        program = self._program
        escaping: type[ast.AST] | None = None  # a break or return right after: this loop ends in the same iteration
        switches: list[Switch] = []
        child = node
        for parent in program.ancestors(node):
            if parent.__class__ in _PLAIN:
                child = parent
                continue
            if isinstance(child, ast.stmt):
                escaping = escaping or is_escape(program, child, parent)
            if escaping is ast.Raise or makes_rare(program, parent, child):
                return _COLD  # an error, or the end of the program
            if (found := _switch(program, parent, child)) is not None:
                switches.append(found)
            if isinstance(parent, COMPREHENSIONS) and self._walks_batches(parent, child, node):
                return _Hot(Heat.STEP, parent)
            if isinstance(parent, LOOPS) and (child in parent.body or child is getattr(parent, "test", None)):
                if escaping in (None, ast.Continue):
                    kind = program.loop_kind(parent)
                    if kind is not LoopKind.OTHER:
                        return _Hot(Heat.TIME if kind is LoopKind.TIME else Heat.STEP, parent)
                if escaping in (ast.Break, ast.Continue):
                    escaping = None
            if isinstance(parent, FUNCTIONS):
                if child in getattr(parent, "decorator_list", ()) or child is parent.args:
                    child = parent
                    continue
                return self._behind(switches, parent)
            if isinstance(parent, ast.ClassDef):
                return _COLD
            child = parent
        return _COLD

    def _walks_batches(self, comprehension: ast.AST, child: ast.AST, node: ast.AST) -> bool:
        generators: list[ast.comprehension] = comprehension.generators  # type: ignore[attr-defined]
        first = generators[0]
        is_loader = self._program.value(first.iter).kind is Kind.LOADER
        if not is_loader:
            return False
        return child is not first or not any(each is node for each in ast.walk(first.iter))

    def _behind(self, switches: Sequence[Switch], function: Function) -> _Hot:
        """How often what all these switches guard runs, in a function that calls in this file make hot."""
        hot = self._of_function(function)
        sites = self._program.call_sites(function)
        if not switches or hot.heat <= self._of_itself(function).heat:
            return hot
        turning = [
            site for site in sites if all(_may_turn_on(self._program, site, function, each) for each in switches)
        ]
        return max(map(self._climb, turning), key=attrgetter("heat"), default=_COLD)

    def function_heat(self, function: Function) -> Heat:
        return self._of_function(function).heat

    def _of_function(self, function: Function) -> _Hot:
        known = self._functions.get(function)
        if known is not None:
            return known
        self._functions[function] = _COLD  # for functions that call each other
        sites = map(self._climb, self._program.call_sites(function))
        hot = max((*sites, self._of_itself(function)), key=attrgetter("heat"))  # a loop in sight says more
        self._functions[function] = hot
        return hot

    def _of_itself(self, function: Function) -> _Hot:
        call = self._program.call_from_outside(function)
        if self._is_hot_by_convention(function):
            return _Hot(Heat.STEP, function)
        return _COLD if call is None else _Hot(Heat(call.heat), call.by)

    def _is_hot_by_convention(self, function: Function) -> bool:
        owner = self._program.class_of(function)
        name = getattr(function, "name", "")
        if owner is None or function in self._run_by_engines:
            return name == "train_step" or function in self._run_by_engines
        if owner.is_a("optimizer"):
            return name == "step"
        if owner.is_a("trainer"):
            return name in TRAINER_STEPS
        if owner.is_a("differentiable"):
            return name in ("forward", "backward")
        if name in _STEPPING and not owner.is_a("module"):
            return self._program.trains_once(function)
        return name in STEP_METHODS and self._program.is_module(owner) and not self._has_steps(function)

    @cached_property
    def _run_by_engines(self) -> set[ast.AST | None]:
        calls = self._program.of_type(ast.Call) if "ignite" in self._program.text else ()
        engines = (each for each in calls if each.args and _ENGINE.fullmatch(self._program.qualified(each.func)))
        return {self._program.value(each.args[0]).node for each in engines}

    def _has_steps(self, function: Function) -> bool:
        loops = [each for each in own_nodes(function) if isinstance(each, LOOPS)]
        if any(self._program.value(each.iter).kind is Kind.LOADER for each in loops if isinstance(each, ast.For)):
            return True
        return any(steps_optimizer(self._program, each) for loop in loops for each in nodes_below(loop))


def _switch(program: Program, guard: ast.AST, part: ast.AST) -> Switch | None:
    """The parameter that `guard` tests, if it is never reassigned, with the value for which `part` runs."""
    if not isinstance(guard, ast.If) or part is guard.test:
        return None
    test, wanted = guard.test, part in guard.body
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, wanted = test.operand, not wanted
    function = program.function_of(guard)
    if not isinstance(test, ast.Name) or function is None or isinstance(function, ast.Lambda):
        return None
    arguments = function.args
    names = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    if test.id not in names or stores(function, test.id):
        return None
    return Switch(test.id, wanted)


def _may_turn_on(program: Program, site: ast.Call, function: Function, flag: Switch) -> bool:
    if not program.calls(site, function):
        return True
    bound = program.arguments(site, function)
    given = bound.get(flag.parameter) or (None if bound.is_open else defaults_of(function).get(flag.parameter))
    if isinstance(given, ast.Name):
        return not (is_periodic(program, given) if flag.wanted else is_mostly_true(program, given))
    return not isinstance(given, ast.Constant) or bool(given.value) is flag.wanted


def runs_often(program: Program, node: ast.AST) -> bool:
    """Does `node` run in every step, or time step, other than to refresh what an attribute keeps?

    Code by which the file only tries itself out on the host does not count.
    """
    return program.heat(node) is not Heat.ONCE and not program.is_tried_out(node) and not _refreshes(program, node)


def _refreshes(program: Program, node: ast.AST) -> bool:
    return any(isinstance(each, ast.If) and _is_kept(each) for each in program.ancestors(node))


def _is_kept(guard: ast.If) -> bool:
    """Does `guard` ask for what it sets itself: an attribute, or a part of what it tests?"""
    asked = {_asked_for(each) for each in ast.walk(guard.test)} - {""}
    stored = (each for each in ast.walk(guard) if isinstance(getattr(each, "ctx", None), ast.Store))
    return any(
        path_of(each.value) in asked
        if isinstance(each, ast.Subscript)
        else "." in path_of(each) and path_of(each) in asked
        for each in stored
    )


def _asked_for(test: ast.AST) -> str:
    """The variable or attribute that a part of a test is, or asks for by `hasattr(self, "x")`."""
    if isinstance(test, ast.Call) and path_of(test.func) == "hasattr" and len(test.args) == 2:
        name = test.args[1]
        return f"{path_of(test.args[0])}.{getattr(name, 'value', '')}"
    return path_of(test)


_DEPTH = 4  # of calls
_FEW = 4  # steps
_SELDOM = re.compile(
    r"^_*(init|reset|build|make|create|setup|load|prepare|from|main|test|infer|eval|vali)|metric|score|calculate", re.I
)


def steps_beside(program: Program, node: ast.AST, depth: int = _DEPTH) -> bool:
    """Does a statement train once in each run of `node`, in a block around it or around a call of its function?

    Unlike the heat of a place, this does not ask what the loops around it walk.
    """
    child = node
    for parent in program.ancestors(node):
        others = [each for each in program.block_of(child) if each is not child] if isinstance(child, ast.stmt) else []
        nodes = (each for other in others for each in _unlooped(other, ast.If))
        if any(program.trains_in(each) and receiver_of(each, "zero_grad") is None for each in nodes):
            return True  # zeros alone may be set before a loop of steps
        if isinstance(parent, FUNCTIONS):
            return depth > 0 and any(steps_beside(program, site, depth - 1) for site in program.call_sites(parent))
        if isinstance(parent, ast.ClassDef) or (makes_rare(program, parent, child) and not _is_short(program, parent)):
            return False
        child = parent
    return False


def runs_model_beside(program: Program, node: ast.AST) -> bool:
    """Does the innermost loop around `node`, in its function, run a module, other than once an epoch?"""
    loop = _own_loop(program, node)
    if loop is None or (isinstance(loop, ast.For) and "epoch" in ast.unparse(loop.target).lower()):
        return False
    calls = (each for statement in loop.body for each in _unlooped(statement) if isinstance(each, ast.Call))
    return any(runs_module(program, each) for each in calls)


def is_part_of_step(program: Program, node: ast.AST, depth: int = _DEPTH) -> bool:
    """Does it run once in each call of a method that trains once, as an agent's, which loops elsewhere call?

    What makes its own optimizer begins to train, and isn't called again and again; nor is what only functions of this
    file call, outside of loops.
    """
    function = program.function_of(node)
    if function is None or program.class_around(function) is None or loops_around(program, node):
        return False
    calls = (each for each in own_nodes(function) if isinstance(each, ast.Call))
    if any(program.value(each).kind is Kind.OPTIMIZER for each in calls):
        return False
    sites = program.call_sites(function)
    if steps_beside(program, node, 0):
        return not sites or any(program.class_around(each) for each in sites)
    return depth > 0 and any(is_part_of_step(program, each, depth - 1) for each in sites)


def acts_beside(program: Program, node: ast.AST) -> bool:
    """Does the innermost loop around `node`, or a call of its function, step an environment in each iteration?"""
    for each in callers(program, node) if ".step(" in program.text else ():
        loop = _own_loop(program, each)
        nodes = (part for statement in loop.body for part in _unlooped(statement)) if loop is not None else ()
        if any(steps_an_environment(program, part) for part in nodes):
            return True
    return False


def _own_loop(program: Program, node: ast.AST) -> Loop | None:
    child = node
    for parent in program.ancestors(node):
        if isinstance(parent, (*FUNCTIONS, ast.ClassDef)) or makes_rare(program, parent, child):
            return None
        if isinstance(parent, LOOPS) and child in parent.body:
            return parent
        child = parent
    return None


def computes_for_callers(program: Program, made: ast.expr) -> bool:
    """Is `made` put beside a tensor that its function is given, or in a loss, where no code here calls that?

    Such a function computes for whoever calls it, in other files as a rule in every step.
    """
    function = program.function_of(made)
    if not isinstance(function, ast.FunctionDef) or _SELDOM.search(function.name):
        return False
    if program.is_tried_out(made) or _refreshes(program, made):
        return False
    sites = program.call_sites(function)
    parameters = {each.arg for each in parameters_of(function)} - {"self", "cls", "model", "module", "net"}
    devices = (each for each in ast.walk(program.statement_of(made)) if isinstance(each, ast.Attribute))
    is_beside = any(each.attr == "device" and path_of(each.value) in parameters for each in devices)
    if not is_beside and not (parameters and made not in _looped(function) and _computes_loss(program, function)):
        return False
    return all(program.function_of(site) is not None for site in sites)


def _looped(function: ast.FunctionDef) -> set[ast.AST]:
    return {each for loop in own_nodes(function) if isinstance(loop, LOOPS) for each in ast.walk(loop)}


def _computes_loss(program: Program, function: ast.FunctionDef) -> bool:
    if any(isinstance(each, ast.Call) and runs_backward(program, each) for each in own_nodes(function)):
        return False
    calls = (each for statement in function.body for each in _unlooped(statement) if isinstance(each, ast.Call))
    return any(computes_loss(program, each) for each in calls)


def _unlooped(statement: ast.AST, *without: type[ast.AST]) -> Iterator[ast.AST]:
    stops = (*LOOPS, *FUNCTIONS, ast.ClassDef, *without)
    return reachable([statement], lambda node: () if isinstance(node, stops) else children(node))


def _is_short(program: Program, guard: ast.AST) -> bool:
    """Is it `if step % args.every == 0:` for a setting whose default, a field's of this file, is a few steps?"""
    test = guard.test if isinstance(guard, ast.If) else None
    modulo = test.left if isinstance(test, ast.Compare) else None
    period = modulo.right if isinstance(modulo, ast.BinOp) and isinstance(modulo.op, ast.Mod) else None
    fields = (each for each in program.of_type(ast.AnnAssign) if path_of(each.target) == getattr(period, "attr", ""))
    defaults = [integer(each.value) for each in fields if each.value is not None]
    return bool(defaults) and all(each is not None and 0 < each <= _FEW for each in defaults)


def made_before_steps(program: Program, node: ast.expr) -> bool:
    """Is `node` surely made outside of the steps that read it, or a part of what is?"""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return made_before_steps(program, node.value)
    origins = [each for each in program.get(Origins).of(node) if each is not node]
    return bool(origins) and all(_is_before(program, each) for each in origins)


def _is_before(program: Program, origin: ast.AST) -> bool:
    if isinstance(origin, ast.Call | ast.Compare):
        return program.heat(origin) is Heat.ONCE and not steps_beside(program, origin)
    parts = origin.iter if isinstance(origin, ast.For | ast.comprehension) else origin
    if isinstance(parts, ast.Call) and isinstance(parts.func, ast.Name):
        parts = parts.func  # `for _, mask in data("train_mask", "val_mask")`
    several = parts.elts if isinstance(parts, ast.List | ast.Tuple) else [parts]
    is_part = parts is not origin or isinstance(parts, ast.List | ast.Tuple | ast.Attribute | ast.Subscript)
    return is_part and all(isinstance(each, ast.expr) and made_before_steps(program, each) for each in several)

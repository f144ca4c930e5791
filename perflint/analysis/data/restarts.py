"""Tells which loops start the workers of a loader anew, in this file or, as what it is made for tells, elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.analysis.call_graph import loops_around
from perflint.analysis.data.iteration import WRAPS, Iteration
from perflint.analysis.data.loaders import LoaderCall, Loaders, State
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of, parameters_of
from perflint.syntax.walk import Loop, integer, path_of, returned_values

_TRAINING = re.compile(r"train|(^|[^a-z])tr([^a-z]|$)", re.IGNORECASE)
_VALIDATION = re.compile(r"(^|[^a-z])(va|val|valid|validation|dev|cv)([^a-z]|$)", re.IGNORECASE)
_ONCE = re.compile(r"test|infer|predict|extract|export", re.IGNORECASE)
_SHUFFLING = re.compile(r"(Distributed|Random|Weighted\w*)Sampler$")
_KEEPING = re.compile(r"prepare|setup|^builtins\.|^torch\.|print$|append$", re.IGNORECASE)
_EPOCHS = frozenset({"max_epochs", "num_epochs", "epochs", "num_train_epochs"})


@dataclass(frozen=True)
class Restarts:
    """What walks a loader anew: `loops` in this file, each around a walk; `handed` are calls that may walk it.

    `elsewhere`: no walk is in this file, and the loader is made for training, which walks it in each epoch.
    """

    loops: tuple[Loop, ...] = ()
    handed: tuple[ast.Call, ...] = ()
    elsewhere: bool = False

    def __bool__(self) -> bool:
        return bool(self.loops) or self.elsewhere


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
    """Is it a loop over several loaders, each of which it walks once?"""
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
    """Does its sampler draw a number of samples of its own, or those of all epochs: all that a run may take?"""
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
    """Is it made for training: does it shuffle, drop a rest, is it called so, or made beside or instead of such a one?

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
    """The function around it, and the class of which that is a method that Lightning asks for a loader."""
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

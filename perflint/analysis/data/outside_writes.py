"""Finds writes in a loop over batches that reach the dataset through an alias, a setting or a patched name."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from perflint.analysis.data.effects import Effects
from perflint.analysis.data.loaders import LoaderCall, Loaders
from perflint.analysis.data.worker_effects import held_in, reached
from perflint.analysis.data.writes import written
from perflint.analysis.facts import Program
from perflint.analysis.heat.scale import Heat
from perflint.syntax.arguments import arguments_of
from perflint.syntax.walk import Function, own_nodes

_SETTING = re.compile(r"torch\.(set_(?!num_)\w+|use_deterministic_algorithms)|numpy\.seterr")
_MADE = (ast.Call, ast.Dict, ast.List, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def outside_write(program: Program, loader: LoaderCall, functions: Iterable[Function]) -> str:
    """The write outside of `functions` to what they read to make the items of `loader`; empty if there is none."""
    run = reached(program, functions)
    found = (_setting(program), _start(program, loader, run), _of_others(program, run), _alias(program, loader, run))
    return _replaced(program, run) or next(filter(None, found), "")


def _setting(program: Program) -> str:
    """A setting of the library that a hot place changes, unless a `with` block restores it."""
    for call in program.of_type(ast.Call):
        name = program.qualified(call.func)
        is_kept = not isinstance(program.parent(call), ast.withitem)
        if is_kept and _SETTING.fullmatch(name) and program.heat(call) is not Heat.ONCE:
            return f"line {call.lineno} calls {name}() while batches are read, which workers would not see"
    return ""


def _start(program: Program, loader: LoaderCall, functions: Collection[Function]) -> str:
    """A start method that is set too late, or one under which workers lack what the program has set by then."""
    for call in program.of_type(ast.Call):
        if not program.segment(call.func).endswith("set_start_method"):
            continue
        if program.function_of(call) is program.function_of(loader.call) and call.lineno > loader.call.lineno:
            return f"line {call.lineno} sets the start method, which fails once workers have started"
        given = [getattr(each, "value", "") for each in arguments_of(call)]
        if functions and "fork" not in given:
            return f"line {call.lineno} makes workers import the program again"
    return ""


def _replaced(program: Program, functions: Collection[Function]) -> str:
    names = {getattr(each, "name", "") for each in functions}
    for node in program.of_type(ast.Attribute):
        if isinstance(node.ctx, ast.Store) and node.attr in names:
            return f"line {node.lineno} replaces {node.attr}()"
    return ""


def _of_others(program: Program, functions: Collection[Function]) -> str:
    """An assignment to an attribute that items depend on, of another object than the dataset, such as options."""
    nodes = [node for each in functions for node in own_nodes(each) if isinstance(node, ast.Attribute)]
    read = {node.attr for node in nodes if getattr(node.value, "id", "") != "self" and not program.qualified(node)}
    for node in program.of_type(ast.Attribute) if read else ():
        is_set = isinstance(node.ctx, ast.Store) and node.attr in read and program.function_of(node) not in functions
        if is_set and program.heat(node) is not Heat.ONCE:
            return f"line {node.lineno} changes {program.segment(node)} while batches are read"
    return ""


def _alias(program: Program, loader: LoaderCall, functions: Collection[Function]) -> str:
    """A write to the dataset, or to an object that it holds, through an alias."""
    read = {node.attr for node in held_in(functions) if isinstance(node, ast.Attribute)}
    origins = program.get(Loaders).origins
    held = {origin for node in held_in(functions) if isinstance(node, ast.Attribute) for origin in origins.of(node)}
    dataset = loader.argument("dataset")
    owners = set(origins.of(dataset)) if dataset is not None else set()
    for target in _changed_while_read(program, loader, functions):
        for node, attribute in program.get(Effects).same(target):
            if not isinstance(node, ast.Name | ast.Attribute):
                continue
            made = {origin for origin in origins.of(node) if isinstance(origin, _MADE)}
            is_part = isinstance(node, ast.Name) and bool(made & owners) and attribute in (*read, "", "__dict__")
            is_held = attribute == "" and any(_is_older(program, each, target) for each in made & held)
            if is_part or is_held:
                return f"line {target.lineno} changes {program.segment(target)} while batches are read"
    return ""


def _changed_while_read(program: Program, loader: LoaderCall, functions: Collection[Function]) -> Iterator[ast.expr]:
    """The targets of writes in loops after the loader, or in other functions than the loader's."""
    around = program.function_of(loader.call)
    loops = {each for each in program.ancestors(loader.call) if isinstance(each, ast.For | ast.While)}
    kinds = (ast.Attribute, ast.Subscript, ast.AugAssign, ast.Call)
    for node in (node for kind in kinds for node in program.of_type(kind)):
        function = program.function_of(node)
        if program.heat(node) is Heat.ONCE or function in functions:
            continue
        is_behind = getattr(node, "lineno", 0) > loader.call.lineno or not loops.isdisjoint(program.ancestors(node))
        if function is not around or is_behind:
            yield from written(program, node)


def _is_older(program: Program, made: ast.AST, target: ast.expr) -> bool:
    """Was the object made in another function than the one that writes to it, which else may be initialising it?"""
    function = program.function_of(target)
    return function is None or program.function_of(made) is not function or _has_loader(program, function)


def _has_loader(program: Program, function: Function) -> bool:
    return any(program.function_of(each.call) is function for each in program.get(Loaders).calls)

"""What a loop over batches changes by a way round that workers, which have copies, would not see."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from perflint.analysis.data.doubts import held_in, reached
from perflint.analysis.data.effects import Effects
from perflint.analysis.data.loaders import LoaderCall, Loaders
from perflint.analysis.data.writes import written
from perflint.analysis.facts import Program
from perflint.analysis.heat.scale import Heat
from perflint.syntax.arguments import arguments_of
from perflint.syntax.walk import Function, own_nodes

_SETTING = re.compile(r"torch\.(set_(?!num_)\w+|use_deterministic_algorithms)|numpy\.seterr")
_MADE = (ast.Call, ast.Dict, ast.List, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def stray_change(program: Program, loader: LoaderCall, functions: Iterable[Function]) -> str:
    """What is changed behind the back of `loader`, whose items `functions` make. Empty if nothing is."""
    run = reached(program, functions)
    found = (_setting(program), _start(program, loader, run), _of_others(program, run), _alias(program, loader, run))
    return _replaced(program, run) or next(filter(None, found), "")


def _setting(program: Program) -> str:
    """A setting of the library that is changed again and again, unless a block puts it back."""
    for call in program.of_type(ast.Call):
        name = program.qualified(call.func)
        is_kept = not isinstance(program.parent(call), ast.withitem)
        if is_kept and _SETTING.fullmatch(name) and program.heat(call) is not Heat.ONCE:
            return f"line {call.lineno} calls {name}() while batches are read, which workers would not see"
    return ""


def _start(program: Program, loader: LoaderCall, functions: Collection[Function]) -> str:
    """How processes start is chosen too late, or so that functions do not find what the program has set by then."""
    for call in program.of_type(ast.Call):
        if not program.segment(call.func).endswith("set_start_method"):
            continue
        if program.function_of(call) is program.function_of(loader.call) and call.lineno > loader.call.lineno:
            return f"line {call.lineno} chooses how processes start, which cannot be done once workers have"
        given = [getattr(each, "value", "") for each in arguments_of(call)]
        if functions and "fork" not in given:
            return f"line {call.lineno} lets workers import the program anew"
    return ""


def _replaced(program: Program, functions: Collection[Function]) -> str:
    names = {getattr(each, "name", "") for each in functions}
    for node in program.of_type(ast.Attribute):
        if isinstance(node.ctx, ast.Store) and node.attr in names:
            return f"line {node.lineno} replaces {node.attr}()"
    return ""


def _of_others(program: Program, functions: Collection[Function]) -> str:
    """An attribute of something else than the dataset, as of options, is assigned that items are made of."""
    nodes = [node for each in functions for node in own_nodes(each) if isinstance(node, ast.Attribute)]
    read = {node.attr for node in nodes if getattr(node.value, "id", "") != "self" and not program.qualified(node)}
    for node in program.of_type(ast.Attribute) if read else ():
        is_set = isinstance(node.ctx, ast.Store) and node.attr in read and program.function_of(node) not in functions
        if is_set and program.heat(node) is not Heat.ONCE:
            return f"line {node.lineno} changes {program.segment(node)} while batches are read"
    return ""


def _alias(program: Program, loader: LoaderCall, functions: Collection[Function]) -> str:
    """Something that the dataset holds, or the dataset, is changed by another name."""
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
    """What is written to in a loop that stands behind the loader, or in another function than the loader."""
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
    """Was the object made elsewhere than in the function that changes it, which else may be the one that fills it?"""
    function = program.function_of(target)
    return function is None or program.function_of(made) is not function or _has_loader(program, function)


def _has_loader(program: Program, function: Function) -> bool:
    return any(program.function_of(each.call) is function for each in program.get(Loaders).calls)

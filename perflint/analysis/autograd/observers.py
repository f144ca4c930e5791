"""Finds what would notice that code computes without gradients: in the functions and modules that it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.autograd.effects import Effects
from perflint.analysis.autograd.found import Effect, Fate, GraphUse
from perflint.analysis.autograd.graph_use import ASKED, GraphUses, own_wrappers
from perflint.analysis.facts import Program
from perflint.analysis.links import Likelihood
from perflint.analysis.memory.hooks import may_be_hooked, registers_hooks
from perflint.syntax.walk import Function, path_of

_ASKING = frozenset({"torch.is_grad_enabled", "torch.is_inference_mode_enabled"})


def observers(program: Program, place: ast.AST) -> Iterator[GraphUse]:
    """What asks whether gradients are recorded where `place` runs, or shows or keeps graphs that are made in calls."""
    effects = program.get(Effects)
    nodes = list(effects.reached(place))
    for node in nodes:
        if _asks(program, node):
            yield GraphUse(node, Fate.ASKED)
    around = program.function_of(place)
    for function in (*effects.functions(place), *_properties(program, nodes)):
        if function is not around:
            uses = program.get(GraphUses).inside(function) if function is not place else []
            yield from (*uses, *(GraphUse(each, Fate.OBSERVED) for each in own_wrappers(program, function)))
    if registers_hooks(program) or may_be_hooked(program):
        yield GraphUse(program.tree, Fate.HOOKED)


def needs_gradients(program: Program, function: Function) -> Likelihood:
    """Whether a call of `function` differentiates; POSSIBLE where something in it may, or would notice without a graph.

    That is what modules do that are not known, and who asks for a graph, shows or keeps one.
    """
    effects = program.get(Effects)
    if effects.of(function, Effect.DIFFERENTIATES):
        return Likelihood.CERTAIN
    may_keep = own_wrappers(program, function) or program.get(GraphUses).inside(function)
    is_noticed = may_keep or effects.of(function, Effect.UNSEEN) or any(observers(program, function))
    return Likelihood.POSSIBLE if is_noticed else Likelihood.NO


def _asks(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in ASKED and isinstance(node.ctx, ast.Load):
        return True
    return isinstance(node, ast.Call) and program.qualified(node.func) in _ASKING


def _properties(program: Program, nodes: list[ast.AST]) -> list[Function]:
    """The methods that run as the nodes read an attribute called like them, and may keep what they compute."""
    read = {each.attr for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load)}
    named = (each for each in program.of_type(ast.FunctionDef) if each.decorator_list and each.name in read)
    return [each for each in named if any(_is_property(program, wrapper) for wrapper in each.decorator_list)]


def _is_property(program: Program, decorator: ast.expr) -> bool:
    return not isinstance(decorator, ast.Call) and "property" in (program.qualified(decorator) or path_of(decorator))

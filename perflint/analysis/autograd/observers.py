"""Finds what would notice that code computes without gradients: in the functions and modules that it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.autograd.effects import Effects
from perflint.analysis.autograd.found import Fate, GraphUse
from perflint.analysis.autograd.graph_use import ASKED, GraphUses, own_wrappers
from perflint.analysis.facts import Program
from perflint.analysis.memory.hooks import registers_hooks

_ASKING = frozenset({"torch.is_grad_enabled", "torch.is_inference_mode_enabled"})


def observers(program: Program, place: ast.AST) -> Iterator[GraphUse]:
    """What asks whether gradients are recorded where `place` runs, or shows or keeps graphs that are made in calls."""
    effects = program.get(Effects)
    for node in effects.reached(place):
        if _asks(program, node):
            yield GraphUse(node, Fate.ASKED)
    around = program.function_of(place)
    for function in effects.functions(place):
        if function is not around:
            uses = program.get(GraphUses).inside(function) if function is not place else []
            yield from (*uses, *(GraphUse(each, Fate.OBSERVED) for each in own_wrappers(program, function)))
    if registers_hooks(program):
        yield GraphUse(program.tree, Fate.HOOKED)


def _asks(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in ASKED and isinstance(node.ctx, ast.Load):
        return True
    return isinstance(node, ast.Call) and program.qualified(node.func) in _ASKING

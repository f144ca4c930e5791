"""The passes over gradients, as one, for `Program`."""

from __future__ import annotations

import ast

from perflint.analysis.autograd.effects import Effects
from perflint.analysis.autograd.found import Effect, GradMode, GraphUse
from perflint.analysis.autograd.graph_use import GraphUses
from perflint.analysis.autograd.mode import GradModes
from perflint.analysis.autograd.observers import observers
from perflint.analysis.autograd.training import TrainingModes, frozen
from perflint.analysis.facts import Program
from perflint.syntax.walk import path_of


class Autograd:
    """What is known of the gradients of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def grad_mode(self, node: ast.AST, *, callers: bool) -> GradMode:
        """Whether gradients are recorded where `node` runs."""
        return self._program.get(GradModes).of(node, callers=callers)

    def effects(self, node: ast.AST, effect: Effect) -> list[ast.AST]:
        """The nodes with `effect` that running `node` may reach."""
        return self._program.get(Effects).of(node, effect)

    def training_modes(self, node: ast.AST) -> dict[str, bool]:
        """Whether each module whose mode is known is in training mode when `node` runs."""
        return self._program.get(TrainingModes).at(node)

    def is_frozen(self, module: ast.AST) -> bool:
        """May the file have switched off the gradients of `module`?"""
        return path_of(module).rpartition(".")[2] in self._program.get(frozen)

    def graph_uses(self, place: ast.AST) -> list[GraphUse]:
        """Who differentiates, or may, what `place` computes."""
        return self._program.get(GraphUses).of(place)

    def graph_observers(self, place: ast.AST) -> list[GraphUse]:
        """What in the code that `place` runs would notice that no graph is made."""
        return list(observers(self._program, place))

"""What the passes over loops, heat and gradients answer, of which a program's facts know no more."""

from __future__ import annotations

import ast
from typing import Protocol

from perflint.analysis.autograd.found import Effect, GradMode, GraphUse
from perflint.analysis.heat.scale import Heat
from perflint.analysis.links import HotPlace
from perflint.analysis.loops.found import LoopKind, TimeLoop
from perflint.syntax.walk import Function, Loop


class LoopPass(Protocol):
    """The interface of the pass over loops, for the passes that it depends on itself."""

    def kind(self, loop: Loop) -> LoopKind:
        """What one iteration of `loop` is."""

    def time_loop(self, loop: Loop) -> TimeLoop | None:
        """What is known of `loop` as a loop over time, if it is one."""

    def trains_once(self, function: Function) -> bool:
        """Does a call of `function` do one step of training, rather than an epoch of them?"""

    def trains_in(self, node: ast.AST) -> bool:
        """Is `node` a call that trains, by itself or in the function that it reaches?"""


class HeatPass(Protocol):
    """The interface of the pass over heat, for the passes that it depends on itself."""

    def heat(self, node: ast.AST) -> Heat:
        """How often `node` runs."""

    def hot_loop(self, node: ast.AST) -> ast.AST | None:
        """The hot loop of the same function that makes `node` run often; None where a call does, or nothing."""

    def hot_by(self, node: ast.AST) -> HotPlace | None:
        """The loop, here or around a call, that makes `node` run often, or what is called in every step."""

    def function_heat(self, function: Function) -> Heat:
        """How often the body of `function` runs."""


class AutogradPass(Protocol):
    """The interface of the passes over gradients, for the passes that they depend on themselves."""

    def grad_mode(self, node: ast.AST, *, callers: bool) -> GradMode:
        """Whether gradients are recorded where `node` runs."""

    def effects(self, node: ast.AST, effect: Effect) -> list[ast.AST]:
        """The nodes with `effect` that running `node` may reach."""

    def training_modes(self, node: ast.AST) -> dict[str, bool]:
        """Whether each module whose mode is known is in training mode when `node` runs."""

    def is_frozen(self, module: ast.AST) -> bool:
        """May the file have switched off the gradients of `module`?"""

    def graph_uses(self, place: ast.AST) -> list[GraphUse]:
        """Who differentiates, or may, what `place` computes."""

    def graph_observers(self, place: ast.AST) -> list[GraphUse]:
        """What in the code that `place` runs would notice that no graph is made."""

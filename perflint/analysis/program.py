"""A program with all passes of the analysis: what rules, transforms and the engine ask."""

import ast

from perflint.analysis import facts
from perflint.analysis.autograd.effects import Effects
from perflint.analysis.autograd.graph_use import graph_uses
from perflint.analysis.autograd.modes import GradModes, TrainingModes, frozen
from perflint.analysis.heat.heat import Heats
from perflint.analysis.links import Effect, Fate, GradMode, GraphUse, Heat, HotPlace
from perflint.analysis.loops.flow import LoopKind, TimeLoop
from perflint.analysis.loops.kinds import Loops
from perflint.analysis.values.values import Kind, Place, Value
from perflint.syntax.walk import Function, Loop, path_of

__all__ = [
    "Effect",
    "Fate",
    "GradMode",
    "GraphUse",
    "Heat",
    "Kind",
    "LoopKind",
    "Place",
    "Program",
    "TimeLoop",
    "Value",
]


class Program(facts.Program):
    """One file with all that is known about it, by the passes that depend on each other, too."""

    def release(self) -> None:
        """Free what was made of the text, which is in circles: the program is not to be used any more."""
        if "_facts" in vars(self):
            self._facts.release()
        vars(self).clear()

    def is_cold(self, function: Function) -> bool:
        heat = self.get(Heats).function_heat(function)
        return heat is Heat.ONCE or self.call_from_outside(function) is not None

    def loop_kind(self, loop: Loop) -> LoopKind:
        return self.get(Loops).kind(loop)

    def time_loop(self, loop: Loop) -> TimeLoop | None:
        return self.get(Loops).time_loop(loop)

    def trains_once(self, function: Function) -> bool:
        return self.get(Loops).trains_once(function)

    def trains_in(self, node: ast.AST) -> bool:
        return self.get(Loops).trains_in(node)

    def heat(self, node: ast.AST) -> Heat:
        return Heat.ONCE if self.is_test else self.get(Heats).heat(node)

    def hot_loop(self, node: ast.AST) -> ast.AST | None:
        return self.get(Heats).hot_loop(node)

    def hot_by(self, node: ast.AST) -> HotPlace | None:
        return None if self.is_test else self.get(Heats).hot_by(node)

    def grad_mode(self, node: ast.AST, *, callers: bool = True) -> GradMode:
        return self.get(GradModes).of(node, callers=callers)

    def effects(self, node: ast.AST, effect: Effect) -> list[ast.AST]:
        return self.get(Effects).of(node, effect)

    def training_modes(self, node: ast.AST) -> dict[str, bool]:
        return self.get(TrainingModes).at(node)

    def is_frozen(self, module: ast.AST) -> bool:
        return path_of(module).rpartition(".")[2] in self.get(frozen)

    def graph_uses(self, place: ast.AST) -> list[GraphUse]:
        return graph_uses(self, place)

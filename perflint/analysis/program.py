"""A program with all passes of the analysis: what rules, transforms and the engine ask."""

from perflint.analysis.autograd.found import Effect, Fate, GradMode, GraphUse
from perflint.analysis.autograd.passes import Autograd
from perflint.analysis.facts import Program
from perflint.analysis.heat.heat import Heats
from perflint.analysis.heat.scale import Heat
from perflint.analysis.loops.found import LoopKind, TimeLoop
from perflint.analysis.loops.kinds import Loops
from perflint.analysis.values.values import Kind, Place, Value

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

Program.loops, Program.heats, Program.autograd = Loops, Heats, Autograd

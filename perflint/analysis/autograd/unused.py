"""Finds modules that build a graph of which the program lets go before anybody uses it: by `detach`, or a helper."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.analysis.autograd.effects import Effects
from perflint.analysis.autograd.found import Effect, GradMode
from perflint.analysis.autograd.graph_use import GraphUses
from perflint.analysis.autograd.mode import GradModes
from perflint.analysis.autograd.training import frozen
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.syntax.walk import path_of

_LIGHT = re.compile(  # torch's layers that have no weights
    r"torch\.nn\.(modules\.\w+\.)?(?!.*(Linear|Conv|Norm|Embedding|RNN|LSTM|GRU|Cell|Attention|Transformer|PReLU"
    r"|Sequential|Parallel|List|Dict|Module))\w+"
)
_DEPTH = 12  # of operations and names between a module and what lets go of its graph


@dataclass(frozen=True)
class UnusedGraph:
    """The call `run` of a module, and the first `cut` at which its graph ends.

    That is `.detach` or `.data`, or a call of a function in another file which does that to its first argument.
    """

    run: ast.Call
    cut: ast.Attribute | ast.Call

    @property
    def by(self) -> str:
        """The name of what lets go of the graph."""
        return self.cut.attr if isinstance(self.cut, ast.Attribute) else path_of(self.cut.func)

    def end(self, program: Program) -> ast.Call | None:
        """The call that lets go of the graph; None of `data`."""
        call = self.cut if isinstance(self.cut, ast.Call) else program.parent(self.cut)
        return call if isinstance(call, ast.Call) and self.cut in (call, call.func) else None

    @property
    def is_at_once(self) -> bool:
        """Is it `module(x).detach()`, perhaps with an attribute or a subscript in between?"""
        made = self.cut.value if isinstance(self.cut, ast.Attribute) else self.cut.args[0]
        while isinstance(made, ast.Attribute | ast.Subscript):
            made = made.value
        return made is self.run


def unused_graphs(program: Program) -> list[UnusedGraph]:
    """The modules' calls whose graphs nobody uses, though they are recorded, in source order."""
    found: dict[ast.Call, UnusedGraph] = {}
    for cut in program.of_type(ast.Attribute):
        if cut.attr in ("detach", "data") and isinstance(cut.ctx, ast.Load):
            for run in dict.fromkeys(_runs(program, cut.value, _DEPTH)):
                if run not in found and _is_dead(program, run):
                    found[run] = UnusedGraph(run, cut)
    for call in program.of_type(ast.Call):
        is_elsewhere = program.callee(call) is None and bool(program.targets(call))
        for run in dict.fromkeys(_runs(program, call.args[0], _DEPTH)) if is_elsewhere and call.args else ():
            if run not in found and program.drops_elsewhere(call) and _is_dead(program, run):
                found[run] = UnusedGraph(run, call)
    return sorted(found.values(), key=lambda each: (each.run.lineno, each.run.col_offset))


def _runs(program: Program, node: ast.expr, depth: int) -> Iterator[ast.Call]:
    """The calls of modules of which `node` is computed, in the same function."""
    if not depth:
        return
    if isinstance(node, ast.Name):
        graph = program.get(Flow).graph(node)
        values = [each for each in graph.definitions(node) if isinstance(each, Definition)]
        given = [value for each in values if isinstance(each.node, ast.arg) for _, value in program.given(each.node)]
        sources = [*given, *(each.source for each in values if not isinstance(each.node, ast.arg))]
        for source in filter(None, sources):
            yield from _runs(program, source, depth - 1)
    elif isinstance(node, ast.Call) and node in program.get(Effects).of(node, Effect.RECORDS):
        yield node
    elif isinstance(node, ast.Call):
        parts = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        for each in (*parts, *node.args):
            yield from _runs(program, each, depth - 1)
    elif isinstance(node, ast.Attribute | ast.Subscript):
        yield from _runs(program, node.value, depth - 1)
    elif isinstance(node, ast.BinOp | ast.IfExp):
        for part in (node.left, node.right) if isinstance(node, ast.BinOp) else (node.body, node.orelse):
            yield from _runs(program, part, depth - 1)


def _is_dead(program: Program, run: ast.Call) -> bool:
    """Is a graph recorded by the call, other than one that it uses itself, and has nobody a use of it?"""
    if _LIGHT.fullmatch(program.value(run.func).name):
        return False
    if program.get(GradModes).of(run) is not GradMode.ON or path_of(run.func).rpartition(".")[2] in program.get(frozen):
        return False
    return not program.get(Effects).of(run, Effect.DIFFERENTIATES) and bool(program.get(GraphUses).cuts(run))

"""Finds modules that build a graph of which the program lets go before anybody uses it: by `detach`, or a helper."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from perflint.analysis.autograd.effects import KNOWN, Effects
from perflint.analysis.autograd.found import Effect, GradMode
from perflint.analysis.autograd.graph_use import CUTTING, GraphUses
from perflint.analysis.autograd.mode import GradModes
from perflint.analysis.autograd.training import frozen
from perflint.analysis.autograd.unstepped import Unstepped
from perflint.analysis.call_graph import callers
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import path_of

_LIGHT = re.compile(  # torch's layers that have no weights
    r"torch\.nn\.(modules\.\w+\.)?(?!.*(Linear|Conv|Norm|Embedding|RNN|LSTM|GRU|Cell|Attention|Transformer|PReLU"
    r"|Sequential|Parallel|List|Dict|Module))\w+"
)
_LIBRARIES = (*KNOWN, "builtins.", "numpy.", "math.")
_WITHOUT_GRAPH = frozenset({Kind.NONE, Kind.NUMBER, Kind.STRING, Kind.NUMPY, Kind.DEVICE})
_NO_RESULTS = _WITHOUT_GRAPH | {Kind.FUNCTION, Kind.CLASS, Kind.LIBRARY, Kind.METHOD, Kind.MODULE}
_DEPTH = 16  # of operations and names between a module and what lets go of its graph


@dataclass(frozen=True)
class UnusedGraph:
    """The call `run` of a module, and the first `cut` at which its graph ends.

    That is `.detach` or `.data`, or a call of a function in another file which does that to its first argument; if the
    gradients are `zeroed`, the backward pass of which an optimizer uses none before that.
    """

    run: ast.Call
    cut: ast.Attribute | ast.Call
    zeroed: bool = False

    @property
    def fate(self) -> str:
        """What becomes of the graph, as a relative clause."""
        if self.zeroed:
            return f"whose gradients, of line {self.cut.lineno}, are set to zero before an optimizer uses them"
        by = self.cut.attr if isinstance(self.cut, ast.Attribute) else path_of(self.cut.func)
        return f"which `{by}` throws away {'at once' if self.is_at_once else f'in line {self.cut.lineno}'}"

    def end(self, program: Program) -> ast.Call | None:
        """The call that lets go of the graph; None of `data`."""
        call = self.cut if isinstance(self.cut, ast.Call) else program.parent(self.cut)
        return call if isinstance(call, ast.Call) and self.cut in (call, call.func) else None

    @property
    def is_at_once(self) -> bool:
        """Is it `module(x).detach()`, perhaps with an attribute or a subscript in between?"""
        made = self.cut.value if isinstance(self.cut, ast.Attribute) else next(iter(self.cut.args), None)
        while isinstance(made, ast.Attribute | ast.Subscript):
            made = made.value
        return made is self.run

    def joins_others(self, program: Program) -> bool:
        """Does the statement that runs the module, where it lets go of the graph, take values that may have another?"""
        statement = program.statement_of(self.run)
        if program.statement_of(self.cut) is not statement:
            return False
        around = itertools.takewhile(lambda each: each is not statement, program.ancestors(self.cut))
        return any(self._joins(program, each) for each in [self.cut, *around] if isinstance(each, ast.Call))

    def _joins(self, program: Program, call: ast.Call) -> bool:
        """Does it take values of others, unlike a view or a conversion, that are no numbers, texts or arrays?"""
        found = operation(program, call)
        if found is not None and not found.traits.isdisjoint(("view", "cast", "move")):
            return False
        others = (program.value(each) for each in arguments_of(call)[call is self.cut :])
        return not all(each.sure and each.kind in _WITHOUT_GRAPH for each in others)


def unused_graphs(program: Program) -> list[UnusedGraph]:
    """The modules' calls whose graphs nobody uses, though they are recorded, in source order."""
    found, uses = dict[ast.Call, UnusedGraph](), program.get(GraphUses)
    for cut in program.of_type(ast.Attribute):
        if cut.attr in CUTTING and isinstance(cut.ctx, ast.Load):
            for run in _runs(program, cut.value):
                is_cut = run not in found and (_leads_to(program, cut.value, run) or uses.cuts(run))
                if is_cut and _is_dead(program, run):
                    found[run] = UnusedGraph(run, cut)
    for call in program.of_type(ast.Call):
        if _may_be_helper(program, call) and program.drops_elsewhere(call) and _may_have_graph(program, call.args[0]):
            for run in _runs(program, call.args[0]):
                if run not in found and uses.cuts(run) and _is_dead(program, run):
                    found[run] = UnusedGraph(run, call)
    for run in program.of_type(ast.Call) if ".zero_grad(" in program.text else ():
        backward = program.get(Unstepped).backward_of(run) if run not in found else None
        if backward is not None and _is_recorded(program, run):
            found[run] = UnusedGraph(run, backward, zeroed=True)
    return sorted(found.values(), key=lambda each: (each.run.lineno, each.run.col_offset))


def _may_be_helper(program: Program, call: ast.Call) -> bool:
    """May it be a call of a function of another file, and no constructor or method, that is given something?"""
    name, _, last = path_of(call.func).rpartition(".") if call.args else ("", "", "")
    if not last[:1].islower() or name.startswith("self") or program.callee(call) is not None:
        return False
    return not program.qualified(call.func).startswith(_LIBRARIES)


def _may_have_graph(program: Program, node: ast.expr) -> bool:
    given = program.value(node)
    return not given.sure or given.kind not in _NO_RESULTS


def _runs(program: Program, node: ast.expr) -> list[ast.Call]:
    """The calls of modules of which `node` is computed, in its function or in what the file gives that."""
    scopes = (program.function_of(each) or program.tree for each in callers(program, node))
    if not any(map(program.get(Effects).runs_model, scopes)):
        return []
    runs, level, seen = list[ast.Call](), [node], {node}
    for _ in range(_DEPTH):
        found = [each for each in level if isinstance(each, ast.Call) and _records(program, each)]
        given = [each for call in found for each in arguments_of(call) if isinstance(each, ast.Name)]
        behind = [*given, *(part for each in level if each not in found for part in _operands(program, each))]
        runs, level = [*runs, *found], [each for each in dict.fromkeys(behind) if each not in seen]
        seen.update(level)
    return runs


def _records(program: Program, call: ast.Call) -> bool:
    return call in program.get(Effects).of(call, Effect.RECORDS)


def _operands(program: Program, node: ast.expr) -> Sequence[ast.expr]:
    """What `node` is computed of, as far as a graph may come from it."""
    if isinstance(node, ast.Name):
        values = [each for each in program.get(Flow).graph(node).definitions(node) if isinstance(each, Definition)]
        given = [value for each in values if isinstance(each.node, ast.arg) for _, value in program.given(each.node)]
        sources = [*given, *(each.source for each in values if not isinstance(each.node, ast.arg))]
        return [each for each in sources if each is not None]
    if isinstance(node, ast.Call):
        return [*([node.func.value] if isinstance(node.func, ast.Attribute) else []), *node.args]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    return [node.value] if isinstance(node, ast.Attribute | ast.Subscript) else []


def _leads_to(program: Program, node: ast.expr, run: ast.Call) -> bool:
    """Is `node` what the call gives, or made of that by methods: by `argmax`, too, whose result has no graph?"""
    for _ in range(_DEPTH):
        if node is run or not (parts := _operands(program, node)):
            break
        node = parts[0]
    return node is run


def _is_dead(program: Program, run: ast.Call) -> bool:
    """Is a graph recorded by the call, other than one that it uses itself, and has nobody a use of it?"""
    return _is_recorded(program, run) and not program.get(GraphUses).of(run)


def _is_recorded(program: Program, run: ast.Call) -> bool:
    """Is a graph recorded by the call, other than one that it uses itself?"""
    if _LIGHT.fullmatch(program.value(run.func).name):
        return False
    if program.get(GradModes).of(run) is not GradMode.ON or path_of(run.func).rpartition(".")[2] in program.get(frozen):
        return False
    return not program.get(Effects).of(run, Effect.DIFFERENTIATES)

"""Finds modules that build a graph of which the program lets go before anybody uses it: by `detach`, or a helper."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from perflint.analysis.autograd.effects import KNOWN, Effects, runs_backward, steps_optimizer
from perflint.analysis.autograd.graph_use import CUTTING, cuts, graph_uses
from perflint.analysis.autograd.modes import GradModes, frozen
from perflint.analysis.call_graph import callers
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.links import Effect, GradMode
from perflint.analysis.modules import optimized
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of, parameters_of
from perflint.syntax.walk import FUNCTIONS, LOOPS, bindings_of, own_nodes, path_of, receiver_of

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

    That is `.detach` or `.data`, or a call of a function in another file that detaches its first argument; if the
    gradients are `zeroed`, a backward pass of which no optimizer uses any.
    """

    run: ast.Call
    cut: ast.Attribute | ast.Call
    zeroed: bool = False

    @property
    def fate(self) -> str:
        if self.zeroed:
            return f"whose gradients, of line {self.cut.lineno}, are set to zero before an optimizer uses them"
        by = f".{self.cut.attr}" if isinstance(self.cut, ast.Attribute) else path_of(self.cut.func)
        return f"which `{by}` throws away {'at once' if self.is_at_once else f'in line {self.cut.lineno}'}"

    def end(self, program: Program) -> ast.Call | None:
        call = self.cut if isinstance(self.cut, ast.Call) else program.parent(self.cut)
        return call if isinstance(call, ast.Call) and self.cut in (call, call.func) else None

    @property
    def is_at_once(self) -> bool:
        made = self.cut.value if isinstance(self.cut, ast.Attribute) else next(iter(self.cut.args), None)
        while isinstance(made, ast.Attribute | ast.Subscript):
            made = made.value
        return made is self.run

    def joins_others(self, program: Program) -> bool:
        """Does the statement that runs the module, and lets go of the graph, take values that may have another?"""
        statement = program.statement_of(self.run)
        if program.statement_of(self.cut) is not statement:
            return False
        around = itertools.takewhile(lambda each: each is not statement, program.ancestors(self.cut))
        return any(self._joins(program, each) for each in [self.cut, *around] if isinstance(each, ast.Call))

    def _joins(self, program: Program, call: ast.Call) -> bool:
        """Does it take values of others, other than in a view or a conversion, that may have a graph?"""
        found = operation(program, call)
        if found is not None and not found.traits.isdisjoint(("view", "cast", "move")):
            return False
        others = (program.value(each) for each in arguments_of(call)[call is self.cut :])
        return not all(each.sure and each.kind in _WITHOUT_GRAPH for each in others)


def unused_graphs(program: Program) -> list[UnusedGraph]:
    """The modules' calls whose recorded graphs nobody uses, in source order."""
    found = dict[ast.Call, UnusedGraph]()
    for cut in program.of_type(ast.Attribute):
        if cut.attr in CUTTING and isinstance(cut.ctx, ast.Load):
            for run in _runs(program, cut.value):
                is_cut = run not in found and (_leads_to(program, cut.value, run) or cuts(program, run))
                if is_cut and _is_dead(program, run):
                    found[run] = UnusedGraph(run, cut)
    for call, path in program.called.items():
        is_helper = _may_be_helper(program, call, path) and program.drops_elsewhere(call)
        if is_helper and _may_have_graph(program, call.args[0]):
            for run in _runs(program, call.args[0]):
                if run not in found and cuts(program, run) and _is_dead(program, run):
                    found[run] = UnusedGraph(run, call)
    for run in program.of_type(ast.Call) if ".zero_grad(" in program.text else ():
        backward = program.get(Unstepped).backward_of(run) if run not in found else None
        if backward is not None and _is_recorded(program, run):
            found[run] = UnusedGraph(run, backward, zeroed=True)
    return sorted(found.values(), key=lambda each: (each.run.lineno, each.run.col_offset))


def _may_be_helper(program: Program, call: ast.Call, path: str) -> bool:
    name, _, last = path.rpartition(".") if call.args else ("", "", "")
    if not last[:1].islower() or name.startswith("self") or program.callee(call) is not None:
        return False
    return not program.qualified(call.func).startswith(_LIBRARIES)


def _may_have_graph(program: Program, node: ast.expr) -> bool:
    given = program.value(node)
    return not given.sure or given.kind not in _NO_RESULTS


def _runs(program: Program, node: ast.expr) -> list[ast.Call]:
    scopes = (program.scope_of(each) for each in callers(program, node))
    if not any(map(program.get(Effects).runs_model, scopes)):
        return []
    runs, level, seen = list[ast.Call](), [node], {node}
    for _ in range(_DEPTH):
        found = [each for each in level if isinstance(each, ast.Call) and _records(program, each)]
        given = [each for call in found for each in arguments_of(call) if isinstance(each, ast.Name | ast.BinOp)]
        behind = [*given, *(part for each in level if each not in found for part in _operands(program, each))]
        runs, level = [*runs, *found], [each for each in dict.fromkeys(behind) if each not in seen]
        seen.update(level)
    return runs


def _records(program: Program, call: ast.Call) -> bool:
    return call in program.get(Effects).of(call, Effect.RECORDS)


def _operands(program: Program, node: ast.expr) -> Sequence[ast.expr]:
    if isinstance(node, ast.Name):
        values = [each for each in program.get(Flow).graph(node).definitions(node) if isinstance(each, Definition)]
        given = [value for each in values if isinstance(each.node, ast.arg) for _, value in program.given(each.node)]
        sources = [*given, *(each.source for each in values if not isinstance(each.node, ast.arg))]
        return [each for each in sources if each is not None]
    if isinstance(node, ast.Call):
        return [*filter(None, (receiver_of(node), *node.args))]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Tuple | ast.List):  # of what is joined
        return node.elts
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    return [node.value] if isinstance(node, ast.Attribute | ast.Subscript) else []


def _leads_to(program: Program, node: ast.expr, run: ast.Call) -> bool:
    """Is `node` what the call gives, or made of that by methods, also by `argmax`, which has no graph?"""
    for _ in range(_DEPTH):
        if node is run or not (parts := _operands(program, node)):
            break
        node = parts[0]
    return node is run


def _is_dead(program: Program, run: ast.Call) -> bool:
    return _is_recorded(program, run) and not graph_uses(program, run)


def _is_recorded(program: Program, run: ast.Call) -> bool:
    if _LIGHT.fullmatch(program.value(run.func).name) or _only_views(program, run):
        return False
    if program.get(GradModes).of(run) is not GradMode.ON or path_of(run.func).rpartition(".")[2] in program.get(frozen):
        return False
    return not program.get(Effects).of(run, Effect.DIFFERENTIATES)


def _only_views(program: Program, run: ast.Call) -> bool:
    """Does the method that is called just look at what it is given in another shape, which keeps nothing?"""
    callee = program.callee(run)
    parts = [each for each in own_nodes(callee) if isinstance(each, ast.Call | ast.BinOp)] if callee else []
    return bool(parts) and all(_is_view_or_number(program, each) for each in parts)


def _is_view_or_number(program: Program, node: ast.expr) -> bool:
    found, value = operation(program, node), program.value(node)
    looks = found is not None and not found.traits.isdisjoint(("view", "measuring"))
    return looks or (value.sure and value.kind in _WITHOUT_GRAPH)


_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


class Unstepped:
    """The modules' calls whose gradients nobody uses: a generator's, where the discriminator learns."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._found: dict[ast.AST, ast.Call | None] = {}

    @cached_property
    def _modules(self) -> dict[str, set[str]]:
        """The paths of the modules that each optimizer steps, by its path; of one that may step others, none."""
        found: dict[str, set[str]] = {}
        for made in self._program.of_type(ast.Assign):
            if self._program.value(made.value).kind is Kind.OPTIMIZER and isinstance(made.value, ast.Call):
                given = optimized(self._program, made.value.args[0]) if made.value.args else None
                paths = (
                    {path_of(each) for each in given.modules} if given is not None and given.complete else set[str]()
                )
                path = path_of(made.targets[0])
                found[path] = paths if found.get(path, paths) == paths else set[str]()
        return found if len(found) > 1 else {}

    def backward_of(self, run: ast.Call) -> ast.Call | None:
        """The first backward pass along the graph of `run`, if all gradients are zeroed before they are used."""
        if run not in self._found:
            self._found[run] = None
            self._found[run] = self._backward_of(run)
        return self._found[run]

    def _backward_of(self, run: ast.Call) -> ast.Call | None:
        program, module = self._program, path_of(run.func)
        if not any(module in paths for paths in self._modules.values()):
            return None
        ends = [each.node for each in graph_uses(program, run)]
        passes = [each for each in ends if isinstance(each, ast.Call) and runs_backward(program, each)]
        is_here = all(program.function_of(each) is program.function_of(run) for each in passes)
        if not passes or len(passes) < len(ends) or not is_here or self._may_have_graph(arguments_of(run)):
            return None
        return passes[0] if all(set(self._behind(each, module)) == {"zero"} for each in passes) else None

    def _may_have_graph(self, given: list[ast.expr]) -> bool:
        program, pending = self._program, dict.fromkeys(given)
        for each in (nodes := list(pending)):
            may_be_leaf = isinstance(each, ast.Attribute) or "requires_grad" in ast.unparse(each)
            runs = program.get(Effects).of(each, Effect.RUNS_MODULE)
            if may_be_leaf or not all(isinstance(run, ast.Call) and self.backward_of(run) for run in runs):
                return True
            names = [part for part in ast.walk(each) if isinstance(part, ast.Name)]
            tensors = (name for name in names if name is each or program.value(name).kind is Kind.TENSOR)
            if any(isinstance(made, ast.arg) for name in tensors for made in program.get(Flow).definitions(name)):
                return True  # of callers
            scope = program.scope_of(each)
            values = [value for name in names for value in _given(scope, name.id) if value not in pending]
            pending.update(dict.fromkeys(values))
            nodes += values
        return False

    def _behind(self, node: ast.AST, module: str) -> Iterator[str]:
        child: ast.AST = self._program.statement_of(node)
        for parent in self._program.ancestors(child):
            block: list[ast.AST] = [*self._program.block_of(child)] if isinstance(child, ast.stmt) else [child]
            found = self._first(block[block.index(child) + 1 :], module)
            yield from found - {""}
            if "" not in found or isinstance(parent, FUNCTIONS):
                return
            if isinstance(parent, LOOPS):
                yield from self._first(parent.body, module) - {""}
            child = parent

    def _first(self, block: Sequence[ast.AST], module: str) -> set[str]:
        """What the statements may do first to the gradients of `module`; empty where that may be nothing."""
        found = {""}
        for statement in block:
            parts = [part for name in _BLOCKS if (part := getattr(statement, name, None))]
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                continue
            firsts = set[str]().union(*(self._first(part, module) for part in parts))
            if not parts:
                firsts = {self._done_by(statement, module)}
            elif not getattr(statement, "orelse", None) and not isinstance(statement, ast.With):
                firsts.add("")
            found = (found - {""}) | firsts
            if "" not in firsts:
                break
        return found

    def _done_by(self, statement: ast.AST, module: str) -> str:
        program = self._program
        for call in (each for each in ast.walk(statement) if isinstance(each, ast.Call)):
            if self._zeroes(call, module) or any(self._zeroes(each, module) for each in _zeroing(program, call)):
                return "zero"
            if steps_optimizer(program, call):
                stepped = [path_of(each) for each in (getattr(call.func, "value", call), *call.args)]
                modules = [self._modules[each] for each in stepped if each in self._modules]
                if not modules or any(not each or module in each for each in modules):
                    return "step"
            elif program.callee(call) is not None and not _zeroing(program, call) and self._trains(call):
                return "step"
        return ""

    def _trains(self, call: ast.Call) -> bool:
        return bool(self._program.get(Effects).of(call, Effect.TRAINS))

    def _zeroes(self, call: ast.Call, module: str) -> bool:
        zeroed = receiver_of(call, "zero_grad")
        return zeroed is not None and module in {path_of(zeroed), *self._modules.get(path_of(zeroed), ())}


def _given(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    for node in own_nodes(scope):
        for target, value in bindings_of(node) if not isinstance(node, LOOPS) else ():
            if any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(target)):
                yield value


def _zeroing(program: Program, call: ast.Call) -> list[ast.Call]:
    """The calls in this object's method, or a function without parameters, that only sets gradients to zero."""
    callee = program.callee(call)
    is_same = path_of(call.func).startswith("self.") or (isinstance(call.func, ast.Name) and not call.args)
    if not isinstance(callee, ast.FunctionDef) or not is_same or [*parameters_of(callee)][1:]:
        return []
    calls = [each.value for each in callee.body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    zeroing = [each for each in calls if receiver_of(each, "zero_grad") is not None]
    return zeroing if len(zeroing) == len(callee.body) else []

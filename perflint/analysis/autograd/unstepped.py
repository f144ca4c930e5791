"""Finds gradients that are set to zero before an optimizer steps by them, so that no graph is needed for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

from perflint.analysis.autograd.effects import Effects, runs_backward, steps_optimizer
from perflint.analysis.autograd.found import Effect
from perflint.analysis.autograd.graph_use import GraphUses
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.optimized import optimized
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of, parameters_of
from perflint.syntax.walk import FUNCTIONS, LOOPS, bindings_of, own_nodes, path_of, receiver_of

_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


class Unstepped:
    """The modules' calls of one program whose gradients nobody uses: a generator's, where the discriminator learns."""

    def __init__(self, program: Program) -> None:
        self._program = program

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
        """The first backward pass along the graph of `run`, if the gradients of all are zeroed before they are used."""
        program, module = self._program, path_of(run.func)
        if not any(module in paths for paths in self._modules.values()):
            return None
        ends = [each.node for each in program.get(GraphUses).of(run)]
        passes = [each for each in ends if isinstance(each, ast.Call) and runs_backward(program, each)]
        is_here = all(program.function_of(each) is program.function_of(run) for each in passes)
        if not passes or len(passes) < len(ends) or not is_here or self._may_have_graph(arguments_of(run)):
            return None
        return passes[0] if all(set(self._behind(each, module)) == {"zero"} for each in passes) else None

    def _may_have_graph(self, given: list[ast.expr]) -> bool:
        """Is something computed of modules or parameters, rather than of noise or a batch?"""
        program, pending = self._program, dict.fromkeys(given)
        for each in (nodes := list(pending)):
            may_be_leaf = isinstance(each, ast.Attribute) or "requires_grad" in ast.unparse(each)
            if may_be_leaf or program.get(Effects).of(each, Effect.RUNS_MODULE):
                return True
            names = [part for part in ast.walk(each) if isinstance(part, ast.Name)]
            tensors = (name for name in names if name is each or program.value(name).kind is Kind.TENSOR)
            if any(isinstance(made, ast.arg) for name in tensors for made in program.get(Flow).definitions(name)):
                return True  # of callers
            scope = program.function_of(each) or program.tree
            values = [value for name in names for value in _given(scope, name.id) if value not in pending]
            pending.update(dict.fromkeys(values))
            nodes += values
        return False

    def _behind(self, node: ast.AST, module: str) -> Iterator[str]:
        """What is done first to the gradients of `module` behind `node`, in its function: "zero", or another use."""
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
        """What a statement without blocks does to the gradients of `module`."""
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
        """Is it `zero_grad` of the module, or of an optimizer that steps it?"""
        zeroed = receiver_of(call, "zero_grad")
        return zeroed is not None and module in {path_of(zeroed), *self._modules.get(path_of(zeroed), ())}


def _given(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    """What `scope` assigns to the variable, alone or beside others, other than the parts of a loop."""
    for node in own_nodes(scope):
        for target, value in bindings_of(node) if not isinstance(node, LOOPS) else ():
            if any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(target)):
                yield value


def _zeroing(program: Program, call: ast.Call) -> list[ast.Call]:
    """The calls in the method of this object, or the function without parameters, that only sets gradients to zero."""
    callee = program.callee(call)
    is_same = path_of(call.func).startswith("self.") or (isinstance(call.func, ast.Name) and not call.args)
    if not isinstance(callee, ast.FunctionDef) or not is_same or [*parameters_of(callee)][1:]:
        return []
    calls = [each.value for each in callee.body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    zeroing = [each for each in calls if receiver_of(each, "zero_grad") is not None]
    return zeroing if len(zeroing) == len(callee.body) else []

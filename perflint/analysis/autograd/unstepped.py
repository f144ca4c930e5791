"""Finds gradients that are set to zero before an optimizer steps by them, so that no graph is needed for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

from perflint.analysis.autograd.effects import Effects, runs_backward, steps_optimizer
from perflint.analysis.autograd.found import Effect, Fate
from perflint.analysis.autograd.graph_use import GraphUses
from perflint.analysis.facts import Program
from perflint.analysis.optimized import optimized
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import FUNCTIONS, LOOPS, assigned_values, path_of, receiver_of

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
                is_known = given is not None and given.complete
                paths = {path_of(each) for each in given.modules} if given is not None and is_known else set[str]()
                path = path_of(made.targets[0])
                found[path] = paths if found.get(path, paths) == paths else set[str]()
        return found if len(found) > 1 else {}

    def backward_of(self, run: ast.Call) -> ast.Call | None:
        """The first backward pass along the graph of `run`, if the gradients of all are zeroed before they are used."""
        program, module = self._program, path_of(run.func)
        if not any(module in paths for paths in self._modules.values()):
            return None
        uses = program.get(GraphUses).of(run)
        ends = [each.node for each in uses if isinstance(each.node, ast.Call) and each.fate is Fate.DIFFERENTIATED]
        if len(ends) < len(uses) or not all(runs_backward(program, each) for each in ends):
            return None
        is_here = all(program.function_of(each) is program.function_of(run) for each in ends)
        if not is_here or not all(self._has_no_graph(each, ()) for each in arguments_of(run)):
            return None
        is_zeroed = all(set(self._behind(each, module)) == {"zero"} for each in ends)
        return ends[0] if ends and is_zeroed and isinstance(ends[0], ast.Call) else None

    def _has_no_graph(self, node: ast.expr, around: tuple[ast.expr, ...]) -> bool:
        """Is it computed of no module and no parameter: of noise, or of a batch?"""
        program = self._program
        if isinstance(node, ast.Attribute) or "requires_grad" in ast.unparse(node):
            return False
        if program.get(Effects).of(node, Effect.RUNS_MODULE):
            return False
        names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        scope = program.function_of(node) or program.tree
        values = [value for each in names for value in assigned_values(scope, each.id) if value not in around]
        return all(self._has_no_graph(each, (*around, *values)) for each in values)

    def _behind(self, node: ast.AST, module: str) -> Iterator[str]:
        """What is done first to the gradients of `module` behind `node`, in its function: "zero", or another use."""
        child: ast.AST = self._program.statement_of(node)
        for parent in self._program.ancestors(child):
            block = self._program.block_of(child) if isinstance(child, ast.stmt) else []
            rest = block[block.index(child) + 1 :] if isinstance(child, ast.stmt) else []
            found = self._first(rest, module)
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
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                continue
            parts = [part for name in _BLOCKS if (part := getattr(statement, name, None))]
            if not parts:
                firsts = {self._done_by(statement, module)}
            else:
                firsts = set[str]().union(*(self._first(part, module) for part in parts))
                firsts |= set() if getattr(statement, "orelse", None) or isinstance(statement, ast.With) else {""}
            found = (found - {""}) | firsts
            if "" not in firsts:
                break
        return found

    def _done_by(self, statement: ast.AST, module: str) -> str:
        """What a statement without blocks does to the gradients of `module`."""
        for call in (each for each in ast.walk(statement) if isinstance(each, ast.Call)):
            zeroed = receiver_of(call, "zero_grad")
            if zeroed is not None:
                if module in {path_of(zeroed), *self._modules.get(path_of(zeroed), ())}:
                    return "zero"
            elif steps_optimizer(self._program, call):
                stepped = [path_of(each) for each in (getattr(call.func, "value", call), *call.args)]
                modules = [self._modules[each] for each in stepped if each in self._modules]
                if not modules or any(not each or module in each for each in modules):
                    return "step"
            elif self._program.callee(call) is not None and self._program.get(Effects).of(call, Effect.TRAINS):
                return "step"
        return ""

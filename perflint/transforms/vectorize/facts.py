"""Works out what must be known of a loop before anything of it is lifted."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.shapes import Shapes
from perflint.syntax.scopes import local_names
from perflint.syntax.walk import FUNCTIONS, PlainLoop, own_nodes, path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.names import name_of_torch, taken_around
from perflint.transforms.vectorize.results import collected_paths
from perflint.transforms.vectorize.scope import Draft, Facts, Lifter, Scope
from perflint.transforms.vectorize.seen import is_repeated
from perflint.transforms.vectorize.shifts import handed_on

if TYPE_CHECKING:
    from perflint.analysis.program import Program


def scope_of(program: Program, loop: PlainLoop, lifter: Lifter) -> Scope:
    """The scope in which `loop` is lifted, its head still to be read; raises Blocked."""
    for node in own_nodes(loop):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
            raise Blocked("other code may run in each step", node)
    flow, shapes = program.get(Flow), program.get(Shapes)
    inside = frozenset(own_nodes(loop))
    collected = collected_paths([node for node in inside if isinstance(node, ast.stmt)])
    assigned = frozenset({*map(_stored, inside), *collected} - {""})
    around = program.function_of(loop)
    facts = Facts(
        program=program,
        loop=loop,
        flow=flow,
        shapes=shapes,
        torch=name_of_torch(program),
        inside=inside,
        bound_names=frozenset(local_names(around) if around is not None else ()),
        read_behind=_read_behind(program, flow, loop, inside),
        handed_on=handed_on(loop.body),
        lifter=lifter,
    )
    return Scope(facts, Draft(taken_around(program, loop)), assigned)


def _stored(node: ast.AST) -> str:
    """The path of the variable that gets a value, or an item."""
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript) or not isinstance(node.ctx, ast.Store):
        return ""
    return path_of(node.value if isinstance(node, ast.Subscript) else node)


def _read_behind(program: Program, flow: Flow, loop: PlainLoop, inside: frozenset[ast.AST]) -> frozenset[str]:
    bindings = flow.bindings(loop)
    stores = [node for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    if hidden := sorted({node.id for node in stores} & bindings.shared):
        raise Blocked(f"a function defined here uses `{hidden[0]}`", loop)
    behind = {node.id for node in stores if any(use not in inside for use in bindings.uses.get(node, ()))}
    return frozenset(behind | (_met_again(flow, inside) if is_repeated(program, loop) else set()))


def _met_again(flow: Flow, inside: frozenset[ast.AST]) -> set[str]:
    """The names that the loop sets, and reads as they were in front of it: the next time it runs, as it left them."""
    reads = [node for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return {node.id for node in reads if (found := flow.definitions(node)) & inside and found - inside}


def shapes_of(program: Program) -> Shapes:
    """The shapes in the program."""
    return program.get(Shapes)

"""Selects the syncs that cost: those in hot code which the program could do without."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.found import Heat
from perflint.analysis.heat.freshness import steps_an_environment
from perflint.analysis.heat.syncs import Sync, storage_of, syncs
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Outer
from perflint.analysis.links import Manner
from perflint.syntax.walk import FUNCTIONS

_PARTIAL = frozenset(
    {"max", "min", "sorted", "mask", "masked_select", "nonzero", "print"}
)  # reads that leave no copy of the values behind
LATER = "perflint.runtime.reports.later"
_DEPTH = 5  # of assignments and calls through which an action or lengths are followed


def hot_syncs(program: Program) -> list[Sync]:
    """The costly reads, in source order."""
    return [
        sync
        for sync in sorted(set(syncs(program)), key=lambda sync: (sync.start, sync.end))
        if not program.is_tried_out(sync.node)
        and program.heat(sync.node) is not Heat.ONCE
        and not is_needed(program, sync.node, _DEPTH)
        and not is_deferred(program, sync.node)
    ]


def is_deferred(program: Program, node: ast.AST) -> bool:
    """Does it run once its values have arrived: in a function that is handed to `perflint.runtime.reports.later`?"""
    function = program.function_of(node) if "perflint.runtime.reports" in program.text else None
    calls = (call for call in program.of_type(ast.Call) if call.args and program.qualified(call.func) == LATER)
    return function is not None and any(
        call.args[0] is function
        or (isinstance(call.args[0], ast.Name) and program.value(call.args[0]).node is function)
        for call in calls
    )


def first_reads(program: Program, found: list[Sync]) -> list[Sync]:
    """Of several reads of the same value in one iteration, the first."""
    return [sync for sync in found if not any(is_repeated(program, earlier, sync) for earlier in found)]


def is_repeated(program: Program, earlier: Sync, later: Sync) -> bool:
    """Has `earlier` read in the same iteration, and for certain, what `later` reads?"""
    if earlier.kind in _PARTIAL and later.kind != earlier.kind:
        return False
    if later.start <= earlier.start or program.function_of(earlier.node) is not program.function_of(later.node):
        return False
    if later.kind == "masked_select":  # each mask is read anew
        read, again = earlier.node, later.node
    else:
        read, again = storage_of(earlier.tensor), storage_of(later.tensor)
    if ast.dump(read) != ast.dump(again):
        return False
    statement = program.statement_of(earlier.node)
    block = program.block_of(statement)
    around = [program.statement_of(later.node), *program.ancestors(program.statement_of(later.node))]
    if not any(each is within for each in around for within in block):
        return False
    graph, pairs = program.get(Flow).graph(earlier.node), zip(ast.walk(read), ast.walk(again), strict=True)
    values = [(graph.value(one), graph.value(other)) for one, other in pairs if isinstance(one, ast.Name)]
    return all(one is other or (isinstance(one, Outer) and isinstance(other, Outer)) for one, other in values)


def is_needed(program: Program, node: ast.expr, depth: int) -> bool:
    """Does the value of `node` go into an environment's step, or tell pack_padded_sequence the lengths?"""
    child: ast.AST = node
    for parent in program.ancestors(node):
        if isinstance(parent, ast.Call) and child is not parent.func and _needs_host(program, parent):
            return True
        if isinstance(parent, ast.stmt):
            return depth > 0 and _flows_to_need(program, parent, child, depth)
        if isinstance(parent, FUNCTIONS):
            return False
        child = parent
    return False


def _needs_host(program: Program, call: ast.Call) -> bool:
    return steps_an_environment(program, call) or program.qualified(call.func).endswith("pack_padded_sequence")


def _flows_to_need(program: Program, statement: ast.stmt, value: ast.AST, depth: int) -> bool:
    if isinstance(statement, ast.Return):
        function = program.function_of(statement)
        if function is not None and program.is_called(function, Manner.NEEDED):
            return True
        return any(is_needed(program, site, depth - 1) for site in program.call_sites(function))
    if isinstance(statement, ast.AugAssign) or (isinstance(statement, ast.Assign) and value is statement.value):
        uses = program.get(Flow).graph(statement).uses
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        bound = (use for target in targets for node in ast.walk(target) for use in uses.get(node, ()))
        return any(is_needed(program, use, depth - 1) for use in bound if use.lineno > statement.lineno)
    return False

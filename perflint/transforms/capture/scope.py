"""Tells whether what a training step sets may be set by a function of its own: who else reads it, and when."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Phi, sources_of
from perflint.analysis.program import Program
from perflint.syntax.walk import FUNCTIONS, own_nodes, reachable
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.host_part import Around
from perflint.transforms.capture.late import changed_by
from perflint.transforms.capture.region import Region
from perflint.transforms.names import check_alone
from perflint.transforms.shown import shown

_SCOPES = (*FUNCTIONS, ast.ClassDef)
_OF_SCOPE = frozenset("builtins.locals builtins.vars builtins.dir".split())  # without arguments
_OF_ANY = frozenset("builtins.eval builtins.exec builtins.globals sys._getframe inspect.currentframe".split())


def check_scope(program: Program, region: Region, outermost: Around) -> None:
    """Raise Blocked where code around `region`, in the loop `outermost`, would miss what a function of its own sets."""
    around = next((each for each in program.ancestors(region.scope) if isinstance(each, _SCOPES)), None)
    if isinstance(around, ast.ClassDef):
        raise Blocked("it trains while a class is made: do that in a function", region.scope)
    for node in region.nodes:
        if isinstance(node, ast.Name) and node.id in ("super", "__class__"):
            raise Blocked(f"`{node.id}` means something else in a function of its own", node)
    for part in region.parts:
        check_alone(program, part.statement)
    _check_shared(program, region)
    _check_caught(program, region)
    for call in _looks_up(program, region, outermost):
        reason = "may look for a variable of the step, which has them for itself then: name what it reads"
        raise Blocked(f"{shown(program, call)} {reason}", call)


def _check_shared(program: Program, region: Region) -> None:
    graph = program.get(Flow).graph(region.scope)
    shared = graph.shared | graph.captured.keys()
    for name in region.nodes:
        is_store = isinstance(name, ast.Name) and not isinstance(name.ctx, ast.Load)
        if is_store and isinstance(name, ast.Name) and name in graph.values and name.id in shared:
            reason = "which the step sets, is seen by other code at any time: set it behind the step"
            raise Blocked(f"`{name.id}`, {reason}", name)


def _check_caught(program: Program, region: Region) -> None:
    """Raise Blocked where a variable is read that a step has set before it failed: a call that fails sets none."""
    graph = program.get(Flow).graph(region.scope)
    nodes = {node for part in region.parts for node in own_nodes(part.statement)}
    blocks = {graph.places[node][0] for node in nodes if node in graph.places}
    caught = {each for block in blocks for each in block.successors if each in graph.caught}
    for phi in (phi for block in caught for phi in graph.phis.get(block, [])):
        inside = [each.node for each in sources_of(phi) if isinstance(each, Definition) and each.node in nodes]
        if inside and _is_read(phi):
            reason = "is read where the step fails, too, and a call that fails sets nothing: read it behind the step"
            raise Blocked(f"`{phi.name}` {reason}", inside[0])
    for late in region.late if caught else ():
        if changed := changed_by(program, late):
            reason = "is changed in the middle of a step that may fail: do that behind the step"
            raise Blocked(f"`{min(changed)}` {reason}", late.statement)


def _is_read(phi: Phi) -> bool:
    """Does anything read the value, as it is or where control flow joins later?"""
    return any(each.uses for each in reachable([phi], lambda each: each.users))


def _looks_up(program: Program, region: Region, outermost: Around) -> Iterator[ast.Call]:
    """The calls that may look for variables by their names, when the loop has begun."""
    graph = program.get(Flow).graph(region.scope)
    scope = program.function_of(region.scope) or program.tree
    for call in (each for each in ast.walk(scope) if isinstance(each, ast.Call)):
        name = program.qualified(call.func)
        is_own = call in graph.places
        looks_here = is_own and name in _OF_SCOPE and not (call.args or call.keywords)
        is_before = is_own and not graph.is_within(call, outermost) and not graph.runs_after(call, outermost)
        if (looks_here or name in _OF_ANY) and not is_before:
            yield call

"""Collects on the device what a loop writes to the slots of a tensor on the host, and copies all after the loop."""

from __future__ import annotations

import ast

from perflint.analysis.heat.syncs import Sync
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.ir.occurrences import occurrences
from perflint.analysis.program import Program
from perflint.analysis.values.dtypes import may_be_complex
from perflint.analysis.values.operations import operation
from perflint.syntax.edits import Fix, Safety
from perflint.syntax.walk import own_nodes
from perflint.transforms.accumulator import alone_in
from perflint.transforms.blocked import Blocked
from perflint.transforms.collected import ANY_SHAPE, differs, flattened, kept_until, shape_of_one
from perflint.transforms.host_reads import Read, read_of
from perflint.transforms.names import of_torch, taken_around
from perflint.transforms.operations import InsertAfter, InsertBefore, ReplaceStatements
from perflint.transforms.rewrite import rewrite
from perflint.transforms.template import statement

_LEAVING = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await)


def slot_store(program: Program, sync: Sync) -> Fix | None:
    """The fix of `sums[k] = loss.item()` for each k of `range(n)`; None where it isn't that; raises Blocked."""
    read = read_of(program, sync)
    store = program.statement_of(read.top)
    target = store.targets[0] if isinstance(store, ast.Assign) and len(store.targets) == 1 else None
    if not isinstance(store, ast.Assign) or store.value is not read.top or not isinstance(target, ast.Subscript):
        return None
    loop, kept, index = program.hot_loop(read.top), target.value, target.slice
    if not isinstance(kept, ast.Name) or not isinstance(index, ast.Name) or not isinstance(loop, ast.For):
        return None
    made = _made(program, kept)
    if made is None or not _counts(program, loop, index) or store not in loop.body or not read.is_scalar:
        return None
    _check(program, loop, read, kept, made)
    values = taken_around(program, loop).fresh(f"{kept.id}_list")
    suffix = kept_until(program, read.base, store, loop)
    put = statement(f"{{values}}.append({{base}}{suffix})", values=values, base=read.base)
    behind = statement(
        f"if {{values}}:\n    {{kept}}[:len({{values}})] = {{stack}}({{values}}){flattened(program, read.base)}",
        values=values,
        kept=kept.id,
        stack=of_torch(program, "stack", loop),
    )
    change = rewrite(
        program,
        InsertBefore(loop, (statement("{values} = []", values=values),)),
        ReplaceStatements((store,), (put,)),
        InsertAfter(loop, (behind,)),
    )
    title = f"collect the values on the device and copy them to `{kept.id}` after the loop"
    if shape_of_one(program, read.base):
        return Fix(f"{title}{ANY_SHAPE}", Safety.BEHAVIOUR, change)
    return Fix(title, Safety.EXACT, change)


def _made(program: Program, kept: ast.Name) -> Definition | None:
    """What makes the tensor: a call that fills one on the host, the only one whose result the name may have."""
    found = program.get(Flow).graph(kept).definitions(kept)
    made = next(iter(found)) if len(found) == 1 else None
    source = made.source if isinstance(made, Definition) and not made.steps else None
    call = operation(program, source) if source is not None else None
    is_filled = (
        call is not None and "factory" in call.traits and not call.traits.isdisjoint({"taking_sizes", "filling"})
    )
    is_host = call is not None and {each.arg for each in call.call.keywords} <= {"dtype"}
    return made if isinstance(made, Definition) and is_filled and is_host else None


def _counts(program: Program, loop: ast.For, index: ast.Name) -> bool:
    """Is it a loop over `range(n)` whose variable is the index, and which never skips what it does?"""
    walked = loop.iter
    if not isinstance(walked, ast.Call) or program.qualified(walked.func) != "builtins.range" or len(walked.args) != 1:
        return False
    stores = [each for each in occurrences(loop, index.id) if isinstance(each.ctx, ast.Store)]
    is_index = isinstance(loop.target, ast.Name) and loop.target.id == index.id and stores == [loop.target]
    return is_index and not loop.orelse and not any(isinstance(each, _LEAVING) for each in own_nodes(loop))


def _check(program: Program, loop: ast.For, read: Read, kept: ast.Name, made: Definition) -> None:
    """Raise Blocked unless the loop is over before anybody reads the tensor, and all numbers are of one kind."""
    if read.converts_to == "int":
        raise Blocked("int() cuts the value off in every iteration")
    if differs(program, read.base) or may_be_complex(program, read.base):
        raise Blocked("its type or shape may differ between iterations")
    graph = program.get(Flow).graph(kept)
    for use in made.uses:
        if use is not kept and (graph.is_within(use, loop) or graph.reaches(use, loop, avoiding=made.node)):
            raise Blocked(f"line {use.lineno} reads `{kept.id}` before the loop is over")
    alone_in(program, loop, program.function_of(loop) or program.tree, kept.id)

"""Keeps what a loop appends to a list on the device, and reads all of it at once behind the loop."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint import torch_ops
from perflint.analysis.ir.occurrences import is_empty_list, occurrences, start_region
from perflint.analysis.values.dtypes import FLOAT, INTEGER, assigned, number_kind
from perflint.analysis.values.values import Kind
from perflint.syntax.edits import Fix, Safety
from perflint.syntax.walk import own_nodes
from perflint.transforms.accumulator import Accumulator, accumulator_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.host_reads import Read
from perflint.transforms.names import name_of_torch
from perflint.transforms.operations import InsertAfter
from perflint.transforms.rewrite import rewrite
from perflint.transforms.template import statement as statement_of

if TYPE_CHECKING:
    from perflint.analysis.program import Program


def collection(program: Program, read: Read, statement: ast.stmt, path: str) -> Fix:
    """The fix of a read that is only appended to the list `path`; raises Blocked."""
    if not read.is_scalar:
        raise Blocked(
            "a whole tensor is collected in every iteration: copy all behind the loop, if the device's memory allows"
        )
    if not read.converts_to and _differs(program, read.base):
        raise Blocked("its type or shape may differ between iterations")
    if read.converts_to:
        wanted = FLOAT if read.converts_to == "float" else INTEGER
        if number_kind(program, read.base) != wanted:
            raise Blocked(f"{read.converts_to}() may change the type of the value")
    torch = name_of_torch(program)
    if not torch or "." in path:
        raise Blocked("`torch` is not imported by that name" if not torch else f"`{path}` may be read elsewhere")
    found = accumulator_of(program, read, statement, path)
    _check_list(program, found)
    behind = statement_of(
        "if {path}:\n    {path}[:] = {torch}.stack({path}).flatten().tolist()", path=path, torch=torch
    )
    kept = ".detach()" if _is_new(program, read.base) else ".detach().clone()"
    kept += shape_of_one(program, read.base)
    change = rewrite(program, read.replaced(kept), InsertAfter(found.loop, (behind,)))
    return Fix(f"collect `{path}` on the device and read it once, behind the loop", Safety.EXACT, change)


def shape_of_one(program: Program, node: ast.expr) -> str:
    """What gives a tensor of one number the shape () where iterations may differ in it; empty where they don't."""
    several = isinstance(node, ast.Name) and len(assigned(program, node) or ()) > 1
    return ".reshape(())" if several else ""


def _differs(program: Program, node: ast.expr) -> bool:
    """May one iteration read another kind of tensor here than the next, as the branch that it took decides?"""
    values = (assigned(program, node) if isinstance(node, ast.Name) else None) or [node]
    return (len(values) > 1 or isinstance(values[0], ast.IfExp)) and number_kind(program, node) not in (FLOAT, INTEGER)


def _is_new(program: Program, node: ast.expr) -> bool:
    """Is `node` a call that gives a tensor with memory of its own, which nobody else can write to?"""
    if not isinstance(node, ast.Call) or any(keyword.arg == "out" for keyword in node.keywords):
        return False
    callee = program.value(node.func)
    is_method = callee.kind is Kind.METHOD and callee.owner is not None and callee.owner.kind is Kind.TENSOR
    entry = torch_ops.of_method(callee.name) if is_method else torch_ops.of_function(program.qualified(node.func))
    return entry is not None and not entry.shares


def _check_list(program: Program, found: Accumulator) -> None:
    """Raise Blocked unless the list holds nothing before the loop, and nobody but one line touches it in there."""
    uses = len(occurrences(found.loop, found.path))
    region = start_region(program, found.loop, found.path, is_empty_list)
    if (
        region is None
        or any(occurrences(each, found.path) for each in region[1:-1])
        or len(occurrences(region[-1], found.path)) != uses
    ):
        raise Blocked(f"`{found.path}` is not known to be empty when the loop starts")
    if isinstance(region[0], ast.Assign) and len(region[0].targets) > 1:
        raise Blocked(f"`{found.path}` is known by another name, too")
    if len(found.additions) > 1:
        raise Blocked(f"several lines append to `{found.path}`")
    if any(
        node is not found.loop
        and isinstance(node, ast.Name)
        and node.id == found.path
        and isinstance(node.ctx, ast.Store)
        for node in own_nodes(found.loop)
    ):
        raise Blocked(f"`{found.path}` starts anew in the loop")
    for node in occurrences(found.loop, found.path):
        if program.statement_of(node) not in found.additions and not _is_length(program, node):
            raise Blocked(f"line {node.lineno} reads `{found.path}` in the loop")


def _is_length(program: Program, node: ast.AST) -> bool:
    call = program.parent(node)
    return isinstance(call, ast.Call) and program.qualified(call.func) == "builtins.len"

"""What the host would have to read while a function is captured: values, sizes that depend on them, and indices."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perflint.analysis.heat.syncs import Sync, syncs
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.values.values import Kind
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_READ = "is read on the host: keep it on the device until the loop is over"
_USES = {
    "mask": "makes a tensor whose size depends on a mask: use `torch.where`",
    "print": "prints a tensor: print it when the loop is over",
    "index": "needs a tensor's value as an index: use `index_select` or `gather`",
    "if": "tests a tensor: use `torch.where`",
}
VERDICTS = frozenset({"all", "any"})
_CONVERT = frozenset(
    f"builtins.{name}" for name in "int float bool complex str repr range max min any all sorted".split()
)


def check_reads(program: Program, node: ast.AST) -> None:
    """Raise Blocked where `node` itself makes the host wait for a value, or copies one to the device."""
    if sync := program.get(_reads).get(node):
        raise Blocked(f"{shown(program, sync.node)} {_USES.get(sync.kind, _READ)}", sync.node)
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        check_test(program, node.test)
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            check_test(program, test)
    elif isinstance(node, ast.Call) and program.qualified(node.func) in _CONVERT:
        if any(_is_tensor(program, argument) for argument in node.args):
            raise Blocked(f"{shown(program, node)} {_READ}", node)
    elif isinstance(node, ast.Subscript):
        _check_index(program, node)


def check_test(program: Program, test: ast.expr) -> None:
    """Raise Blocked where the answer may depend on what is on the device."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            check_test(program, part)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        check_test(program, test.operand)
    elif not _is_identity(test) and any(program.value(part).kind is Kind.TENSOR for part in _data(test)):
        raise Blocked(f"{shown(program, test)} {_USES['if']}", test)


def may_read(program: Program, test: ast.expr) -> bool:
    """May the host have to read from the device to answer?"""
    try:
        check_test(program, test)
    except Blocked:
        return True
    calls = (node.func for node in ast.walk(test) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr in {*VERDICTS, "item"} for func in calls)


def _check_index(program: Program, node: ast.Subscript) -> None:
    for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        bounds = [part.lower, part.upper, part.step] if isinstance(part, ast.Slice) else []
        if any(bound is not None and _is_tensor(program, bound) for bound in bounds):
            raise Blocked(f"{shown(program, node)} {_USES['index']}", node)
        if isinstance(part, ast.List):
            raise Blocked("an index is copied from the host: make it a tensor, once, where the model is made", node)
        if program.value(part).dtype == "bool" and not _is_filled(program, node):
            raise Blocked(f"{shown(program, node)} {_USES['mask']}", node)


def _is_filled(program: Program, node: ast.Subscript) -> bool:
    """Is one number written wherever the mask is set, which needs no look at it?"""
    statement = program.statement_of(node)
    is_target = isinstance(statement, ast.Assign) and node in statement.targets
    return is_target and isinstance(statement, ast.Assign) and program.value(statement.value).kind is Kind.NUMBER


def _is_tensor(program: Program, node: ast.expr) -> bool:
    return not is_metadata(node) and program.value(node).kind is Kind.TENSOR


def _is_identity(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and all(isinstance(each, ast.Is | ast.IsNot) for each in test.ops)


def _data(node: ast.AST) -> Iterable[ast.expr]:
    """The expressions in a test, without what only asks for a tensor's shape or type."""
    if isinstance(node, ast.expr):
        if is_metadata(node):
            return
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _data(child)


def _reads(program: Program) -> dict[ast.AST, Sync]:
    return {sync.node: sync for sync in syncs(program)}

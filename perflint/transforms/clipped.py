"""Turns a loop that clamps the gradients of a module one by one into one call: torch.nn.utils.clip_grad_value_."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perflint.analysis.call_graph import handlers
from perflint.analysis.modules import filled
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import bind, bound_names
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import path_of, receiver_of
from perflint.transforms.operations import ReplaceStatements, expression, same_code, standing_for, statement
from perflint.transforms.rewrite import of_torch, rewrite


def clipped(program: Program, loop: ast.For, block: Sequence[ast.stmt], conditions: Sequence[ast.expr]) -> Fix | None:
    """The fix of a loop whose `block` only clamps gradients to [-x, x]: one call; None for other loops.

    The call passes over parameters without a gradient; other `conditions` for the block it has no room for.
    """
    only = block[0] if len(block) == 1 else None
    call = only.value if isinstance(only, ast.Expr) and isinstance(only.value, ast.Call) else None
    if call is None or not _clamps_gradient(call, loop.target):
        return None
    given = bind(call, ("min", "max"))
    low, high = given.get("min"), given.get("max")
    is_even = isinstance(low, ast.UnaryOp) and isinstance(low.op, ast.USub)
    if high is None or not is_even or not same_code(low.operand, high):  # type: ignore[union-attr]
        return None
    is_free = isinstance(high, ast.Constant) or (path_of(high) and not _names(high, loop))
    there = expression("{param}.grad is not None", param=path_of(loop.target))
    is_whole = all(ast.unparse(each) == ast.unparse(there) for each in conditions)
    if not is_free or not is_whole or program.value(high).kind is Kind.TENSOR:
        return None
    function = of_torch(program, "nn.utils.clip_grad_value_", loop)
    made = statement("{function}({walked}, {high})", function=function, walked=loop.iter, high=high)
    change = rewrite(program, ReplaceStatements((loop,), (standing_for(made, loop),)))
    title, doubt = "clip all gradients at once: torch.nn.utils.clip_grad_value_", _doubt(program, loop, high)
    return Fix(f"{title}, if {doubt}", Safety.BEHAVIOUR, change) if doubt else Fix(title, Safety.EXACT, change)


def _clamps_gradient(call: ast.Call, param: ast.expr) -> bool:
    method = call.func if isinstance(call.func, ast.Attribute) else None
    names = (f"{path_of(param)}.grad", f"{path_of(param)}.grad.data")
    return method is not None and method.attr in ("clamp_", "clip_") and path_of(method.value) in names


def _names(high: ast.expr, loop: ast.For) -> bool:
    return path_of(high).partition(".")[0] in bound_names(loop)


def _doubt(program: Program, loop: ast.For, high: ast.expr) -> str:
    if any(handlers(program, loop)):  # which leaves some gradients clamped, and raises another error
        return "no exception is caught half-way"
    if program.value(high).kind is not Kind.NUMBER:
        return f"`{program.segment(high)}` is a number"
    module = receiver_of(loop.iter, "parameters")
    return "" if module is not None and filled(program, module) else "there are parameters: torch clips no empty list"

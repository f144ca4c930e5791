"""Clips gradients by torch's own function, where a loop clamps them one by one."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perflint.analysis.data.origins import Origins
from perflint.analysis.handlers import handlers
from perflint.analysis.optimized import optimized
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import bind, bound_names
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import path_of
from perflint.transforms.names import of_torch
from perflint.transforms.operations import ReplaceStatements, standing_for, statement
from perflint.transforms.rewrite import rewrite


def clipped(program: Program, loop: ast.For, block: Sequence[ast.stmt]) -> Fix | None:
    """The fix of a loop whose `block` only clamps gradients to [-x, x]: one call; None for other loops."""
    only = block[0] if len(block) == 1 else None
    call = only.value if isinstance(only, ast.Expr) and isinstance(only.value, ast.Call) else None
    clamp = call.func if call is not None and isinstance(call.func, ast.Attribute) else None
    given = bind(call, ("min", "max")) if call is not None else None
    low, high = (given.get("min"), given.get("max")) if given is not None else (None, None)
    if clamp is None or clamp.attr not in ("clamp_", "clip_") or low is None or high is None:
        return None
    is_grad = path_of(clamp.value) in (f"{path_of(loop.target)}.grad", f"{path_of(loop.target)}.grad.data")
    is_even = isinstance(low, ast.UnaryOp) and isinstance(low.op, ast.USub) and ast.dump(low.operand) == ast.dump(high)
    is_number = program.value(high).kind is Kind.NUMBER and (isinstance(high, ast.Constant) or _is_older(high, loop))
    if not (is_grad and is_even and is_number and block is loop.body and _is_optimized(program, loop.iter)):
        return None
    if any(handlers(program, loop)):
        return None
    function = of_torch(program, "nn.utils.clip_grad_value_", loop)
    made = statement("{function}({walked}, {high})", function=function, walked=loop.iter, high=high)
    change = rewrite(program, ReplaceStatements((loop,), (standing_for(made, loop),)))
    return Fix("clip all gradients at once: torch.nn.utils.clip_grad_value_", Safety.EXACT, change)


def _is_older(bound: ast.expr, loop: ast.For) -> bool:
    return bool(path_of(bound)) and path_of(bound).partition(".")[0] not in bound_names(loop)


def _is_optimized(program: Program, walked: ast.expr) -> bool:
    """Do they hold a parameter, which an optimizer makes sure of? torch clips no empty list."""
    method = walked.func if isinstance(walked, ast.Call) and not (walked.args or walked.keywords) else None
    if not isinstance(method, ast.Attribute) or method.attr != "parameters":
        return False
    origins = program.get(Origins)
    own = set(origins.of(method.value))
    optimizers = (each for each in program.of_type(ast.Call) if program.qualified(each.func).startswith("torch.optim."))
    held = (optimized(program, each.args[0]) for each in optimizers if each.args)
    modules = {origin for each in held if each is not None for module in each.modules for origin in origins.of(module)}
    return bool(own) and own <= modules

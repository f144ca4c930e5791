"""Fills a tensor on the device, where it was filled with numbers on the host and copied."""

from __future__ import annotations

import ast
import math
import re
from contextlib import suppress

from perflint import torch_ops
from perflint.analysis.data.origins import Origins
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.program import Program
from perflint.analysis.values.dtypes import is_integer
from perflint.analysis.values.numbers import Numbers, is_number
from perflint.analysis.values.operations import Move, move
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import own_nodes, path_of
from perflint.transforms.operations import Replace, expression
from perflint.transforms.rewrite import Blocked, of_torch, rewrite

_PLAIN = frozenset({"device", "dtype", "requires_grad"})
_PYTHONS = frozenset(f"builtins.{name}" for name in "float int bool len round".split())
_OVERLAPPING = frozenset("expand expand_as broadcast_to unfold as_strided".split())  # of which a copy is dense
_SINGLE, _HALF, _LONG = (2 - 2**-23) * 2.0**127, 65504.0, 2**63 - 1  # the largest numbers of these dtypes
_LARGEST = {  # the dtype is torch's own where none is told; one that isn't known may be half
    **dict.fromkeys(("", "torch.float32", "torch.float"), _SINGLE),
    **dict.fromkeys(("torch.float64", "torch.double"), math.inf),
    "torch.bfloat16": (2 - 2**-7) * 2.0**127,
}
_WHOLE = re.compile(r"torch\.(u?int\d+|long|int|short|bool)")  # of which too large a number fails in any way


def moved_at_once(program: Program, call: ast.Call) -> Move | None:
    """What moves the tensor, or a view or cast of it, to the device at once."""
    made: ast.AST = call
    for outer in program.ancestors(call):
        if isinstance(outer, ast.Call) and outer.func is made:
            found = move(program, outer)
            if found is not None or not _keeps_numbers(made):
                return found
        elif _wraps(program, outer, made):
            pass
        elif not isinstance(outer, ast.Attribute | ast.Subscript) or outer.value is not made:
            return None
        made = outer
    return None


def _keeps_numbers(method: ast.AST) -> bool:
    name = method.attr if isinstance(method, ast.Attribute) else ""
    return torch_ops.does(name, "view") or (torch_ops.does(name, "cast") and not torch_ops.does(name, "to_device"))


def moved_later(program: Program, call: ast.Call) -> Move | None:
    """What moves it to the device later in the function, by its name."""
    parent, scope = program.parent(call), program.function_of(call) or program.tree
    made, statement = (parent, program.parent(parent)) if parent and _wraps(program, parent, call) else (call, parent)
    for each in own_nodes(scope) if isinstance(statement, ast.Assign) else ():
        found = move(program, each) if isinstance(each, ast.Call) else None
        if found is not None and isinstance(found.tensor, ast.Name) and program.get(Origins).of(found.tensor) == [made]:
            return found
    return None


def _wraps(program: Program, outer: ast.AST, made: ast.AST) -> bool:
    if not isinstance(outer, ast.Call) or outer.args != [made] or outer.keywords:
        return False
    return program.qualified(outer.func).endswith(".Variable")


def filled_on_device(program: Program, call: ast.Call, found: Numbers) -> Fix:
    """Raises Blocked."""
    to_device, number = moved_at_once(program, call), found.number
    if getattr(call.func, "attr", "") in ("new_tensor", "new"):
        raise Blocked("write `new_full`, `new_zeros` or `new_ones`, which fill on the device")
    if not any(each.arg == "device" for each in call.keywords) and to_device is None:
        raise Blocked("it is moved to the device in a later line: make it there")
    if path_of(call.func).endswith("Tensor"):
        raise Blocked(f"`{program.segment(call.func)}` takes no device: write `torch.tensor`, or `torch.full`")
    is_told = any(each.arg == "dtype" for each in call.keywords)
    kind = ""
    if found.is_range and found.size is not None and is_integer(program, found.size):
        made, title = of_torch(program, "arange", call), "count on the device: torch.arange"
        filled = expression("{made}({size})", made=made, size=found.size)
    elif number is None:
        raise Blocked("make it once, in front of the loop, or as a buffer of the module")
    else:
        kind = "" if is_told else _kind_of_bit(number)
        name = _filling(number, is_told=is_told or bool(kind))
        made, size = of_torch(program, name, call), _size(program, found)
        is_one = isinstance(size, ast.Tuple) and len(size.elts) == 1 and name != "full"
        size, title = (
            size.elts[0] if is_one and isinstance(size, ast.Tuple) else size,
            f"make it on the device: torch.{name}",
        )
        arguments = "{size}, {number}" if name == "full" else "{size}"
        filled = expression(f"{{made}}({arguments})", made=made, size=size, number=number)
        if not _is_pythons(program, number) and not (is_told and is_number(program, number)):
            raise Blocked(f"`{program.segment(number)}` may be a number of numpy's, whose dtype would be lost")
        if name == "full":
            _check_range(program, call, number)
    typed = [("dtype", of_torch(program, kind, call))] if kind else []
    keywords = [*typed, *((each.arg or "", each.value) for each in call.keywords)]
    if len(call.args) > 1 or not {name for name, _ in keywords} <= _PLAIN:
        raise Blocked(f"`{ast.unparse(made)}` doesn't take these arguments")
    if to_device is not None:
        if (
            to_device.casts
            or to_device.like is not None
            or not to_device.is_certain
            or "requires_grad" in dict(keywords)
        ):
            raise Blocked("it isn't only moved to a device")
        keywords = [each for each in keywords if each[0] != "device"]
        keywords.append(("device", to_device.device or expression("'cuda'")))
        _check_way(program, call, to_device)
    assert isinstance(filled, ast.Call)
    filled.keywords = [ast.keyword(name, value) for name, value in keywords]
    at = to_device.call if to_device is not None and to_device.tensor is call else call
    moved = [Replace(to_device.call, to_device.tensor)] if to_device is not None and at is call else []
    change = rewrite(program, Replace(at, filled), *moved)
    is_float = isinstance(number, ast.Constant) and isinstance(number.value, float)
    if found.size is None or _is_count(program, found.size, may_be_zero=is_told or is_float):
        return Fix(title, Safety.EXACT, change)
    return Fix(f"{title}, if `{program.segment(found.size)}` is positive", Safety.BEHAVIOUR, change)


def _is_count(program: Program, size: ast.expr, *, may_be_zero: bool) -> bool:
    """Is it surely 1 or more, or 0 or more? An empty list has another dtype."""
    if isinstance(size, ast.Constant):
        return isinstance(size.value, int) and size.value >= (not may_be_zero)
    is_length = program.call_of(size, "builtins.len") is not None
    measured = size.value if isinstance(size, ast.Subscript) else size  # x.shape[0]
    return may_be_zero and (is_length or is_metadata(measured))


def _filling(number: ast.expr, *, is_told: bool) -> str:
    value = number.value if isinstance(number, ast.Constant) else None
    if value not in (0, 1) or not (is_told or isinstance(value, float)):
        return "full"
    return "ones" if value else "zeros"


def _kind_of_bit(number: ast.expr) -> str:
    """The dtype that torch gives 0 and 1, or False and True; empty for others."""
    value = number.value if isinstance(number, ast.Constant) else None
    return {int: "long", bool: "bool"}.get(type(value), "") if value in (0, 1) else ""


def _size(program: Program, found: Numbers) -> ast.expr:
    if found.size is None and not found.is_scalar:
        raise Blocked("it isn't known how many numbers there are")
    if found.size is None:
        return expression("()")
    if not isinstance(found.size, ast.Constant) and not is_integer(program, found.size):
        raise Blocked(f"`{program.segment(found.size)}` isn't known to be a whole number")
    return expression("({size},)", size=found.size)


def _check_way(program: Program, call: ast.Call, to_device: Move) -> None:
    for each in program.ancestors(call):
        if each is to_device.call.func:
            return
        name = each.attr if isinstance(each, ast.Attribute) else ""
        if name in _OVERLAPPING:
            raise Blocked(f"each number of `{name}` gets memory of its own when it is moved")


def _is_pythons(program: Program, number: ast.expr) -> bool:
    if isinstance(number, ast.UnaryOp):
        return _is_pythons(program, number.operand)
    if isinstance(number, ast.BinOp):
        return _is_pythons(program, number.left) and _is_pythons(program, number.right)
    if isinstance(number, ast.Call):
        name = program.qualified(number.func)
        if name == "builtins.round" and len(number.args) > 1:  # as the type of the number rounds itself
            return _is_pythons(program, number.args[0])
        return name in _PYTHONS or (name.startswith("math.") and name != "math.prod")
    value = program.value(number)
    return isinstance(number, ast.Constant) or value.is_literal


def _check_range(program: Program, call: ast.Call, number: ast.expr) -> None:
    """Raise Blocked where the number may overflow the dtype, torch's default unless given.

    On the host it becomes infinite, while filling fails. Unknown numbers may overflow what holds less than float32.
    """
    told = next((each.value for each in call.keywords if each.arg == "dtype"), None)
    dtype = "" if told is None else program.qualified(told) or "unknown"
    if _WHOLE.fullmatch(dtype):
        return
    value, largest = _known(program, number), _LARGEST.get(dtype, _HALF)
    if value is None:
        names = [each for each in ast.walk(number) if isinstance(each, ast.Name | ast.Attribute)]
        is_arithmetic = all(program.qualified(each).startswith("builtins.") for each in names)  # `2 * float("1e40")`
        is_within = largest >= _SINGLE and not is_arithmetic
    elif isinstance(value, int):
        is_within = abs(value) <= min(largest, _LONG)
    else:
        is_within = abs(value) <= largest or not math.isfinite(value)
    if not is_within:
        raise Blocked(f"`{program.segment(number)}` may be too large for the dtype, and to fill with that fails")


def _known(program: Program, number: ast.expr) -> float | None:
    value = program.value(number).literal
    if isinstance(value, int | float):
        return value
    if isinstance(number, ast.UnaryOp):
        return _known(program, number.operand)
    if (made := program.call_of(number, "builtins.float")) is not None and made.args:
        value = program.value(made.args[0]).literal
        with suppress(ValueError):
            return float(value) if isinstance(value, str | int | float) else None
    return None

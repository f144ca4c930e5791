"""What can be done by hand about a read that no fix takes away, by what the program does with the value."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.fixes.host_reads import read_of
from perflint.program.syncs import Sync
from perflint.program.walk import FUNCTIONS

if TYPE_CHECKING:
    from perflint.program import Program

_PRINTERS = frozenset(
    {
        "print",
        "info",
        "debug",
        "warning",
        "write",
        "log",
        "format",
        "set_postfix",
        "set_description",
        "set_postfix_str",
        "set_description_str",
        "add_scalar",
        "add_scalars",
        "log_dict",
    }
)
_METERS = frozenset({"update", "add", "append", "update_state"})
_DECIDES = "it decides what runs next: test every few steps, or use torch.where"
_PRINTED = "it is printed in every iteration: print every few steps, or behind the loop"
_INDEX = "a Python index has to be known on the host: keep the sizes there from the start"
_SIZE = "a size, or a bound, has to be known on the host: keep it there from the start"
_STACKED = "torch.stack puts tensors together on the device"
_SELECTED = "the size of the result depends on the mask: torch.where or multiplying by the mask keeps it"
_MANY = "the size of the result depends on the values: use a mask, or torch.where with three arguments"
_MATH = "torch has the same function, and computes it on the device"
_SILENT = {  # reads that nobody wrote down as such
    "mask": _SELECTED,
    "masked_select": _SELECTED,
    "nonzero": _MANY,
    "argwhere": _MANY,
    "if": _DECIDES,
    "max": "torch.max of the tensor, or of stacked ones, stays on the device",
    "min": "torch.min of the tensor, or of stacked ones, stays on the device",
    "math": _MATH,
    "index": _INDEX,
    "list": _STACKED,
    "print": _PRINTED,
    "unique": "how many values there are depends on them, and the host has to wait for that",
    "unique_consecutive": "how many values there are depends on them, and the host has to wait for that",
}
_BUILTINS = {
    "range": _INDEX,
    "max": _SILENT["max"],
    "min": _SILENT["min"],
    "str": _PRINTED,
    "repr": _PRINTED,
    "print": _PRINTED,
}
_TAKE_SIZES = frozenset(  # and bounds, counts or shifts, and nothing else
    "zeros ones empty rand randn randint randperm arange linspace eye new_zeros new_ones new_empty view reshape"
    " repeat expand narrow split chunk roll unfold pad tile topk".split()
)
_FILLS = {"full": 1, "full_like": 1, "new_full": 1}  # and the position of the number
_BUILDERS = frozenset("tensor as_tensor FloatTensor LongTensor new_tensor".split())
_COPIES = frozenset({"cpu", "tolist", "numpy"})


def advice(program: Program, sync: Sync) -> str:
    """What the program does with the value, and what to do instead."""
    if sync.kind in _SILENT and not sync.explicit:
        return _SILENT[sync.kind]
    child: ast.AST = read_of(program, sync).top
    for parent in program.ancestors(child):
        if isinstance(parent, ast.FormattedValue):
            return _PRINTED
        if isinstance(parent, ast.Call) and child is not parent.func:
            return _of_call(program, sync, parent, child)
        if isinstance(parent, ast.Return):
            return "the function returns it: return the tensor, and read it where it is reported"
        if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert) and child is parent.test:
            return _DECIDES
        if isinstance(parent, ast.Slice):
            return _INDEX
        if isinstance(parent, (ast.stmt, *FUNCTIONS)):
            break
        child = parent
    return "the iteration uses the value on the host: keep it a tensor as long as possible"


def _of_call(program: Program, sync: Sync, call: ast.Call, argument: ast.AST) -> str:
    """What to do where the value, or what is computed of it, is an argument of `call`."""
    function = ast.unparse(call.func)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    head, _, rest = program.qualified(call.func).partition(".")
    what = "a copy on the host" if sync.kind in _COPIES else "a Python number"
    if head in ("math", "cmath"):
        return _MATH
    if name in _PRINTERS:
        return "it is reported in every iteration: report every few steps, or behind the loop"
    if name in _METERS:
        return f"`{function}` gets {what}: hand it the detached tensor, and convert where it reports"
    if head == "builtins":
        return _BUILTINS.get(rest, "Python computes with the value: keep it a tensor as long as possible")
    if what == "a Python number" and (told := _of_tensors(call, name, argument)):
        return told
    return f"`{function}` gets {what} in every iteration: hand it the tensor, if it can work with one"


def _of_tensors(call: ast.Call, name: str, argument: ast.AST) -> str:
    """What to do where torch's function of this name takes no tensor there; empty where it may."""
    if name in _FILLS:
        is_fill = argument in call.args[_FILLS[name] :] or getattr(argument, "arg", "") == "fill_value"
        return "a tensor of one number, expanded to that shape, stays on the device" if is_fill else _SIZE
    if name in _BUILDERS:
        return _STACKED
    return _SIZE if name in _TAKE_SIZES else ""

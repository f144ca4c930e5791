"""What can be done about a costly read: its fix, or what stands in the way of one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.fixes.accumulate import accumulation
from perflint.fixes.blocked import Blocked
from perflint.fixes.host_reads import read_of
from perflint.program.hot_syncs import first_reads, hot_syncs, is_repeated
from perflint.program.syncs import Sync
from perflint.program.walk import FUNCTIONS
from perflint.rule import Fix

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
_ALL_VALUES = {
    "mask": "the size of the result depends on the mask: torch.where or multiplying by the mask keeps it",
    "nonzero": "the size of the result depends on the values: use a mask, or torch.where with three arguments",
    "if": "it decides what runs next: test every few steps, or use torch.where",
    "max": "torch.max of the tensor, or of stacked ones, stays on the device",
    "min": "torch.min of the tensor, or of stacked ones, stays on the device",
    "math": "torch has the same function, and computes it on the device",
    "index": "a Python index has to be known on the host: keep the sizes there from the start",
    "list": "torch.stack puts tensors together on the device",
    "print": "it is printed in every iteration: print every few steps, or behind the loop",
}


def remedies(program: Program) -> list[tuple[Sync, tuple[Fix, ...], str]]:
    """Each costly read of the program with its fixes or, where there is none, what blocks them."""
    found = hot_syncs(program)
    return [(sync, *_remedy(program, sync, found)) for sync in first_reads(program, found)]


def _remedy(program: Program, sync: Sync, found: list[Sync]) -> tuple[tuple[Fix, ...], str]:
    try:
        fix = accumulation(program, sync)
        _check_repeats(program, sync, found)
    except Blocked as reason:
        return (), str(reason) or _use(program, sync)
    return (fix,), ""


def _check_repeats(program: Program, sync: Sync, found: list[Sync]) -> None:
    """Raise Blocked where the same value is read once more in each iteration, so that nothing would be won."""
    for other in found:
        if is_repeated(program, sync, other):
            try:
                accumulation(program, other)
            except Blocked:
                line = program.source.position(other.start)[0]
                raise Blocked(f"line {line} reads the same value in every iteration") from None


def _use(program: Program, sync: Sync) -> str:
    """What the program does with the value, and what to do instead."""
    if sync.kind in _ALL_VALUES and not sync.explicit:
        return _ALL_VALUES[sync.kind]
    child: ast.AST = read_of(program, sync).top
    for parent in program.ancestors(child):
        if isinstance(parent, ast.FormattedValue):
            return _ALL_VALUES["print"]
        if isinstance(parent, ast.Call) and child is not parent.func:
            return _call(parent)
        if isinstance(parent, ast.Return):
            return "the function returns it: return the tensor, and read it where it is reported"
        if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert) and child is parent.test:
            return _ALL_VALUES["if"]
        if isinstance(parent, ast.Slice):
            return _ALL_VALUES["index"]
        if isinstance(parent, (ast.stmt, *FUNCTIONS)):
            break
        child = parent
    return "the iteration uses the value on the host: keep it a tensor as long as possible"


def _call(call: ast.Call) -> str:
    function = ast.unparse(call.func)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in _PRINTERS:
        return "it is reported in every iteration: report every few steps, or behind the loop"
    if name in ("update", "add", "append", "update_state"):
        return f"`{function}` gets a Python number: hand it the detached tensor, and convert where it reports"
    return f"`{function}` gets a Python number in every iteration: hand it the tensor, if it can work with one"

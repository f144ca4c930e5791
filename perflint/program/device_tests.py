"""What a test of the device says: whether it lets pass what is on the host, or what is on the device."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.program.values import Place
from perflint.program.walk import path_of

if TYPE_CHECKING:
    from perflint.program import Program

_ASKS = {"is_cuda": Place.DEVICE, "is_cpu": Place.HOST}  # attributes of a tensor
_OTHER = {Place.HOST: Place.DEVICE, Place.DEVICE: Place.HOST, Place.UNKNOWN: Place.UNKNOWN}


def place_asked(program: Program, test: ast.expr) -> Place:
    """Where tensors are if `test` passes; UNKNOWN where it asks for something else."""
    if isinstance(test, ast.Attribute):
        return _ASKS.get(test.attr, Place.UNKNOWN)
    if isinstance(test, ast.Call):
        is_asking = program.qualified(test.func) == "torch.cuda.is_available"
        return Place.DEVICE if is_asking else Place.UNKNOWN
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.NotEq):
        place = _place_named(program, test.left, test.comparators[0])
        return place if isinstance(test.ops[0], ast.Eq) else _OTHER[place]
    return Place.UNKNOWN


def _place_named(program: Program, device: ast.expr, named: ast.expr) -> Place:
    """What `device.type == "cuda"` names; a device itself is "cuda:0", and no device is equal to "cuda"."""
    path = path_of(device)
    is_type = path.endswith("device.type")
    if not is_type and path.rpartition(".")[2] != "device":
        return Place.UNKNOWN
    if isinstance(named, ast.Call) and program.qualified(named.func) == "torch.device" and named.args:
        named = named.args[0]
    name = named.value if isinstance(named, ast.Constant) else None
    if name == "cpu":
        return Place.HOST
    return Place.DEVICE if is_type and name == "cuda" else Place.UNKNOWN

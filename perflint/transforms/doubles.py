"""Decides whether the devices that a program computes on have 64-bit floats, which those of Apple and Intel may not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint.analysis.data.origins import Origins
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import receiver_of

_WITHOUT = re.compile(r"\b(mps|xpu|accelerator)\b")  # and what may be one
_WITH = re.compile(r"(cuda|cpu)(:|$)")


def has_doubles(program: Program) -> bool:
    """Does the program itself move its tensors, and name the device each time, as CUDA's or the host?

    Others may choose any device: who calls its functions, writes its command line, or a helper in another file.
    """
    return program.get(_settles_on_cuda)


def _settles_on_cuda(program: Program) -> bool:
    devices = list(_devices(program))
    return bool(devices) and not _WITHOUT.search(program.text) and all(_is_cuda(program, each) for each in devices)


def _devices(program: Program) -> Iterator[ast.expr]:
    """The devices that tensors and modules are moved to, or made on; for `.cuda()` the call itself."""
    for call in program.of_type(ast.Call):
        if receiver_of(call, "cuda") is not None:
            yield call
        moved = call.args[:1] if receiver_of(call, "to") is not None else []
        named = [each.value for each in call.keywords if each.arg == "device"]
        yield from (each for each in (*moved, *named) if program.value(each).kind not in (Kind.LIBRARY, Kind.TENSOR))


def _is_cuda(program: Program, device: ast.expr) -> bool:
    return receiver_of(device, "cuda") is not None or all(
        _names_cuda(program, each) for each in program.get(Origins).of(device)
    )


def _names_cuda(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_cuda(program, node.body) and _is_cuda(program, node.orelse)
    if isinstance(node, ast.JoinedStr):
        return bool(node.values) and _names_cuda(program, node.values[0])
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(_WITH.match(node.value))
    if isinstance(node, ast.Call) and program.qualified(node.func) == "torch.device":
        return bool(node.args) and _is_cuda(program, node.args[0])
    return isinstance(node, ast.Attribute) and node.attr == "device"  # where another tensor is

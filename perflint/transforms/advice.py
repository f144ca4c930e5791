"""What can be done by hand about a read that no fix takes away, by what the program does with the value."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.found import Heat
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.library import ARRAYS
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, name_called, receiver_of
from perflint.transforms.host_reads import read_of

_PRINTERS = frozenset(
    "print info debug warning write log set_postfix set_description set_postfix_str set_description_str add_scalar"
    " add_scalars log_dict".split()
)
_METERS = frozenset({"update", "append", "update_state"})
_COMPUTING = frozenset({"torch", "numpy", "cupy", "scipy"})  # their log() reports nothing
_TO_TEXT = frozenset({"builtins.str", "builtins.repr", "builtins.format"})
_DECIDES = "the value decides what runs next: test it every few steps, or use torch.where"
_PRINTED = "the value is printed in every iteration: print every few steps, or after the loop"
_TEXT = "the value becomes text in every iteration: format it where it is shown, every few steps or after the loop"
_COMBINED = "a tensor is computed from the number: compute it from the tensor, and all of it stays on the device"
_KEPT = "keeps the number: put the detached tensor there, and read it where it is shown"
_INDEX = "Python needs the index on the host: keep the sizes there from the start"
_SELECTED = "the size of the result depends on the mask: torch.where, or a product with the mask, keeps the size"
_MANY = "the size of the result depends on the values: use a mask, or torch.where with three arguments"
_UNKNOWN_MATH = "torch has no such function: compute it from the tensors on the device, or every few steps"
_MATH = "torch has the same function, and computes it on the device"
_SILENT = {  # reads that nobody wrote down as such
    "mask": _SELECTED,
    "masked_select": _SELECTED,
    "nonzero": _MANY,
    "argwhere": _MANY,
    "if": _DECIDES,
    "max": "torch.max of the tensor, or of stacked ones, stays on the device",
    "min": "torch.min of the tensor, or of stacked ones, stays on the device",
    "index": _INDEX,
    "list": "torch.stack puts tensors together on the device",
    "unique": "the number of values depends on the data, and the host has to wait for it",
    "unique_consecutive": "the number of values depends on the data, and the host has to wait for it",
}
_BUILTINS = {
    **dict.fromkeys(
        ("abs", "round", "sum", "pow", "divmod"), "torch has a function for this, which computes on the device"
    ),
    "range": _INDEX,
    "max": _SILENT["max"],
    "min": _SILENT["min"],
}


def advice(program: Program, sync: Sync) -> str:
    """What to do instead, by what the program does with the value."""
    if not sync.explicit and sync.kind in _SILENT:
        return _SILENT[sync.kind]
    if not sync.explicit and sync.kind == "print":
        return _of_text(program, sync.node)
    if not sync.explicit and sync.kind == "math" and isinstance(sync.node, ast.Call):
        return _of_math(program, sync.node)
    top = read_of(program, sync).top
    return _of_value(program, sync, top) or _of_variable(program, sync, top) or _of_number(program, sync)


def _of_value(program: Program, sync: Sync, value: ast.expr) -> str:
    child: ast.AST = value
    for parent in program.ancestors(child):
        if isinstance(parent, ast.FormattedValue):
            return _of_text(program, parent)
        if isinstance(parent, ast.BinOp) and program.value(parent).kind is Kind.STRING:
            return _of_text(program, parent)
        if isinstance(parent, ast.BinOp | ast.Compare) and program.value(parent).kind is Kind.TENSOR:
            return _COMBINED
        if isinstance(parent, ast.Call) and child is not parent.func:
            return _of_call(program, sync, parent)
        if isinstance(parent, ast.Return):
            return "the function returns the number: return the tensor, and read it where it is reported"
        if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert) and child is parent.test:
            return _DECIDES
        if isinstance(parent, ast.Slice) or (isinstance(parent, ast.Subscript) and child is parent.slice):
            return _INDEX
        if isinstance(parent, (ast.stmt, *FUNCTIONS)):
            break
        child = parent
    is_kept = isinstance(program.parent(value), ast.Dict | ast.List) and _is_number(sync)
    return f"a dict or list {_KEPT}" if is_kept else ""


def _of_variable(program: Program, sync: Sync, value: ast.expr) -> str:
    statement = program.statement_of(value)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is value else None
    if isinstance(target, ast.Subscript | ast.Attribute):
        return f"`{ast.unparse(target)}` {_KEPT}"
    if not isinstance(target, ast.Name):
        return ""
    uses = sorted(program.get(Flow).graph(target).uses.get(target, ()), key=lambda use: (use.lineno, use.col_offset))
    hot = [use for use in uses if program.heat(use) is not Heat.ONCE]
    if uses and not hot:
        return f"only line {uses[0].lineno} uses `{target.id}`, now and then: read it there"
    told = ((use.lineno, _of_value(program, sync, use)) for use in hot)
    line, said = next(((line, said) for line, said in told if said), (0, ""))
    if said:
        return f"line {line}: {said}"
    if not hot:
        return ""
    return f"line {hot[0].lineno} computes with `{target.id}`: {_instead(sync)}"


def _of_number(program: Program, sync: Sync) -> str:
    return f"Python computes with the value: {_instead(sync)}"


def _is_number(sync: Sync) -> bool:
    return sync.kind in ("item", "float", "int", "bool")


def _instead(sync: Sync) -> str:
    if _is_number(sync):
        read = "`.item()`" if sync.kind == "item" else f"`{sync.kind}(...)`"
        return f"without {read} the tensor takes its place, and only the last result is read"
    return "compute on the device with torch's functions and copy the result, or copy everything once after the loop"


def _of_call(program: Program, sync: Sync, call: ast.Call) -> str:
    name, qualified = name_called(call), program.qualified(call.func)
    head, _, rest = qualified.partition(".")
    what = "a copy on the host" if sync.kind != "item" and torch_ops.does(sync.kind, "to_host") else "a Python number"
    if head in ("math", "cmath"):
        return _of_math(program, call)
    if _reports(program, call):
        return "the value is reported in every iteration: report every few steps, or after the loop"
    if qualified in _TO_TEXT or (name == "format" and _owner(program, call) is Kind.STRING):
        return _of_text(program, call)
    if head == "builtins":
        return _BUILTINS.get(rest, "")
    if _is_meter(program, call):
        return f"`{ast.unparse(call.func)}` gets {what}: pass the detached tensor, and convert it where it is reported"
    return f"`{ast.unparse(call.func)}` gets {what} in every iteration: pass the tensor, if it accepts one"


def _of_math(program: Program, call: ast.Call) -> str:
    name = program.qualified(call.func).rpartition(".")[2]
    return _MATH if torch_ops.of_function(f"torch.{name}") is not None else _UNKNOWN_MATH


def _of_text(program: Program, node: ast.AST) -> str:
    for each in (node, *program.ancestors(node)):
        if isinstance(each, ast.Call) and _reports(program, each):
            return _PRINTED
        if isinstance(each, (ast.stmt, *FUNCTIONS)):
            break
    return _TEXT


def _reports(program: Program, call: ast.Call) -> bool:
    """Does it print or log what it is given? What this file defines may do anything."""
    head = program.qualified(call.func).partition(".")[0]
    if name_called(call) not in _PRINTERS or program.callee(call) is not None:
        return False
    return head not in _COMPUTING and _owner(program, call) not in ARRAYS


def _is_meter(program: Program, call: ast.Call) -> bool:
    of_set = name_called(call) == "update" and _owner(program, call) is Kind.SEQUENCE
    return name_called(call) in _METERS and not program.qualified(call.func) and not of_set


def _owner(program: Program, call: ast.Call) -> Kind:
    owner = receiver_of(call)
    return program.value(owner).kind if owner is not None else Kind.UNKNOWN

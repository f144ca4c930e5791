"""A number is made a tensor on the host and copied to the device, in every step.

## What it does

Reports `torch.tensor(number, device=device)`, and `torch.tensor(number).to(device)` or `.cuda()`, at places that run in
every step: *scalar*; *list* is a list of numbers that are written out. Left alone is what stands in for something that
is missing (`return torch.tensor(0.0)` beside another return, an assignment under an `if`, a branch of a conditional
expression), what an object keeps, and tests.

## Why it is slow

`torch.tensor` fills memory of the host, copies it, and waits until it has arrived. `torch.full` hands the number to a
kernel, and goes on.

## Example

```python
loss = torch.tensor(0.0, device=device)
```

## Use instead

```python
loss = torch.full((), 0.0, device=device)
```

## Fix safety

`exact`: `torch.full` gives the dtype that `torch.tensor` gives, for Python's own numbers. There is no fix where it
isn't sure that the number is one of these: one of numpy's would keep its dtype. A list of several numbers has none:
make it once, in front of the loop, or as a buffer of the module.

## Measured

One H100, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): 100 small training steps that make two constants each:
114 ms to 106 ms (1.09x; one program against itself: 0.91x to 1.17x). Bitwise the same results.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Finding, Fix, Kind, Options, Program, Rule, Safety

_PLAIN = frozenset({"device", "dtype", "requires_grad"})
_PYTHONS = frozenset(f"builtins.{name}" for name in "float int bool len round".split())


class HostScalar(Rule):
    """Tensors made of Python's numbers, at places that run in every step."""

    group = "sync"
    triggers = ("tensor(",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield each such tensor, at the call that makes it."""
        for call in () if program.is_test else program.of_type(ast.Call):
            if program.qualified(call.func) != "torch.tensor" or not call.args or not _is_moved(program, call):
                continue
            kind = _kind(program, call.args[0])
            if not kind or not api.runs_often(program, call) or _stands_in(program, call):
                continue
            fixes, blocked = api.tried(_fix, program, call)
            message = "numbers are copied from the host to the device in every step, and the host waits"
            span, by = program.span(call), program.hot_by(call)
            yield self.finding(span, message, kind=kind, fixes=fixes, blocked=blocked, hot_by=by)


def _is_moved(program: Program, call: ast.Call) -> bool:
    """Is it made for the device, or moved there at once?"""
    if any(each.arg == "device" for each in call.keywords):
        return program.value(call).on_device
    return _move(program, call) is not None


def _move(program: Program, call: ast.Call) -> api.Move | None:
    method = program.parent(call)
    move = api.move(program, program.parent(method) or method) if isinstance(method, ast.Attribute) else None
    return move if move is not None and move.tensor is call else None


def _stands_in(program: Program, call: ast.Call) -> bool:
    """Is it what a function returns beside something else, one of two values, or what an object keeps?"""
    statement, function = program.statement_of(call), program.function_of(call)
    if isinstance(program.parent(statement), ast.If) or any(isinstance(e, ast.IfExp) for e in program.ancestors(call)):
        return True
    if isinstance(statement, ast.Return) and function is not None:
        return sum(isinstance(each, ast.Return) for each in api.own_nodes(function)) > 1
    return any(isinstance(each, ast.Attribute | ast.Subscript) for each in getattr(statement, "targets", ()))


def _kind(program: Program, data: ast.expr) -> str:
    """Is it a number, or a list of numbers that are written out?"""
    if isinstance(data, ast.List | ast.Tuple):
        return "list" if data.elts and all(_is_written(each) for each in data.elts) else ""
    return "scalar" if program.value(data).kind is Kind.NUMBER else ""


def _is_written(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple):
        return all(map(_is_written, node.elts))
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _fix(program: Program, call: ast.Call) -> Fix:
    """The same tensor, filled on the device; raises Blocked."""
    number, move, size = call.args[0], _move(program, call), api.expression("()")
    if isinstance(number, ast.List | ast.Tuple):
        if len({ast.dump(each) for each in number.elts}) > 1 or isinstance(number.elts[0], ast.List | ast.Tuple):
            raise Blocked("make it once, in front of the loop, or as a buffer of the module")
        size, number = api.expression(f"({len(number.elts)},)"), number.elts[0]
    if not _is_pythons(program, number):
        raise Blocked(f"`{program.segment(number)}` may be a number of numpy's, whose dtype would be lost")
    keywords = [(each.arg or "", each.value) for each in call.keywords]
    if len(call.args) > 1 or not {name for name, _ in keywords} <= _PLAIN:
        raise Blocked("`torch.full` doesn't take these arguments")
    if move is not None:
        if move.casts or move.like is not None or not move.is_certain or "requires_grad" in dict(keywords):
            raise Blocked("it isn't only moved to a device")
        keywords = [each for each in keywords if each[0] != "device"]
        keywords.append(("device", move.device or api.expression("'cuda'")))
    full = api.of_torch(program, "full", call)
    made = api.expression("{full}({size}, {number})", full=full, size=size, number=number)
    assert isinstance(made, ast.Call)
    made.keywords = [ast.keyword(name, value) for name, value in keywords]
    change = api.rewrite(program, api.Replace(move.call if move is not None else call, made))
    return Fix("fill it on the device: torch.full", Safety.EXACT, change)


def _is_pythons(program: Program, number: ast.expr) -> bool:
    """Is it surely one of Python's own numbers?"""
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

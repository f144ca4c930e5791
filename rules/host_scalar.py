"""A number is made a tensor on the host and copied to the device, in every step.

## What it does

Reports numbers that are made a tensor on the host and copied to the device, in every step, beside a model that a loop
runs, and in functions that collate. *scalar* is `torch.tensor(number, device=device)`, `x.new_tensor(number)`, and
`torch.tensor(number)` with `.to(device)` or `.cuda()`, in the same line or later. *list* is a list of one number,
`[number] * n`, `list(range(n))` or numbers that don't change, such as constants, also by `x.new` and
`torch.LongTensor`. Left alone are stand-ins for what is missing (`return torch.tensor(0.0)` beside another return, a
branch of a conditional expression, an assignment under an `if`, unless this asks for a setting), what an object keeps,
and tests.

## Why it is slow

`torch.tensor` fills memory on the host, copies it, and waits until it has arrived. `torch.full` hands the number to a
kernel, and goes on.

## Example

```python
loss = torch.tensor(0.0, device=device)
```

## Use instead

```python
loss = torch.zeros((), device=device)
```

## Fix safety

`exact`: `torch.full`, `torch.zeros`, `torch.ones` and `torch.arange` give the dtype that `torch.tensor` gives, for
Python's own numbers; `behaviour` where there may be none of them: of none, `torch.tensor` makes floats. There is no fix
where it isn't sure that the number is one of these: one of numpy's would keep its dtype. There is none where the number
may be too large for its dtype, either: `torch.tensor(1e39)` is infinite, and `torch.full` fails. A table of several
numbers has none: make it once, in front of the loop, or as a buffer of the module.

## Measured

One H100, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): 100 small training steps that make two constants each:
114 ms to 106 ms (1.09x; one program against itself: 0.91x to 1.17x). Bitwise the same results.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Numbers, Options, Program, Rule

_MAKERS = frozenset({"torch.tensor", "torch.as_tensor"})
_METHODS = frozenset({"new_tensor", "new"})
_TYPE = re.compile(r"torch\.[A-Z]?[a-z]*Tensor")  # of the host; of a list they make a tensor, of a number a size


class HostScalar(Rule):
    group = "sync"
    needs_gpu = True
    triggers = ("tensor(", "Tensor(", ".new(")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for call in () if program.is_test else program.of_type(ast.Call):
            found = _numbers(program, call)
            if found is None or not _is_moved(program, call) or not _is_hot(program, call) or _stands_in(program, call):
                continue
            fixes, blocked = api.tried(api.filled_on_device, program, call, found)
            message = "numbers are copied from the host to the device in every step, and the host waits"
            kind, by = "scalar" if found.is_scalar else "list", program.hot_by(call)
            yield self.finding(program.span(call), message, kind=kind, fixes=fixes, blocked=blocked, hot_by=by)


def _is_hot(program: Program, call: ast.Call) -> bool:
    """Does it run in every step, beside a model, or for each batch that a function collates?"""
    collates = "collate" in getattr(program.function_of(call), "name", "")
    if collates or api.runs_often(program, call) or api.runs_model_beside(program, call):
        return True
    if api.acts_beside(program, call) or api.is_part_of_step(program, call):
        return True
    return api.computes_for_callers(program, call)


def _numbers(program: Program, call: ast.Call) -> Numbers | None:
    name = program.qualified(call.func)
    method = getattr(call.func, "attr", "") if not name else ""
    if not call.args or not (method in _METHODS or name in _MAKERS or _TYPE.fullmatch(name)):
        return None
    found = api.numbers(program, call.args[0])
    is_size = method == "new" or _TYPE.fullmatch(name)
    return None if found is not None and found.is_scalar and is_size else found


def _is_moved(program: Program, call: ast.Call) -> bool:
    device = api.keyword_of(call, "device")
    if device is not None:
        origins = api.origins(program, device)
        return program.value(call).on_device and not all(getattr(each, "value", "") == "cpu" for each in origins)
    if getattr(call.func, "attr", "") in _METHODS:
        return program.value(call).on_device
    return api.moved_at_once(program, call) is not None or api.moved_later(program, call) is not None


def _is_alone(program: Program, call: ast.Call, statement: ast.stmt) -> bool:
    """Does it make what a variable surely holds wherever that is read?"""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return False
    moved = api.moved_later(program, call)
    own = {target, *getattr(program.statement_of(moved.call), "targets", ())} if moved is not None else {target}
    uses = api.flow(program).graph(target).uses.get(target, ())
    return bool(uses) and all(api.flow(program).definitions(use) <= own for use in uses)


def _stands_in(program: Program, call: ast.Call) -> bool:
    """Is it what a function returns beside something else, one of two values, or what an object keeps?"""
    statement, function = program.statement_of(call), program.function_of(call)
    guard = program.parent(statement)
    if any(isinstance(each, ast.IfExp) for each in program.ancestors(call)):
        return True
    is_behind = isinstance(guard, ast.If) and statement in guard.orelse and isinstance(guard.body[-1], ast.Break)
    if isinstance(guard, ast.If) and not is_behind and not api.asks_for_setting(program, guard.test):
        return not _is_alone(program, call, statement)
    if isinstance(statement, ast.Return) and function is not None:
        return sum(isinstance(each, ast.Return) for each in api.own_nodes(function)) > 1
    kept = getattr(statement, "value", None)
    while isinstance(kept, ast.Call) and kept is not call and isinstance(kept.func, ast.Attribute):
        kept = kept.func.value
    is_kept = any(isinstance(each, ast.Attribute | ast.Subscript) for each in getattr(statement, "targets", ()))
    return is_kept and kept is call

"""A tensor is made on the host and copied to the device at once, in every step.

## What it does

Reports tensors that torch makes on the host, and that are moved to the device at once, in every step, of samplers and
environments, too: *constant* is `torch.zeros`, `ones`, `full` and the like, *range* `arange` and `linspace`, *random*
`rand`, `randn` and `randint`. They are moved by `.to(device)`, `.to(x)`, `.cuda()`, `.type_as(x)`,
`.type(torch.cuda.FloatTensor)`, or a function that only moves its argument; views, casts and operations with numbers
may stand in between. A function that no code of its file calls counts where it puts such a tensor beside what it is
given. Left alone are tensors made of data, which are on the host anyway, buffers that are made once, pinned memory, and
empty tensors.

## Why it is slow

The host fills the tensor, copies it, and waits for that; with `device=` it launches one kernel and goes on.

## Example

```python
h0 = torch.zeros(self.layers, x.size(0), self.width).to(x.device)
```

## Use instead

```python
h0 = torch.zeros(self.layers, x.size(0), self.width, device=x.device)
```

## Fix safety

`exact` for constants and ranges of integers, `rounding` where an operation other than `+`, `-`, `*` or a comparison is
computed on the device then, `behaviour` for random numbers: the device draws others. Zeros, ones and identities get the
dtype that they are converted to. No fix for ranges of floats, leaves that get gradients, and `torch.Tensor(...)`.

## Measured

One H200, torch 2.11.0, 2026-11-22, bitwise the same results (`tests/gpu/measure.py`): 64 training steps of an LSTM that
makes states, positions and mask on the host, batch 128, width 512: 398 ms to 366 ms (1.06x), no gain beyond the noise
(against itself 0.51x to 1.73x); with batch 512 and width 1,024, 917 ms to 680 ms (1.33x; against itself 0.88 to 1.14).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Finding, Fix, Made, Move, Options, Program, Rule, Safety

_COUNTING = frozenset({"builtins.range", "builtins.enumerate"})
_INSTEAD = ("write `torch.empty`, or `torch.full`", "it draws where the tensors are of which the distribution is made")
_OTHER_NAMES = ("byte", "char")  # casts to types of other names: uint8, int8


class HostTensor(Rule):
    group = "memory"
    needs_gpu = True
    triggers = ("torch",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for call in program.of_type(ast.Call):
            found = api.moved_made(program, call)
            if found is None:
                continue
            move, made = found
            is_hot = api.runs_often(program, call) or _is_of_steps(program, call)
            if not is_hot and not api.computes_for_callers(program, call):
                continue
            fixes, blocked = api.tried(_fix, program, move, made)
            message = (
                f"`{program.segment(made.call.func)}` makes a tensor on the host, which each step copies to the device"
            )
            span, by = api.call_span(program, call), program.hot_by(call)
            yield self.finding(span, message, kind=made.kind, fixes=fixes, blocked=blocked, hot_by=by)


def _is_of_steps(program: Program, call: ast.Call) -> bool:
    """Does a loop step an environment, or count its steps, as a sampler's, and run a model beside it?"""
    if api.acts_beside(program, call) or api.is_part_of_step(program, call):
        return True
    loop = next((each for each in program.ancestors(call) if isinstance(each, api.LOOPS)), None)
    walked = ast.walk(loop.iter) if isinstance(loop, ast.For) else ()
    counts = any(program.qualified(each) in _COUNTING for each in walked if isinstance(each, ast.Name))
    return counts and api.runs_model_beside(program, call)


def _fix(program: Program, move: Move, made: Made) -> Fix:
    given = {each.arg: each.value for each in made.call.keywords}
    bounds = [*made.call.args, *(value for name, value in given.items() if name != "dtype")]
    names = [program.qualified(each) or str(getattr(each, "value", "")) for each in ast.walk(move.tensor)]
    counts = made.name == "arange" and all(api.is_integer(program, each) for each in bounds)
    obstacles = [
        (move.tensor in move.call.args, f"`{program.segment(move.call.func)}` moves it: make it on the device there"),
        (made.is_apart, f"it is made in line {made.call.lineno}: `device=` belongs there"),
        (not made.name, f"`{program.segment(made.call.func)}` takes no device: {_INSTEAD[made.kind == 'random']}"),
        (_is_leaf(move.tensor), "the tensor on the host is the leaf that gets the gradient"),
        (made.kind == "range" and not counts, "it isn't known to hold integers; of others, the last bits differ there"),
        (move.casts or any(each[-6:] == "Tensor" for each in names), "it is converted to another type on its way"),
        (not move.is_certain, f"`{program.segment(move.device or move.call)}` isn't known to be a device"),
        (move.like is not None and not api.path_of(move.like), "what it is converted to would be computed twice"),
    ]
    if reason := next((reason for stands_in_the_way, reason in obstacles if stands_in_the_way), ""):
        raise Blocked(reason)
    keywords = [("device", move.device or api.expression("'cuda'"))]
    tensor, can_cast = move.tensor, made.kind == "constant" and made.name != "full" and "dtype" not in given
    folds = can_cast and made.is_plain
    if move.like is not None:
        like = move.like.value if isinstance(move.like, ast.Attribute) and move.like.attr == "data" else move.like
        keywords = [("device", api.expression("{like}.device", like=like))]
        keywords += [("dtype", api.expression("{like}.dtype", like=like))] if folds else []
    elif can_cast and (dtype := _cast(made.call, tensor)):
        keywords.insert(0, ("dtype", api.of_torch(program, dtype, made.call)))
        tensor = made.call
    moved = [] if move.like is not None and not folds else [api.Replace(move.call, tensor)]
    title = "make it on the device: " + ", ".join(f"{name}={ast.unparse(value)}" for name, value in keywords)
    title += ", which draws other random numbers" if made.safety is Safety.BEHAVIOUR else ""
    return Fix(title, made.safety, api.rewrite(program, api.AddKeywords(made.call, tuple(keywords)), *moved))


def _is_leaf(tensor: ast.expr) -> bool:
    """Is a gradient asked for in it, by the factory or by what wraps or changes that?"""
    parts = list(ast.walk(tensor))
    told = [each.value for each in parts if isinstance(each, ast.keyword) and each.arg == "requires_grad"]
    is_told_later = any(getattr(each, "attr", "") == "requires_grad_" for each in parts)
    return is_told_later or any(getattr(each, "value", True) for each in told)


def _cast(made: ast.Call, tensor: ast.expr) -> str:
    """The type in `torch.zeros(n).long()`, where `tensor` is that; empty for other tensors."""
    method = tensor.func if isinstance(tensor, ast.Call) and not (tensor.args or tensor.keywords) else None
    if not isinstance(method, ast.Attribute) or method.value is not made or method.attr in _OTHER_NAMES:
        return ""
    is_cast = api.torch_does(method.attr, "cast") and not api.torch_does(method.attr, "to_device")
    return method.attr if is_cast else ""

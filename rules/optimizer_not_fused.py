"""An optimizer steps through its parameters in several passes where one kernel could take them all.

## What it does

Reports torch's own `Adam`, `AdamW` and `SGD` without `fused`, where the models whose parameters they are given were
moved to a device before, there, in methods of the class, or by callers; and in programs that speak of a device, where
nothing shows that the models are still on the host. Left alone are optimizers that are told how to compute (`foreach`,
`capturable`, `differentiable`), those of tensors that aren't a module's, programs with sparse gradients, and tests.

## Why it is slow

For each operation of a step, such as a moment and its root, the optimizer launches kernels that read and write all
parameters and states once more. Fused, each is read and written once, by a fraction of the kernels.

## Example

```python
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
```

## Use instead

```python
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
```

## Fix safety

`rounding`: the same mathematics, in another order. Where the device may be another one than CUDA, the keyword asks for
it, and is False there, which changes nothing on the CPU. It needs torch 2.0, and 2.3 for `SGD`. There is no fix where
it isn't known that the models were moved, or what else is given, and in files that speak of complex numbers, apex,
DeepSpeed, FSDP or Horovod. It is advice, as small models and those that compute much for each parameter gain little.

## Measured

One H100, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): 20 steps of `AdamW` over 256 small parameters: 533 ms to
477 ms (1.10x; one program against itself: 0.78x to 1.14x).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import (
    Blocked,
    Finding,
    Fix,
    Kind,
    Optimized,
    Options,
    Place,
    Placed,
    Program,
    Rule,
    Safety,
    Severity,
)

_CLASS = re.compile(r"torch\.optim\.(\w+\.)?(Adam|AdamW|SGD)")
_TOLD = frozenset({"fused", "foreach", "capturable", "differentiable", None})
_SPARSE = re.compile(r"sparse=True")
_OTHERS = re.compile(r"complex|cfloat|\bapex\b|deepspeed|FSDP|[Ff]ully_?[Ss]hard|ZeroRedundancy|horovod")


class OptimizerNotFused(Rule):
    group = "overhead"
    severity = Severity.ADVICE
    needs_gpu = True
    regimes = ("overhead", "host reads", "memory")
    setting = "fused-optimizer"
    triggers = ("Adam", "SGD")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        calls = [] if program.is_test or _SPARSE.search(program.text) else program.of_type(ast.Call)
        for call in (each for each in calls if _CLASS.fullmatch(program.qualified(each.func))):
            params = api.bind(call, ("params", "lr")).get("params")
            given = api.optimized(program, params) if params is not None else None
            if given is None or not _TOLD.isdisjoint(each.arg for each in call.keywords) or program.is_tried_out(call):
                continue
            placed = [api.placed(program, each, _point(program, each, call)) for each in given.modules]
            known = bool(placed) and all(each.place is Place.DEVICE for each in placed)
            if any(each.place is Place.HOST for each in placed) or not (known or program.may_use_device):
                continue
            fixes, blocked = api.tried(_fix, program, call, given, placed)
            message = (
                "the optimizer passes over all parameters once for each operation: `fused=True` makes that one pass"
            )
            yield self.finding(api.call_span(program, call), message, kind="device", fixes=fixes, blocked=blocked)


def _point(program: Program, model: ast.expr, call: ast.Call) -> ast.AST:
    """Where to ask for the place of a model: where the optimizer is built, or where another function has the model."""
    return call if program.function_of(model) is program.function_of(call) else model


def _fix(program: Program, call: ast.Call, given: Optimized, placed: list[Placed]) -> Fix:
    moves = [each.move for each in placed if each.move is not None]
    if not given.complete or len(moves) < len(placed):
        raise Blocked("it isn't known whether all parameters are on the device by now")
    if _OTHERS.search(program.text):
        raise Blocked("other libraries may compute the steps, or take the parameters apart")
    model, targets = given.modules[0], [api.bind(each, ("device",)).get("device") for each in moves]
    if len({ast.dump(each) if each is not None else "" for each in targets}) > 1:
        raise Blocked("the models may be on several devices")
    if not api.takes_keywords(call):
        raise Blocked("the arguments leave no room for a keyword")
    is_local, sure = program.function_of(moves[0]) is program.function_of(call), all(each.sure for each in placed)
    if not sure and len(placed) > 1:
        raise Blocked("it isn't known whether all models are on the device by now")
    if program.function_of(model) is not program.function_of(call) or not api.path_of(model):
        raise Blocked("the model has no name where the optimizer is built")
    target = targets[0]
    if sure and (target is None or program.value(target).is_literal):
        fused = api.expression("True")
    elif target is not None and sure and is_local and api.path_of(target) and program.value(target).kind is Kind.DEVICE:
        fused = api.expression("{device}.type == 'cuda'", device=target)
    elif (
        target is not None and sure and is_local and api.path_of(target) and _names(program, target) == {"cuda", "cpu"}
    ):
        fused = api.expression("{device} == 'cuda'", device=target)
    else:
        fused = api.expression("next({model}.parameters()).is_cuda", model=model)
    change = api.rewrite(program, api.AddKeywords(call, (("fused", fused),)))
    return Fix(f"add fused={ast.unparse(fused)}", Safety.ROUNDING, change)


def _names(program: Program, device: ast.expr) -> set[object]:
    """The strings that name the device; None is one of them if something else may."""
    return {getattr(each, "value", None) for each in api.origins(program, device)}

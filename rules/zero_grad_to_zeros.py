"""Gradients are filled with zeros before each step, where dropping them costs nothing.

## What it does

Reports `optimizer.zero_grad(set_to_none=False)`, and that of a module, at places that run in every step of training.
Left alone are files that look at gradients themselves, which would be None; files that capture CUDA graphs or shard
gradients, which need their memory to stay where it is; calls with no step of training in sight, and tests.

## Why it is slow

Zeros are written to all gradients, and the backward pass reads them again to add to them; gradients that are None are
given what the backward pass computes, as it is. All of their memory stays taken during the forward pass, too.

## Example

```python
optimizer.zero_grad(set_to_none=False)
loss.backward()
optimizer.step()
```

## Use instead

```python
optimizer.zero_grad()
loss.backward()
optimizer.step()
```

## Fix safety

`behaviour`: a parameter that a step gives no gradient is left as it is, where zeros let its momentum and weight decay
go on. It needs torch 2.0.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Finding, Fix, Options, Program, Rule, Safety

_STAYS = re.compile(
    r"CUDAGraph|cuda_?graph|cuda\.graph|make_graphed|reduce-overhead|fully_shard|FSDP|main_grad|deepspeed"
)


class ZeroGradToZeros(Rule):
    group = "overhead"
    triggers = ("zero_grad(",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for call in () if program.is_test or program.is_host_only else program.of_type(ast.Call):
            if getattr(call.func, "attr", "") != "zero_grad" or not _asks_for_zeros(program, call):
                continue
            if _STAYS.search(program.text) or _looks_at_gradients(program) or not api.steps_beside(program, call):
                continue
            fixes, blocked = api.tried(_fix, program, call)
            message = "all gradients are filled with zeros, to which the backward pass adds: None costs nothing"
            span, by = api.call_span(program, call), program.hot_by(call)
            yield self.finding(span, message, kind="zeros", fixes=fixes, blocked=blocked, hot_by=by)


def _asks_for_zeros(program: Program, call: ast.Call) -> bool:
    told = api.bind(call, ("set_to_none",)).get("set_to_none")
    return isinstance(told, ast.Constant) and told.value is False and program.callee(call) is None


def _looks_at_gradients(program: Program) -> bool:
    gradients = (each for each in program.of_type(ast.Attribute) if each.attr in ("grad", "_grad"))
    return any(not program.qualified(each) for each in gradients)


def _fix(program: Program, call: ast.Call) -> Fix:
    if len(call.args) + len(call.keywords) > 1:
        raise Blocked("it isn't known which other arguments the call gets", call)
    change = api.rewrite(program, api.Replace(call, api.expression("{func}()", func=call.func)))
    title = "let the gradients be None, if each step gives one to each parameter"
    return Fix(title, Safety.BEHAVIOUR, change)

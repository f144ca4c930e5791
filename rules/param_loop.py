"""A loop over the parameters updates them one by one, with kernels of their own for each.

## What it does

Reports loops over parameters, gradients or states that run in every step of training and only update them in place:
moving averages, also of a dictionary, target networks and scaled gradients (*update*), clamped ones (*clip*), copies
(*copy*), and norms or penalties that are added up or listed (*norm*). Functions named for averages or clipping are
taken to run in every step. Leaves alone tests, and loops that initialise, load, do anything else, or run now and then
(`if step % n == 0`).

## Why it is slow

Each operation on each of hundreds of parameters launches a kernel. `torch._foreach_mul_` and the like, which
`torch.optim` uses, too, take lists, and launch a few kernels for all.

## Example

```python
for param, target_param in zip(net.parameters(), target_net.parameters()):
    target_param.data.copy_(tau * param.data + (1 - tau) * target_param.data)
```

## Use instead

```python
torch._foreach_lerp_([t.data for t in target_net.parameters()], [p.data for p in net.parameters()], tau)
```

## Fix safety

`exact` where gradients of a model that the file gives to an optimizer are clamped to [-x, x]:
`torch.nn.utils.clip_grad_value_` clips them. All else is `behaviour`, a candidate for `--unsafe` and for `tune`,
because `torch._foreach_*` are functions that torch calls private, though its optimizers rest on them. A step towards
other tensors becomes `lerp`, whichever way it is spelled, which rounds otherwise; all else is computed in the order of
the loop, but for division by a number, which a single tensor of CUDA does by the reciprocal. There has to be memory
for a copy of all parameters, and what has to hold besides is named: that no memory is shared, that lists are as long
and of the same types (`zip` stops at the end of the shorter, where torch raises an error, as for an empty list), that a
factor is a number, that no error is caught half-way. There is no fix where a tensor may come twice, or is given new
memory. It needs torch 2.1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from perflint import api
from perflint.api import Blocked, Finding, Fix, Options, Program, Rule

_Loop = ast.For | ast.ListComp | ast.GeneratorExp
_STEPS = re.compile(  # behind the class, if there is one
    r"[._]ema($|_)|moving_average|momentum_update|soft_update|polyak|grad_norm|clip_grad|\.zero_grad$|(EMA|ema|Average)\.update"
)


class ParamLoop(Rule):
    group = "overhead"
    triggers = ("param", "state_dict", "grad")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        loops: Sequence[_Loop] = program.of_type(ast.For, ast.ListComp, ast.GeneratorExp)
        for loop in () if program.is_test or program.is_host_only else loops:
            kind = api.parameter_update(program, loop)
            if not kind or not _runs_each_step(program, loop, kind):
                continue
            fixes, blocked = api.tried(_fix, program, loop, kind)
            message = "each operation is launched once for each parameter: torch._foreach_* launches it once for all"
            span = api.head_span(program, loop) if isinstance(loop, ast.For) else program.span(loop)
            yield self.finding(span, message, kind=kind, fixes=fixes, blocked=blocked, hot_by=program.hot_by(loop))


def _runs_each_step(program: Program, loop: _Loop, kind: str) -> bool:
    """Does each step run it, or is its function named for that? Copies alone, but of gradients, may be a set-up."""
    walked = loop.iter if isinstance(loop, ast.For) else loop.generators[0].iter
    if kind == "copy" and re.search("grads|gradients", ast.unparse(walked)):
        return True
    is_hot, is_beside = api.runs_often(program, loop), api.steps_beside(program, loop)
    names = [getattr(each, "name", "") for each in (program.class_around(loop), program.function_of(loop))]
    return (is_hot and is_beside) if kind == "copy" else bool(is_hot or is_beside or _STEPS.search(".".join(names)))


def _fix(program: Program, loop: _Loop, kind: str) -> Fix:
    if kind == "norm" or not isinstance(loop, ast.For):
        raise Blocked("torch.nn.utils.get_total_norm, or what clip_grad_norm_ gives, is the norm of all of them")
    return api.on_lists(program, loop)

"""A script trains in float32 at full precision, where the device multiplies matrices faster in TF32 or bfloat16.

## What it does

Reports, once for each script that trains on the device, by itself or by what it imports, that it asks neither for TF32
nor for mixed precision. Left alone are scripts that name a number format in any way (autocast, half, double, bfloat16,
quantization), or train by what does, ask for deterministic results, leave training to a framework with settings of its
own, compute physics or anything else where each digit counts, or compute on the host, and tests.

## Why it is slow

Since torch 1.12 products of float32 matrices are computed without the tensor cores of Ampere and later devices, at a
fraction of the speed. TF32 rounds the factors to 10 bits of mantissa, and adds up in float32.

## Example

```python
import torch

for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
```

## Use instead

```python
import torch

torch.set_float32_matmul_precision("high")
```

## Fix safety

`precision`: the line rounds more coarsely, which most training doesn't notice; convolutions do so by default. Mixed
precision, `torch.autocast("cuda", torch.bfloat16)` around the forward pass, gains more, and is left to you. It is
advice: what it gains depends on how large the matrices are, and small networks wait for the host.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Finding, Fix, Options, Program, Rule, Safety, Says, Severity

_EXACT = re.compile(
    r"torch\.float64|(?<!\.detach\(\))\.double\b(?!\(\) */)"  # but a figure, or a count for a quotient
    r"|\bphysics|\bpinns?\b|odeint|gpytorch|botorch|\bpyro\b|hessian|cholesky|molecul|quantum",
    re.IGNORECASE,
)
_WORK = (*api.FUNCTIONS, ast.ClassDef, *api.LOOPS)  # which the settings of a script stand above


class PrecisionLeft(Rule):
    group = "compute"
    severity = Severity.ADVICE
    needs_gpu = True
    regimes = ("compute",)
    setting = "tf32"
    triggers = ("torch", "train")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        if program.is_test or not (_runs(program) and program.may_use_device):
            return
        is_of_torch = "torch" in program.text and ".step" in program.text  # rather than an attack on what is trained
        if Says.FORMATS in program.says or _EXACT.search(program.text):
            return
        for call in program.of_type(ast.Call):
            is_backward = is_of_torch and isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
            is_elsewhere = not is_backward and _trains(program, call)
            if not (is_backward or is_elsewhere) or program.is_tried_out(call):
                continue
            if is_elsewhere and program.is_said(Says.FORMATS):  # whatever it imports, it trains by some of that
                return
            by = program.hot_by(call)  # in another file, if that runs the steps
            is_own = api.runs_often(program, call) and not (by is not None and by.file)
            if is_elsewhere or is_own or api.loops_around(program, call):
                fixes, blocked = api.tried(_fix, program)
                message = "training multiplies float32 matrices without the device's tensor cores"
                yield self.finding(api.call_span(program, call), message, kind="float32", fixes=fixes, blocked=blocked)
                return


def _runs(program: Program) -> bool:
    """Is it a script: does it have a main guard, or loop, call functions of its own, or train, as it is imported?"""
    calls = [
        each.value for each in program.tree.body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
    ]
    own = api.own_nodes(program.tree)
    is_run = any(isinstance(each, api.LOOPS) or api.is_main_guard(each) or _trains(program, each) for each in own)
    return program.is_script and (is_run or any(program.callee(each) is not None for each in calls))


def _trains(program: Program, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(each.trains or each.repeats for each in program.summaries(node))


def _fix(program: Program) -> Fix:
    body = program.tree.body
    imports = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom)]
    if not imports:
        raise Blocked("torch isn't imported at the top")
    head = [*itertools.takewhile(lambda each: not isinstance(each, _WORK), body)]
    above = [each for each in imports if each in head]
    is_there = any(name.name == "torch" for each in above for name in each.names)
    last = above[-1] if is_there else imports[-1]
    function = api.of_torch(program, "set_float32_matmul_precision", last)
    asked = api.apart(api.statement("{function}('high')", function=function))
    return Fix("let it use TF32", Safety.PRECISION, api.rewrite(program, api.InsertAfter(last, (asked,))))

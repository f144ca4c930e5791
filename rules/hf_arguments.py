"""Training with Hugging Face's libraries uses slow defaults.

## What it does

Reports training arguments of transformers or sentence-transformers that say how to train, and leave out
`dataloader_num_workers` or a number format (`bf16`, `fp16`, `tf32`). Left alone are arguments given by `**` or by a
parser, training on the CPU, what stands in for arguments, and tests.

## Why it is slow

By default batches are prepared in the training process, matrices are multiplied in float32, and, before transformers 5,
each operation of the optimizer is a pass over all parameters.

## Example

```python
args = TrainingArguments("out", num_train_epochs=3)
```

## Use instead

```python
args = TrainingArguments("out", num_train_epochs=3, dataloader_num_workers=4, bf16=True, optim="adamw_torch_fused")
```

## Fix safety

`behaviour`: the fix adds `dataloader_num_workers=4`, whose workers draw other random numbers; there is none in a script
without a main guard. The others are yours: number formats change the precision and need an Ampere device.
`group_by_length=True` saves padding where texts differ much. It is advice: it depends on the data and the device.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Finding, Fix, Options, Program, Rule, Safety, Severity

_ARGUMENTS = re.compile(r"(transformers|sentence_transformers)\.([\w.]+\.)?\w*TrainingArguments")
_TRAINS = frozenset("num_train_epochs max_steps per_device_train_batch_size learning_rate train_batch_size".split())
_ON_HOST = frozenset({"no_cuda", "use_cpu"})
_FORMATS = frozenset({"bf16", "fp16", "tf32", "deepspeed", "half_precision_backend"})


class HfArguments(Rule):
    group = "data"
    severity = Severity.ADVICE
    triggers = ("TrainingArguments",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for call in () if program.is_test else program.of_type(ast.Call):
            if missing := _missing(program, call):
                fixes, blocked = api.tried(_fix, program, call, missing)
                message = f"training takes the defaults of {', '.join(missing)}"
                yield self.finding(
                    api.call_span(program, call), message, kind="arguments", fixes=fixes, blocked=blocked
                )


def _missing(program: Program, call: ast.Call) -> list[str]:
    given = {each.arg for each in call.keywords}
    if not _ARGUMENTS.fullmatch(program.qualified(call.func)) or None in given or given.isdisjoint(_TRAINS):
        return []
    if not given.isdisjoint(_ON_HOST):
        return []
    missing = [] if "dataloader_num_workers" in given else ["dataloader_num_workers"]
    missing += ["bf16 or tf32"] if given.isdisjoint(_FORMATS) else []
    return missing + (["optim"] if missing and "optim" not in given else [])


def _fix(program: Program, call: ast.Call, missing: list[str]) -> Fix:
    if "dataloader_num_workers" not in missing:
        raise Blocked("bf16=True and tf32=True change the precision, and need a device that has them")
    if program.is_script and not any(map(api.is_main_guard, program.tree.body)):
        raise Blocked("workers that are spawned would train, too: there is no main guard")
    change = api.rewrite(program, api.AddKeywords(call, (("dataloader_num_workers", api.number(4)),)))
    return Fix("add dataloader_num_workers=4 (workers may draw other random numbers)", Safety.BEHAVIOUR, change)

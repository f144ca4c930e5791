"""A model is trained on several devices by one process, which copies it to each of them in every step.

## What it does

Reports `torch.nn.DataParallel`, and `torch.nn.parallel.data_parallel`, in files that train, or that neither train nor
evaluate: another file trains what they make. Left alone are models that are given a single device, files that also
offer `DistributedDataParallel`, so that their users can choose, classes derived from it, and tests.

## Why it is slow

Each step copies the parameters from the first device to the others, scatters the batch and gathers the outputs on the
first; threads of one process, which share Python's interpreter lock, launch the work of all devices. With
`DistributedDataParallel` each device has a process of its own, and gradients are all that is sent, while the backward
pass still computes.

## Example

```python
model = torch.nn.DataParallel(model).cuda()
```

## Use instead

```python
torch.distributed.init_process_group("nccl")  # started by torchrun, once for each device
rank = int(os.environ["LOCAL_RANK"])
model = torch.nn.parallel.DistributedDataParallel(model.to(rank), device_ids=[rank])
loader = DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset))
```

## Fix safety

There is no fix: processes have to be started, data divided and losses averaged, and a batch is that of one device. It
is advice, as a run on one device loses nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Options, Program, Rule, Severity

_WRAPPERS = re.compile(r"torch\.nn\.(parallel\.(data_parallel\.)?)?(DataParallel|data_parallel)")
_TRAINS = re.compile(r"backward\(|\.zero_grad\(|optimizer\.step\(|\.train\(")
_EVALUATES = re.compile(r"\.eval\(\)(?!\))|no_grad|inference_mode")  # not of a part that is given on
_OTHERS = re.compile(r"DistributedDataParallel|\bDDP\b|\bAccelerator\(|FullyShardedDataParallel")


class DataParallel(Rule):
    group = "compute"
    severity = Severity.ADVICE
    needs_gpu = True
    triggers = ("DataParallel", "data_parallel")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        text = program.text
        trains = _TRAINS.search(text) or not _EVALUATES.search(text)  # another file may train what it makes
        is_left_alone = program.is_test or not trains or _OTHERS.search(text)
        for call in () if is_left_alone else program.of_type(ast.Call):
            if not _WRAPPERS.fullmatch(program.qualified(call.func)):
                continue
            devices = api.bind(call, ("module", "device_ids")).get("device_ids")
            if program.qualified(call.func).endswith("data_parallel"):
                devices = api.bind(call, ("module", "inputs", "device_ids")).get("device_ids")
            if isinstance(devices, ast.List | ast.Tuple) and len(devices.elts) < 2:
                continue
            message = (
                "DataParallel copies the model to all devices in each step: DistributedDataParallel keeps it there"
            )
            blocked = "processes have to be started, and data divided among them"
            yield self.finding(api.call_span(program, call), message, kind="wrapper", blocked=blocked)

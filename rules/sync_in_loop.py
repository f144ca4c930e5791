"""The host reads a device tensor in a hot loop, explicitly or implicitly, and waits for it in every step.

## What it does

Reports, in code that runs in every step or time step, reads of device tensors other than by `.item()`: the copies
`.cpu()`, `.to("cpu")`, `.tolist()`, `.type(torch.FloatTensor)`; the conversions `float(t)`, `int(t)`, `bool(t)`; the
truth of a tensor in `if`, `while`, `assert`, `and`, `not` and comprehensions; printing and formatting; `add_scalar` of
a writer; `math` functions; Python's `max`, `min` and `sorted`, which compare; sizes that depend on values (`nonzero`,
`torch.where(t)`, `masked_select`, reading with a boolean mask, `unique`); indices and sizes (slices, `range`, Python's
lists, `torch.zeros` and `view` with a tensor); and tensors made of device scalars. The implicit ones are reported only
where the value is certainly a tensor on the device. `x[mask] = 0.0`, masks that are integer indices,
`torch.where(t.any(), ...)`, lengths for `pack_padded_sequence`, copies with `non_blocking=True`, actions for an
environment, and reads that happen now and then are left alone. So are branches that only an export takes (`if
self.onnx_trace`). Python's `sum`, and walking over a tensor's rows, launch work but read nothing.

## Why it is slow

The host runs ahead of the device and keeps its queue filled. To know a value it waits until everything queued has been
computed; then the device idles until the host has launched work again. A whole tensor takes the time of its copy on
top, into memory that is not pinned.

## Example

```python
for images, labels in loader:
    output = model(images.to(device))
    total += float(criterion(output, labels.to(device)))
    if torch.isnan(output).any():
        break
```

## Use instead

```python
for images, labels in loader:
    output = model(images.to(device))
    total += criterion(output, labels.to(device)).detach().double()
total = float(total)
```

Test for end or overflow every few steps, or choose with `torch.where`; multiply by a mask rather than select by it;
keep lengths and sizes on the host from the start; collect predictions on the device where its memory allows.

## Fix safety

The same fix as for `.item()` where a `float(t)` or `int(t)` is only added up or collected, or converts the numbers of
one tensor one by one: `exact`, or `rounding` and `behaviour` as `item-in-loop` tells. What is only printed, logged, or
shown by a progress bar or a summary writer, as `f"{loss:.4f}"`, `float(loss)` or `loss.detach().cpu().numpy()`, is
reported when it has arrived: `exact`, and a candidate that waits for `--unsafe`, under the conditions there; a tensor
that is shown without the format of a number tells its device, and has no fix. What is asserted alone, with no message
but a plain text, is tested by the device, in `behaviour`: where it fails, the process can't go on with the GPU, and no
AssertionError is raised. What else is read for control flow, for its size, or as a whole tensor has no fix; the finding
says what to do instead.

## Measured

One H200, torch 2.11.0, 2026-11-21 (`tests/gpu/measure_graphs.py`): greedy decoding of 128 steps with a test for the end
of the sequence at every step took 20.4 ms at batch size 1 and 23.5 ms at 100; without the test, 16.0 ms and 19.7 ms.
"""

from __future__ import annotations

from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Options, Program, Rule

_MESSAGES = {
    "mask": "reading with a boolean mask makes the host wait for its size in every iteration",
    "if": "the truth of a device tensor makes the host wait in every iteration",
    "print": "formatting a device tensor makes the host wait in every iteration",
    "writer": "a writer of scalars makes the host wait for the tensor in every iteration",
    "index": "a device tensor as index or size makes the host wait in every iteration",
    "list": "making a tensor of device scalars makes the host wait for each of them, in every iteration",
    "cpu": "a copy to the host makes it wait for the device in every iteration",
    "type": "a type of the host's copies the tensor there, and makes the host wait for the device in every iteration",
}


class SyncInLoop(Rule):
    group = "sync"
    needs_gpu = True
    triggers = ("torch", "cpu()", "numpy()", "tolist()")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for sync, repeats, fixes, blocked in api.host_reads(program):
            if sync.kind != "item":
                message = _MESSAGES.get(
                    sync.kind, f"`{sync.kind}()` makes the host wait for the device in every iteration"
                )
                span, by = (sync.start, sync.end), program.hot_by(sync.node)
                yield self.finding(span, message, kind=sync.kind, fixes=fixes, blocked=blocked, hot_by=by)
            yield from (self.part((each.start, each.end), each.kind) for each in repeats if each.kind != "item")

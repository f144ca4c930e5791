"""`.item()` in a hot loop makes the host wait for the device in every step.

## What it does

Reports `.item()` on a device tensor where it runs in every step of training or evaluation, or in every time step: in
the loop itself, or in a function that it calls. Left alone are reads that are rare (below `if step % n == 0`,
`if should_log`, at the last step, once an epoch or rollout), values that are on the host anyway, programs that run on
the CPU alone, branches that only an export takes (`if self.onnx_trace`), full-batch training, actions that an
environment's `step` needs, and the second read of a value in one iteration.

## Why it is slow

The host runs ahead of the device and keeps its queue filled. For `.item()` it stops until everything queued has been
computed; then the device idles until the host has launched work again. That costs next to nothing where launching is
what takes the time, and much where the device is the faster one or the reads are many.

## Example

```python
total = 0.0
for images, labels in loader:
    loss = criterion(model(images.to(device)), labels.to(device))
    total += loss.item()
```

## Use instead

```python
total = 0.0
for images, labels in loader:
    loss = criterion(model(images.to(device)), labels.to(device))
    total += loss.detach().double()
total = float(total)
```

The numbers of one tensor are copied at once:

```python
ids_list = ids.tolist()  # and not ids[i].item() for each i
for i in range(len(ids_list)):
    text += words[ids_list[i]]
```

What is only printed or logged needs no wait, either (`later` is of `perflint.runtime.reports`):

```python
    later(print, "loss", loss.item)
    later(lambda step, loss: print(f"{step}: {loss:.4f}"), step, loss.item)
```

Values that control flow or host arithmetic need in every iteration have no such form: report every few steps, pass the
detached tensor to meters, choose with `torch.where`.

## Fix safety

A sum is kept on the device and read once after the loop, by its only reader or where the variable becomes the Python
number that it was, also after zero iterations. Floats are added in 64 bits, as Python does: `exact`. It is `rounding`
if the value is divided before it is added, and unless the program itself names its devices as CUDA's or the host:
Apple's have no 64-bit floats, so that floats are added as they are then, or in 32 bits where the program speaks of
number formats. It is `behaviour` if an integer would become a float, if a sum that begins as the integer 0 is shown or
handed on as it is (without an iteration it would be 0.0), if the value's shape may change from iteration to iteration,
which takes a `.reshape(())`, and where a sum of integers that aren't counts might pass 2**63.

Numbers of one tensor that a loop over a range reads one by one, `ids[i].item()`, are copied in front of it, `exact`, no
more of them than a loop counts to from 0; `.flatten()` stands where the tensor may have more axes. It is `behaviour` if
the tensor might be a list of tensors. The loop may neither write to the tensor, by any name, nor bind it anew.

What is appended to an empty list, or written to the slots of a host's tensor in order, is kept, cloned where others may
write to it, and read at once after the loop: `exact`; the values stay in the device's memory until then. Reads below a
periodic guard are converted there.

There is no fix if the host waits for something else right beside it, several times more in an iteration, or in an inner
loop; if the variable escapes before the loop ends, as an attribute may; if a meter keeps it; if another read of the
value remains; or if the value may be complex in a file that computes with such. It is assumed that what has `.item()`
and was computed from device tensors is a tensor, and that all additions to one variable come from one device.

What goes to `print`, `sys.stdout.write`, `logging`, a bar of tqdm or a scalar of a summary writer, and nowhere else, is
handed to `perflint.runtime.reports.later`: `exact`, and a candidate that waits for `--unsafe`, because the program then
depends on perflint-torch. It is given the same function with the same values, and for a text a lambda that fills it:
tensors are copied to the host without waiting, and it runs when they have arrived, in order, at most 32 reports behind.
Numbers, strings and what is read of other objects are those of the call. All outstanding reports are made
before anything else is written to the same stream, log, bar or writer, before another program starts, before an
exception ends the program, and at exit; what can't be copied, or watched for other output, is reported at once. Other
statements that print in every iteration are deferred with it. A clock that the loop reads no longer waits for the
device: a step seems as long as its launch; a bar shows the loss of a step a little behind its count. There is no fix
where the call's result is used, where what it raises is caught in the function, where the value is computed with
otherwise, where a tensor is shown that tells its device or its graph, where the loop flushes a stream in every
iteration, and where the file calls `os._exit` or `os.kill`, or compiles with torch.jit. It assumes that nothing writes
to a file descriptor behind Python's back, and that nobody waits for threads which print.

## Measured

One H200, torch 2.11.0, 2026-11-21, before and after `perflint fix`, bitwise the same results (medians of 21 interleaved
pairs; `tests/gpu/measure.py`): 64 small training steps that read the loss, the accuracy and each of 18 gradient norms,
151.5 ms to 137.0 ms (1.10x); 100 evaluation batches that read the loss and the hits, 15.0 ms to 15.3 ms (0.98x, within
the noise). Where launching kernels takes longer than running them, a wait costs little.
One by one: 16,384 numbers of 8 tensors, one H200, 2026-11-28: 212.5 ms to 2.06 ms (113x; 85x to 154x in 11 pairs).
Deferred: PyTorch-GAN's dcgan, its loader fixed, takes 1.020 times (1.014 to 1.025; 595 pairs of ten steps by turns, one
H200, 2026-11-29) as long a step with its prints as with none. Where launches take the time, nothing is gained.
"""

from __future__ import annotations

from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Options, Program, Rule

_MESSAGE = "`.item()` makes the host wait for the device in every iteration"


class ItemInLoop(Rule):
    group = "sync"
    needs_gpu = True
    triggers = (".item", "item()")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for sync, repeats, fixes, blocked in api.host_reads(program):
            if sync.kind == "item":
                span, by = (sync.start, sync.end), program.hot_by(sync.node)
                yield self.finding(span, _MESSAGE, kind=sync.kind, fixes=fixes, blocked=blocked, hot_by=by)
            yield from (self.part((each.start, each.end), each.kind) for each in repeats if each.kind == "item")

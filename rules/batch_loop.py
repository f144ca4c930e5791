"""A Python loop does for each sample of a batch what one operation does for all of them.

## What it does

Reports loops over the first axis of a tensor, at places that run in every step, that do the same to each sample: take
`x[i]`, `x[i:i + 1]` or walk `zip(x, y)`, compute, and add up, append, or write to `out[i]`; and `torch.stack([f(x[i])
for i in range(len(x))])`. *mask*: the loop only fills each row with a constant, from or up to its length. Left alone
are loops whose samples differ otherwise in size or course (`x[i, :lengths[i]]`, a nested loop, an `if` that does more
than choose what is written), that hand something from one sample to the next, or walk lists of tensors or texts; masks
that are made on the host; loops over time, which `decode-loop` reports; and tests.

## Why it is slow

Each operation launches its kernels once for each sample, for which the device needs hardly less time than for the
batch, and the host as much as for the batch.

## Example

```python
for b in range(out.size(0)):
    loss += criterion(out[b : b + 1], target[b : b + 1])
```

## Use instead

```python
loss = criterion(out, target) * out.size(0)  # where the criterion is a mean over the samples
```

## Fix safety

There is no fix. Most operations take the batch as it is, with the other axes counted from the end; `torch.vmap` makes a
function of one sample one of the batch. It is advice: what normalizes over the batch computes something else then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Options, Program, Rule, Severity

_MESSAGES = {
    "batch": (
        "each iteration launches kernels for one sample of `{}`: one launch could do all",
        "let its operations take the whole batch, or torch.vmap do it",
    ),
    "mask": (
        "each iteration fills a part of one row of `{}`: one comparison could do all",
        "compare positions with lengths: `torch.arange(size)[None, :] >= lengths[:, None]`",
    ),
}


class BatchLoop(Rule):
    group = "overhead"
    severity = Severity.ADVICE
    triggers = ("range(", "zip(", "enumerate(")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        loops: list[ast.For | ast.ListComp] = [] if program.is_test else [*program.of_type(ast.For)]
        loops += [] if program.is_test or "stack" not in program.text else program.of_type(ast.ListComp)
        for loop in loops:
            mask = api.filled_mask(program, loop) if isinstance(loop, ast.For) else None
            batch = mask if mask is not None else api.walked_batch(program, loop)
            if batch is None or not api.runs_often(program, loop):
                continue
            kind = "batch" if mask is None else "mask"
            message, blocked = _MESSAGES[kind]
            span = api.head_span(program, loop) if isinstance(loop, ast.For) else program.span(loop)
            yield self.finding(span, message.format(ast.unparse(batch)), kind=kind, blocked=blocked)

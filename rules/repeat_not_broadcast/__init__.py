"""A tensor is copied several times although its readers would broadcast it, or accept a view.

## What it does

Reports tensors that are copied several times (`x.repeat(...)`, `repeat_interleave`, `torch.cat([x] * n)`,
`torch.stack([x] * n)`, and `expand(...)` or `expand_as(...)` made real by `.contiguous()`, `.clone()`, `.to(...)`,
`.cuda()` or a cast) and follows them to everything that reads them: through names, branches and views, and
into the functions of the file and back to their callers. There are two kinds:

- *broadcast*: every reader is an elementwise operation with another tensor, which would repeat the small one by
  itself;
- *expand*: every reader (concatenation, indexing, `gather`, `bmm`, elementwise operations) takes a view that repeats
  by a stride of 0; a copy that is only repeated again is one of them.

An axis counts as repeated by a view only where its size is proved to be 1, or where it is new. Left alone are a real
tiling or interleaving, and tensors that are written to, reshaped by `.view()` or `.reshape()`, fed to a convolution, a
recurrent, linear or embedding layer (which would copy the view again), kept in an attribute or a list, returned to code
in other files, or passed to anything unknown; one-time setup; tests; arrays, lists and strings; einops. What is
expanded in one statement and moved or cast in another is reported where it is expanded.

It assumes that a count of 1 in `repeat` stands for an axis that exists (see below for the fix), that no count is
negative, which `repeat` refuses and `expand` takes for the axis's own size (unless the function handles that error:
then it is not fixed), and that nothing but the function in sight writes to the source while the copy is in use. A
function which no code in the file calls is taken to be called often, unless it sets something up.

## Why it is slow

The copy is n times the tensor: memory that is allocated, written and read again, and in training its gradient is as
large. A broadcast or a view costs nothing, and the small tensor stays in the cache.

## Example

```python
scores.masked_fill_(mask.unsqueeze(1).repeat(1, heads, 1, 1), -1e9)

context = context.unsqueeze(1).repeat(1, steps, 1)
return torch.cat([context, states], dim=2)
```

## Use instead

```python
scores.masked_fill_(mask.unsqueeze(1), -1e9)

context = context.unsqueeze(1).expand(-1, steps, -1)
return torch.cat([context, states], dim=2)
```

## Fix safety

`exact`: `repeat` becomes `expand`, a view of the same shape and values. Results and gradients are bitwise the same. It
is assumed that no hook of another file writes to the tensor; attributes in a file that registers hooks are left alone.

`rounding` where a sum may be taken in another order: matrix products and reductions over a view, and the gradient of a
tensor that gets a new axis and is repeated along a second one.

`behaviour` where `x.repeat(1, n, 1)` needs more axes than the file shows `x` to have: with fewer, the copy is of
another shape and `expand(-1, n, -1)` raises. What counts is what made the tensor, and what is done to it
(`x.size(2)`, `x.sum(dim=1)`, `x[:, 0]`).

Not fixed where the copy is written in another way than by `repeat`; where unknown code may write to the tensor while
the copy is in use; where other files may get hold of the returned copy; where it is moved or cast before it is read
(then that belongs before the repeating); where the axis is one element of a slice, `x[:1]`, which may find none; and
next to a tensor that is transposed, or may be where code of the file asks for the layout of the result (`.view()`,
`.stride()`, `.is_contiguous()`, `.numpy()`) or returns it to other files of the run: there the view would give it
another layout. Where only code outside of the run can ask for the layout, `exact` speaks of the values alone.

Two parameters are taken to be different tensors where all callers are in sight and give different ones. Where others
may call, a copy of one parameter stays if the function writes to another one before it reads the copy.

## Measured

One H200, torch 2.11.0, 2026-11-21, before and after `perflint fix` (medians of 21 interleaved pairs;
`tests/gpu/measure.py`): a tensor of (256, 1024) repeated to (256, 512, 1024), added and put through tanh, forward and
backward, 1.89 ms to 1.61 ms (1.18x); the peak of memory falls from 4186 to 3675 MB. Bitwise equality of results and
gradients was checked there and on a CPU, for 36 combinations of sizes a form; of `bmm` over rows repeated by a view, 2
of the 36 differed in the last bits, hence `rounding`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Options, Program, Rule

from .copies import Copy, is_one_time, is_worth_it, kind_of, recognise, shown_writes
from .patch import patch, proved


class RepeatNotBroadcast(Rule):
    group = "memory"
    triggers = (".repeat", "repeat_interleave", ".expand", ".cat(", ".stack(", "concat")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        shapes, reported = api.shapes(program), set()
        for call in () if program.is_test else program.of_type(ast.Call):
            copy = recognise(program, call)
            if copy is None or is_one_time(program, call):
                continue
            read = api.reading(program, call)
            if read is None or not read.consumers:
                continue
            repeated = proved(program, shapes, copy, read)
            if repeated is None or not is_worth_it(program, shapes, copy, read):
                continue
            writes = shown_writes(program, copy, read)
            if any(write.is_in_sight for write in writes):
                continue
            kind = kind_of(program, read)
            fixes, blocked = api.tried(patch, program, shapes, copy, read, repeated, writes)
            span = api.call_span(program, _reported(program, copy))
            if span in reported:  # several casts of one expansion
                continue
            reported.add(span)
            said, by = _MESSAGES[kind], program.hot_by(call)
            yield self.finding(span, said, kind=kind, fixes=fixes, blocked=blocked, hot_by=by)


_MESSAGES = {
    "broadcast": "this copies a tensor for operations that broadcast anyway",
    "expand": "this copies a tensor although everything that reads the copy accepts a view: `expand` makes one",
}


def _reported(program: Program, copy: Copy) -> ast.Call:
    if program.statement_of(copy.source) is program.statement_of(copy.call):
        return copy.call
    assert isinstance(copy.source, ast.Call)
    return copy.source

"""Attention is computed step by step, where one kernel could do all of it.

## What it does

Reports products of queries and keys whose softmax over the keys weighs values, where nothing else reads the weights:
*attention*. Scales, masks, biases, casts and dropout in between are followed, also through branches. Left alone are
weights that are returned, kept or changed, scores that somebody else reads, learned queries or keys that are an
attribute of the module, files that call a fused kernel (`scaled_dot_product_attention`, flash-attn, xFormers) besides,
functions named as a reference, and tests.

## Why it is slow

The scores of all queries and keys are a tensor that each step writes and reads again, and that is kept for the backward
pass along with the weights and the dropout mask. The fused kernels compute it in parts that stay in the memory
on the chip.

## Example

```python
scores = (q @ k.transpose(-2, -1)) * self.scale
weights = self.dropout(scores.softmax(dim=-1))
x = weights @ v
```

## Use instead

```python
x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout.p if self.training else 0.0, scale=self.scale)
```

## Fix safety

`rounding`: the same mathematics in another order; `behaviour` with dropout, which draws other random numbers, where the
queries may be a single vector, which the kernels don't take, and where the softmax is a module, which nobody calls any
longer. There is a fix where the scale is surely a number, the softmax is taken in the scores' own dtype, dropout is
torch's own, and there is no mask, or a triangular one out of a buffer, for surely as many queries as keys; none where
the file, or one that imports it, hooks, replaces or changes any of these. Other masks have none: a row that is masked
wholly would differ. It is assumed that infinite queries don't make all scores of a row infinite, for which softmax
gives NaN and the kernels zeros, and that nobody counts on the error for sequences longer than the triangle. `scale`
needs torch 2.1. The kernels can't be differentiated twice: there is no fix in files that do that, or are imported by
some. The keyword for causal attention is `is_causal`; in a boolean `attn_mask`, True means keep.

It is a warning where there is a fix, for the scores are always written, read and kept; it is advice where masks, biases
or casts stand in between, as what the kernels gain then depends on these.

## Measured

One H100, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): 10 training steps of 6 blocks, 8 sequences of 1,024 and 6
heads: under bf16 autocast 254 ms to 210 ms (1.19x) and 3,037 MB to 979 MB at the peak; causal, in float32, 442 ms to
330 ms (1.33x), 3,010 MB to 1,478 MB. The program against itself ranged from 0.72 to 1.56 on that host: the memory is
sure, the time is not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from perflint import api
from perflint.api import Finding, Options, Program, Rule, Severity

_FUSED = re.compile(r"scaled_dot_product|sdpa|flash_?att|xformers|memory_efficient|flex_attention")  # in lower case
_REFERENCE = re.compile(r"(^|_)(ref|reference|naive|slow|manual|vanilla|eager)(_|$)", re.IGNORECASE)

_NAMING: Mapping[type[ast.AST], str] = {  # where code names something, besides variables and attributes
    ast.alias: "name",
    ast.ImportFrom: "module",
    ast.Constant: "value",
    ast.FunctionDef: "name",
    ast.ClassDef: "name",
    ast.arg: "arg",
    ast.keyword: "arg",
}


class AttentionByHand(Rule):
    group = "compute"
    triggers = ("softmax", "Softmax")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for found in () if program.is_test or _is_fused_besides(program) else api.attentions(program):
            if any(_REFERENCE.search(getattr(each, "name", "")) for each in program.ancestors(found.softmax)):
                continue
            fixes, blocked = api.tried(api.fused_attention, program, found)
            message = "the scores of all queries and keys are written to memory: a fused kernel doesn't need that"
            span = api.call_span(program, found.softmax)
            severity = Severity.WARNING if fixes else Severity.ADVICE
            yield self.finding(span, message, kind="attention", fixes=fixes, blocked=blocked, severity=severity)


def _is_fused_besides(program: Program) -> bool:
    """Does the file's code name a fused kernel, rather than a comment or a docstring?"""
    if not _FUSED.search(program.text.lower()):
        return False
    others = ((getattr(node, part), [node]) for kind, part in _NAMING.items() for node in program.of_type(kind))
    words = (*program.names.items(), *program.attributes.items(), *others)
    fused = (node for word, nodes in words if isinstance(word, str) and _names_fused(word) for node in nodes)
    return not all(isinstance(program.parent(node), ast.Expr) for node in fused)


@lru_cache(maxsize=4096)
def _names_fused(word: str) -> bool:
    return _FUSED.search(word.lower()) is not None

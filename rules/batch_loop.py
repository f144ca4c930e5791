"""A Python loop does for each sample of a batch what one operation does for all of them.

## What it does

Reports loops over the first axis of a tensor, at places that run in every step, that do the same to each sample: take
`x[i]` or `x[i:i + 1]`, compute, and add up, append, or write to `out[i]`. Left alone are loops whose samples differ in
size or course (`x[i, :lengths[i]]`, masks, an `if`, a nested loop), that hand something from one sample to the next, or
walk lists of tensors or texts; loops over time, which `decode-loop` reports; and tests.

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
import itertools
from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Kind, LoopKind, Options, Program, Rule, Severity

_DIFFERING = frozenset("tolist split nms checkpoint enumerate zip isinstance".split())
_BRANCHING = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try, ast.Break, ast.Continue, ast.Return, ast.Yield)


class BatchLoop(Rule):
    """Each such loop, at its header."""

    group = "overhead"
    severity = Severity.ADVICE
    triggers = ("range(",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield the loops that do the same to each sample."""
        for loop in () if program.is_test else program.of_type(ast.For):
            samples = _samples(program, loop)
            if samples and _is_uniform(program, loop) and api.runs_often(program, loop):
                message = f"each iteration launches for one sample of `{samples}` what would do for all of them"
                blocked = "let its operations take the whole batch, or torch.vmap do it"
                yield self.finding(api.head_span(program, loop), message, kind="batch", blocked=blocked)


def _samples(program: Program, loop: ast.For) -> str:
    """The tensor over whose first axis the loop goes; empty for other loops."""
    is_range = isinstance(loop.iter, ast.Call) and program.qualified(loop.iter.func) == "builtins.range"
    if not (isinstance(loop.iter, ast.Call) and is_range and len(loop.iter.args) == 1):
        return ""
    if not isinstance(loop.target, ast.Name) or program.loop_kind(loop) in (LoopKind.TIME, LoopKind.STEP):
        return ""
    (count,) = loop.iter.args
    is_other = isinstance(count, ast.Call) and not isinstance(
        count.func, ast.Attribute
    )  # `len(x)`, or what is computed
    size = "" if is_other else api.shapes(program).size(count)
    for part in (each for each in ast.walk(loop) if isinstance(each, ast.Subscript)):
        is_taken = _is_index(_first(part), loop.target.id)
        if is_taken and (size.endswith(".0") or (size and api.shapes(program).shape(part.value).size(0) == size)):
            return ast.unparse(part.value) if program.value(part.value).kind is Kind.TENSOR else ""
    return ""


def _first(part: ast.Subscript) -> ast.expr:
    """The index into the first axis."""
    return part.slice.elts[0] if isinstance(part.slice, ast.Tuple) and part.slice.elts else part.slice


def _is_index(node: ast.expr | None, name: str) -> bool:
    """Is it the variable `name`, or the slice of one that begins there?"""
    if isinstance(node, ast.Slice):
        return node.lower is not None and ast.unparse(node).replace(" ", "") == f"{name}:{name}+1"
    return isinstance(node, ast.Name) and node.id == name


def _is_uniform(program: Program, loop: ast.For) -> bool:
    """Is the same computed for each sample, whatever it holds, and does torch compute something?"""
    name = getattr(loop.target, "id", "")
    own = api.dependents(loop, {name})
    nodes = [each for statement in loop.body for each in ast.walk(statement)]
    if any(isinstance(each, (*_BRANCHING, ast.JoinedStr, ast.Lambda)) for each in nodes):
        return False
    for each in nodes:
        if isinstance(each, ast.Subscript) and not _is_same_part(program, each, name, own):
            return False
        if isinstance(each, ast.Call):
            body = ast.walk(program.callee(each) or each.func)
            called = api.path_of(each.func).rpartition(".")[2]
            if (
                called in _DIFFERING
                or api.torch_does(called, "counting")
                or any(isinstance(n, _BRANCHING[:4]) for n in body)
            ):
                return False
        if isinstance(each, ast.Name) and each.id == name and not _is_in_index(program, each):
            return False
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and _is_carried(program, each, loop):
            return False
    return any(program.value(each).kind is Kind.TENSOR for each in nodes if isinstance(each, ast.Call | ast.BinOp))


def _is_same_part(program: Program, part: ast.Subscript, name: str, own: frozenset[str]) -> bool:
    """Is it one sample, or a part of it of a size and place that all samples have?"""
    first = _first(part)
    rest = part.slice.elts[1:] if isinstance(part.slice, ast.Tuple) else []
    if any(api.reads(each, own) for each in rest) or isinstance(getattr(first, "value", 0), str):
        return False
    if _is_index(first, name):
        return program.value(part.value).kind in (Kind.TENSOR, Kind.UNKNOWN)
    return not api.reads(first, own) or (isinstance(first, ast.Name) and program.value(first).kind is Kind.NUMBER)


def _is_in_index(program: Program, name: ast.Name) -> bool:
    """Does the variable of the loop stand in an index?"""
    outer = [name, *itertools.takewhile(lambda each: not isinstance(each, ast.stmt), program.ancestors(name))]
    return any(isinstance(each, ast.Subscript) and each.slice is inner for inner, each in itertools.pairwise(outer))


def _is_carried(program: Program, name: ast.Name, loop: ast.For) -> bool:
    """Does it read what the sample before has left, other than to add to it?"""
    graph, statement = api.flow(program).graph(name), program.statement_of(name)
    if graph.value(name) not in graph.carried(loop):
        return False
    adds = isinstance(statement, ast.Assign) and isinstance(getattr(statement.value, "op", None), ast.Add)
    return not (adds and api.path_of(getattr(statement, "targets", [name])[0]) == name.id)

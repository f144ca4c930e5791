"""A tensor grows by concatenation in a loop, which copies all of it in every iteration.

## What it does

Reports `out = torch.cat([out, part])`, and the like with `hstack`, `vstack`, `dstack` and `column_stack`, where each
iteration of a loop reads back what the one before has put together; also of slots, `kept[key]`, which an inner loop
over the keys writes. *collected*: nothing else in the loop reads it.
*fed-back* is advice: a loop that generates step by step, or acts in an environment, hands what it has so far to the
model; in other loops such growth is what the computation is (dense blocks), and is left alone. So is what each
iteration makes anew, a list that is joined after the loop, what grows once an epoch, loops over the layers or branches
of a model, loops of a few iterations, and tests.

## Why it is slow

Iteration n copies n parts: in all, the square of what is needed. Each copy has another size, so that the memory
allocator can't reuse what it has, and in training the graph holds every one of them.

## Example

```python
scores = torch.empty(0, device=device)
for images in loader:
    score = model(images.to(device))
    scores = torch.cat([scores, score])
```

## Use instead

```python
scores_parts = [torch.empty(0, device=device)]
for images in loader:
    score = model(images.to(device))
    scores_parts.append(score)
scores = torch.cat(scores_parts)
```

A buffer of tokens is allocated once for all steps, and filled: `tokens[:, step] = token`.

## Fix safety

`exact`: the parts go into a list, also the tensor that the loop starts with, and are joined once after the loop, after
no iteration, too. Where a part is an index or a slice of another tensor, all of that stays in memory until then:
`behaviour`. It is assumed that all parts are of one type, and that modules give new tensors. There is no fix for
attributes, where others may look at the variable, or know a part or the first tensor, where the loop leaves with it,
and where they are joined below a `with`. A part is nobody else's where all else that is done with it only reads it.

## Measured

One H200, torch 2.11.0, 2026-11-22, bitwise the same (`tests/gpu/measure.py`): scores of 400 batches, 256 by 1,000 each,
53.2 ms to 11.5 ms (4.7x; in another process 3.7x; by hand 11.4 ms); torch reserved 75 GiB before, and 1.2 GiB after.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Loop, LoopKind, Options, Program, Rule, Severity, TorchCall

_FEW = 4  # iterations
_MESSAGES = {
    "collected": "`{}` is copied as a whole in every iteration, to get one part more",
    "fed-back": "`{}` is copied as a whole in every step, to get one step more: fill a buffer for all steps",
}


class CatInLoop(Rule):
    group = "memory"
    triggers = (".cat(", "concat", "stack(", "cat(")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for statement in () if program.is_test else program.of_type(ast.Assign):
            for growing, own in _growing(program, statement):
                loop = api.carrying_loop(program, own, statement.targets[0])
                kind = _kind_of_growth(program, loop, statement, own) if loop is not None else ""
                if not kind:
                    continue
                fixes, blocked = api.tried(api.joined_behind, program, growing)
                severity = Severity.ADVICE if kind == "fed-back" else Severity.WARNING
                message = _MESSAGES[kind].format(ast.unparse(own))
                span = program.span(growing.call)
                yield self.finding(span, message, kind=kind, fixes=fixes, blocked=blocked, severity=severity)


def _growing(program: Program, statement: ast.Assign) -> Iterator[tuple[TorchCall, ast.expr]]:
    """The concatenations assigned by `statement` that the variable itself goes into, and where it does."""
    target, value = statement.targets[0], statement.value
    for node in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
        parts = node.args[0] if isinstance(node, ast.Call) and node.args else None
        for own in parts.elts if isinstance(parts, (ast.List, ast.Tuple)) else ():
            is_same = type(own) is type(target) and ast.unparse(own) == ast.unparse(target)
            found = api.operation(program, node) if is_same else None
            if found is not None and "joining" in found.traits and found.name != "stack":
                yield found, own


def _kind_of_growth(program: Program, loop: Loop, statement: ast.Assign, own: ast.expr) -> str:
    """What becomes of the growing tensor, `own` in the concatenation; empty where it is no defect."""
    others = api.other_reads(program, loop, own)
    if not all(_asks_for_none(program, each) or _is_returned(program, each) for each in others):
        acts = any(api.steps_an_environment(program, each) for each in api.own_nodes(loop))
        return "fed-back" if acts or program.loop_kind(loop) is LoopKind.TIME else ""
    inner = (each for each in ast.walk(loop) if isinstance(each, api.LOOPS) and each is not loop)
    is_epoch = program.loop_kind(loop) is LoopKind.OTHER and any(program.loop_kind(e) is LoopKind.STEP for e in inner)
    return "" if is_epoch or _is_short(program, loop) or _picks_layers(loop) else "collected"


def _asks_for_none(program: Program, read: ast.AST) -> bool:
    test = program.parent(read)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In | ast.NotIn):
        return read in test.comparators  # which keys there are
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot)


def _is_returned(program: Program, read: ast.AST) -> bool:
    return isinstance(program.statement_of(read), ast.Return)


def _is_short(program: Program, loop: Loop) -> bool:
    walked = getattr(loop, "iter", None)
    if isinstance(walked, ast.List | ast.Tuple):
        return True
    counted = program.call_of(walked, "builtins.range")
    return counted is not None and 0 <= (api.integer(counted.args[-1]) or _FEW + 1) <= _FEW


def _picks_layers(loop: Loop) -> bool:
    """Does each iteration call another module: `layer(x)`, `self.convs[i](x)`?"""
    targets = api.variables_in(getattr(loop, "target", loop))
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Subscript | ast.Call):
            picked = node.func if isinstance(node.func, ast.Name) else getattr(node.func, "slice", node.func)
            if any(isinstance(each, ast.Name) and each.id in targets for each in ast.walk(picked)):
                return True
    return False

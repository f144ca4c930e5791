"""A sum or a list of losses keeps the graph of every step.

## What it does

Reports `total += loss` and `losses.append(loss)` in a loop of training steps, for a loss that the same step
back-propagates, where nobody differentiates the sum or the list. Left alone are sums that are back-propagated
themselves, or that code out of sight may back-propagate, what is detached or read first, and sums of one step.

## Why it is slow

The sum refers to the losses, these to the operations that made them, and these to all before: as long as the sum lives,
so does the graph of each step, without the activations, which the backward pass has freed. The graph grows with each
step, and the sum records operations for gradients that nobody asks for.

## Example

```python
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    total += loss
```

## Use instead

```python
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    total += loss.detach()
```

## Fix safety

`exact`: the numbers are the same, and stay on the device. `behaviour` where the sum, or the list, is shown as text or
given to code that is not known, or asked which object it is: a tensor shows whether it has a graph. There is no fix
where its graph is asked for, as by `.requires_grad`, `.grad_fn` or `.grad`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Fate, Finding, Fix, GradMode, GraphUse, Heat, LoopKind, Options, Program, Rule, Safety

_PUTS = frozenset({"append"})


class GraphKept(Rule):
    group = "memory"
    triggers = ("backward(",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        found: set[ast.AST] = set()
        for backward in () if program.is_test else program.of_type(ast.Call):
            loss = backward.func.value if isinstance(backward.func, ast.Attribute) else None
            if not isinstance(loss, ast.Name) or getattr(backward.func, "attr", "") != "backward":
                continue
            for use in _uses(program, loss):
                whole = _whole(program, use) if use not in found else None
                ends = program.graph_uses(use) if whole is not None else []
                if whole is None or any(each.fate not in (Fate.OBSERVED, Fate.ASKED) for each in ends):
                    continue
                if not _lives_on(program, use, whole):
                    continue
                found.add(use)
                fixes, blocked = api.tried(_fix, program, use, ends)
                message = f"`{whole.id}` keeps the graph of every step, which nobody differentiates"
                yield self.finding(program.span(use), message, kind="loss", fixes=fixes, blocked=blocked)


def _fix(program: Program, use: ast.Name, ends: list[GraphUse]) -> Fix:
    for each in ends:
        if each.fate is Fate.ASKED:
            raise Blocked(f"`{ast.unparse(each.node)}` tells of the graph", each.node)
    change = api.rewrite(program, api.Replace(use, api.expression("{loss}.detach()", loss=use)))
    if ends:
        return Fix("detach it, if nothing that is given it needs the graph", Safety.BEHAVIOUR, change)
    return Fix("detach it", Safety.EXACT, change)


def _uses(program: Program, loss: ast.Name) -> list[ast.Name]:
    graph = api.flow(program).graph(loss)
    uses = (use for definition in api.flow(program).definitions(loss) for use in graph.uses.get(definition, ()))
    return [each for each in dict.fromkeys(uses) if each is not loss]


def _whole(program: Program, use: ast.Name) -> ast.Name | None:
    parent = program.parent(use)
    if isinstance(parent, ast.AugAssign) and isinstance(parent.op, ast.Add) and use is parent.value:
        return parent.target if isinstance(parent.target, ast.Name) else None
    method = parent.func if isinstance(parent, ast.Call) and parent.args == [use] else None
    if isinstance(method, ast.Attribute) and method.attr in _PUTS and isinstance(method.value, ast.Name):
        return method.value
    return None


def _lives_on(program: Program, use: ast.Name, whole: ast.Name) -> bool:
    """Is the whole made outside of all loops of steps that the loss is made in, with gradients?"""
    loops = [each for each in program.ancestors(use) if isinstance(each, api.LOOPS)]
    if not loops or program.loop_kind(loops[0]) is not LoopKind.STEP or program.grad_mode(use) is not GradMode.ON:
        return False
    inside = {node for loop in loops if program.loop_kind(loop) is LoopKind.STEP for node in ast.walk(loop)}
    made = api.flow(program).definitions(whole) - {whole}
    return bool(made) and not any(each in inside and program.heat(each) is not Heat.ONCE for each in made)

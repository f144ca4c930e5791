"""An optimizer steps through its parameters in several passes where one kernel could take them all.

## What it does

Reports torch's own `Adam`, `AdamW` and `SGD` without `fused`, where the model whose parameters they are given was moved
to the device before, in the same function, or by all known callers. Left alone are optimizers that are told how to
compute (`foreach`, `capturable`, `differentiable`), arguments that aren't known, programs with sparse gradients or
complex parameters, or that leave the optimizer to apex, DeepSpeed or FSDP, and tests.

## Why it is slow

For each operation of a step, such as a moment and its root, the optimizer launches kernels that read and write all
parameters and states once more. Fused, each is read and written once, by a fraction of the kernels.

## Example

```python
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
```

## Use instead

```python
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
```

## Fix safety

`rounding`: the same mathematics, in another order. Where the device may be another one than CUDA, the keyword asks for
it, and stays None there, as by default. It needs torch 2.0, and 2.3 for `SGD`. It is advice, as small models and those
that compute much for each parameter gain little.

## Measured

One H100, torch 2.11.0, 2026-11-23 (`tests/gpu/measure.py`): 20 steps of `AdamW` over 256 small parameters: 533 ms to
477 ms (1.10x; one program against itself: 0.78x to 1.14x).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Finding, Fix, Kind, Options, Place, Program, Rule, Safety, Severity

_CLASS = re.compile(r"torch\.optim\.(\w+\.)?(Adam|AdamW|SGD)")
_TOLD = frozenset({"fused", "foreach", "capturable", "differentiable", None})
_OTHERS = re.compile(r"sparse=True|complex|cfloat|\bapex\b|deepspeed|FSDP|[Ff]ully_?[Ss]hard|ZeroRedundancy|horovod")
_NAMED = re.compile(r"device|gpu|cuda|(^|_)rank$", re.IGNORECASE)
_PASSING = re.compile(r"builtins\.(list|tuple|filter)|itertools\.chain")
_DEPTH = 3  # of calls


class OptimizerNotFused(Rule):
    """Optimizers, at the calls that build them."""

    group = "overhead"
    severity = Severity.ADVICE
    triggers = ("Adam", "SGD")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield each optimizer of parameters that are on the device."""
        calls = [] if program.is_test or _OTHERS.search(program.text) else program.of_type(ast.Call)
        for call in (each for each in calls if _CLASS.fullmatch(program.qualified(each.func))):
            params = api.bind(call, ("params", "lr")).get("params")
            models = _models(program, params) if params is not None else []
            moves = [_move(program, each, call) for each in models]
            if not models or None in moves or not _TOLD.isdisjoint(each.arg for each in call.keywords):
                continue
            fixes, blocked = api.tried(_fix, program, call, models[0], [each for each in moves if each is not None])
            message = "each operation of its step is a pass over all parameters: fused, they are one"
            yield self.finding(api.call_span(program, call), message, kind="device", fixes=fixes, blocked=blocked)


def _models(program: Program, params: ast.expr) -> list[ast.expr]:
    """The modules whose parameters are given; empty where others may be given, too."""
    pending, found = [params], list[ast.expr]()
    for each in pending:
        parts: list[ast.expr] = []
        if isinstance(each, ast.Name):
            parts = api.assigned(program, each)
        elif isinstance(each, ast.List | ast.Tuple):
            parts = each.elts
        elif isinstance(each, ast.Dict):
            parts = [v for k, v in zip(each.keys, each.values, strict=True) if getattr(k, "value", "") == "params"]
        elif isinstance(each, ast.Call) and (passing := _PASSING.fullmatch(program.qualified(each.func))):
            parts = each.args[passing[0].endswith("filter") :]
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "parameters":
            found.append(each.func.value)
            continue
        if not parts or any(part in pending for part in parts):
            return []
        pending += parts
    return found


def _move(program: Program, model: ast.expr, point: ast.AST, depth: int = _DEPTH) -> ast.Call | None:
    """The last call that moves `model` to a device before `point`, there or in all callers; None if not known."""
    function, path = program.function_of(point), api.path_of(model)
    graph = api.flow(program).graph(point)
    found = None
    calls = (each for each in api.own_nodes(function or program.tree) if isinstance(each, ast.Call))
    for call in calls if path else ():
        statement = program.statement_of(call) if isinstance(call.func, ast.Attribute) else None
        made = [api.path_of(each) for each in getattr(statement, "targets", ()) if program.parent(call) is statement]
        is_its = path in made or api.path_of(getattr(call.func, "value", call)) == path
        if is_its and getattr(call.func, "attr", "") == "cpu":
            return None
        if is_its and _is_move(program, call) and call in graph.places and graph.dominates(call, point):
            found = None if api.is_rebound(program, path, call, point) else call
    if found is not None or function is None or not depth or not isinstance(model, ast.Name):
        return found
    sites = [each for each in program.call_sites(function) if isinstance(each, ast.Call)]
    given = [(program.arguments(each, function).get(path), each) for each in sites]
    moves = [_move(program, each, site, depth - 1) if each is not None else None for each, site in given]
    return None if None in moves or not moves else moves[0]


def _is_move(program: Program, call: ast.Call) -> bool:
    """Is it `.cuda()`, or `.to(...)` of what is, by its value or its name, a device other than the host?"""
    method, target = getattr(call.func, "attr", ""), call.args[0] if call.args else None
    if method != "to" or target is None:
        return bool(method == "cuda")
    value = program.value(target)
    if value.is_literal:
        return isinstance(value.literal, str) and value.literal.startswith("cuda")
    return value.place is Place.DEVICE or (value.kind is not Kind.LIBRARY and bool(_NAMED.search(api.path_of(target))))


def _fix(program: Program, call: ast.Call, model: ast.expr, moves: list[ast.Call]) -> Fix:
    """The keyword, which asks for the device where it may be another one; raises Blocked."""
    targets = [each.args[0] if each.args else None for each in moves]
    if len({ast.dump(each) if each is not None else "" for each in targets}) > 1:
        raise Blocked("the models may be on several devices")
    if not api.takes_keywords(call):
        raise Blocked("the arguments leave no room for a keyword")
    target, is_local = targets[0], program.function_of(moves[0]) is program.function_of(call)
    if target is None or program.value(target).is_literal:
        fused = api.expression("True")
    elif is_local and api.path_of(target) and program.value(target).kind is Kind.DEVICE:
        fused = api.expression("True if {device}.type == 'cuda' else None", device=target)
    else:
        fused = api.expression("True if next({model}.parameters()).is_cuda else None", model=model)
    change = api.rewrite(program, api.AddKeywords(call, (("fused", fused),)))
    return Fix(f"add fused={ast.unparse(fused)}", Safety.ROUNDING, change)

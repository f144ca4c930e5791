"""A tensor is read with a boolean mask that never changes, and every step waits to count what it selects.

## What it does

Reports `out[data.train_mask]` in steps of training, or of evaluation beside it, where the mask is made before the loop:
once for all reads with one mask. Left alone are masks of a batch, or computed or changed in the step, `x[mask] = 0.0`,
what is not called a mask, and what `sync-in-loop` reports.

## Why it is slow

The device alone knows how many elements a mask selects: the host waits at every read, and in its backward pass.

## Example

```python
for epoch in range(200):
    out = model(data.x, data.edge_index)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
```

## Use instead

```python
train_index = data.train_mask.nonzero(as_tuple=True)
for epoch in range(200):
    out = model(data.x, data.edge_index)
    loss = F.cross_entropy(out[train_index], data.y[train_index])
```

## Fix safety

`exact`: torch makes the same indices. There is no fix where something may change the mask, or it may be of integers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Effect, Finding, Fix, Kind, Options, Place, Program, Rule, Safety

_MASK = re.compile(r"(.*_)?mask")
_SPLITS = frozenset({"train_mask", "val_mask", "test_mask"})  # of bools, in the data sets of these libraries:
_GRAPHS = re.compile(r"^\s*(import|from) (torch_geometric|dgl)\b", re.MULTILINE)


class MaskRead(Rule):
    group = "sync"
    needs_gpu = True
    triggers = ("mask]",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        seen = set[tuple[ast.AST | None, str]]()
        waits = [read.sync.start for read in api.host_reads(program)]
        is_left_alone = program.is_test or program.is_host_only or "import torch" not in program.text
        for read in () if is_left_alone else program.of_type(ast.Subscript):
            start, end = program.span(read)
            if not _waits_each_step(program, read) or any(start <= wait < end for wait in waits):
                continue
            path, place = _mask(program, read)
            known, is_made = (place or program.function_of(read), path), api.made_before_steps(program, read.slice)
            writes = (each.node for each in api.written_after(program, read.slice, place or read) if each.is_in_sight)
            is_changed = not {*writes}.isdisjoint(api.changing(program, read.slice, place or read))
            if known in seen or is_changed or (place is None and not is_made):
                continue
            seen.add(known)
            (fixes, blocked), by = api.tried(_fix, program, read, path, place), program.hot_by(read)
            message = f"the host waits in every step to count what `{path}` selects, which no step changes"
            yield self.finding((start, end), message, kind="mask", fixes=fixes, blocked=blocked, hot_by=by)


def _waits_each_step(program: Program, read: ast.Subscript) -> bool:
    values = (program.value(read.value), program.value(read.slice))
    is_mask = isinstance(read.ctx, ast.Load) and _MASK.fullmatch(api.path_of(read.slice).rpartition(".")[2])
    if not is_mask or not any(e.on_device for e in values) or any(e.place is Place.HOST for e in values):
        return False
    return api.runs_often(program, read) or api.steps_beside(program, read)


def _mask(program: Program, read: ast.Subscript) -> tuple[str, ast.stmt | None]:
    """The mask, by its name or what that is assigned from, and where its indices can be made; None if nowhere."""
    mask = read.slice
    for each in [mask, *api.assigned(program, mask)][:2] if isinstance(mask, ast.Name) else [mask]:
        if (place := _place(program, read, api.path_of(each).partition(".")[0])) is not None:
            return api.path_of(each), place
    return api.path_of(mask), None


def _place(program: Program, read: ast.Subscript, root: str) -> ast.stmt | None:
    """The loop of steps, or the function that one calls, outside of which the mask is made."""
    function = program.function_of(read)
    makes = [each for each in program.of_type(ast.Name) if each.id == root and not isinstance(each.ctx, ast.Load)]
    arguments = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)} if function else set()
    own = [each for each in makes if program.function_of(each) is function]
    if own or root in arguments:
        loops = (each for each in program.ancestors(read) if isinstance(each, api.LOOPS))
        own_loops = (each for each in loops if program.function_of(each) is function)
        around = [each for each in own_loops if set(own).isdisjoint(ast.walk(each))]
        return next((each for each in reversed(around) if program.effects(each, Effect.TRAINS)), None)
    is_global = function in program.tree.body and all(program.function_of(each) is None for each in makes)
    return function if isinstance(function, ast.stmt) and makes and is_global else None


def _fix(program: Program, read: ast.Subscript, path: str, place: ast.stmt | None) -> Fix:
    """The indices, made in front of that; raises Blocked."""
    name = path.rpartition(".")[2]
    if place is None:
        raise Blocked(f"`{path}` may differ between calls", read.slice)
    if not _is_of_bools(program, read.slice) and not (name in _SPLITS and _GRAPHS.search(program.text)):
        raise Blocked(f"`{path}` isn't known to be a mask of bools", read.slice)
    _check_unchanged(program, place, read, path)
    inside = (each for each in ast.walk(place) if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Load))
    reads = [each for each in inside if _mask(program, each)[0] == path]
    index = api.fresh_name(program, name.removesuffix("mask") + "index", place, read)
    made = api.statement("{index} = {mask}.nonzero(as_tuple=True)", index=index, mask=path)
    swaps = (api.Replace(each.slice, api.expression(index)) for each in reads)
    change = api.rewrite(program, api.InsertBefore(place, (made,)), *swaps)
    return Fix(f"select by indices that are made once: {index}", Safety.EXACT, change)


def _is_of_bools(program: Program, mask: ast.expr) -> bool:
    made = api.origins(program, mask)
    casts = [isinstance(e, ast.Compare) or getattr(getattr(e, "func", None), "attr", "") == "bool" for e in made]
    is_made = bool(made) and all(casts) and all(program.value(each).kind is Kind.TENSOR for each in made)
    return is_made or program.value(mask).dtype == "bool"


def _check_unchanged(program: Program, place: ast.stmt, read: ast.Subscript, path: str) -> None:
    """Raise Blocked where something behind `place` may write to or rebind the mask, or what holds it."""
    name, root = path.rpartition(".")[2], path.partition(".")[0]
    if writes := api.changing(program, read.slice, place):
        raise Blocked(f"`{path}` may be changed later", writes[0])
    for each in program.of_type(ast.Name, ast.Attribute, ast.Subscript):
        bound = api.path_of(each.value if isinstance(each, ast.Subscript) else each)
        is_mask = bound.rpartition(".")[2] == name or (isinstance(each, ast.Subscript) and bound.endswith("mask"))
        is_called = isinstance(each, ast.Attribute) and program.function_of(each) is not None
        is_store = not isinstance(getattr(each, "ctx", None), ast.Load)
        if is_store and (bound == root or is_mask) and (is_called or each.lineno >= place.lineno):
            raise Blocked(f"`{bound}` may be changed later", each)
    for call in program.of_type(ast.Call) if name != root else ():
        given = {api.path_of(each) for each in api.arguments_of(call)}
        is_given = api.path_of(call.func).rpartition(".")[0] == root or (root in given and program.callee(call) is None)
        if is_given and call.lineno >= place.lineno:
            raise Blocked(f"`{root}` is given to code that may change its masks", call)

"""A clock is read while the device still computes what is timed.

## What it does

Reports the second of two reads of the host's clock, of which the difference is taken, where the code between them
launches work on the device and nothing behind that waits for it. Left alone are regions that read a result, loops that
copy each batch to the device, which waits, too, calls that are not known, and clocks from one step to the next.

## Why it is slow

It isn't: it misleads. Operations return as soon as the device has been told to compute them. The clock then tells how
long it took to launch them; the time that they take shows up where the host waits next.

## Example

```python
start = time.perf_counter()
model(x)
print(time.perf_counter() - start)
```

## Use instead

```python
torch.cuda.synchronize()
start = time.perf_counter()
model(x)
torch.cuda.synchronize()
print(time.perf_counter() - start)
```

## Fix safety

There is no fix: waiting is right in a benchmark, but costs time in training, where `torch.cuda.Event` needs no wait.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perflint import api
from perflint.api import Finding, Kind, Options, Place, Program, Rule, Severity

_CLOCKS = frozenset(f"time.{each}" for each in "time perf_counter monotonic clock time_ns perf_counter_ns".split())
_CLOCKS |= {"timeit.default_timer"}
_OF_TRAINING = frozenset("zero_grad train eval append set_epoch step parameters".split())
_WAITS = frozenset({"synchronize", "wait", "join", "barrier", "spawn", "numpy", "elapsed_time", "block_until_ready"})
_TELLS, _LAUNCHES = ("waits", "unknown"), frozenset({"computes", "launches"})
_HARMLESS = ("builtins.", "math.", "time.", "torch.", "numpy.", "contextlib.")
_MESSAGE = (
    "the device may not have computed yet what is timed here: call torch.cuda.synchronize() before the clock is read"
)
_BLOCKED = "waiting costs time, too, where this isn't a benchmark"


class UnsynchronizedTiming(Rule):
    group = "measure"
    severity = Severity.ADVICE
    needs_gpu = True
    triggers = ("time()", "clock()", "perf_counter", "monotonic", "time_ns()", "default_timer")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        is_checked = program.may_use_device and not program.is_test
        for difference in program.of_type(ast.BinOp) if is_checked else ():
            ends = _reads(program, difference.left) if isinstance(difference.op, ast.Sub) else []
            starts = _reads(program, difference.right) if ends else []
            region = _between(program, starts[0], ends[0]) if len(starts) == len(ends) == 1 else ()
            if region and _is_computing(program, region) and _is_read(program, difference):
                yield self.finding(program.span(ends[0]), _MESSAGE, kind="clock", blocked=_BLOCKED)


def _is_read(program: Program, difference: ast.BinOp) -> bool:
    statement, scope = program.statement_of(difference), program.function_of(difference) or program.tree
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return not isinstance(target, ast.Name) or len(api.occurrences(scope, target.id)) > 1


def _reads(program: Program, node: ast.expr) -> list[ast.Call]:
    """The reads of a clock that a time may come from; none where it may come from others."""
    nodes = api.origins(program, node) if isinstance(node, ast.Name) else [node]
    found = [call for each in nodes if (call := program.call_of(each, *_CLOCKS)) is not None]
    return found if len(found) == len(nodes) else []


def _between(program: Program, start: ast.Call, end: ast.Call) -> Sequence[ast.stmt]:
    """The statements between two reads of the clock, which may be under a condition."""
    first, last = program.statement_of(start), program.statement_of(end)
    around, behind, inner = program.parent(first), program.parent(last), list[ast.stmt]()
    if isinstance(around, ast.If) and isinstance(behind, ast.If) and around is not behind:
        first = around if ast.dump(around.test) == ast.dump(behind.test) else last
    block = program.block_of(first)
    while last not in block and isinstance(branch := program.parent(last), ast.If):
        last, inner = branch, [*program.block_of(last)[: program.block_of(last).index(last)], *inner]
    is_in_order = first is not last and last in block and block.index(first) < block.index(last)
    now, start_of_end = program.statement_of(end), program.span(end)[0]
    earlier = (each for each in ast.walk(now) if isinstance(each, ast.Call) and program.span(each)[1] < start_of_end)
    if not is_in_order or _shows(program, now) or any(_done(program, each) in _TELLS for each in earlier):
        return ()
    return [*block[block.index(first) + 1 : block.index(last)], *inner]


def _shows(program: Program, statement: ast.stmt) -> bool:
    read = [each.value for each in ast.walk(statement) if isinstance(each, ast.FormattedValue)]
    read += [each.test for each in ast.walk(statement) if isinstance(each, ast.If | ast.While | ast.IfExp)]
    return any(program.value(each).on_device for each in read)


def _is_computing(program: Program, region: Sequence[ast.stmt]) -> bool:
    """Is it sure that work is launched, and nothing behind it waits, by one way through what is chosen by `if`?"""
    parts = [(each.orelse if isinstance(each, ast.If) else (), [each]) for each in region]
    launching = [other if _LAUNCHES.intersection(_done_in_order(program, other)) else one for other, one in parts]
    return any(_launches_last(program, way) for way in (region, [each for part in launching for each in part]))


def _done_in_order(program: Program, nodes: Sequence[ast.AST]) -> list[str]:
    calls = [each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call)]
    return [_done(program, each) for each in sorted(calls, key=lambda each: program.span(each)[1])]


def _launches_last(program: Program, region: Sequence[ast.stmt]) -> bool:
    is_computing = has_waited = False
    for statement in region:
        done = _done_in_order(program, [statement])
        waits = [at for at, each in enumerate(done, 1) if each in _TELLS]
        if waits or _shows(program, statement):
            if any(isinstance(each, api.LOOPS) for each in ast.walk(statement)):
                return False  # most of what is timed is waited for
            is_computing, has_waited, done = False, True, done[waits[-1] :] if waits else []
        is_computing |= "computes" in done or ("launches" in done and not has_waited)
    return is_computing


def _done(program: Program, call: ast.Call) -> str:
    """One of: launches work, computes much, waits, nothing, or unknown."""
    name, operation = program.qualified(call.func), api.operation(program, call)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    owner = program.value(call.func.value).kind if isinstance(call.func, ast.Attribute) else None
    traits = operation.traits if operation is not None else frozenset()
    if method in _WAITS or api.move(program, call) is not None or not traits.isdisjoint({"to_host", "counting"}):
        return "waits"
    if "pipe" in api.path_of(call.func).lower():
        return "unknown"  # whole pipelines give their results on the host
    if program.value(call.func).kind is Kind.MODULE or method == "backward" or name == "torch.autograd.backward":
        return "nothing" if program.value(call).place is Place.HOST else "computes"
    if (method == "step" and owner is Kind.OPTIMIZER) or (operation is not None and program.value(call).on_device):
        return "launches"
    if name.startswith("builtins."):
        return "waits" if any(program.value(each).on_device for each in call.args) else "nothing"
    return "nothing" if name.startswith(_HARMLESS) or operation is not None or method in _OF_TRAINING else "unknown"

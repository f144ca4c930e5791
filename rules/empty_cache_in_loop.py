"""The device's memory is given back, or the device waited for, in every step.

## What it does

Reports, at places that run in every step: *cache* is `torch.cuda.empty_cache()`, *synchronize* is
`torch.cuda.synchronize()` with no clock read and nothing profiled in the same function. *anomaly* is
`torch.autograd.set_detect_anomaly(True)`, or `detect_anomaly()`, wherever it stands. Left alone are handlers of
exceptions, what stands under a condition, functions that are named for measuring, and tests.

## Why it is slow

`empty_cache` waits for the device and gives its memory back, which the next step asks for again: allocating takes
milliseconds, where torch's cache takes none. `synchronize` makes the host wait until all that is queued is computed,
and the device until the host has queued more. The detection of anomalies records a traceback of each operation, and
looks for NaN in each gradient, which waits for it.

## Example

```python
for images, labels in loader:
    train_step(images, labels)
    torch.cuda.empty_cache()
```

## Use instead

```python
for images, labels in loader:
    train_step(images, labels)
```

## Fix safety

`behaviour`: without the first, a program that shares the device, or nearly fills it, may run out of memory; the second
may be what makes other streams, processes or libraries wait, and where the file speaks of these there is no fix.
Detection has none: it is there to find something. All of it is advice, for it may be needed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Finding, Fix, Options, Program, Rule, Safety, Severity

_CACHE = frozenset({"torch.cuda.empty_cache", "torch.cuda.memory.empty_cache"})
_WAITS = frozenset({"torch.cuda.synchronize"})
_ANOMALY = re.compile(r"torch\.autograd\.(anomaly_mode\.)?(set_)?detect_anomaly")
_CLOCKS = re.compile(r"time|clock|profil|elapsed|event|bench|latency|throughput|speed|measure|warm_?up", re.IGNORECASE)
_OTHERS = re.compile(r"stream|ipc|queue|process|thread|dist\.|distributed|cupy|pynvml|memory_allocated", re.IGNORECASE)
_MESSAGES = {
    "cache": "the device's memory is freed in every step, and allocated again",
    "synchronize": "the host waits in every step until the device has computed all that is queued",
    "anomaly": "each operation is recorded with its traceback, and each gradient looked through for NaN",
}
_PROVISOS = {
    "cache": "if the memory suffices without it",
    "synchronize": "if nothing else relies on the wait",
}


class EmptyCacheInLoop(Rule):
    group = "sync"
    severity = Severity.ADVICE
    needs_gpu = True
    triggers = ("empty_cache", "synchronize", "detect_anomaly")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for call in () if program.is_test else program.of_type(ast.Call):
            kind = _kind(program, call)
            is_chosen = any(isinstance(each, ast.If | ast.IfExp) for each in program.ancestors(call))
            if not kind or is_chosen or (kind != "anomaly" and not _is_hot(program, call, kind)):
                continue
            fixes, blocked = api.tried(_fix, program, call, kind)
            span, by = program.span(call), program.hot_by(call)
            yield self.finding(span, _MESSAGES[kind], kind=kind, fixes=fixes, blocked=blocked, hot_by=by)


def _kind(program: Program, call: ast.Call) -> str:
    name = program.qualified(call.func)
    if _ANOMALY.fullmatch(name):
        mode = api.bind(call, ("mode", "check_nan")).get("mode") if "set_" in name else ast.Constant(True)
        return "anomaly" if isinstance(mode, ast.Constant) and mode.value is True else ""
    return "cache" if name in _CACHE else "synchronize" if name in _WAITS else ""


def _is_hot(program: Program, call: ast.Call, kind: str) -> bool:
    """Does it run in every step, other than to handle an exception, or to measure?"""
    function = program.function_of(call)
    around = {type(each) for each in program.ancestors(call)}
    if ast.ExceptHandler in around or not api.runs_often(program, call):
        return False
    if _CLOCKS.search(getattr(function, "name", "")):
        return False
    scope = function or [*program.ancestors(call)][-2]  # what the module runs it in
    words = (getattr(each, "attr", getattr(each, "id", "")) for each in api.own_nodes(scope))
    return kind == "cache" or not any(map(_CLOCKS.search, filter(None, words)))


def _fix(program: Program, call: ast.Call, kind: str) -> Fix:
    statement = program.statement_of(call)
    if kind == "anomaly":
        raise Blocked("delete it once it has found what it is there for")
    if not isinstance(statement, ast.Expr) or statement.value is not call or len(program.block_of(statement)) < 2:
        raise Blocked("nothing would be left of the block around it")
    if kind == "synchronize" and _OTHERS.search(program.text):
        raise Blocked("other streams, processes or libraries may wait for it")
    title = f"delete it, {_PROVISOS[kind]}"
    return Fix(title, Safety.BEHAVIOUR, api.rewrite(program, api.ReplaceStatements((statement,), ())))

"""Compiled code does what the compiler can't capture, which breaks its graph there.

## What it does

Reports, in functions and modules that this file hands to `torch.compile` or `torch.cuda.make_graphed_callables`, and in
what these call in the same file: *print* is `print`, logging or a warning; *read* is `.item()`, `.tolist()` or
`.numpy()` of a tensor. *capture* is any of these while a CUDA graph is captured. Left alone are what stands under a
condition, which is mostly a setting or an error, functions that are left out of compilation, and tests.

## Why it is slow

The graph ends at such a call, Python runs it, and another graph begins: nothing is fused across it, each piece is
checked and launched by itself, and with `mode="reduce-overhead"` each is a CUDA graph of its own. A read waits for the
device besides. While a graph is captured, a read is an error, and what is printed is printed once.

## Example

```python
@torch.compile
def step(x, y):
    loss = criterion(model(x), y)
    print(loss)
    return loss
```

## Use instead

```python
@torch.compile
def step(x, y):
    return criterion(model(x), y)
```

## Fix safety

There is no fix: return what is to be read, and print it outside, or leave the function out by `torch.compiler.disable`.
`TORCH_LOGS=graph_breaks` names all breaks of a run. It is advice: one break between large graphs costs little.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Function, Kind, Options, Program, Rule, Severity

_COMPILING = re.compile(r"torch\.compile|torch\.cuda\.(graphs\.)?make_graphed_callables")
_CAPTURING = re.compile(r"torch\.cuda\.(graphs\.)?graph")
_LEAVING_OUT = re.compile(r"torch\.compiler\.disable|torch\._dynamo\.(disable|external_utils\.\w+)")
_PRINTING = re.compile(r"builtins\.print|logging\.(debug|info|warning|error|log)|warnings\.warn")
_LOGGER = re.compile(r"(^|[._])(logger|log)\.(debug|info|warning|error)$", re.IGNORECASE)
_DEPTH = 3  # of calls
_MESSAGES = {
    "print": "compiled code is cut in two here: what is printed, Python must print",
    "read": "compiled code is cut in two here: Python waits for the value of a tensor",
    "capture": "this runs once, while the graph is captured, or fails there",
}


class CompileBreak(Rule):
    group = "overhead"
    severity = Severity.ADVICE
    triggers = ("torch.compile", "make_graphed_callables", "cuda.graph", "import compile")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        if program.is_test:
            return
        found: dict[ast.Call, str] = {}
        for block in program.of_type(ast.With):
            if any(_CAPTURING.fullmatch(_called(program, item.context_expr)) for item in block.items):
                found |= {call: "capture" for call, _ in _breaks(program, block, _DEPTH)}
        for function in _compiled(program):
            found |= dict(_breaks(program, function, _DEPTH))
        for call, kind in found.items():
            blocked = "return what is to be read, and print it outside"
            yield self.finding(api.call_span(program, call), _MESSAGES[kind], kind=kind, blocked=blocked)


def _called(program: Program, node: ast.expr) -> str:
    return program.qualified(node.func if isinstance(node, ast.Call) else node)


def _compiled(program: Program) -> Iterator[Function]:
    for function in program.of_type(ast.FunctionDef):
        if any(_COMPILING.fullmatch(_called(program, each)) for each in function.decorator_list):
            yield function
    for call in program.of_type(ast.Call):
        if not _COMPILING.fullmatch(program.qualified(call.func)) or not call.args:
            continue
        node = program.value(call.args[0]).node
        if isinstance(node, api.FUNCTIONS):
            yield node
        for each in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(each, ast.FunctionDef) and each.name == "forward":
                yield each


def _breaks(program: Program, code: ast.AST, depth: int) -> Iterator[tuple[ast.Call, str]]:
    for call in (each for each in api.own_nodes(code) if isinstance(each, ast.Call)):
        around = itertools.takewhile(lambda each: each is not code, program.ancestors(call))
        if any(isinstance(each, ast.If | ast.IfExp | ast.ExceptHandler | ast.Raise | ast.Assert) for each in around):
            continue
        name, path, callee = program.qualified(call.func), api.path_of(call.func), program.callee(call)
        if _PRINTING.fullmatch(name) or (not name and _LOGGER.search(path)):
            yield call, "print"
        elif isinstance(call.func, ast.Attribute) and _reads_back(call.func.attr) and not call.args:
            if program.value(call.func.value).kind is Kind.TENSOR:
                yield call, "read"
        elif callee is not None and depth and not _is_left_out(program, callee):
            yield from _breaks(program, callee, depth - 1)


def _reads_back(method: str) -> bool:
    return api.torch_does(method, "to_host") and not api.torch_does(method, "move")


def _is_left_out(program: Program, function: Function) -> bool:
    decorators = getattr(function, "decorator_list", [])
    return any(_LEAVING_OUT.fullmatch(_called(program, each)) for each in decorators)

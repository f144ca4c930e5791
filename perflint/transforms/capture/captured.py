"""Tells where no further CUDA graph can be: in what is captured already, and in files of which no step can be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set

from perflint.analysis.program import Program
from perflint.analysis.values.classes import ClassInfo
from perflint.analysis.values.values import Value
from perflint.syntax.walk import Function, own_nodes, path_of
from perflint.transforms.capture.calls import called
from perflint.transforms.rewrite import Blocked

RUNTIME = "perflint.runtime.graphs"
DISTRIBUTION = "perflint-torch"
COMPILERS = frozenset({"torch.compile", "torch._dynamo.optimize"})
_CAPTURES = frozenset(
    {f"{RUNTIME}.cuda_graph", f"{RUNTIME}.graphed_step", "torch.cuda.graph", "torch.cuda.make_graphed_callables"}
)


def is_captured(program: Program, node: ast.AST) -> bool:
    return "graph" in program.text and _is_captured(program, node, set())


def handed_over(program: Program, function: Function, takers: frozenset[str]) -> ast.Call | None:
    for call in (call for call in program.of_type(ast.Call) if call.args and program.call_of(call, *takers)):
        if any(_runs(program, value, function) for value in _items_of(program.value(call.args[0]))):
            return call
    return None


def _is_captured(program: Program, node: ast.AST, seen: set[ast.AST]) -> bool:
    function = program.function_of(node)
    if _is_captured_here(program, node, function):
        return True
    if function is None or function in seen:
        return False
    seen.add(function)
    decorators = getattr(function, "decorator_list", ())
    if any(program.qualified(called(each)) in _CAPTURES for each in decorators):
        return True
    return handed_over(program, function, _CAPTURES) is not None or _is_called_captured(program, function, seen)


def _is_captured_here(program: Program, node: ast.AST, function: Function | None) -> bool:
    for parent in program.ancestors(node):
        if parent is function:
            break
        if isinstance(parent, ast.With):
            names = {program.qualified(called(item.context_expr)) for item in parent.items}
            if names & _CAPTURES:
                return True
    nodes = own_nodes(function) if function is not None and "capture_begin" in program.text else ()
    return any(isinstance(each, ast.Attribute) and each.attr == "capture_begin" for each in nodes)


def _is_called_captured(program: Program, function: Function, seen: set[ast.AST]) -> bool:
    sites = program.call_sites(function)
    captured = [site for site in sites if _is_captured(program, site, seen)]
    beside = {program.function_of(site) for site in captured}
    return bool(captured) and all(site in captured or program.function_of(site) in beside for site in sites)


def _items_of(value: Value) -> Iterator[Value]:
    if value.items is None:
        yield value
    for item in value.items or ():
        yield from _items_of(item)


def _runs(program: Program, value: Value, function: Function) -> bool:
    if value.node is function:
        return True
    owner = program.class_of(function)
    if owner is None or getattr(function, "name", "") != "forward":
        return False
    return any(value.node is node for node in _inheriting(owner, "forward"))


def _inheriting(owner: ClassInfo, method: str) -> Iterator[ast.ClassDef]:
    yield owner.node
    for heir in owner.subclasses:
        if method not in heir.methods:
            yield from _inheriting(heir, method)


_SHARDING = frozenset("FSDP FullyShardedDataParallel fully_shard init_device_mesh".split())
_AVERAGING = frozenset({"DDP", "DistributedDataParallel"})
_STARTS = "init_process_group"
_WRAPPERS = r"\b(Accelerator|Fabric)\(|\bdeepspeed\.initialize\(|\bamp\.initialize\("
_UNCAPTURED = (  # what a file may say, and why no step of it is captured then
    (_WRAPPERS, "another library wraps the model and its optimizer, and what it does in a step isn't known"),
    (r"\bsparse\s*=\s*True", "its gradients are sparse: a graph needs dense ones"),
    (r"\bregister_\w*hook\(", "a hook is Python code, which a replay would not run: compute that in the step itself"),
    (r"\bdevice_ids=\[[^],]+,", "DataParallel splits a batch over several devices, and a graph belongs to one"),
    (r"\b(import|from) (dgl|torch_geometric)\b", "each batch is a graph of another size: nothing could be replayed"),
    (r"\btorch\.compile\(|\bmodel\.compile\(", "what is compiled can't be captured around: choose one of both"),
    (r"\btorch\.jit\.(script|trace)\(", "scripted modules may be compiled anew in a step: leave that out"),
    (r"\b(set_)?detect_anomaly\(", "the search for anomalies reads each gradient: switch it off"),
)


def check_file(program: Program) -> None:
    """Raise Blocked at what keeps all steps of a file from being captured.

    Where a file trains by several processes on a condition, a step stays eager unless DistributedDataParallel averages
    the gradients, which all processes capture.
    """
    for pattern, reason in _UNCAPTURED:
        if match := re.search(pattern, program.text):
            raise Blocked(reason, ast.Pass(lineno=program.source.position(match.start())[0], col_offset=0))
    called = {call: path_of(call.func).rpartition(".")[2] for call in program.of_type(ast.Call)}
    is_averaging = not _AVERAGING.isdisjoint(called.values())
    for call, name in called.items():
        exchanges = name in _SHARDING or (name == _STARTS and not is_averaging)
        if exchanges and not _is_conditional(program, call, frozenset()):
            raise Blocked("several processes train together, and how they exchange gradients is not captured", call)


def _is_conditional(program: Program, node: ast.AST, seen: Set[ast.AST]) -> bool:
    if any(isinstance(each, ast.If | ast.IfExp) and not _is_main_guard(each) for each in program.ancestors(node)):
        return True
    function = program.function_of(node)
    sites = program.call_sites(function) if function not in seen else ()
    return bool(sites) and all(_is_conditional(program, each, seen | {function}) for each in sites if function)


def _is_main_guard(node: ast.If | ast.IfExp) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(node.test))

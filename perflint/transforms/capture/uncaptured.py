"""Files of which no step is captured: by the libraries, devices and processes that they train with."""

from __future__ import annotations

import ast
import re
from collections.abc import Set

from perflint.analysis.program import Program
from perflint.syntax.walk import path_of
from perflint.transforms.blocked import Blocked

_PROCESSES = frozenset(
    "DDP DistributedDataParallel FullyShardedDataParallel fully_shard init_device_mesh init_process_group".split()
)
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

    Where a file trains by several processes on a condition, a step that is run by one of several stays eager.
    """
    for pattern, reason in _UNCAPTURED:
        if match := re.search(pattern, program.text):
            raise Blocked(reason, ast.Pass(lineno=program.source.position(match.start())[0], col_offset=0))
    for call in program.of_type(ast.Call):
        if path_of(call.func).rpartition(".")[2] in _PROCESSES and not _is_conditional(program, call, frozenset()):
            raise Blocked("several processes train together, and how they exchange gradients is not captured", call)


def _is_conditional(program: Program, node: ast.AST, seen: Set[ast.AST]) -> bool:
    """Does it run on a condition: in a branch, or in a function that is called in one alone?"""
    if any(isinstance(each, ast.If | ast.IfExp) and not _is_main_guard(each) for each in program.ancestors(node)):
        return True
    function = program.function_of(node)
    sites = program.call_sites(function) if function not in seen else ()
    return bool(sites) and all(_is_conditional(program, each, seen | {function}) for each in sites if function)


def _is_main_guard(node: ast.If | ast.IfExp) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(node.test))

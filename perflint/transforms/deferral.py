"""Defers output that reads the device until what it shows has arrived, so that the program doesn't wait for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from perflint.analysis.call_graph import handlers, is_handled
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.links import Heat, Says
from perflint.analysis.program import Program
from perflint.analysis.values.hints import scripting
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import own_nodes
from perflint.transforms import host_code
from perflint.transforms.capture.captured import COMPILERS, DISTRIBUTION, handed_over
from perflint.transforms.host_code import is_output, name_of_library, reads_device, writes_streams
from perflint.transforms.operations import FIT, Operation, ReplaceStatements, in_rows, new, reference
from perflint.transforms.report_body import ReportBody
from perflint.transforms.rewrite import Blocked, check_alone, importing, rewrite, shown

RUNTIME = "perflint.runtime.reports"
_ENDS = frozenset({"os._exit", "os.abort", "os.kill", "os.killpg"})
_PAST_STREAMS = re.compile(  # what writes to where the streams write, and not by way of them
    r"os\.(p?writev?|sendfile)|sys\.(stdout|stderr)\.buffer\.\w+|sys\.__std(out|err)__\.\w+(\.\w+)?"
)
_BY_OTHERS = re.compile(r"subprocess\.(run|call|check_call|Popen)|os\.system")


def deferral(program: Program, syncs: Sequence[Sync]) -> Fix:
    """The fix of reads whose values are only printed, logged, or shown by a progress bar or a summary writer.

    Raises Blocked.
    """
    wanted = list(dict.fromkeys(_output(program, sync) for sync in syncs))
    wanted += [each for old in wanted for each in _others(program, old) if each not in wanted]
    name, imported = importing(program, RUNTIME, "later")
    operations = [*imported, *(each for old in wanted for each in _deferred(program, old, name))]
    title = "report the value when it has arrived, without waiting for it"
    return Fix(title, Safety.EXACT, rewrite(program, *operations), DISTRIBUTION)


def _output(program: Program, sync: Sync) -> ast.Expr:
    old = program.statement_of(sync.node)
    if not isinstance(old, ast.Expr) or not isinstance(old.value, ast.Call) or not is_output(program, old.value):
        raise Blocked("")
    return old


def _deferred(program: Program, old: ast.Expr, later: str) -> list[Operation]:
    assert isinstance(old.value, ast.Call)
    _check_place(program, old)
    body = ReportBody(program, old.value)
    call = in_rows(new(ast.Call(reference(later), body.given, body.keywords)), FIT)
    return [*body.changes, ReplaceStatements((old,), (new(ast.Expr(call)),))]


def _check_place(program: Program, statement: ast.stmt) -> None:
    check_alone(program, statement)
    if isinstance(program.definition_around(statement), ast.ClassDef):
        raise Blocked("it runs while a class is made", statement)
    for handler in handlers(program, statement):
        raise Blocked("what it raises may be caught here, and would be raised later", handler)
    failing = host_code.raising(program, own_nodes(statement))
    if failing is not None and is_handled(program, statement):
        raise Blocked("this may raise an error, and what is done then would be done after later steps", failing)
    for call in program.of_type(ast.Call):
        if program.qualified(call.func) in _ENDS:
            raise Blocked(f"{shown(program, call)} ends the program without what is still to be reported", call)
        is_started = _BY_OTHERS.fullmatch(name_of_library(program, call)) and program.heat(call) is not Heat.ONCE
        if is_started or _PAST_STREAMS.fullmatch(name_of_library(program, call)):
            raise Blocked(f"{shown(program, call)} writes at once, and would come before what is reported later", call)
    compiler = scripting(program)
    if compiler is not None or program.is_said(Says.COMPILES):
        raise Blocked("torch.jit compiles, and would have to compile what reports", compiler)
    function = program.function_of(statement)
    compiled = handed_over(program, function, COMPILERS) if function and "compile" in program.text else None
    if compiled is not None:
        raise Blocked("it is compiled: report outside of that", compiled)


def _others(program: Program, statement: ast.stmt) -> Iterator[ast.Expr]:
    """What else the loop writes in every iteration: it has to wait for its turn, too."""
    loop = program.hot_loop(statement)
    for node in own_nodes(program.function_of(statement) or program.tree):
        if not isinstance(node, ast.Call) or not writes_streams(program, node):
            continue
        other = program.statement_of(node)
        is_there = other is not statement and program.heat(node) is not Heat.ONCE and program.hot_loop(node) is loop
        if is_there and not reads_device(program, other):
            if not isinstance(other, ast.Expr) or other.value is not node or not is_output(program, node):
                raise Blocked("it writes in every iteration, too, and has to wait for what was printed before", node)
            yield other

"""Recognises guards and exits that make code inside a hot loop run rarely."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, LOOPS, Loop, assigned_values, path_of

_RARE_NAME = re.compile(r"(^|_)(should|debug)(_|$)|^onnx_trace$")
_FEW = 10  # steps
_COMPILING = frozenset({"torch.jit.is_scripting", "torch.jit.is_tracing", "torch.onnx.is_in_onnx_export"})
_CLOCKS = frozenset({"time.time", "time.perf_counter", "time.monotonic", "timeit.default_timer"})


def makes_rare(program: Program, parent: ast.AST, child: ast.AST) -> bool:
    """Does `parent` run its part `child` only now and then?"""
    if isinstance(parent, ast.If):
        if child in parent.body:
            return _complains(program, parent.body) or is_periodic(program, parent.test)
        if child in parent.orelse:
            return _complains(program, parent.orelse) or is_mostly_true(program, parent.test)
    if isinstance(parent, ast.IfExp):
        is_rarely = is_periodic if child is parent.body else is_mostly_true
        return child is not parent.test and is_rarely(program, parent.test)
    if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And) and child in parent.values:
        return any(is_periodic(program, test) for test in parent.values[: parent.values.index(child)])
    if isinstance(parent, ast.ExceptHandler | ast.Raise):
        return True
    if isinstance(parent, ast.Assert):
        return child is parent.msg
    if isinstance(parent, ast.Lambda):
        return isinstance(parent.body, ast.JoinedStr)  # a message, put together when it is wanted
    if isinstance(child, ast.stmt):
        return _skipped_before(program, child, parent)
    return False


def is_escape(program: Program, statement: ast.stmt, parent: ast.AST) -> type[ast.AST] | None:
    """ast.Break or ast.Return where one ends the block of `statement`, so that a loop is left in this iteration."""
    if isinstance(parent, FUNCTIONS):
        return None
    last = program.block_of(statement)[-1]
    if isinstance(last, ast.Break):
        return ast.Break
    if isinstance(last, ast.Return | ast.Raise) or _exits(program, last):
        return ast.Return
    return None


def _complains(program: Program, block: list[ast.stmt]) -> bool:
    """Does the block say that something is wrong? Then it is not supposed to run."""
    calls = (each.value for each in block if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call))
    return isinstance(block[-1], ast.Raise) or any(program.qualified(call.func) == "warnings.warn" for call in calls)


def _exits(program: Program, statement: ast.stmt) -> bool:
    """Does the statement end the program?"""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    return program.qualified(statement.value.func) in ("sys.exit", "os._exit", "builtins.exit", "builtins.quit")


def _skipped_before(program: Program, statement: ast.stmt, parent: ast.AST) -> bool:
    """Does `if step % n: continue` stand before `statement` in its block?"""
    if not isinstance(parent, (*LOOPS, *FUNCTIONS, ast.If, ast.With)):
        return False
    block = program.block_of(statement)
    for earlier in block:
        if earlier is statement:
            return False
        if not isinstance(earlier, ast.If) or earlier.orelse:
            continue
        leaves = isinstance(earlier.body[-1], ast.Continue | ast.Return)
        if leaves and is_mostly_true(program, earlier.test):
            return True
    return False


def is_periodic(program: Program, test: ast.expr) -> bool:
    """Is the test true only now and then: once in n steps, at one step, at the last?"""
    if isinstance(test, ast.BoolOp):
        parts = [is_periodic(program, part) for part in test.values]
        return any(parts) if isinstance(test.op, ast.And) else all(parts)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_mostly_true(program, test.operand)
    if program.value(test).periodic:
        return True
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _is_periodic_comparison(program, test)
    if isinstance(test, ast.Call):
        return _names_a_rarity(path_of(test.func)) or program.qualified(test.func) in _COMPILING
    return _names_a_rarity(path_of(test.value if isinstance(test, ast.Subscript) else test))


def is_mostly_true(program: Program, test: ast.expr) -> bool:
    """Is the test false only now and then?"""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_periodic(program, test.operand)
    if isinstance(test, ast.BoolOp):
        parts = [is_mostly_true(program, part) for part in test.values]
        return any(parts) if isinstance(test.op, ast.Or) else all(parts)
    if program.value(test).name == "modulo":
        return True
    if isinstance(test, ast.Call):
        return program.qualified(test.func) == "torch.cuda.is_available"  # without it, there is nothing to wait for
    return (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.NotEq)
        and _is_counter(program, test.left)
    )


def _is_periodic_comparison(program: Program, test: ast.Compare) -> bool:
    op, left, right = test.ops[0], test.left, test.comparators[0]
    if isinstance(op, ast.Eq | ast.Is):
        if program.value(left).name == "modulo" or program.value(right).name == "modulo":
            return True
        return _is_counter(program, left) or _is_counter(program, right)
    if isinstance(op, ast.In):
        return _is_counter(program, left)
    if isinstance(op, ast.Gt | ast.GtE | ast.Lt | ast.LtE):
        if isinstance(op, ast.Lt | ast.LtE) and _is_few(program, right) and _is_counter(program, left):
            return True
        return any(isinstance(part, ast.Call) and program.qualified(part.func) in _CLOCKS for part in ast.walk(test))
    return False


def _is_few(program: Program, node: ast.expr) -> bool:
    """Is it a number of steps so small that what runs in those alone is no matter?"""
    value = program.value(node)
    return isinstance(value.literal, int) and value.literal <= _FEW


def _is_counter(program: Program, node: ast.expr) -> bool:
    """Does the expression count the iterations of a loop around it?"""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    paths = names | ({path_of(node)} if path_of(node) else set())
    if program.value(node).kind not in (Kind.NUMBER, Kind.UNKNOWN) or not names:
        return False
    return any(
        _counts(program, loop, path) for loop in program.ancestors(node) if isinstance(loop, LOOPS) for path in paths
    )


def _counts(program: Program, loop: Loop, path: str) -> bool:
    """Does `loop` count its iterations in the variable called `path`, or in what it calculates that from?"""
    if program.counts(loop, path):
        return True
    return any(program.counts(loop, name) for value in assigned_values(loop, path) for name in _terms(value))


def _terms(node: ast.expr) -> Iterator[str]:
    """The variables of which an arithmetic expression is made."""
    if isinstance(node, ast.BinOp):
        yield from (*_terms(node.left), *_terms(node.right))
    elif isinstance(node, ast.Name):
        yield node.id


def _names_a_rarity(path: str) -> bool:
    """Does the name say that the test rarely passes: `should_log`, or only to debug or to export?"""
    return bool(_RARE_NAME.search(path.rpartition(".")[2]))

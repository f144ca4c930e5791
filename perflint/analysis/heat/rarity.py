"""Tells how seldom a condition holds: in some steps, and by how a run is set up, which no step changes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from perflint.analysis.autograd.effects import steps_optimizer
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.values.numbers import is_option
from perflint.analysis.values.values import LIKELY_HOST_TENSOR, Kind
from perflint.syntax.walk import (
    FUNCTIONS,
    LOOPS,
    Loop,
    assigned_values,
    elements_of,
    integer,
    own_nodes,
    path_of,
    stores,
    variables_in,
)

_RARE_NAME = re.compile(r"(^|_)(should|debug)(_|$)|^onnx_trace$")
_FEW = 10  # steps
_COMPILING = frozenset(
    {"torch.jit.is_scripting", "torch.jit.is_tracing", "torch.onnx.is_in_onnx_export", "torchvision._is_tracing"}
)
_BRANCHES = frozenset({ast.If, ast.IfExp, ast.BoolOp, ast.Assert, ast.ExceptHandler, ast.Raise})
RARE = _BRANCHES | {*FUNCTIONS, *LOOPS, ast.With}  # what may run its parts only now and then
_CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
CLOCKS = frozenset(f"time.{name}{unit}" for name in _CLOCKS for unit in ("", "_ns"))
CLOCKS |= {"timeit.default_timer", "datetime.datetime.now"}
_EXITS = frozenset({"sys.exit", "os._exit", "builtins.exit", "builtins.quit"})


def makes_rare(program: Program, parent: ast.AST, child: ast.AST) -> bool:
    """Does `parent` run its part `child` only now and then?"""
    if parent.__class__ not in RARE:
        return False
    if isinstance(parent, ast.If):
        if child in parent.body:
            return _complains(program, parent.body) or _is_rarely(program, parent.test, True, parent.body)
        if child in parent.orelse:
            return _complains(program, parent.orelse) or _is_rarely(program, parent.test, False, parent.orelse)
    if isinstance(parent, ast.IfExp):
        return child is not parent.test and _is_rarely(program, parent.test, child is parent.body, [child])
    if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And) and child in parent.values:
        return any(_is_rarely(program, test, True, [child]) for test in parent.values[: parent.values.index(child)])
    if isinstance(parent, (ast.ExceptHandler, ast.Raise)):
        return True
    if isinstance(parent, ast.Assert):
        return child is parent.msg
    if isinstance(parent, ast.Lambda):
        return isinstance(parent.body, ast.JoinedStr)  # a message, put together when it is wanted
    return isinstance(child, ast.stmt) and _skipped_before(program, child)


def is_escape(program: Program, statement: ast.stmt, parent: ast.AST) -> type[ast.AST] | None:
    """How the block of `statement` leaves a loop in this iteration: ast.Break, ast.Return or ast.Raise.

    ast.Continue where the loop goes on, whatever is behind the block. Also ast.Break where the block runs in but one of
    the loop's iterations, and ast.Raise where the program ends.
    """
    if isinstance(parent, FUNCTIONS):
        return None
    if isinstance(parent, ast.If) and statement in parent.body and _runs_once(program, parent):
        return ast.Break
    last = program.block_of(statement)[-1]
    if isinstance(last, (ast.Break, ast.Continue)):
        return type(last)
    if isinstance(last, ast.Raise) or _exits(program, last):
        return ast.Raise
    return ast.Return if isinstance(last, ast.Return) else None


def _runs_once(program: Program, guard: ast.If) -> bool:
    """Does `if not done:`, whatever it asks besides, set `done` itself, which nothing else in the loop around does?"""
    loop = next((each for each in program.ancestors(guard) if isinstance(each, (*LOOPS, *FUNCTIONS))), None)
    if not isinstance(loop, LOOPS):
        return False
    tests = [guard.test]
    if isinstance(guard.test, ast.BoolOp) and isinstance(guard.test.op, ast.And):
        tests = guard.test.values
    assigns = [each for each in guard.body if isinstance(each, ast.Assign)]
    for test in tests:
        name = _tested(test)
        values = [each.value for each in assigns if name and any(path_of(target) == name for target in each.targets)]
        if any(_fails_with(test, value) for value in values) and len(stores(loop, name)) == len(stores(guard, name)):
            return True
    return False


def _tested(test: ast.expr) -> str:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and _is_none(test.comparators[0]):
        test = test.left
    return test.id if isinstance(test, ast.Name) else ""


def _fails_with(test: ast.expr, value: ast.expr) -> bool:
    if isinstance(test, ast.Compare):
        return not _is_none(value)
    return isinstance(value, ast.Constant) and bool(value.value) is isinstance(test, ast.UnaryOp)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _complains(program: Program, block: list[ast.stmt]) -> bool:
    """Does it say that something is wrong? Then it is not supposed to run."""
    warns = any(isinstance(each, ast.Expr) and program.call_of(each.value, "warnings.warn") for each in block)
    return warns or isinstance(block[-1], ast.Raise)


def _exits(program: Program, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and program.call_of(statement.value, *_EXITS) is not None


def _skipped_before(program: Program, statement: ast.stmt) -> bool:
    """Does `if step % n: continue` stand before `statement` in its block?"""
    block = program.block_of(statement)
    for index, earlier in enumerate(block):
        if earlier is statement:
            return False
        if not isinstance(earlier, ast.If) or earlier.orelse:
            continue
        leaves = isinstance(earlier.body[-1], (ast.Continue, ast.Return))
        if leaves and _is_rarely(program, earlier.test, False, block[index + 1 :]):
            return True
    return False


def _is_rarely(program: Program, test: ast.expr, outcome: bool, branch: Sequence[ast.AST]) -> bool:
    """Has the test this outcome, for which `branch` runs, only now and then?

    Where gradients are accumulated, what runs once in n iterations is a step.
    """
    rarely = is_periodic(program, test) if outcome else is_mostly_true(program, test)
    return rarely and not _is_whole_step(program, branch)


def _is_whole_step(program: Program, branch: Sequence[ast.AST]) -> bool:
    above = program.ancestors(branch[0]) if branch else ()
    around = next((each for each in above if isinstance(each, (*LOOPS, *FUNCTIONS))), None)  # a method of a loop's, too
    inside = {node for part in branch for node in ast.walk(part) if _steps(program, node)} if around is not None else ()
    if around is None or not inside:
        return False
    others = {ast.unparse(node) for node in own_nodes(around) if node not in inside and _steps(program, node)}
    return any(ast.unparse(node) not in others for node in inside)


def _steps(program: Program, node: ast.AST) -> bool:
    calls = isinstance(node, ast.Call) and path_of(node.func).rpartition(".")[2] != "backward"
    return calls and (steps_optimizer(program, node) or program.trains_in(node))


def is_periodic(program: Program, test: ast.expr) -> bool:
    """Is the test true only now and then: once in n steps, at one step, at the last?"""
    if isinstance(test, ast.BoolOp):
        parts = [is_periodic(program, part) for part in test.values]
        return any(parts) if isinstance(test.op, ast.And) else all(parts)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_mostly_true(program, test.operand)
    if program.value(test).periodic or _is_rare_flag(program, test):
        return True
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _is_periodic_comparison(program, test)
    if isinstance(test, ast.Call):
        return _names_a_rarity(path_of(test.func)) or program.qualified(test.func) in _COMPILING
    return _names_a_rarity(path_of(test.value if isinstance(test, ast.Subscript) else test))


def is_mostly_true(program: Program, test: ast.expr) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_periodic(program, test.operand)
    if isinstance(test, ast.BoolOp):
        parts = [is_mostly_true(program, part) for part in test.values]
        return any(parts) if isinstance(test.op, ast.Or) else all(parts)
    if _is_remainder(program, test):
        return True
    if isinstance(test, ast.Call):
        return program.qualified(test.func) == "torch.cuda.is_available"  # without it, there is nothing to wait for
    return (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.NotEq)
        and (_is_counter(program, test.left) or _is_remainder(program, test.left))
    )


def _is_remainder(program: Program, node: ast.expr) -> bool:
    """Is it the remainder of a number, or of what is only guessed to be a tensor?"""
    value = program.value(node)
    is_guessed = value.kind is Kind.TENSOR and value.name == "guessed"
    return value.name == "modulo" or (is_guessed and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod))


def _is_periodic_comparison(program: Program, test: ast.Compare) -> bool:
    op, left, right = test.ops[0], test.left, test.comparators[0]
    if isinstance(op, ast.Eq | ast.Is):
        if _is_remainder(program, left) or _is_remainder(program, right):
            return True
        return _is_counter(program, left) or _is_counter(program, right)
    if isinstance(op, ast.In):
        return _is_counter(program, left)
    if isinstance(op, ast.Gt | ast.GtE | ast.Lt | ast.LtE):
        if _is_remainder(program, left):
            return isinstance(op, ast.Lt | ast.LtE)
        if isinstance(op, ast.Lt | ast.LtE) and _is_few(program, right) and _is_counter(program, left):
            return True
        return asks_clock(program, test)
    return False


def asks_clock(program: Program, node: ast.AST) -> bool:
    return any(program.call_of(part, *CLOCKS) for part in ast.walk(node))


def _is_few(program: Program, node: ast.expr) -> bool:
    """Is it a number of steps too small to matter, or that of the items of a list?"""
    length, number = program.call_of(node, "builtins.len"), program.value(node).literal
    if length is not None and length.args:
        return program.value(length.args[0]).kind is Kind.SEQUENCE
    return isinstance(number, int) and number <= _FEW


def _is_counter(program: Program, node: ast.expr) -> bool:
    names = variables_in(node)
    paths = names | ({path_of(node)} if path_of(node) else set())
    if program.value(node).kind not in (Kind.NUMBER, Kind.UNKNOWN) or not names:
        return False
    return any(
        _counts(program, loop, path) for loop in program.ancestors(node) if isinstance(loop, LOOPS) for path in paths
    )


def _counts(program: Program, loop: Loop, path: str) -> bool:
    """Does `loop` count its iterations in this variable, or in what that is calculated from?"""
    if program.counts(loop, path):
        return True
    return any(program.counts(loop, name) for value in assigned_values(loop, path) for name in _terms(value))


def _terms(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.BinOp):
        yield from (*_terms(node.left), *_terms(node.right))
    elif isinstance(node, ast.Call) and path_of(node.func) == "int" and node.args:
        yield from _terms(node.args[0])
    elif isinstance(node, ast.Name):
        yield node.id


def _names_a_rarity(path: str) -> bool:
    return bool(_RARE_NAME.search(path.rpartition(".")[2]))


def _is_rare_flag(program: Program, test: ast.expr) -> bool:
    """Is it cleared in each iteration and set now and then; or a flag that comes with a batch?"""
    if not isinstance(test, ast.Name):
        return False
    if program.value(test) == LIKELY_HOST_TENSOR:  # but no tensor: one of many samples has no truth
        return True
    scope = program.scope_of(test)
    cleared, rarely_set = False, False
    for store in stores(scope, test.id):
        statement = program.statement_of(store)
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Constant):
            return False
        parent = program.parent(statement)
        if not statement.value.value:
            cleared |= isinstance(parent, LOOPS) and parent in program.ancestors(test)
        elif isinstance(parent, ast.If) and statement in parent.body and _compares_a_period(program, parent.test):
            rarely_set = True
        else:
            return False
    return cleared and rarely_set


def _compares_a_period(program: Program, test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        parts = [_compares_a_period(program, each) for each in test.values]
        return any(parts) if isinstance(test.op, ast.And) else all(parts)
    return isinstance(test, ast.Compare) and is_periodic(program, test)


def asks_for_setting(program: Program, test: ast.expr) -> bool:
    """Is the condition the same in each step: of constants, attributes, settings given, and what no step makes?"""
    if isinstance(test, ast.BoolOp):
        return all(asks_for_setting(program, each) for each in test.values)
    if isinstance(test, ast.UnaryOp):
        return asks_for_setting(program, test.operand)
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        return False  # what may be missing
    return all(_is_setting(program, part) for side in sides for part in elements_of(side))


def _is_setting(program: Program, node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return bool(path_of(node)) and (program.value(node).kind is not Kind.TENSOR or is_option(program, node))
    if not isinstance(node, ast.Name):
        return isinstance(node, ast.Constant)
    definitions = [each for each in program.get(Flow).graph(node).definitions(node) if isinstance(each, Definition)]
    if any(isinstance(each.node, ast.arg) for each in definitions):
        compared = program.parent(node)
        others = [compared.left, *compared.comparators] if isinstance(compared, ast.Compare) else []
        defaults = [program.default(each.node) for each in definitions if isinstance(each.node, ast.arg)]
        if all(isinstance(each, ast.Constant) and isinstance(each.value, bool) for each in defaults):
            return True
        return bool(others) and not any(integer(each) == 0 for each in others)  # a count of what was found
    return not definitions  # of a global

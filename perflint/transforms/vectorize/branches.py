"""Divides a loop by a test whose answer is the same in every step, or is another in the first step alone."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from perflint.syntax.edits import Fix
from perflint.syntax.scopes import local_names
from perflint.syntax.walk import PlainLoop, own_nodes, path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import ReplaceStatements, forget_comments, located, new
from perflint.transforms.rewrite import rewrite
from perflint.transforms.template import expression, statement
from perflint.transforms.vectorize.asked import Asked, bare, check_layout, negated, tests_of
from perflint.transforms.vectorize.decisions import decided
from perflint.transforms.vectorize.facts import shapes_of
from perflint.transforms.vectorize.rewrite import Lifting, check_head, lift_loop, lifted

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_ZERO = ast.dump(ast.Constant(0))
_TELL_ZERO = (ast.Eq, ast.NotEq, ast.Gt)


def lifted_or_divided(program: Program, loop: PlainLoop) -> Fix:
    """The fix that computes all steps of `loop` at once, or does so for one answer to a test; raises Blocked."""
    try:
        return lifted(program, loop)
    except Blocked:
        if not (tests := list(tests_of(loop))):
            raise
    for node in tests:
        if (first := _in_first_step(program, loop, node.test)) is not None:
            return _peeled(Asked(program, loop, node.test), first=first)
    return _divided(Asked(program, loop, decided(program, loop, tests)))


def _divided(asked: Asked) -> Fix:
    """The fix that asks in front of the loop, and computes all steps at once for one answer."""
    check_layout(asked)
    reasons = [_reason(asked, answer=answer) for answer in (True, False)]
    if None in reasons:
        return _division(asked, answer=reasons[0] is None)
    one, other = (reason for reason in reasons if reason is not None)
    raise Blocked(f"{one.reason}; where `{ast.unparse(negated(asked.test))}`, {other}", one.node)


def _reason(asked: Asked, *, answer: bool) -> Blocked | None:
    """What stands in the way of the loop as it is for this answer; None where it can be lifted."""
    try:
        loop = asked.answered(answer)
        lift_loop(asked.among([loop]), loop)
    except Blocked as blocked:
        return blocked
    return None


def _division(asked: Asked, *, answer: bool) -> Fix:
    """One loop for this answer, which is lifted, and one for all else."""
    drops = _may_drop(asked)
    own, other = asked.answered(answer), asked.answered(not answer if drops else None)
    condition = asked.test if answer else negated(asked.test)
    divided = ast.copy_location(ast.If(condition, [own], [other]), asked.loop)
    lifting = lift_loop(asked.among([divided]), own)
    forget_comments(lifting.statements, asked.branch(answer=answer) if drops else set())
    chosen = new(ast.If(condition, list(lifting.statements), [other]))
    title = f"where `{ast.unparse(condition)}`, {lifting.title}"
    return _fix(asked, [chosen], lifting, title)


def _peeled(asked: Asked, *, first: bool) -> Fix:
    """The fix that takes the first step, which has this answer, by itself and the others at once; raises Blocked."""
    loop = asked.loop
    assert isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)
    check_layout(asked)
    whole = asked.answered(first)
    _check_alone(asked.among([whole]), whole)
    others = asked.answered(not first)
    assert isinstance(others, ast.For)
    steps = expression("{range}(1, {stop})", range=loop.iter.func, stop=loop.iter.args[-1])
    others.iter = located(steps, loop.iter)
    lift_loop(asked.among([others]), others)
    bare(whole.body, asked.branch(answer=first))
    start = located(statement("{index} = 0", index=loop.target), loop)
    test = located(expression("{stop} > 1", stop=loop.iter.args[-1]), loop.iter)
    rest = ast.copy_location(ast.If(test, [others], []), loop)
    lifting = lift_loop(asked.among([start, *whole.body, rest]), others)
    behind = new(ast.If(test, list(lifting.statements), []))
    return _fix(asked, [start, *whole.body, behind], lifting, f"after the first step, {lifting.title}")


def _fix(asked: Asked, statements: list[ast.stmt], lifting: Lifting, title: str) -> Fix:
    replaced = ReplaceStatements((asked.loop,), tuple(statements))
    return Fix(title, lifting.safety, rewrite(asked.program, replaced, *lifting.others))


def _check_alone(program: Program, loop: PlainLoop) -> None:
    """Raise Blocked unless what the first step does may be done in front of the loop."""
    for node in own_nodes(loop):
        if isinstance(node, ast.Break | ast.Continue):
            raise Blocked("the first step may be left before its end", node)
    check_head(program, loop)


def _may_drop(asked: Asked) -> bool:
    """Does nothing that a step does change the answer: is it told by local variables that are read for it alone?"""
    names = {path_of(part) for part in ast.walk(asked.test) if isinstance(part, ast.Name | ast.Attribute)}
    if not _are_local(asked.program, asked.loop, names):
        return False
    tests = {part for node in asked.tests for part in ast.walk(node.test)}
    reads = {node for node in own_nodes(asked.loop) if isinstance(node, ast.Name) and node.id in names}
    return reads <= tests


def _are_local(program: Program, loop: PlainLoop, paths: set[str]) -> bool:
    """Are these variables of the function around `loop`, to which no other function may give a value?"""
    around = program.function_of(loop)
    if around is None or not paths <= local_names(around):
        return False
    shared = (node for node in ast.walk(around) if isinstance(node, ast.Global | ast.Nonlocal))
    return not any(paths & {*node.names} for node in shared)


def _in_first_step(program: Program, loop: PlainLoop, test: ast.expr) -> bool | None:
    """What the first step answers to a test that tells it from all others, of a loop over a sequence's length."""
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) or not isinstance(loop.iter, ast.Call):
        return None
    if not isinstance(test, ast.Compare) or len(test.ops) > 1 or ast.dump(test.comparators[0]) != _ZERO:
        return None
    if not isinstance(test.left, ast.Name) or test.left.id != loop.target.id or loop.iter.lineno != loop.lineno:
        return None
    stops = [each for each in loop.iter.args if ast.dump(each) != _ZERO]
    if program.qualified(loop.iter.func) != "builtins.range" or len(stops) != 1 or stops[0] is not loop.iter.args[-1]:
        return None
    is_length = re.search(r"\.-?\d+$", shapes_of(program).size(stops[0]))  # there is a first step
    if not is_length or not _are_local(program, loop, _measured(stops[0])):  # which leaves it as it is
        return None
    return isinstance(test.ops[0], ast.Eq) if isinstance(test.ops[0], _TELL_ZERO) else None


def _measured(stop: ast.expr) -> set[str]:
    """The variables that tell how long a sequence is."""
    paths = {path_of(part) for part in ast.walk(stop) if isinstance(part, ast.Name | ast.Attribute)}
    return {re.sub(r"\.(size|shape)$", "", path) for path in paths} - {"len"}

"""Loop-carried shifted inputs: variables that hold the step of a given sequence before."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.analysis.values.shapes import Shapes
from perflint.syntax.walk import LOOPS, elements_of, integer
from perflint.transforms.operations import expression, plus
from perflint.transforms.rewrite import Blocked
from perflint.transforms.vectorize.scope import Scope, counter
from perflint.transforms.vectorize.values import Batched, Induction, Value


def shifted_in(scope: Scope, node: ast.Name) -> Batched:
    """The sequence that `node` walks, shifted by its value from before the loop; raises Blocked."""
    given = scope.facts.shifted[node.id]
    steps = replace(scope, values=dict(scope.targets)).lift(given)
    if not isinstance(steps, Batched) or not scope.facts.torch:
        raise Blocked(f"the step needs `{node.id}` of the step before", node)
    first = scope.start(node)
    is_other_step = first is not None and _is_other_step(scope, first, given)
    if first is None or not (is_other_step or _is_as_large(scope, first, given)):
        raise Blocked(f"`{node.id}` is not known to have the same shape in the first step as later", node)
    scope.draft.shifted.add(node.id)
    is_set_before = is_other_step and _is_set_before(scope, node)
    if is_set_before and (back := _one_step_back(scope, first, given)) is not None:
        scope.draft.unread.add(node.id)
        return back
    before = "{h}" if steps.kept else "{h}.unsqueeze({axis})"
    scope.draft.oddities.add("a shifted sequence")
    # As long as the sequence, also where that has no steps.
    template = f"{{torch}}.cat(({before}, {{x}}), dim={{axis}})[{':, ' * steps.axis}:-1]"
    code = expression(template, torch=scope.facts.torch, h=node.id, x=steps.code, axis=steps.axis)
    return replace(steps, code=code, dense=not steps.axis, fresh=True)


def _is_other_step(scope: Scope, first: ast.expr, given: ast.expr) -> bool:
    if not isinstance(first, ast.Subscript) or not isinstance(given, ast.Subscript):
        return False
    one, other = elements_of(first.slice), elements_of(given.slice)
    if not scope.is_same(first.value, given.value) or len(one) != len(other):
        return False
    return all(
        (integer(a) is not None and counter(scope, b) is not None) or ast.dump(a) == ast.dump(b)
        for a, b in zip(one, other, strict=True)
    )


def _is_set_before(scope: Scope, node: ast.Name) -> bool:
    """Is it set anew each time the loop begins?"""
    program, loop = scope.program, scope.facts.loop
    block = program.block_of(program.statement_of(scope.starts(node.id)[0].node))
    around = [loop, *program.ancestors(loop)]
    beside = next((at for at, each in enumerate(around) if each in block), None)
    return beside is not None and not any(isinstance(each, LOOPS) for each in around[1 : beside + 1])


def _one_step_back(scope: Scope, first: ast.expr, given: ast.expr) -> Batched | None:
    """The steps before `given` of the same sequence, where the `first` one is the step before its own first."""
    assert isinstance(first, ast.Subscript) and isinstance(given, ast.Subscript)
    inductions = {name: each for name, each in scope.targets.items() if isinstance(each, Induction)}
    pairs = zip(elements_of(first.slice), elements_of(given.slice), strict=True)
    steps = [(integer(one), each) for one, other in pairs if (each := counter(scope, other)) is not None]
    if len(steps) != 1:
        return None
    ((before, each),) = steps
    if before is None or before < 0 or integer(plus(each.first, each.offset)) != before + 1:
        return None
    values: dict[str, Value] = {name: replace(each, offset=each.offset - 1) for name, each in inductions.items()}
    back = replace(scope, values={**scope.targets, **values}).lift(given)
    return back if isinstance(back, Batched) else None


def _is_as_large(scope: Scope, first: ast.expr, given: ast.expr) -> bool:
    one, other = (scope.program.get(Shapes).shape(each) for each in (first, given))
    return one.rank is not None and one.first == other.first and all(one.first)

"""The value of an expression of a loop's body in all steps."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import elements_of, integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.template import expression
from perflint.transforms.vectorize import calls
from perflint.transforms.vectorize.axes import measured, pointwise, product
from perflint.transforms.vectorize.indexing import selected, sliced, split_of
from perflint.transforms.vectorize.modules import invariant
from perflint.transforms.vectorize.scope import Scope, counter, tensor
from perflint.transforms.vectorize.values import Batched, Carried, Invariant, Parts, State, Value, written

_IDENTITIES = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_PAIR = {"values": 0, "indices": 1}


def lift(scope: Scope, node: ast.expr) -> Value:
    """The value of `node` in all steps; raises Blocked."""
    found = scope.read(node) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else None
    if isinstance(found, Carried) and isinstance(node, ast.Name) and node.id in scope.facts.shifted:
        return _shifted_in(scope, node)
    if found is not None:
        return found
    if isinstance(node, ast.Tuple | ast.List):
        return Parts(tuple(scope.lift(part) for part in node.elts))
    if isinstance(node, ast.Call):
        return calls.lift_call(scope, node)
    if not scope.varies(node):
        return invariant(scope, node)
    if isinstance(node, ast.Subscript):
        return _subscript(scope, node)
    if isinstance(node, ast.Attribute):
        base = scope.lift(node.value)
        if isinstance(base, Parts) and node.attr in _PAIR and len(base.items) == 2:
            return base.items[_PAIR[node.attr]]
    if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare):
        return _operator(scope, node)
    raise _unknown(scope, node)


def _unknown(scope: Scope, node: ast.expr) -> Blocked:
    return Blocked(f"{shown(scope.program, node)} is not known to be the same for all steps at once", node)


def _operator(scope: Scope, node: ast.BinOp | ast.UnaryOp | ast.Compare) -> Value:
    if isinstance(node, ast.BinOp):
        if index := counter(scope, node):
            return index
        if isinstance(node.op, ast.MatMult):
            return product([scope.tensor(each) for each in (node.left, node.right)], "@", node)
        return pointwise(scope, node, [node.left, node.right])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = scope.tensor(node.operand, node)
        if not isinstance(value, Batched):
            raise Blocked("sizes of a step are combined", node)
        return value.computed(expression("-{x}", x=value.code), dense=value.dense, fresh=True)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and not isinstance(node.ops[0], _IDENTITIES):
        return pointwise(scope, node, [node.left, node.comparators[0]])
    raise _unknown(scope, node)


def _subscript(scope: Scope, node: ast.Subscript) -> Value:
    if isinstance(node.value, ast.Attribute) and node.value.attr == "shape" and not scope.read(node.value):
        return measured(node, node.slice, scope.tensor(node.value.value, node))
    base = scope.lift(node.value)
    if isinstance(base, Parts):
        index = integer(node.slice)
        if index is None or not -len(base.items) <= index < len(base.items):
            raise Blocked("which of the values is meant is no constant", node)
        return base.items[index]
    if isinstance(base, State) and not base.is_output:
        return _state_part(base, node)
    if isinstance(base, Invariant):
        if (split := split_of(scope, node.value)) is not None:
            return selected(scope, node, split, node.slice)
        if scope.program.value(node.value).kind is not Kind.TENSOR:
            raise Blocked(f"`{written(base)}` is not known to be a tensor", node)
    return sliced(scope, node, tensor(base, node))


def _state_part(state: State, node: ast.Subscript) -> Batched | State:
    """`hidden[-1]` or `hidden[0]` of an RNN of one layer: its outputs."""
    index = integer(node.slice)
    if state.is_pair:
        return State(state.path, state.outputs if index in (0, -2) else None)
    if state.outputs is None or index not in (-1, 0, 1):
        tensor(state, node)
    if index == 1:
        raise Blocked("the state of one layer has no other", node)
    assert state.outputs is not None
    return state.outputs


# -- loop-carried shifted inputs: the loop-carried value is a step of a given sequence


def _shifted_in(scope: Scope, node: ast.Name) -> Batched:
    """The sequence that `node` walks, one step late: first what it is before the loop. Raises Blocked."""
    given = scope.facts.shifted[node.id]
    steps = replace(scope, values=dict(scope.targets)).lift(given)
    if not isinstance(steps, Batched) or not scope.facts.torch:
        raise Blocked(f"the step needs `{node.id}` of the step before", node)
    first = scope.start(node)
    if first is None or not (_is_other_step(scope, first, given) or _is_as_large(scope, first, given)):
        raise Blocked(f"`{node.id}` is not known to have the same shape in the first step as later", node)
    scope.draft.shifted.add(node.id)
    before = "{h}" if steps.kept else "{h}.unsqueeze({axis})"
    # As long as the sequence, also where that has no steps.
    template = f"{{torch}}.cat(({before}, {{x}}), dim={{axis}})[{':, ' * steps.axis}:-1]"
    code = expression(template, torch=scope.facts.torch, h=node.id, x=steps.code, axis=steps.axis)
    return replace(steps, code=code, dense=not steps.axis, fresh=True)


def _is_other_step(scope: Scope, first: ast.expr, given: ast.expr) -> bool:
    """`x[:, 0]` beside `x[:, t]`."""
    if not isinstance(first, ast.Subscript) or not isinstance(given, ast.Subscript):
        return False
    one, other = elements_of(first.slice), elements_of(given.slice)
    if not scope.is_same(first.value, given.value) or len(one) != len(other):
        return False
    return all(
        (integer(a) is not None and counter(scope, b) is not None) or ast.dump(a) == ast.dump(b)
        for a, b in zip(one, other, strict=True)
    )


def _is_as_large(scope: Scope, first: ast.expr, given: ast.expr) -> bool:
    one, other = (scope.program.get(Shapes).shape(each) for each in (first, given))
    return one.rank is not None and one.first == other.first and all(one.first)

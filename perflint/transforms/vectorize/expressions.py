"""Lifts expressions: what they are when all steps are computed at once."""

from __future__ import annotations

import ast

from perflint.analysis.values.values import Kind
from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.template import expression
from perflint.transforms.vectorize import axes, calls
from perflint.transforms.vectorize.choices import chosen
from perflint.transforms.vectorize.counts import is_last
from perflint.transforms.vectorize.parted import parted
from perflint.transforms.vectorize.pointwise import pointwise
from perflint.transforms.vectorize.products import product
from perflint.transforms.vectorize.purity import invariant
from perflint.transforms.vectorize.scope import Scope, counter, tensor
from perflint.transforms.vectorize.shifts import shifted_in
from perflint.transforms.vectorize.slices import selected, sliced
from perflint.transforms.vectorize.states import below, earlier
from perflint.transforms.vectorize.steps import Carried, Layers, Lifted, Parts, Same, State, Steps, written

_IDENTITIES = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_PAIR = {"values": 0, "indices": 1}


def lift(scope: Scope, node: ast.expr) -> Lifted:
    """The value of `node` in all steps; raises Blocked."""
    found = scope.read(node) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else None
    if isinstance(found, Carried) and isinstance(node, ast.Name) and node.id in scope.facts.handed_on:
        return shifted_in(scope, node)
    if isinstance(found, Carried) and isinstance(node, ast.Name) and (before := earlier(scope, node)) is not None:
        return before
    if found is not None:
        return found
    if isinstance(node, ast.Tuple | ast.List):
        return Parts(tuple(scope.lift(part) for part in node.elts))
    if isinstance(node, ast.Call):
        return calls.lift_call(scope, node)
    if not scope.varies(node):
        return invariant(scope, node)
    if isinstance(node, ast.Subscript):
        return below(scope, node) or _subscript(scope, node)
    if isinstance(node, ast.IfExp):
        return chosen(scope, node)
    if isinstance(node, ast.Attribute):
        return _attribute(scope, node)
    if isinstance(node, ast.BinOp):
        return _operator(scope, node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _negated(scope, node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and not isinstance(node.ops[0], _IDENTITIES):
        return pointwise(scope, node, [node.left, node.comparators[0]])
    raise Blocked(f"{shown(scope.program, node)} is not known to be the same for all steps at once", node)


def _attribute(scope: Scope, node: ast.Attribute) -> Lifted:
    base = scope.lift(node.value)
    if isinstance(base, Parts) and node.attr in _PAIR and len(base.items) == 2:
        return base.items[_PAIR[node.attr]]
    raise Blocked(f"{shown(scope.program, node)} is not known to be the same for all steps at once", node)


def _subscript(scope: Scope, node: ast.Subscript) -> Lifted:
    if isinstance(node.value, ast.Attribute) and node.value.attr == "shape" and not scope.read(node.value):
        measure = scope.lift(node.value.value)
        return axes.measured(node, node.slice, tensor(measure, node))
    base = scope.lift(node.value)
    if isinstance(base, Parts):
        return _item(base, node)
    if isinstance(base, Layers):
        return _top(scope, base, node)
    if isinstance(base, State) and not base.is_output:
        return _state_part(base, node)
    if isinstance(base, Same):
        if (steps := parted(scope, node.value)) is not None:
            return selected(scope, node, steps, node.slice)
        kind = scope.program.value(node.value)
        if kind.kind is not Kind.TENSOR:
            raise Blocked(f"`{written(base)}` is not known to be a tensor", node)
    return sliced(scope, node, tensor(base, node))


def _item(base: Parts, node: ast.Subscript) -> Lifted:
    index = integer(node.slice)
    if index is None or not -len(base.items) <= index < len(base.items):
        raise Blocked("which of the values is meant is no constant", node)
    return base.items[index]


def _top(scope: Scope, base: Layers, node: ast.Subscript) -> Lifted:
    """`h[-1]` behind the loop over layers."""
    if base.top is None or not (integer(node.slice) == -1 or is_last(scope, node.slice, base.path)):
        raise Blocked(f"`{ast.unparse(node)}` is not known to be the state of the top layer", node)
    return base.top


def _state_part(state: State, node: ast.Subscript) -> Steps | State:
    """`hidden[-1]` or `hidden[0]` of an RNN of one layer: its outputs."""
    index = node.slice
    if state.is_pair:
        is_first = integer(index) in (0, -2)
        return State(state.path, state.outputs if is_first else None)
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub):
        index = index.operand
    if state.outputs is None or not (isinstance(index, ast.Constant) and index.value in (0, 1)):
        tensor(state, node)
    if isinstance(node.slice, ast.Constant) and node.slice.value != 0:
        raise Blocked("the state of one layer has no other", node)
    assert state.outputs is not None
    return state.outputs


def _negated(scope: Scope, node: ast.UnaryOp) -> Steps:
    value = tensor(scope.lift(node.operand), node)
    if not isinstance(value, Steps):
        raise Blocked("sizes of a step are combined", node)
    return value.computed(expression("-{x}", x=value.code), dense=value.dense, fresh=True)


def _operator(scope: Scope, node: ast.BinOp) -> Lifted:
    if index := counter(scope, node):
        return index
    if isinstance(node.op, ast.MatMult):
        return product([tensor(scope.lift(each), each) for each in (node.left, node.right)], "@", node)
    return pointwise(scope, node, [node.left, node.right])

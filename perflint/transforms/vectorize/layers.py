"""The batching rules of control flow in a step: a loop over layers stays around all steps, and so does a choice."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from perflint.analysis.ir.graph import Definition
from perflint.analysis.memory.dispatch import Modules
from perflint.syntax.walk import integer, own_nodes, path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.names import names_in
from perflint.transforms.operations import new, same_code
from perflint.transforms.template import assignment, expression, reference, statements
from perflint.transforms.vectorize.invariants import check_invariant, invariant
from perflint.transforms.vectorize.scope import Layer, Line, Scope, placed, tensor
from perflint.transforms.vectorize.states import leave
from perflint.transforms.vectorize.values import (
    Batched,
    Carried,
    Invariant,
    Parts,
    State,
    Value,
    alike,
    is_named,
)

Lines = Callable[[Scope, list[ast.stmt]], Iterator[Line]]
_DEPTH = 8


def lift_layers(scope: Scope, node: ast.For, lines: Lines) -> Iterator[Line]:
    """The loop around what `lines` makes of its body; raises Blocked."""
    if node.orelse or scope.layer is not None or _names_stored(node) & {*names_in(node.target)}:
        raise Blocked("there is another loop in it", node)
    layer = _bind_targets(scope, node)
    below = _outputs_below(scope, node, layer)
    entries = {name: _initial_value(scope, name, node) for name in _loop_carried(scope, node)}
    for name, entry in [*entries.items(), *below.items()]:
        if not is_named(entry.code, name):
            yield Line(node, (assignment(name, entry.code),), last=node.lineno)
        entries[name] = replace(entry, code=reference(name), dense=False, own=False, fresh=False, of="")
    entries = {name: entry for name, entry in entries.items() if name not in below}
    scope.values.update(entries)
    consumed = set(scope.draft.consumed)
    axis = next((entry.axis for entry in (*entries.values(), *below.values()) if entry.axis in (0, 1)), None)
    body = [*lines(replace(scope, layer=replace(layer, axis=axis)), node.body)]
    for name, entry in entries.items():
        body += [Line(node.body[-1], (each,)) for each in _back_edge_value(scope, name, entry, node)]
    if around := sorted(path for path in scope.draft.consumed - consumed if f"[{layer.index or None}]" not in path):
        raise Blocked(f"`{around[0]}` goes around in the loop in it", node)
    loop = new(ast.For(node.target, node.iter, placed(body) or statements("pass"), []))
    yield Line(node, (loop,), last=node.iter.end_lineno or node.lineno)
    leave(scope, layer, lambda path: _fills(scope, node, layer, path, below), node)


def _bind_targets(scope: Scope, node: ast.For) -> Layer:
    """Give the targets of the loop their values, which are the same in every step; raises Blocked."""
    walked, target = node.iter, node.target
    if scope.varies(walked):
        raise Blocked("there is another loop in it", node)
    check_invariant(scope, *_iterables(scope, walked))
    name = scope.program.qualified(walked.func) if isinstance(walked, ast.Call) else ""
    for part in ast.walk(target):
        if isinstance(part, ast.Name):
            scope.values[part.id] = Invariant(reference(part.id), scope.rank(part))
        elif not isinstance(part, ast.Tuple | ast.expr_context):
            raise Blocked("the loop's targets are no plain names", target)
    counted = target.elts[0] if isinstance(target, ast.Tuple) and name == "builtins.enumerate" else target
    arguments = walked.args if isinstance(walked, ast.Call) and not walked.keywords else []
    is_plain = len(arguments) == 1 and name in ("builtins.range", "builtins.enumerate")
    is_plain |= len(arguments) == 2 and name == "builtins.range"
    first = integer(arguments[0]) if len(arguments) == 2 else 0
    if not isinstance(counted, ast.Name) or not is_plain or first is None or first < 0:
        return Layer("")
    scope.values[counted.id] = Invariant(reference(counted.id), 0, is_number=True)
    return Layer(counted.id, first, is_above=first > 0)


def _iterables(scope: Scope, walked: ast.expr) -> Iterator[ast.expr]:
    """What a loop walks, which `enumerate` or `zip` may put together."""
    name = scope.program.qualified(walked.func) if isinstance(walked, ast.Call) else ""
    if isinstance(walked, ast.Call) and name in ("builtins.enumerate", "builtins.zip") and not walked.keywords:
        for each in walked.args:
            yield from _iterables(scope, each)
    else:
        yield walked


def _names_stored(node: ast.For) -> set[str]:
    parts = (part for statement in node.body for part in ast.walk(statement))
    return {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _loop_carried(scope: Scope, node: ast.For) -> list[str]:
    """The variables that one layer, or what is before all, hands to the next, or to what is after all."""
    inside = {part for statement in node.body for part in ast.walk(statement)}
    uses = (use for name in _names_stored(node) for use in scope.uses(name))
    return sorted({use.id for use in uses if (made := scope.flow.definitions(use)) & inside and made - inside})


def _initial_value(scope: Scope, name: str, node: ast.For) -> Batched:
    """What the first layer gets as `name`; raises Blocked."""
    value = tensor(scope.values.get(name, Carried(name)), node.iter)
    if not isinstance(value, Batched):
        raise Blocked(f"`{name}` is no step of a sequence before the loop in it", node)
    return value


def _back_edge_value(scope: Scope, name: str, entry: Batched, node: ast.For) -> Iterator[ast.stmt]:
    """What gives `name` the value that the next layer gets; raises Blocked."""
    value = tensor(scope.values.get(name, Carried(name)), node.iter)
    if not isinstance(value, Batched) or value.kept is not entry.kept:
        raise Blocked(f"`{name}` is another sort of value in the next layer", node)
    value = value if value.kept and value.axis == entry.axis else value.at(entry.axis)
    if value.least < entry.least or value.most > entry.most:
        raise Blocked(f"`{name}` is not known to have as many axes in the next layer", node)
    if not is_named(value.code, name):
        yield assignment(name, value.code)
    scope.values[name] = entry


def _outputs_below(scope: Scope, node: ast.For, layer: Layer) -> dict[str, Batched]:
    """What the layer before a loop that begins at the second one put out, by the name that the loop has for it."""
    found: dict[str, Batched] = {}
    for part in own_nodes(node) if layer.first else ():
        if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.BinOp):
            base = scope.read(part.value)
            state = scope.values.get(f"{base.path}[{layer.first - 1}]") if isinstance(base, Carried) else None
            if isinstance(base, Carried) and isinstance(state, State) and state.is_output and state.outputs:
                found[scope.draft.outputs_of(f"{base.path}[{layer.index}]")] = state.outputs
    return found


def _fills(scope: Scope, node: ast.For, layer: Layer, path: str, below: dict[str, Batched]) -> bool:
    """Does the loop walk the whole list, so that its last item is of the top layer?"""
    counts = {_length(scope, node.iter), *(_length(scope, start) for start in scope.entering(path))}
    is_begun = not layer.first or scope.draft.outputs_of(f"{path}[{layer.index}]") in below
    return len(counts) == 1 and "" not in counts and is_begun


# -- choices, by a test whose answer is the same in all steps


def lift_choice(scope: Scope, node: ast.If, lines: Lines) -> Iterator[Line]:
    """`if i > 0: ...` in a loop over layers; raises Blocked."""
    if scope.layer is None or scope.varies(node.test):
        raise Blocked("a test is made in each step", node)
    test, above = invariant(scope, node.test).code, _answer_above(scope, node.test)
    branches = {True: node.body, False: node.orelse}
    before, axis = dict(scope.values), scope.layer.axis
    written: dict[bool, list[Line]] = {}
    values: dict[bool, dict[str, Value]] = {}
    for answer in _in_order(above):
        _set_values(scope, before)
        written[answer] = [*lines(_inner(scope, axis, is_above=answer is above), branches[answer])]
        values[answer] = dict(scope.values)
        axis = axis if axis is not None else _axis(before, values[answer])
    for answer in (True, False):
        last = (branches[answer][-1].end_lineno if branches[answer] else None) or node.lineno
        written[answer] += [
            Line(node, (each,), last=last) for each in _named_states(values[answer], values[not answer])
        ]
    both = {path: _common(value, values[False][path]) for path, value in values[True].items() if path in values[False]}
    _set_values(scope, {path: value for path, value in both.items() if value is not None})
    body, orelse = placed(written[True]) or statements("pass"), placed(written[False])
    yield Line(node, (new(ast.If(test, body, orelse)),), last=node.test.end_lineno or node.lineno)


def chosen(scope: Scope, node: ast.IfExp) -> Batched:
    """`x[:, t] if i == 0 else h[i - 1]`; raises Blocked."""
    if scope.varies(node.test):
        raise Blocked("a test is made in each step", node)
    hoisted = len(scope.draft.before)
    test, above = invariant(scope, node.test).code, _answer_above(scope, node.test)
    found: dict[bool, Batched] = {}
    axis = None
    for answer in _in_order(above):
        value = _inner(scope, axis, is_above=answer is above).tensor(node.body if answer else node.orelse)
        if not isinstance(value, Batched):
            raise Blocked("one of the choices is no step of a sequence", node)
        found[answer], axis = value, axis if axis is not None else value.axis
    yes, no = found[True], found[False]
    if len(scope.draft.before) > hoisted or yes.kept is not no.kept:
        raise Blocked("the choices are not of one form", node)
    no = no if yes.kept and yes.axis == no.axis else no.at(yes.axis)
    either = _either(yes, replace(no, code=yes.code))
    assert either is not None
    return replace(either, code=expression("{yes} if {test} else {no}", yes=yes.code, test=test, no=no.code))


def _in_order(above: bool | None) -> tuple[bool, bool]:
    """Both answers, first that of the first layer, which tells the axis."""
    return (True, False) if above is not True else (False, True)


def _set_values(scope: Scope, values: dict[str, Value]) -> None:
    scope.values.clear()
    scope.values.update(values)


def _inner(scope: Scope, axis: int | None, *, is_above: bool) -> Scope:
    """The scope of one answer, by which the layer may be known not to be the first."""
    layer = scope.layer
    if layer is None:
        return scope
    known = layer.axis if layer.axis is not None else axis
    return replace(scope, layer=replace(layer, is_above=layer.is_above or is_above, axis=known))


def _answer_above(scope: Scope, test: ast.expr) -> bool | None:
    """The answer that tells that the layer is not the first; None where none does."""
    index = scope.layer.index if scope.layer is not None else ""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _answer_above(scope, test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Name):
        return True if test.id == index and index else None
    if not isinstance(test, ast.Compare) or len(test.ops) > 1 or getattr(test.left, "id", "") != (index or None):
        return None
    operator, other = test.ops[0], integer(test.comparators[0])
    if other == 0 and isinstance(operator, ast.Eq | ast.NotEq | ast.Gt):
        return not isinstance(operator, ast.Eq)
    return True if other == 1 and isinstance(operator, ast.GtE) else None


def _axis(before: dict[str, Value], values: dict[str, Value]) -> int | None:
    """The time axis of what a branch computed."""
    changed = (value for path, value in values.items() if before.get(path) != value)
    found = (value.outputs if isinstance(value, State) else value for value in changed)
    return next((value.axis for value in found if isinstance(value, Batched)), None)


def _named_states(values: dict[str, Value], others: dict[str, Value]) -> Iterator[ast.stmt]:
    """What gives a variable the state that it stands for, where it is no state in the other branch."""
    for path, value in values.items():
        if isinstance(value, State) and value.outputs and value.is_output and isinstance(others.get(path), Batched):
            values[path] = replace(value.outputs, code=expression(path))
            yield assignment(path, value.outputs.code)


def _common(one: Value, other: Value) -> Value | None:
    """What is known after both branches."""
    if alike(one, other):
        return one
    if isinstance(one, Batched) and isinstance(other, Batched):
        return _either(one, other)
    if isinstance(one, State) and isinstance(other, State) and one.path == other.path:
        if one.outputs is None or other.outputs is None or one.is_output is not other.is_output:
            return None
        outputs = _either(one.outputs, other.outputs)
        is_one = one.last is other.last or (one.last and other.last and same_code(one.last, other.last))
        return None if outputs is None or not is_one else replace(one, outputs=outputs)
    if isinstance(one, Parts) and isinstance(other, Parts) and len(one.items) == len(other.items):
        items = [_common(a, b) for a, b in zip(one.items, other.items, strict=True)]
        return Parts(tuple(each for each in items if each is not None)) if None not in items else None
    return None


def _either(one: Batched, other: Batched) -> Batched | None:
    """A value that is the one or the other; None where they don't stand alike."""
    if not same_code(one.code, other.code) or (one.axis, one.kept) != (other.axis, other.kept):
        return None
    least, most = min(one.least, other.least), max(one.most, other.most)
    return replace(one, least=least, most=most, own=one.own and other.own, dense=False, fresh=False, of="")


# -- trip counts and lengths of lists: symbols, equal where they are as many, empty where that is not plain


def is_last(scope: Scope, index: ast.expr, path: str) -> bool:
    """Is `index` that of the last item of the list that is called `path` before the loop?"""
    if not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Sub) or integer(index.right) != 1:
        return False
    counts = {_number(scope, index.left, _DEPTH), *(_length(scope, start) for start in scope.entering(path))}
    return len(counts) == 1 and "" not in counts


def _length(scope: Scope, node: ast.expr | None, depth: int = _DEPTH) -> str:
    """How many items a list, or what a loop walks, has."""
    if node is None or not depth:
        return ""
    if isinstance(node, ast.List | ast.Tuple):
        return "" if any(isinstance(each, ast.Starred) for each in node.elts) else str(len(node.elts))
    if isinstance(node, ast.ListComp):
        generator = node.generators[0]
        return "" if len(node.generators) > 1 or generator.ifs else _length(scope, generator.iter, depth - 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and _length(scope, node.left, depth - 1) == "1":
        return _number(scope, node.right, depth - 1)
    if isinstance(node, ast.Call):
        name = scope.program.qualified(node.func)
        if name == "builtins.range" and 1 <= len(node.args) <= 2:
            return _number(scope, node.args[-1], depth - 1)
        is_plain = name == "builtins.enumerate" and len(node.args) == 1
        return _length(scope, node.args[0], depth - 1) if is_plain else ""
    modules = scope.program.get(Modules)
    given = modules.values_of(node) if isinstance(node, ast.Attribute) else []
    built = given[0] if len(given) == 1 and not [*modules.added(node)] else None
    is_list = isinstance(built, ast.Call) and scope.program.qualified(built.func) == "torch.nn.ModuleList"
    is_plain = isinstance(built, ast.Call) and is_list and len(built.args) == 1
    return _length(scope, built.args[0], depth - 1) if isinstance(built, ast.Call) and is_plain else ""


def _number(scope: Scope, node: ast.expr, depth: int) -> str:
    """A number: a constant, a parameter, or what an attribute is given once."""
    if not depth:
        return ""
    if (value := integer(node)) is not None:
        return str(value)
    if isinstance(node, ast.Call) and scope.program.qualified(node.func) == "builtins.len" and node.args:
        return _length(scope, node.args[0], depth - 1)
    if isinstance(node, ast.Attribute):
        values = scope.program.get(Modules).values_of(node)
        given = values[0] if len(values) == 1 else None
        return _number(scope, given, depth - 1) if given is not None else "" if values else path_of(node)
    made = scope.flow.graph(node).definitions(node) if isinstance(node, ast.Name) else ()
    only = next(iter(made)) if len(made) == 1 else None
    if not isinstance(only, Definition):
        return ""
    if isinstance(only.node, ast.arg):
        return f"{only.name}:{only.node.lineno}"
    return _number(scope, only.given, depth - 1) if only.given is not None else ""

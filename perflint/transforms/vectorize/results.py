"""Lifts what a loop keeps of each step: lists, sums, slots of a tensor, a tensor that grows."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from perflint.analysis.ir.occurrences import occurrences
from perflint.analysis.memory.roles import WRAPPERS
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, own_nodes, path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import same_code
from perflint.transforms.template import assignment, expression, statement
from perflint.transforms.vectorize.axes import joined_axis
from perflint.transforms.vectorize.purity import call_entry
from perflint.transforms.vectorize.scope import Scope, tensor
from perflint.transforms.vectorize.seen import is_only_joined, is_written, starts_of
from perflint.transforms.vectorize.slices import item_code, spread, step_range
from perflint.transforms.vectorize.steps import Steps, indexed
from perflint.transforms.vectorize.widths import keeps_type


@dataclass(frozen=True)
class Appended:
    """A list called `path` that gets one tensor in each step."""

    path: str
    statement: ast.stmt
    value: Steps


@dataclass
class Results:
    """The results of `loop` so far."""

    loop: PlainLoop
    lists: list[Appended] = field(default_factory=list)

    def lift(self, scope: Scope, node: ast.stmt) -> ast.stmt | None:
        """The statement that keeps the results of all steps; None where `node` keeps none. Raises Blocked."""
        if (kept := appended(node)) is not None:
            return self._append(scope, node, *kept)
        if (added := _added(node)) is not None:
            return self._add(scope, node, *added)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            is_list = scope.program.value(node.targets[0].value).kind is Kind.SEQUENCE
            return None if is_list else self._slot(scope, node, node.targets[0])
        if isinstance(node, ast.Assign) and (grown := _grown(scope, node)) is not None:
            return self._grow(scope, node, *grown)
        return None

    def _only_here(self, node: ast.stmt, path: str, others: Sequence[ast.stmt] = ()) -> None:
        """Raise Blocked where the loop reads or writes `path` elsewhere than in `node`, or `others` of its kind."""
        if len(occurrences(self.loop, path)) != sum(len(occurrences(each, path)) for each in others or [node]):
            raise Blocked(f"`{path}` is also used elsewhere in the loop", node)

    def _append(self, scope: Scope, node: ast.stmt, path: str, element: ast.expr) -> ast.stmt:
        self._only_here(node, path)
        if _is_shared(scope, path, self.loop):
            raise Blocked(f"`{path}` is known by another name, too", node)
        if not _is_list(scope, node):
            raise Blocked(f"`{path}` is not known to be a list", node)
        value = tensor(scope.lift(element), element)
        if not isinstance(value, Steps):
            raise Blocked("the same value is kept in every step", node)
        self.lists.append(Appended(path, node, value))
        taken = f"split(1, dim={value.axis})" if value.kept else f"unbind({value.axis})" if value.axis else "unbind()"
        parts = expression(f"{{x}}.{taken}", x=value.code)
        if is_only_joined(scope, path):
            return statement(f"{path}.extend({{parts}})", parts=parts)
        if not value.own:
            raise Blocked(f"`{path}` keeps views of a given tensor, to which other code may write", node)
        return statement(f"{path}.extend(each.clone() for each in {{parts}})", parts=parts)

    def check_apart(self, scope: Scope, name: str, value: Steps) -> None:
        """Raise Blocked where the last value of `name` may be kept elsewhere, too, and is seen to be written to."""
        kept = [each.path for each in self.lists if same_code(each.value.code, value.code)]
        written = next((path for path in (name, *kept) if is_written(scope, path)), "")
        if value.own and written and (self.lists or len(scope.facts.read_behind) > 1):
            raise Blocked(f"`{written}` is changed in place after the loop, and may be kept elsewhere, too", self.loop)

    def _add(self, scope: Scope, node: ast.stmt, path: str, addends: list[tuple[str, ast.expr]]) -> ast.stmt:
        self._only_here(node, path, [each for each in self.loop.body if (sum_ := _added(each)) and sum_[0] == path])
        if narrow := [addend for _, addend in addends if not (_item(addend) or keeps_type(scope, path, addend))]:
            raise Blocked(f"`{path}` adds up small integers, whose sum at once has 64 bits", narrow[0])
        if isinstance(node, ast.AugAssign):
            if not (isinstance(node.target, ast.Name) and _is_own(scope, node.target)):
                raise Blocked(f"`{path}` may share its memory with another tensor", node)
            return statement(f"{path} {addends[0][0]}= {{total}}", total=_total(scope, addends[0][1]))
        added: ast.expr = expression(path)
        for sign, addend in addends:
            added = expression(f"{{sum}} {sign} {{total}}", sum=added, total=_total(scope, addend))
        return assignment(path, added)

    def _slot(self, scope: Scope, node: ast.Assign, target: ast.Subscript) -> ast.stmt:
        """`out[:, t] = v` as `out[:, first:stop] = v` of all steps."""
        path = path_of(target.value)
        if not path or len(node.targets) > 1:
            raise Blocked("what is written to has no name", node)
        self._only_here(node, path)
        if scope.program.value(target.value).kind is not Kind.TENSOR:
            raise Blocked(f"`{path}` is not known to be a tensor", node)
        items = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        items = spread(scope, items, target.value)
        found = [(position, steps) for position, item in enumerate(items) if (steps := step_range(scope, item))]
        full = [item for item in items if isinstance(item, ast.Slice) and item.lower is None and item.upper is None]
        if len(found) != 1 or len(full) != len(items) - 1:
            raise Blocked("what is written to is not one step of a tensor", node)
        axis, steps = found[0]
        value = tensor(scope.lift(node.value), node.value)
        rank = scope.rank(target.value)
        if not isinstance(target.value, ast.Name) or not is_fresh(scope, target.value, self.loop):
            raise Blocked(f"`{path}` may share its memory with another tensor", node)
        if not isinstance(value, Steps) or rank is None or value.kept != steps.kept:
            raise Blocked(f"it is not known whether a step fills a slot of `{path}`", node)
        if value.rank != rank - (0 if value.kept else 1):
            raise Blocked(f"it is not known whether a step fills a slot of `{path}`", node)
        parts = [item_code(scope, item) for item in items]
        parts[axis] = steps.slice()
        slot = indexed(expression(path), parts)
        return statement("{slot} = {x}", slot=slot, x=value.code if value.kept else value.at(axis).code)

    def _grow(self, scope: Scope, node: ast.Assign, call: ast.Call, part: ast.expr, axis: int) -> ast.stmt:
        path = path_of(node.targets[0])
        self._only_here(node, path)
        value = tensor(scope.lift(part), part)
        if not isinstance(value, Steps) or not value.kept or value.axis != axis:
            raise Blocked("the tensor does not grow along the time axis", node)
        return assignment(path, scope.code(call, {part: value.code}))


def _is_list(scope: Scope, node: ast.stmt) -> bool:
    """Is what `node` appends to a list, rather than something else that has `append`?"""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return scope.program.value(node.value.func.value).kind is Kind.SEQUENCE
    return True  # `outs += [x]`


def _is_shared(scope: Scope, path: str, loop: ast.stmt) -> bool:
    """Does the function around `loop` give the list another name?"""
    around = scope.program.function_of(loop) or scope.program.tree
    return any(
        path_of(node.value) == path or (len(node.targets) > 1 and path in map(path_of, node.targets))
        for node in own_nodes(around)
        if isinstance(node, ast.Assign)
    )


def collected_paths(statements: list[ast.stmt]) -> set[str]:
    """The paths of what the statements of a body keep results in."""
    found = set()
    for node in statements:
        if (kept := appended(node)) is not None:
            found.add(kept[0])
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            found.add(path_of(node.targets[0].value))
    return found - {""}


def appended(node: ast.stmt) -> tuple[str, ast.expr] | None:
    """The list, and what is appended to it."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        call, path = node.value, path_of(node.value.func.value)
        if node.value.func.attr == "append" and path and len(call.args) == 1 and not call.keywords:
            return path, call.args[0]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.value, ast.List):
        path = path_of(node.target)
        if path and len(node.value.elts) == 1:
            return path, node.value.elts[0]
    return None


def _added(node: ast.stmt) -> tuple[str, list[tuple[str, ast.expr]]] | None:
    """The sum, and what is added to it, each with its sign."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
        path = path_of(node.target)
        return (path, [(_sign(node.op), node.value)]) if path else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
        left: ast.expr = node.value
        addends: list[tuple[str, ast.expr]] = []
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add | ast.Sub):
            addends.insert(0, (_sign(left.op), left.right))
            left = left.left
        path = path_of(node.targets[0])
        return (path, addends) if path and addends and path == path_of(left) else None
    return None


def _sign(operator: ast.operator) -> str:
    return "+" if isinstance(operator, ast.Add) else "-"


def is_fresh(scope: Scope, name: ast.Name, loop: ast.stmt) -> bool:
    """Is the variable a tensor just made, that nothing but the loop has touched?"""
    if not all(_is_new(scope, value) for value in starts_of(scope, name.id)):
        return False
    around = scope.program.function_of(loop) or scope.program.tree
    uses = [node for node in occurrences(around, name.id) if isinstance(node.ctx, ast.Load)]
    before = [node for node in uses if scope.program.stands_before(node, loop)]
    return all(isinstance(scope.program.parent(node), ast.Attribute) and _is_measure(scope, node) for node in before)


def _is_new(scope: Scope, value: ast.expr | None) -> bool:
    """Is it a tensor that shares its memory with no other?"""
    if not isinstance(value, ast.Call):
        return isinstance(value, ast.BinOp)
    name = scope.program.qualified(value.func)
    if name in WRAPPERS and value.args:
        return _is_new(scope, value.args[0])
    entry = call_entry(scope, value)
    if entry is None or any(each.name != "out" for each in entry.views):
        return False
    if not all(_is_new(scope, each) for argument in entry.may_return for each in argument.of(value)):
        return False
    return bool(entry.traits & {"factory", "like"}) or not entry.does("random")


def _is_measure(scope: Scope, node: ast.AST) -> bool:
    parent = scope.program.parent(node)
    return isinstance(parent, ast.Attribute) and parent.attr in ("size", "shape", "dtype", "device", "dim", "ndim")


def _is_own(scope: Scope, name: ast.Name) -> bool:
    """Is the variable a number, or a tensor that shares its memory with no other?"""
    starts = starts_of(scope, name.id)
    are_numbers = (value is not None and scope.program.value(value).kind is Kind.NUMBER for value in starts)
    return all(is_number or _is_new(scope, value) for is_number, value in zip(are_numbers, starts, strict=True))


def _item(node: ast.expr) -> ast.expr | None:
    """The tensor of which `node` reads the number, in `loss.item()`."""
    is_read = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item"
    return node.func.value if is_read and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def _total(scope: Scope, addend: ast.expr) -> ast.expr:
    """What all steps add."""
    read = _item(addend)
    value = tensor(scope.lift(read or addend), addend)
    if not isinstance(value, Steps) or (read and value.rank != 0):
        raise Blocked("the same number is added in every step", addend)
    axis = f"{value.axis}, keepdim=True" if value.kept else str(value.axis)
    total = "{x}.sum()" if value.rank == 0 else f"{{x}}.sum({axis})"
    return expression(f"{total}.item()" if read else total, x=value.code)


def _grown(scope: Scope, node: ast.Assign) -> tuple[ast.Call, ast.expr, int] | None:
    """The cat by which a tensor grows, what it grows by, and the axis."""
    call = node.value
    if not isinstance(call, ast.Call) or scope.program.qualified(call.func) != "torch.cat" or not call.args:
        return None
    parts = call.args[0]
    if not isinstance(parts, ast.List | ast.Tuple) or len(parts.elts) != 2:
        return None
    path = path_of(node.targets[0])
    if not path or path_of(parts.elts[0]) != path:
        return None
    axis = joined_axis(call)
    return (call, parts.elts[1], axis) if axis is not None and axis >= 0 else None

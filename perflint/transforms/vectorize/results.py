"""The batching rules of what a loop keeps of each step: lists, sums, tensor slots, a growing tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from perflint import torch_ops
from perflint.analysis.ir.graph import Definition
from perflint.analysis.ir.occurrences import occurrences
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.locations import NOWHERE, Locations
from perflint.analysis.program import Program
from perflint.analysis.values.dtypes import FLOAT, INTEGER, assigned, is_wide_integer, number_kind
from perflint.analysis.values.operations import TorchCall, operation
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, LOOPS, elements_of, path_of
from perflint.transforms.aliases import ELSEWHERE, aliases, steps_weights
from perflint.transforms.host_code import item_of
from perflint.transforms.joined import Growth, growth
from perflint.transforms.operations import (
    Operation,
    Replace,
    ReplaceStatements,
    assignment,
    expression,
    reference,
    statement,
)
from perflint.transforms.rewrite import Blocked, check_alone
from perflint.transforms.vectorize.indexing import dropped_axes, item_code, ranges
from perflint.transforms.vectorize.scope import Appended, Line, Scope, appended
from perflint.transforms.vectorize.values import Batched, indexed

_REPEATS = (*LOOPS, *FUNCTIONS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NARROW = frozenset({"int", "short", "uint8", "uint16", "uint32", "int8", "int16", "int32", "bool"})


def lift_result(scope: Scope, node: ast.stmt) -> ast.stmt | None:
    if (kept := appended(node)) is not None:
        return _append(scope, node, *kept)
    if (added := _added(node)) is not None:
        return _add(scope, node, *added)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        is_list = scope.program.value(node.targets[0].value).kind is Kind.SEQUENCE
        return None if is_list else _slot(scope, node, node.targets[0])
    if (grown := growth(scope.program, node)) is not None:
        return _grow(scope, node, grown)
    return None


def _check_only_here(scope: Scope, node: ast.stmt, path: str, others: Sequence[ast.stmt] = ()) -> None:
    if len(occurrences(scope.facts.loop, path)) != sum(len(occurrences(each, path)) for each in others or [node]):
        raise Blocked(f"`{path}` is also used elsewhere in the loop", node)


def _append(scope: Scope, node: ast.stmt, path: str, element: ast.expr) -> ast.stmt:
    _check_only_here(scope, node, path)
    if isinstance(node, ast.Expr) and scope.program.value(occurrences(node, path)[0]).kind is not Kind.SEQUENCE:
        raise Blocked(f"`{path}` is not known to be a list", node)
    if _is_aliased(scope, path):
        raise Blocked(f"`{path}` is known by another name, too", node)
    value = scope.tensor(element)
    if not isinstance(value, Batched):
        raise Blocked("the same value is kept in every step", node)
    scope.draft.lists.append(Appended(path, node, value))
    taken = f"split(1, dim={value.axis})" if value.kept else f"unbind({value.axis})" if value.axis else "unbind()"
    parts = expression(f"{{x}}.{taken}", x=value.code)
    if _is_only_joined(scope, path):
        return statement(f"{path}.extend({{parts}})", parts=parts)
    if not value.own:
        raise Blocked(f"`{path}` keeps views of a given tensor, to which other code may write", node)
    scope.draft.oddities.add("clones of steps")
    return statement(f"{path}.extend(each.clone() for each in {{parts}})", parts=parts)


def check_apart(scope: Scope, names: list[str]) -> None:
    """Raise Blocked where a step's result is kept twice and may be written to after the loop."""
    program, loop, within = scope.program, scope.facts.loop, scope.graph.is_within
    points = program.get(Memory).points_to(loop)
    lists = [(each, found[1]) for each in scope.draft.lists if (found := appended(each.statement)) is not None]
    bound = ([each for each in scope.graph.bindings[name] if within(each.node, loop)] for name in names)
    named = [_locations(scope, each) for each in bound]
    kept = [*(points.of(element) for _, element in lists), *named]
    shown = [*(points.of(element) for each, element in lists if not _is_only_joined(scope, each.path)), *named]
    later = [each for each in [*points.writes] if not (within(each.node, loop) or steps_weights(program, each))]
    for holders, is_changed in ((kept, lambda place: any(each.reaches([place]) for each in later)),
                                (shown, points.escaping().__contains__)):  # fmt: skip
        for place in frozenset().union(*holders):
            is_made_here = isinstance(place.root, ast.AST) and within(place.root, loop)
            if is_made_here and sum(place in each for each in holders) > 1 and is_changed(place):
                raise Blocked("what a step made is kept twice, and may be changed in place after the loop", loop)


def _add(scope: Scope, node: ast.stmt, path: str, addends: list[tuple[str, ast.expr]]) -> ast.stmt:
    _check_only_here(
        scope, node, path, [each for each in scope.facts.loop.body if (sum_ := _added(each)) and sum_[0] == path]
    )
    if narrow := [each for _, each in addends if not item_of(each) and _is_narrow(scope.program, each)]:
        raise Blocked(f"`{path}` adds up small integers, whose sum at once has 64 bits", narrow[0])
    if isinstance(node, ast.AugAssign):
        if not (isinstance(node.target, ast.Name) and _is_unshared(scope, path)):
            raise Blocked(f"`{path}` may share its memory with another tensor", node)
        return statement(f"{path} {addends[0][0]}= {{total}}", total=_total(scope, addends[0][1]))
    added: ast.expr = expression(path)
    for sign, addend in addends:
        added = expression(f"{{sum}} {sign} {{total}}", sum=added, total=_total(scope, addend))
    return assignment(path, added)


def _slot(scope: Scope, node: ast.Assign, target: ast.Subscript) -> ast.stmt:
    """`out[:, t] = v` as `out[:, first:stop] = v` of all steps."""
    path = path_of(target.value)
    if not path or len(node.targets) > 1:
        raise Blocked("what is written to has no name", node)
    _check_only_here(scope, node, path)
    if scope.program.value(target.value).kind is not Kind.TENSOR:
        raise Blocked(f"`{path}` is not known to be a tensor", node)
    items = elements_of(target.slice)
    found = ranges(scope, items)
    if len(found) != 1 or scope.varies(*(each for each in items if each is not items[found[0][0]])):
        raise Blocked("what is written to is not one step of a tensor", node)
    axis, steps = found[0]
    numbers = dropped_axes(scope, target, items[:axis] + items[axis + 1 :])
    value, rank = scope.tensor(node.value), scope.rank(target.value)
    if not isinstance(target.value, ast.Name) or not _is_unshared(scope, path):
        raise Blocked(f"`{path}` may share its memory with another tensor", node)
    at = axis - sum(each in numbers for each in items[:axis])
    is_slot = isinstance(value, Batched) and value.kept == steps.kept and (not value.kept or value.axis == at)
    if not isinstance(value, Batched) or rank is None or not is_slot:
        raise Blocked(f"it is not known whether a step fills a slot of `{path}`", node)
    if value.rank != rank - len(numbers) - (0 if value.kept else 1):
        raise Blocked(f"it is not known whether a step fills a slot of `{path}`", node)
    parts = [item_code(scope, item) for item in items]
    parts[axis] = steps.slice()
    slot = indexed(expression(path), parts)
    return statement("{slot} = {x}", slot=slot, x=value.at(at).code)


def _grow(scope: Scope, node: ast.stmt, grown: Growth) -> ast.stmt:
    _check_only_here(scope, node, grown.path)
    value = scope.tensor(grown.part)
    if not isinstance(value, Batched) or not value.kept or value.axis != grown.call.joined_axis:
        raise Blocked("the tensor does not grow along the time axis", node)
    return assignment(grown.path, scope.code(grown.call.call, {grown.part: value.code}))


# -- forms of statements


def _added(node: ast.stmt) -> tuple[str, list[tuple[str, ast.expr]]] | None:
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


def _total(scope: Scope, addend: ast.expr) -> ast.expr:
    read = item_of(addend)
    value = scope.tensor(read or addend, addend)
    if not isinstance(value, Batched) or (read and value.rank != 0):
        raise Blocked("the same number is added in every step", addend)
    axis = f"{value.axis}, keepdim=True" if value.kept else str(value.axis)
    total = "{x}.sum()" if value.rank == 0 else f"{{x}}.sum({axis})"
    return expression(f"{total}.item()" if read else total, x=value.code)


def _joining(scope: Scope, node: ast.AST) -> TorchCall | None:
    found = operation(scope.program, node)
    return found if found is not None and found.name in ("cat", "stack") else None


# -- who else may know it


def _locations(scope: Scope, values: Iterable[Definition]) -> Locations:
    return NOWHERE.union(*map(scope.program.get(Memory).points_to(scope.facts.loop).held, values))


def _is_unshared(scope: Scope, name: str) -> bool:
    loop, starts = scope.facts.loop, scope.starts(name)
    if not starts or scope.graph.is_shared(name) or _is_aliased(scope, name):
        return False
    return ELSEWHERE not in aliases(scope.program, loop, _locations(scope, starts))


def _is_aliased(scope: Scope, path: str) -> bool:
    points = scope.program.get(Memory).points_to(scope.facts.loop)
    nodes = [each for each in scope.facts.inside if isinstance(each, ast.Name | ast.Attribute)]
    places = NOWHERE.union(*(points.of(each) for each in nodes if path_of(each) == path))
    return any(path_of(each) != path and places & points.of(each) for each in nodes if isinstance(each.ctx, ast.Load))


def _is_only_joined(scope: Scope, path: str) -> bool:
    starts = scope.starts(path)
    uses = {use for start in starts for use in scope.flow.graph(start.node).uses.get(start.node, ())}
    is_new = all(isinstance(value, ast.List | ast.ListComp) for value in scope.entering(path))
    is_shared = scope.flow.graph(scope.facts.loop).is_shared(path)
    return is_new and not is_shared and all(_is_joined(scope, use) for use in uses)


def _is_joined(scope: Scope, use: ast.Name) -> bool:
    parent = scope.program.parent(use)
    if isinstance(parent, ast.Attribute | ast.AugAssign):
        return isinstance(use.ctx, ast.Store) or getattr(parent, "attr", "") in ("append", "extend")
    if not isinstance(parent, ast.Call):
        return False
    return _joining(scope, parent) is not None or scope.program.qualified(parent.func) == "builtins.len"


# -- does a sum over all steps at once have the type of one that is made step by step?


def _is_narrow(program: Program, node: ast.expr, asked: Set[ast.expr] = frozenset()) -> bool:
    """Is it of small integers, or truth values? The unknown counts as something else; `asked` is known already."""
    kind, dtype = number_kind(program, node), program.value(node).dtype
    if kind == FLOAT or is_wide_integer(program, node):
        return False
    values = (assigned(program, node) if isinstance(node, ast.Name) else None) or [node]
    is_cast = any(_makes_narrow(program, each) for value in values for each in ast.walk(value))
    others = [each for each in values if each is not node and each not in asked]
    is_of_narrow = any(_is_narrow(program, each, {*asked, *others}) for each in others)
    if isinstance(node, ast.BinOp):
        parts = [each for each in (node.left, node.right) if program.value(each).kind is not Kind.NUMBER]
        is_of_narrow = bool(parts) and all(_is_narrow(program, each, asked) for each in parts)
    elif isinstance(node, ast.Subscript | ast.UnaryOp):
        is_of_narrow = _is_narrow(program, node.value if isinstance(node, ast.Subscript) else node.operand, asked)
    return is_cast or is_of_narrow or (kind == INTEGER and dtype != "int")


def _makes_narrow(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = torch_ops.of_method(node.func.attr)
        is_cast = method is not None and method.does("cast") and not node.args
        return is_cast and method is not None and not (method.does("making_floats") or method.dtype == "int")
    name = program.qualified(node) if isinstance(node, ast.Attribute | ast.Name) else ""
    return name.startswith("torch.") and name.removeprefix("torch.") in _NARROW


# -- one tensor where a list of results would only be stacked after the loop


def stacked(scope: Scope, lines: list[Line]) -> tuple[list[Line], list[Operation]]:
    operations: list[Operation] = []
    for each in scope.draft.lists:
        start, found = _only_stacked(scope, each)
        code = _joined_at(scope, each.value, found) if found is not None else None
        if start is None or found is None or code is None:
            continue
        at = next(place for place, line in enumerate(lines) if line.statement is each.statement)
        name = _name_of_joined(scope, found.call, each.path)
        lines[at] = replace(lines[at], new=(*lines[at].new[:-1], assignment(name, code)))
        scope.draft.final.add(name)
        operations.append(_unjoined(scope, found.call, name))
        if _is_alone(scope, start):
            operations.append(ReplaceStatements((start,), ()))
    return lines, [*operations, *_unneeded(scope)]


def _unneeded(scope: Scope) -> Iterator[Operation]:
    """The operations that take away what gave variables to the loop alone."""
    for name in sorted(scope.draft.unread):
        parting = scope.program.statement_of(scope.starts(name)[0].node)
        is_plain = isinstance(parting, ast.Assign) and isinstance(parting.targets[0], ast.Name)
        reads = (use for use in scope.uses(name) if use not in scope.facts.inside and isinstance(use.ctx, ast.Load))
        if is_plain and not any(reads) and _is_alone(scope, parting) and not scope.graph.is_shared(name):
            yield ReplaceStatements((parting,), ())


def _name_of_joined(scope: Scope, call: ast.Call, path: str) -> str:
    """The variable for what a list was joined to: the list's own, or that of the statement behind the loop."""
    loop, joining = scope.facts.loop, scope.program.statement_of(call)
    block = scope.program.block_of(loop)
    is_next = joining in block and block.index(joining) == block.index(loop) + 1
    if not is_next or not isinstance(joining, ast.Assign) or joining.value is not call:
        return path
    names = {each.id for each in scope.facts.inside if isinstance(each, ast.Name)}
    targets = [each.id for each in joining.targets if isinstance(each, ast.Name) and each.id not in names]
    return targets[0] if len(targets) == len(joining.targets) == 1 else path


def _unjoined(scope: Scope, call: ast.Call, path: str) -> Operation:
    statement = scope.program.statement_of(call)
    if isinstance(statement, ast.Assign) and statement.value is call and [*map(path_of, statement.targets)] == [path]:
        check_alone(scope.program, statement)
        return ReplaceStatements((statement,), ())
    return Replace(call, reference(path))


def _only_stacked(scope: Scope, appended: Appended) -> tuple[ast.stmt | None, TorchCall | None]:
    program, loop, path = scope.program, scope.facts.loop, appended.path
    starts = scope.starts(path)
    if len(starts) != 1 or scope.graph.is_shared(path):
        return None, None
    start = starts.pop().node
    made, given = program.statement_of(start), program.value(start)
    if not isinstance(made, ast.AnnAssign) and not (isinstance(made, ast.Assign) and len(made.targets) == 1):
        return None, None
    uses = [use for use in scope.graph.uses.get(start, ()) if use not in scope.facts.inside]
    call = program.parent(uses[0]) if len(uses) == 1 else None
    if given.kind is not Kind.SEQUENCE or given.items != () or program.block_of(made) is not program.block_of(loop):
        return None, None
    found = _joining(scope, call) if call is not None else None
    if not isinstance(call, ast.Call) or found is None or found.tensor not in uses:
        return None, None
    if len(call.args) + len(call.keywords) > 2 or not scope.graph.runs_after(call, loop):
        return None, None
    is_beside = _repeats(program, call) is _repeats(program, loop)
    return (made, found) if is_beside and program.stands_before(loop, call) else (None, None)


def _repeats(program: Program, node: ast.AST) -> ast.AST | None:
    return next((each for each in program.ancestors(node) if isinstance(each, _REPEATS)), None)


def _joined_at(scope: Scope, value: Batched, found: TorchCall) -> ast.expr | None:
    """What replaces the join; if that is only reduced to one number, its form doesn't matter."""
    around = scope.program.parent(found.call)
    reduced = operation(scope.program, scope.program.parent(around or found.call) or found.call)
    if reduced is not None and reduced.tensor is found.call and _is_total(reduced):
        return value.code
    if value.own and _is_only_read(scope, found.call):
        value = replace(value, fresh=True)
    return _joined(scope, value, found.joined_axis, is_cat=found.name == "cat")


def _is_only_read(scope: Scope, joined: ast.Call) -> bool:
    """Does nobody write to the joined tensor, here or where it may go?"""
    points = scope.program.get(Memory).points_to(scope.facts.loop)
    places = points.of(joined)
    return bool(places) and not (places & points.escaping() or any(each.reaches(places) for each in points.writes))


def _is_total(call: TorchCall) -> bool:
    return "reduction" in call.traits and call.does.dtype != "int" and not (call.arguments or call.call.keywords)


def _joined(scope: Scope, value: Batched, axis: int | None, *, is_cat: bool) -> ast.expr | None:
    if axis is None or axis < 0:
        return None
    if value.kept:
        return _apart(scope, value) if is_cat and value.axis == axis else None
    if is_cat:
        value = value.narrowed(1)  # or joining would fail
    if value.least < axis + is_cat:
        return None
    whole = _apart(scope, value.at(axis))
    if not is_cat or whole is None:
        return whole
    return expression("{x}.flatten({first}, {last})", x=whole, first=axis, last=axis + 1)


def _apart(scope: Scope, value: Batched) -> ast.expr | None:
    """The steps in memory of their own, as stacking leaves them; None without a name for torch."""
    if value.fresh:
        return value.code if value.dense else expression("{x}.contiguous()", x=value.code)
    if value.dense:
        return expression("{x}.clone()", x=value.code)
    template = "{x}.clone(memory_format={torch}.contiguous_format)"
    scope.draft.oddities.add("a layout in memory")
    return expression(template, x=value.code, torch=scope.facts.torch) if scope.facts.torch else None


def _is_alone(scope: Scope, start: ast.stmt) -> bool:
    line = scope.program.source.line_text(start.lineno).strip()
    several = isinstance(start, ast.Assign) and (len(start.targets) > 1 or not isinstance(start.targets[0], ast.Name))
    return line == scope.program.segment(start) and not several and len(scope.program.block_of(start)) > 1

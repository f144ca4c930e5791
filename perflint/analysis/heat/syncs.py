"""Finds the places where the host reads a tensor's value, and so waits for the device, and selects those that cost."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.heat.freshness import steps_an_environment
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Outer
from perflint.analysis.links import Heat, Manner
from perflint.analysis.values.values import GUESSED, Kind, Place, Value, contains_tensor
from perflint.syntax.scopes import arguments_of, keyword_of
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, elements_of, is_false

_CONVERSIONS = frozenset({"float", "int", "bool", "complex"})
_COMPARING = frozenset({"max", "min", "sorted"})
_BUILDERS = re.compile(r"torch\.(tensor|as_tensor|(\w+\.)?\w*Tensor)$")

_HOST_MODULES = ("math.", "cmath.")


class Sync(NamedTuple):
    """The host reads `tensor`, at the characters [start, end); `explicit`: by a method made for that."""

    node: ast.expr
    tensor: ast.expr
    kind: str
    start: int
    end: int
    explicit: bool


def syncs(program: Program) -> Iterator[Sync]:
    for call in program.of_type(ast.Call):
        yield from _of_call(program, call)
    for test in _truth_values(program):
        yield from _implicit(program, test, "if")
    for formatted in program.of_type(ast.FormattedValue):
        yield from _implicit(program, formatted.value, "print")
    for operation in program.of_type(ast.BinOp):
        if isinstance(operation.op, ast.Mod) and program.value(operation.left).kind is Kind.STRING:
            for part in elements_of(operation.right):
                yield from _implicit(program, part, "print")
    for part in program.of_type(ast.Slice):
        for bound in (part.lower, part.upper, part.step):
            if bound is not None:
                yield from _implicit(program, bound, "index")
    for subscript in program.of_type(ast.Subscript):
        yield from _of_subscript(program, subscript)
        yield from _of_lookup(program, subscript)


def _is_read(value: Value, *, explicit: bool) -> bool:
    if value.kind is not Kind.TENSOR:
        return False
    if value.place is Place.UNKNOWN:  # what is certainly a tensor, and is read on purpose, is rarely on the host
        return explicit and (value.sure or value.name != GUESSED)
    return value.place is Place.DEVICE and (explicit or value.sure)


def storage_of(node: ast.expr) -> ast.expr:
    """What `.detach().cpu().numpy()` and the like are called on."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _keeps_value(node.func.attr):
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        else:
            return node


def _of_call(program: Program, call: ast.Call) -> Iterator[Sync]:
    func = call.func
    if isinstance(func, ast.Attribute):
        yield from _of_method(program, call, func)
        if func.attr == "format" and isinstance(func.value, ast.Constant):
            yield from _implicit_all(program, arguments_of(call), "print")
        if func.attr == "set_postfix":
            yield from _of_postfix(program, call)
        if func.attr == "add_scalar" and program.callee(call) is None:
            yield from _implicit_all(program, arguments_of(call)[1:2], "writer")
        is_made = torch_ops.does(func.attr, "factory") or program.value(func.value).kind is Kind.TENSOR
        for size in call.args if is_made and torch_ops.does(func.attr, "taking_sizes") else ():
            yield from _implicit_all(program, elements_of(size), "index")
    name = program.qualified(func)
    if not name:
        return
    head, _, rest = name.partition(".")
    if head == "torch":
        last = rest.rpartition(".")[2]
        is_counting = torch_ops.does(last, "counting") and _waits(torch_ops.of_function(name))
        is_where = last == "where" and len(call.args) == 1 and not call.keywords  # which gives indices
        is_waiting = is_where or (is_counting and bool(call.args))
        if call.args and _BUILDERS.match(name):
            yield from _of_builder(program, call)
        if is_waiting and program.value(call.args[0]).on_device:  # for certain: the function takes nothing but tensors
            yield Sync(call, call.args[0], last, *program.span(call), False)
    elif name.startswith(_HOST_MODULES):
        yield from _first_read(program, call, call.args, "math")
    elif head == "builtins":
        yield from _of_builtin(program, call, rest)


def _of_postfix(program: Program, call: ast.Call) -> Iterator[Sync]:
    """`bar.set_postfix(values)`, which turns each into text, whether or not it is shown."""
    yield from _implicit_all(program, (keyword.value for keyword in call.keywords), "print")
    for postfix in call.args[:1]:
        value = program.value(postfix)
        found = contains_tensor(value) if value.kind is Kind.MAPPING else _of_output(value)
        if found is not None and _is_read(found, explicit=False):
            yield Sync(call, postfix, "print", *program.span(call), False)


def _of_output(value: Value) -> Value | None:
    return value._replace(sure=True) if value.name != GUESSED else None


def _of_builder(program: Program, call: ast.Call) -> Iterator[Sync]:
    """`torch.tensor([x, y])`, which reads the tensors in the list one by one."""
    parts = program.value(call.args[0])
    found = contains_tensor(parts) if parts.kind is Kind.SEQUENCE else None
    if found is not None and _is_read(found, explicit=False):
        yield Sync(call, call.args[0], "list", *program.span(call), False)


def _of_builtin(program: Program, call: ast.Call, name: str) -> Iterator[Sync]:
    if name in _CONVERSIONS and len(call.args) == 1:
        value = program.value(call.args[0])
        is_number = isinstance(call.args[0], ast.Subscript) and value.name != GUESSED  # in what a model gave, likely
        if _is_read(value._replace(sure=value.sure or is_number), explicit=False):
            yield Sync(call, call.args[0], name, *program.span(call), False)
    elif name in _COMPARING and call.args:
        yield from _of_comparison(program, call, name)
    elif name == "range":
        yield from _implicit_all(program, call.args, "index")
    elif name in ("print", "str", "repr", "format"):
        yield from _implicit_all(program, call.args, "print")


def _of_comparison(program: Program, call: ast.Call, name: str) -> Iterator[Sync]:
    """`max(x, y)`, or of a list of scalars."""
    yield from _first_read(program, call, _compared(call), name)
    listed = program.value(call.args[0])
    if len(call.args) > 1 or call.keywords or listed.kind is not Kind.SEQUENCE or listed.item is None:
        return
    if _is_read(listed.item, explicit=False):
        yield Sync(call, call.args[0], name, *program.span(call), False)


def _compared(call: ast.Call) -> list[ast.expr]:
    keys = [keyword.value.body for keyword in call.keywords if isinstance(keyword.value, ast.Lambda)]
    return keys or [part.elt if isinstance(part, ast.GeneratorExp | ast.ListComp) else part for part in call.args]


def _of_method(program: Program, call: ast.Call, func: ast.Attribute) -> Iterator[Sync]:
    name, owner = func.attr, program.value(func.value)
    if name == "item" and (call.args or call.keywords):
        return  # of a mapping
    if torch_ops.does(name, "to_host") and not call.args:
        kind = name
    elif name == "to" and _is_asynchronous(call):
        return
    elif name == "to" and (_names_host(call) if owner.is_blank else _is_brought_home(program, call, owner)):
        kind = "cpu"
    elif name == "type" and _is_brought_home(program, call, owner):
        kind = "type"
    elif torch_ops.does(name, "counting"):
        if _waits(torch_ops.of_method(name)):
            yield from _at_method(program, call, func, name, explicit=False)
        return
    else:
        return
    yield from _at_method(program, call, func, kind, explicit=True)


def _is_asynchronous(call: ast.Call) -> bool:
    """Whether it may be a copy that nobody waits for: on the host it is made in pinned memory."""
    asked = keyword_of(call, "non_blocking")
    return asked is not None and not is_false(asked)


def _names_host(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == "cpu"


def _is_brought_home(program: Program, call: ast.Call, owner: Value) -> bool:
    return owner.kind is Kind.TENSOR and program.value(call).place is Place.HOST


def _at_method(program: Program, call: ast.Call, func: ast.Attribute, kind: str, *, explicit: bool) -> Iterator[Sync]:
    owner = program.value(func.value)
    if kind == "numpy" and not any(keyword.arg == "force" for keyword in call.keywords):
        return  # which fails for a tensor on the device: it has been brought to the host before, or there is none
    is_told = explicit and not program.is_host_only  # there, what is not known is on the host, too
    if _is_read(owner, explicit=is_told) or (kind == "cpu" and _is_copied(program, call, owner)):
        end = program.span(func)[1]
        yield Sync(call, func.value, kind, end - len(func.attr), program.span(call)[1], explicit)


def _is_copied(program: Program, call: ast.Call, owner: Value) -> bool:
    """Is it `x.cpu().numpy()` of an unknown x? It is a tensor, and on the device: why else should it say so?"""
    node: ast.AST | None = program.parent(call)
    while isinstance(node, ast.Attribute | ast.Call) and owner.is_blank and not program.is_host_only:
        if isinstance(node, ast.Attribute) and node.attr != "cpu" and torch_ops.does(node.attr, "to_host"):
            return True
        node = program.parent(node)
    return False


def _keeps_value(name: str) -> bool:
    return torch_ops.does(name, "to_host") or name == "squeeze" or torch_ops.does(name, "same_shape")


def _waits(entry: torch_ops.Operation | None) -> bool:
    return entry is not None and entry.syncs


def _implicit(program: Program, tensor: ast.expr, kind: str, node: ast.expr | None = None) -> Iterator[Sync]:
    if _is_read(program.value(tensor), explicit=False):
        yield Sync(node or tensor, tensor, kind, *program.span(node or tensor), False)


def _implicit_all(program: Program, tensors: Iterable[ast.expr], kind: str) -> Iterator[Sync]:
    for tensor in tensors:
        yield from _implicit(program, tensor, kind)


def _first_read(program: Program, call: ast.Call, tensors: Iterable[ast.expr], kind: str) -> Iterator[Sync]:
    for tensor in tensors:
        if _is_read(program.value(tensor), explicit=False):
            yield from _implicit(program, tensor, kind, call)
            return


def _of_subscript(program: Program, node: ast.Subscript) -> Iterator[Sync]:
    if isinstance(node.ctx, ast.Store) and not isinstance(program.parent(node), ast.AugAssign):
        return  # x[mask] = scalar fills without a look at the mask
    base = program.value(node.value)
    if any(_selects(program, part, base) for part in elements_of(node.slice)):
        yield Sync(node, node, "mask", *program.span(node), False)


def _of_lookup(program: Program, node: ast.Subscript) -> Iterator[Sync]:
    """A scalar on the device as index of a list, which has to know it."""
    if program.value(node.value).kind is Kind.SEQUENCE and not isinstance(node.slice, ast.Slice):
        yield from _implicit(program, node.slice, "index")


def _selects(program: Program, index: ast.expr, base: Value) -> bool:
    mask = program.value(index)
    if mask.dtype != "bool" or base.kind not in (Kind.TENSOR, Kind.UNKNOWN) or base.place is Place.HOST:
        return False  # what may be indexed by a mask on the device is a tensor there, or holds some
    if mask.place is Place.UNKNOWN and base.on_device and base.sure:
        mask = mask._replace(place=Place.DEVICE)
    made = program.get(Flow).assigned(index) if isinstance(index, ast.Name) else [index]
    is_compared = bool(made) and all(isinstance(each, ast.Compare) for each in made)
    is_certain = is_compared and mask.on_device and base.kind is Kind.TENSOR  # not of numbers
    return _is_read(mask, explicit=is_certain)


def _truth_values(program: Program) -> Iterator[ast.expr]:
    seen: set[ast.expr] = set()
    for node in program.of_type(
        ast.If, ast.While, ast.Assert, ast.IfExp, *COMPREHENSIONS, ast.UnaryOp, ast.BoolOp, ast.Compare
    ):
        for test in _tests(program, node):
            for leaf in _conditions(test):
                if leaf not in seen:
                    seen.add(leaf)
                    yield leaf


def _tests(program: Program, node: ast.AST) -> list[ast.expr]:
    if isinstance(node, COMPREHENSIONS):
        return [test for generator in node.generators for test in generator.ifs]
    if isinstance(node, ast.UnaryOp):
        return [node.operand] if isinstance(node.op, ast.Not) else []
    if isinstance(node, ast.BoolOp):
        return node.values[:-1]
    if isinstance(node, ast.Compare):
        searched = program.value(node.comparators[0]).kind
        is_search = isinstance(node.ops[0], (ast.In, ast.NotIn)) and searched in (Kind.SEQUENCE, Kind.TENSOR)
        return [node.left] if is_search else []
    assert isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp))
    return [node.test]


def _conditions(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _conditions(part)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _conditions(test.operand)
    else:
        yield test


_PARTIAL = frozenset(
    {"max", "min", "sorted", "mask", "masked_select", "nonzero", "print", "writer"}
)  # reads that leave no copy of the values behind
LATER = "perflint.runtime.reports.later"
_DEPTH = 5  # of assignments and calls through which an action or lengths are followed


def hot_syncs(program: Program) -> list[Sync]:
    return [
        sync
        for sync in sorted(set(syncs(program)), key=lambda sync: (sync.start, sync.end))
        if not program.is_tried_out(sync.node)
        and program.heat(sync.node) is not Heat.ONCE
        and not is_needed(program, sync.node, _DEPTH)
        and not is_deferred(program, sync.node)
    ]


def is_deferred(program: Program, node: ast.AST) -> bool:
    """Is it in a function that is handed to `perflint.runtime.reports.later`?"""
    function = program.function_of(node) if "perflint.runtime.reports" in program.text else None
    calls = (call for call in program.of_type(ast.Call) if call.args and program.call_of(call, LATER))
    return function is not None and any(
        call.args[0] is function
        or (isinstance(call.args[0], ast.Name) and program.value(call.args[0]).node is function)
        for call in calls
    )


def first_reads(program: Program, found: list[Sync]) -> list[Sync]:
    return [sync for sync in found if not any(is_repeated(program, earlier, sync) for earlier in found)]


def is_repeated(program: Program, earlier: Sync, later: Sync) -> bool:
    """Has `earlier` read in the same iteration, and for certain, what `later` reads?"""
    if earlier.kind in _PARTIAL and later.kind != earlier.kind:
        return False
    if later.start <= earlier.start or program.function_of(earlier.node) is not program.function_of(later.node):
        return False
    if later.kind == "masked_select":  # each mask is read anew
        read, again = earlier.node, later.node
    else:
        read, again = storage_of(earlier.tensor), storage_of(later.tensor)
    if ast.dump(read) != ast.dump(again):
        return False
    statement = program.statement_of(earlier.node)
    block = program.block_of(statement)
    around = [program.statement_of(later.node), *program.ancestors(program.statement_of(later.node))]
    if not any(each is within for each in around for within in block):
        return False
    graph, pairs = program.get(Flow).graph(earlier.node), zip(ast.walk(read), ast.walk(again), strict=True)
    values = [(graph.value(one), graph.value(other)) for one, other in pairs if isinstance(one, ast.Name)]
    return all(one is other or (isinstance(one, Outer) and isinstance(other, Outer)) for one, other in values)


def is_needed(program: Program, node: ast.expr, depth: int) -> bool:
    """Does it go into an environment's step, or tell pack_padded_sequence the lengths?"""
    child: ast.AST = node
    for parent in program.ancestors(node):
        if isinstance(parent, ast.Call) and child is not parent.func and _needs_host(program, parent):
            return True
        if isinstance(parent, ast.stmt):
            return depth > 0 and _flows_to_need(program, parent, child, depth)
        if isinstance(parent, FUNCTIONS):
            return False
        child = parent
    return False


def _needs_host(program: Program, call: ast.Call) -> bool:
    return steps_an_environment(program, call) or program.qualified(call.func).endswith("pack_padded_sequence")


def _flows_to_need(program: Program, statement: ast.stmt, value: ast.AST, depth: int) -> bool:
    if isinstance(statement, ast.Return):
        function = program.function_of(statement)
        if program.is_called(function, Manner.NEEDED):
            return True
        return any(is_needed(program, site, depth - 1) for site in program.call_sites(function))
    if isinstance(statement, ast.AugAssign) or (isinstance(statement, ast.Assign) and value is statement.value):
        uses = program.get(Flow).graph(statement).uses
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        bound = (use for target in targets for node in ast.walk(target) for use in uses.get(node, ()))
        return any(is_needed(program, use, depth - 1) for use in bound if use.lineno > statement.lineno)
    return False

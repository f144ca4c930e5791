"""Recognises the calls that write a tensor out several times, what that costs, and who reads it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from perflint import api
from perflint.api import (
    FUNCTIONS,
    LOOPS,
    WRAPPERS,
    Bound,
    Consumer,
    Heat,
    Kind,
    Loop,
    Place,
    Program,
    Reading,
    Role,
    Shapes,
    Write,
    converts,
)

_MATERIALISING = frozenset({"contiguous", "clone"})
_DEPTH = 4
_INTERLEAVE = ("repeats", "dim")


@dataclass(frozen=True)
class Copy:
    """A call that repeats `source`.

    `form` is "repeat" (with `counts` per axis), "interleave", "cat", "stack" (`counts` holds one, for `axis`), or
    "expanded": `source` is a call of expand or expand_as, which `call` makes real. `counts` is None if not written out.
    """

    call: ast.Call
    form: str
    source: ast.expr
    counts: tuple[ast.expr, ...] | None = None
    axis: int | None = None


def recognise(program: Program, call: ast.Call) -> Copy | None:
    if not isinstance(call.func, (ast.Attribute, ast.Name)):
        return None
    qualified = program.qualified(call.func)
    if qualified:
        return _of_function(program, call) if qualified.startswith("torch.") else None
    if not isinstance(call.func, ast.Attribute):
        return None
    name, source = call.func.attr, call.func.value
    if name == "repeat_interleave" and _is_tensor(program, source, 3):
        return _interleaved(call, source, api.bind(call, _INTERLEAVE))
    if name == "repeat":
        counts = _counts(program, call.args)
        is_of_tensor = _is_tensor(program, source, len(counts or ()))
        return Copy(call, name, source, counts) if is_of_tensor and call.args and not call.keywords else None
    if name in _MATERIALISING or converts(name):
        expanded = _expansion(program, source)
        return Copy(call, "expanded", expanded) if expanded is not None else None
    return None


def _of_function(program: Program, call: ast.Call) -> Copy | None:
    found = api.operation(program, call)
    if found is None or not call.args:
        return None
    if found.name == "repeat_interleave":
        return _interleaved(call, call.args[0], api.bind(call, ("input", *_INTERLEAVE)))
    times = _times(call.args[0]) if found.name in ("cat", "stack") else None
    if times is None or len(call.keywords) + len(call.args) > 2:
        return None
    return Copy(call, found.name, times[0], (times[1],), found.joined_axis)


def _interleaved(call: ast.Call, source: ast.expr, bound: Bound) -> Copy | None:
    count, dim = bound.get("repeats"), bound.get("dim")
    if count is None or dim is None or api.integer(dim) is None or bound.others:
        return None
    return Copy(call, "interleave", source, (count,), api.integer(dim))


def _counts(program: Program, arguments: list[ast.expr]) -> tuple[ast.expr, ...] | None:
    if len(arguments) == 1 and isinstance(arguments[0], ast.Tuple | ast.List):
        arguments = arguments[0].elts
    elif len(arguments) == 1 and program.value(arguments[0]).kind is not Kind.NUMBER:
        return None  # it may be a tuple
    return None if any(isinstance(each, ast.Starred) for each in arguments) else tuple(arguments)


def _times(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """`x` and `n` of `[x] * n` and `n * [x]`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for items, count in ((node.left, node.right), (node.right, node.left)):
            if (
                isinstance(items, ast.List | ast.Tuple)
                and len(items.elts) == 1
                and not isinstance(items.elts[0], ast.Starred)
            ):
                return items.elts[0], count
    return None


def _expansion(program: Program, node: ast.expr) -> ast.Call | None:
    """The call of expand or expand_as that gives `node`, by other names or wrapped."""
    for _ in range(_DEPTH):
        if isinstance(node, ast.Name):
            values = api.assigned(program, node)
            if len(values) != 1:
                return None
            node = values[0]
        elif isinstance(node, ast.Call) and len(node.args) == 1 and program.qualified(node.func) in WRAPPERS:
            node = node.args[0]
        else:
            break
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("expand", "expand_as")
        and node.args
        and program.value(node.func.value).kind in (Kind.TENSOR, Kind.UNKNOWN)
    ):
        return node
    return None


def _is_tensor(program: Program, node: ast.expr, counts: int) -> bool:
    """Is it a tensor, for sure or by its counts? Arrays take at most two arguments in `repeat`."""
    kind = program.value(node).kind
    return kind is Kind.TENSOR or (kind is Kind.UNKNOWN and counts > 2)


_SETUP = re.compile(r"^_*(init|test_)")


def is_one_time(program: Program, call: ast.Call) -> bool:
    return program.heat(call) is Heat.ONCE and _runs_once(program, call, frozenset())


def _runs_once(program: Program, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
    child = node
    for parent in program.ancestors(node):
        if isinstance(parent, LOOPS) and _runs_a_module(program, parent):
            return False
        if api.makes_rare(program, parent, child):
            return True
        if isinstance(parent, FUNCTIONS):
            break
        child = parent
    function = program.function_of(node)
    if function is None or function in seen or _SETUP.match(getattr(function, "name", "")):
        return True
    sites = program.call_sites(function)
    return bool(sites) and all(_runs_once(program, site, seen | {function}) for site in sites)


def _runs_a_module(program: Program, loop: Loop) -> bool:
    return any(
        isinstance(each, ast.Call) and program.value(each.func).kind is Kind.MODULE
        for statement in loop.body
        for each in ast.walk(statement)
    )


def kind_of(program: Program, reading: Reading) -> str:
    """ "broadcast" where each reader combines the copy with another tensor, element by element; else "expand"."""
    return "broadcast" if all(_broadcasts(program, each) for each in reading.consumers) else "expand"


def _broadcasts(program: Program, consumer: Consumer) -> bool:
    """Does the operation, or the next one that takes its result, bring a tensor of the full shape?"""
    node = consumer.node
    while consumer.role is Role.ELEMENTWISE:
        if consumer.in_place or any(not _is_number(program, other) for other in other_operands(consumer)):
            return True
        parent = program.parent(node)
        if not isinstance(node, ast.expr) or not is_elementwise(program, parent):
            return False
        assert parent is not None
        consumer = Consumer(parent, node, Role.ELEMENTWISE)
        node = parent
    return False


def is_elementwise(program: Program, node: ast.AST | None) -> bool:
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.BinOp | ast.Compare | ast.UnaryOp)
    name = program.qualified(node.func)
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    entry = api.torch_function(name) if name else api.torch_method(method)
    return entry is not None and "pointwise" in entry.traits


def other_operands(consumer: Consumer) -> list[ast.expr]:
    node = consumer.node
    if isinstance(node, ast.BinOp):
        operands = [node.left, node.right]
    elif isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
    elif isinstance(node, ast.Call):
        operands = [*([node.func.value] if isinstance(node.func, ast.Attribute) else []), *node.args]
    elif isinstance(node, ast.Subscript):
        operands = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else []
    else:
        operands = []
    return [each for each in operands if each is not consumer.operand and not isinstance(each, ast.Starred)]


def _is_number(program: Program, node: ast.expr) -> bool:
    return program.value(node).kind in (Kind.NUMBER, Kind.STRING, Kind.LIBRARY, Kind.NONE)


def is_worth_it(program: Program, shapes: Shapes, copy: Copy, reading: Reading) -> bool:
    """Would a view save the copy, and not just put it off to the reader?"""
    if copy.form == "expanded" and not _is_real(program, copy, reading):
        return False
    return not any(consumer.role is Role.MATMUL and _is_folded(shapes, consumer) for consumer in reading.consumers)


def _is_real(program: Program, copy: Copy, reading: Reading) -> bool:
    """Does the move or cast after an expansion copy for sure? To its own place or type, it does nothing."""
    assert isinstance(copy.call.func, ast.Attribute)
    name = copy.call.func.attr
    if name == "long":  # most integers have that type
        return False
    if name in _MATERIALISING or not api.torch_does(name, "to_device"):
        return True
    assert isinstance(copy.source, ast.Call) and isinstance(copy.source.func, ast.Attribute)
    value = program.value(copy.source.func.value)
    if value.place is Place.HOST or value.dtype in ("bool", "int"):
        return True
    elementwise = all(consumer.role in (Role.ELEMENTWISE, Role.REDUCTION) for consumer in reading.consumers)
    return (
        elementwise
        and name != "cuda"
        and not _is_device(program, copy.call)
        and not api.path_of(_base(copy.source)).startswith("self.")
    )


def _is_device(program: Program, call: ast.Call) -> bool:
    targets = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    return any(
        api.path_of(each).rpartition(".")[2] == "device" or program.value(each).kind in (Kind.DEVICE, Kind.STRING)
        for each in targets
    )


def _is_folded(shapes: Shapes, consumer: Consumer) -> bool:
    """Does matmul reshape its operand, which copies a view: four axes or more, or a matrix on the other side?"""
    rank = shapes.shape(consumer.operand).rank
    others = [shapes.shape(each).rank for each in other_operands(consumer)]
    name = (
        consumer.node.func.attr
        if isinstance(consumer.node, ast.Call) and isinstance(consumer.node.func, ast.Attribute)
        else "matmul"
    )
    return name == "matmul" and ((rank or 0) > 3 or any(other is not None and other < 3 for other in others))


def _base(node: ast.expr) -> ast.expr:
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            return node


def shown_writes(program: Program, copy: Copy, reading: Reading) -> list[Write]:
    # autograd keeps the copy for the gradients of what it meets
    backward = program.grad_mode(copy.call, callers=False) is not api.GradMode.OFF
    found = api.shown_writes(program, copy.call, copy.source, reading, backward=backward)
    return sorted(found, key=lambda write: getattr(write.node, "lineno", 0))


def may_have_gradient(program: Program, copy: Copy) -> bool:
    is_off = program.grad_mode(copy.call, callers=False) is api.GradMode.OFF
    return not is_off and program.value(copy.source).dtype not in ("bool", "int")


def is_caught(program: Program, copy: Copy) -> bool:
    """May the function handle what a copy raises for a negative count, which a view takes for the axis's size?"""
    counts = [each for each in copy.counts or () if api.integer(each) is None and not _is_size(program, each)]
    return bool(counts) and any(api.handlers(program, copy.call))


def _is_size(program: Program, node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if isinstance(node, ast.Call):
        return api.path_of(node.func).rpartition(".")[2] in ("size", "len", "numel")
    values = api.assigned(program, node) if isinstance(node, ast.Name) else []
    return bool(values) and all(not isinstance(each, ast.Name) and _is_size(program, each) for each in values)

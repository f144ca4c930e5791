"""Tells whether a copy costs something, what reads it, and what a view in its place would change for them."""

from __future__ import annotations

import ast
import re

from perflint import api
from perflint.api import (
    FUNCTIONS,
    LOOPS,
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
    is_view,
)

from .copies import MATERIALISING, Copy

_DEPTH = 12
_SETUP = re.compile(r"^_*(init|test_)")


def is_one_time(program: Program, call: ast.Call) -> bool:
    """Does the call run once, or now and then?

    A function that nothing in the file calls is taken to be called often, unless it sets something up.
    """
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
    """Does each iteration call a module, such as an episode of an evaluation does?"""
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
    """Does the move or cast after an expansion copy for sure?

    To where the tensor is already, or to the type that it has, it does nothing.
    """
    assert isinstance(copy.call.func, ast.Attribute)
    name = copy.call.func.attr
    if name == "long":
        return not _counts_up(program, copy.source)
    if name in MATERIALISING or not api.torch_does(name, "to_device"):
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


def _keeps_integers(method: str) -> bool:
    operation = api.torch_method(method)
    return is_view(method) or method in ("cuda", "long") or (operation is not None and operation.does("view"))


def _counts_up(program: Program, node: ast.expr) -> bool:
    """Is it a view of what torch.arange or randperm makes, which are integers of 64 bits unless told otherwise?"""
    for _ in range(_DEPTH):
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Name) and len(values := api.assigned(program, node)) == 1:
            node = values[0]
        elif not isinstance(node, ast.Call):
            return False
        elif program.qualified(node.func) in ("torch.arange", "torch.randperm"):
            fractions = any(isinstance(getattr(each, "value", None), float) for each in node.args)
            return not fractions and all(keyword.arg != "dtype" for keyword in node.keywords)
        elif isinstance(node.func, ast.Attribute) and _keeps_integers(node.func.attr):
            node = node.func.value
        else:
            return False
    return False


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
    """The writes that may change the source while the copy is in use, so that a view would show the change."""
    # autograd keeps the copy for the gradients of what it meets
    backward = program.grad_mode(copy.call, callers=False) is not api.GradMode.OFF
    found = api.shown_writes(program, copy.call, copy.source, reading, backward=backward)
    return sorted(found, key=lambda write: getattr(write.node, "lineno", 0))


def may_have_gradient(program: Program, copy: Copy) -> bool:
    value = program.value(copy.source)
    if value.dtype in ("bool", "int") or program.grad_mode(copy.call, callers=False) is api.GradMode.OFF:
        return False
    return not _is_constant(program, copy.source, _DEPTH)


def _is_constant(program: Program, node: ast.expr, depth: int) -> bool:
    if isinstance(node, ast.Name) and depth:
        values = api.assigned(program, node)
        return bool(values) and all(_is_constant(program, each, depth - 1) for each in values)
    if isinstance(node, ast.Subscript):
        return _is_constant(program, node.value, depth)
    found = api.operation(program, node)
    if found is None:
        return False
    if found.tensor is None:
        return not any(keyword.arg == "requires_grad" for keyword in found.call.keywords)
    is_method = isinstance(found.call.func, ast.Attribute) and found.tensor is found.call.func.value
    others = [] if found.name == "expand_as" else found.arguments
    alone = (
        is_method and not found.does.in_place and not any(program.value(each).kind is Kind.TENSOR for each in others)
    )
    return alone and _is_constant(program, found.tensor, depth)


def is_caught(program: Program, copy: Copy) -> bool:
    """May the function handle what a copy raises for a negative count, which a view takes for the size of the axis?"""
    counts = [each for each in copy.counts if api.integer(each) is None and not _is_size(program, each)]
    return bool(counts) and any(api.handlers(program, copy.call))


def _is_size(program: Program, node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if isinstance(node, ast.Call):
        return api.path_of(node.func).rpartition(".")[2] in ("size", "len", "numel")
    values = api.assigned(program, node) if isinstance(node, ast.Name) else []
    return bool(values) and all(not isinstance(each, ast.Name) and _is_size(program, each) for each in values)

"""Tells what of a training step stays on the host: what is fetched in front of its graph, and read behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perflint import torch_ops
from perflint.analysis.heat.syncs import storage_of
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Graph
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.program import Program
from perflint.analysis.values.operations import move
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.arguments import keyword_of
from perflint.syntax.walk import COMPREHENSIONS, Loop, own_nodes, path_of, receiver_of
from perflint.transforms.capture.calls import entry_of
from perflint.transforms.host_reads import item_of
from perflint.transforms.output import is_output

_PURE = frozenset(f"builtins.{name}" for name in "len int float str round max min abs sum bool tuple list".split())
_PLAIN = frozenset(f"builtins.{name}" for name in "isinstance tuple list type len zip range".split())
_HOST_MATH = ("math.", "numpy.")
_GROWS = frozenset({"append", "extend"})
_HOST_KINDS = (Kind.NUMBER, Kind.STRING, Kind.NUMPY)
_FIXED = (Kind.NUMBER, Kind.STRING, Kind.TENSOR, Kind.LIBRARY, Kind.FUNCTION)  # what no call of the host fills
Around = Loop | ast.FunctionDef  # the loop of a step, or the function that takes one when it is called
_MAKERS = ("torch.", "numpy.", "random.", "builtins.")


def is_within(graph: Graph, node: ast.AST, around: Around) -> bool:
    """Does a node of the scope run anew for each step?"""
    return isinstance(around, ast.FunctionDef) or graph.is_within(node, around)


@dataclass(frozen=True)
class Late:
    """A statement that goes behind the step: it reads tensors there, by calls of `.item()`, or adds up its `terms`."""

    statement: ast.stmt
    reads: tuple[ast.Call, ...]
    terms: tuple[ast.Name, ...] = ()

    @property
    def read(self) -> list[ast.expr]:
        """What is read by `reads`."""
        return [storage_of(each.func.value) for each in self.reads if isinstance(each.func, ast.Attribute)]

    @property
    def tensors(self) -> list[ast.expr]:
        """What it needs of the step."""
        return [*self.read, *self.terms]


def changed_by(program: Program, late: Late) -> set[str]:
    """The names of the objects that a late statement may change: what it adds to, and what calls may fill."""
    parts: list[ast.expr] = [late.statement.target] if isinstance(late.statement, ast.AugAssign) else []
    for call in (node for node in own_nodes(late.statement) if isinstance(node, ast.Call) and node not in late.reads):
        func, name = call.func, program.qualified(call.func)
        if name not in _PURE and not name.startswith("math.") and not is_metadata(call):
            is_method = isinstance(func, ast.Attribute) and torch_ops.of_method(func.attr) is None
            parts += [func.value] if is_method and isinstance(func, ast.Attribute) else []
            parts += () if is_output(program, call) else [*call.args, *(each.value for each in call.keywords)]
    names = (node for each in parts for node in ast.walk(each) if isinstance(node, ast.Name))
    return {each.id for each in names if program.value(each).kind not in _FIXED}


def is_private(program: Program, name: ast.Name) -> bool:
    """Is it a list that its scope makes, adds to and gives to functions that keep nothing: one of no other name?"""
    graph = program.get(Flow).graph(name)
    uses = [each for each in graph.values if isinstance(each, ast.Name) and each.id == name.id]
    is_own = name.id not in graph.shared and name.id not in graph.captured
    return is_own and bool(uses) and all(_keeps_private(program, each) for each in uses)


def _keeps_private(program: Program, name: ast.Name) -> bool:
    around = program.parent(name)
    if isinstance(around, ast.Assign):
        return around.targets == [name] and isinstance(around.value, ast.List)
    if isinstance(around, ast.Attribute):
        call = program.parent(around)
        return around.attr in _GROWS and isinstance(call, ast.Call) and call.func is around
    if isinstance(around, ast.Call):
        function, given = program.qualified(around.func), [*around.args, *around.keywords]
        return (function in _PURE and len(given) == 1) or function.startswith("numpy.")
    return isinstance(around, ast.AugAssign) and around.target is name


def late(program: Program, statement: ast.stmt) -> Late | None:
    """The statement as one that may go behind the step; None where it is none of the host alone."""
    if not isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign) or not _sets_names(statement):
        return None
    reads = [each for each in own_nodes(statement) if isinstance(each, ast.Call) and _is_read(program, each)]
    inside = {node for each in reads for node in own_nodes(each)}
    rest = [node for node in own_nodes(statement) if node not in inside]
    terms = _terms(program, statement)
    if not reads and not terms and not _counts(program, statement):
        return None
    for node in rest:
        if isinstance(node, ast.Lambda | ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await):
            return None
        if isinstance(node, ast.Call) and not (_is_of_host(program, node) or storage_of(node) in terms):
            return None
        if (
            isinstance(node, ast.Name)
            and node not in terms
            and isinstance(node.ctx, ast.Load)
            and _is_tensor(program, node)
        ):
            return None
    return Late(statement, tuple(reads), terms)


def _terms(program: Program, statement: ast.stmt) -> tuple[ast.Name, ...]:
    """The tensors that are added up from step to step by `total += loss.detach() * n`; none where it is another."""
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add):
        return ()
    factors = [statement.value]
    for each in factors:
        factors += [each.left, each.right] if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult) else []
    bases = [storage_of(each) for each in factors]
    names = tuple(each for each in bases if isinstance(each, ast.Name) and program.value(each).kind is Kind.TENSOR)
    return names if not any(each.id == getattr(statement.target, "id", "") for each in names) else ()


def _is_read(program: Program, call: ast.Call) -> bool:
    tensor = item_of(call)
    return tensor is not None and not call.args and program.value(tensor).kind is Kind.TENSOR


def _sets_names(statement: ast.Expr | ast.Assign | ast.AugAssign) -> bool:
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return all(each is None or isinstance(each, ast.Name) for each in targets)


def _counts(program: Program, statement: ast.stmt) -> bool:
    """Does it do something that a replay would not: print, fill a list, count?"""
    if isinstance(statement, ast.AugAssign):
        return program.value(statement.target).kind in (Kind.NUMBER, Kind.STRING)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _is_tensor(program: Program, name: ast.Name) -> bool:
    """Is it a tensor that the statement looks into?"""
    value, around = program.value(name), program.parent(name)
    if isinstance(around, ast.Attribute) and is_metadata(around):
        return False
    call = program.parent(around) if around is not None else None
    measured = (isinstance(call, ast.Call) and is_metadata(call)) or (
        isinstance(around, ast.Call) and program.qualified(around.func) == "builtins.len"
    )
    return value.kind is Kind.TENSOR and value.place is not Place.HOST and not measured


def _is_of_host(program: Program, call: ast.Call) -> bool:
    """Does the call compute on the host, put something out, or fill a list or a meter, and nothing else?"""
    name, func = program.qualified(call.func), call.func
    if name in _PURE or is_output(program, call) or is_metadata(call):
        return True
    if name.startswith(_HOST_MATH) and "random" not in name:
        return True
    if not isinstance(func, ast.Attribute):
        return False
    owner = program.value(func.value)
    if owner.kind is Kind.STRING:
        return True
    callee = program.callee(call)
    if callee is not None:
        return _is_meter(program, callee)
    return func.attr in _GROWS and owner.kind is Kind.SEQUENCE


def _is_meter(program: Program, function: ast.AST) -> bool:
    """Does a method only add up numbers in attributes of its object?"""
    for node in own_nodes(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            return False
        if isinstance(node, ast.Call) and program.qualified(node.func) not in _PURE:
            return False
        is_store = isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store)
        if is_store and not path_of(node).startswith("self."):
            return False
    return isinstance(function, ast.FunctionDef)


def detaches(program: Program, statement: ast.stmt) -> bool:
    """Does the statement do nothing but detach a tensor, or those of a state, from what they were computed of?"""
    if not isinstance(statement, ast.Assign):
        return False
    calls = [node for node in own_nodes(statement.value) if isinstance(node, ast.Call)]
    return bool(calls) and all(_detaches(program, each) for each in calls)


def _detaches(program: Program, call: ast.Call) -> bool:
    if receiver_of(call, "detach") is not None:
        return True
    callee = program.callee(call)
    inner = [node for node in own_nodes(callee) if isinstance(node, ast.Call)] if callee is not None else []
    others = (each for each in inner if receiver_of(each, "detach") is None and program.callee(each) is not callee)
    plain = all(program.qualified(each.func) in _PLAIN for each in others)
    return plain and any(receiver_of(each, "detach") is not None for each in inner)


def early(program: Program, statement: ast.stmt) -> bool:
    """May the statement go in front of the step, as one that makes or fetches tensors of what the host has?"""
    if not isinstance(statement, ast.Assign) or not all(map(_names_alone, statement.targets)):
        return False
    for node in own_nodes(statement.value):
        if isinstance(node, ast.Lambda | ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await):
            return False
        if isinstance(node, ast.Name | ast.Attribute) and program.value(node).kind in (Kind.MODULE, Kind.OPTIMIZER):
            return False
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return False
        if isinstance(node, ast.Call):
            if draws(program, node) and keyword_of(node, "device") is not None:
                return False  # in the order of what the step draws there
            func, name = node.func, program.qualified(node.func)
            is_method = isinstance(func, ast.Attribute) and not name and torch_ops.of_method(func.attr) is not None
            owner = program.value(func.value) if isinstance(func, ast.Attribute) else None
            of_tensor = is_method and owner is not None and (owner.kind is Kind.TENSOR or owner.is_blank)
            if _detaches(program, node):
                continue
            if not (name.startswith(_MAKERS) or of_tensor) or name == "builtins.next":
                return False
            if is_method and isinstance(func, ast.Attribute) and func.attr.endswith("_") and not owner_is_new(func):
                return False
    return True


def draws(program: Program, node: ast.AST) -> bool:
    """Does a call draw random numbers?"""
    name = program.qualified(node.func) if isinstance(node, ast.Call) else ""
    return draws_on_device(program, node) or (not name.startswith("torch.") and "random" in name)


def draws_on_device(program: Program, node: ast.AST) -> bool:
    """Does a call draw random numbers of torch, which a model may draw, too?"""
    entry = entry_of(program, node) if isinstance(node, ast.Call) else None
    return entry is not None and entry.does("random")


def owner_is_new(func: ast.Attribute) -> bool:
    """Is the method called on what a call has just made?"""
    return isinstance(func.value, ast.Call)


def _names_alone(target: ast.expr) -> bool:
    return all(isinstance(each, ast.Name | ast.Tuple | ast.expr_context) for each in ast.walk(target))


@dataclass(frozen=True)
class Fetched:
    """An expression that is evaluated in front of the step, which has it as an argument called like `name`."""

    value: ast.expr
    name: str


def fetched(program: Program, statement: ast.stmt, around: Around) -> Iterator[Fetched]:
    """The expressions of a statement that are to be evaluated in front of it, where they need nothing that it computes.

    Those copy to the device what the host has, choose rows by what differs in each iteration, or take a batch apart.
    """
    graph, inside = program.get(Flow).graph(statement), set[ast.AST]()

    def given(node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and any(is_within(graph, each, around) for each in graph.reaching(node))

    for node in own_nodes(statement):
        if node in inside:
            continue
        name, always = "", _is_unconditional(program, node, statement)
        if isinstance(node, ast.Call) and always:
            name = _name_of_move(program, node)
        elif isinstance(node, ast.Subscript) and given(node.slice) and not given(node.value):
            name = _name_of_choice(program, node)
        elif isinstance(node, ast.Attribute) and given(node.value) and always:
            name = "" if _is_of_self(node, around) else _name_of_part(program, node)
        if name and isinstance(node, ast.expr):
            inside |= set(own_nodes(node))
            yield Fetched(node, name)


def _is_of_self(node: ast.Attribute, around: Around) -> bool:
    """Is it an attribute of what a function is given first, as methods are their object?"""
    given = [*around.args.posonlyargs, *around.args.args] if isinstance(around, ast.FunctionDef) else []
    return bool(given) and isinstance(node.value, ast.Name) and node.value.id == given[0].arg


def _is_unconditional(program: Program, node: ast.AST, statement: ast.stmt) -> bool:
    """Is the node evaluated once whenever the statement runs?"""
    for each in program.ancestors(node):
        if each is statement:
            return not isinstance(each, ast.If | ast.For | ast.While)
        if isinstance(each, (ast.If, ast.IfExp, ast.BoolOp, ast.For, ast.While, ast.Lambda, *COMPREHENSIONS)):
            return False
    return True


def only_fetches(program: Program, statement: ast.stmt, found: Sequence[Fetched]) -> bool:
    """Is the statement one that gives names to what is fetched, and nothing else?"""
    if not isinstance(statement, ast.Assign):
        return False
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    return {_unwrapped(program, each) for each in values} <= {each.value for each in found}


def _unwrapped(program: Program, node: ast.expr) -> ast.expr:
    is_wrapper = isinstance(node, ast.Call) and program.qualified(node.func) == "torch.autograd.Variable"
    return node.args[0] if isinstance(node, ast.Call) and is_wrapper and node.args else node


def _name_of_move(program: Program, node: ast.Call) -> str:
    moved = move(program, node)
    if moved is None or not isinstance(moved.tensor, ast.Name):
        return ""
    return moved.tensor.id if program.value(moved.tensor).place is not Place.DEVICE else ""


def _name_of_choice(program: Program, node: ast.Subscript) -> str:
    """A name for `rows[indices]`."""
    base, index = node.value, node.slice
    while isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and not (base.args or base.keywords):
        base = base.func.value  # of `rows.long()`
    if not isinstance(node.ctx, ast.Load) or not isinstance(base, ast.Name) or not isinstance(index, ast.Name):
        return ""
    kinds = (Kind.NUMPY, Kind.SEQUENCE, Kind.TENSOR)
    if (
        program.value(node.value).kind is not Kind.TENSOR
        or program.value(base).kind is not Kind.TENSOR
        or program.value(index).kind not in kinds
    ):
        return ""
    first, _, rest = index.id.partition("_")
    short, _, stem = base.id.partition("_")
    return f"{first if rest else 'batch'}_{stem if stem and len(short) == 1 else base.id}".lower()


def _name_of_part(program: Program, node: ast.Attribute) -> str:
    """The name of a part of a batch that is no tensor, list or dict."""
    around = program.parent(node)
    is_called = isinstance(around, ast.Call) and around.func is node
    is_object = program.value(node.value).kind in (Kind.UNKNOWN, Kind.METHOD, Kind.INSTANCE)
    is_object = is_object and program.value(node).kind not in (Kind.MODULE, Kind.OPTIMIZER)
    is_read = isinstance(node.ctx, ast.Load) and torch_ops.of_attribute(node.attr) is None
    return node.attr if is_read and is_object and not is_called else ""

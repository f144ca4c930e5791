"""Tells by names what a step writes to in place, itself or in what it calls, also where locations are not known."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perflint.analysis.autograd.effects import ModuleCalls
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.locations import Origin, Write
from perflint.analysis.program import Program
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import reachable
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.calls import entry_of, works_in_place
from perflint.transforms.capture.region import Region

_PLAIN = (Kind.NUMBER, Kind.STRING)


def check_by_name(program: Program, region: Region, parameters: Iterable[str]) -> None:
    """Raise Blocked where a write may miss what it goes to: an argument, or what is read before it."""
    for name in _written_names(program, region.nodes):
        if name.id in parameters:
            reason = "may be written to in place: make a new tensor instead"
            raise Blocked(f"`{name.id}`, of which a graph has a copy, {reason}", name)
    graph = program.get(Flow).graph(region.scope)
    for late in region.late:
        read = {each.id for tensor in late.tensors for each in _names_of_base(program, tensor)}
        after = [each for each in region.nodes if graph.runs_after(each, late.statement)]
        if any(each.id in read for each in _written_names(program, after)):
            raise Blocked("it reads what the step may write to after that: read a copy", late.statement)


def _written_names(program: Program, nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    """The names of what is written to in place by one of `nodes`, and of what that may be a view of, or hold."""
    for node in nodes:
        for base in _written(program, node):
            yield from _names_of_base(program, base)


def _names_of_base(program: Program, node: ast.expr) -> Iterator[ast.Name]:
    """The names in what gives `node` its memory, there or where a variable is set."""
    found = reachable([node], lambda each: _bases(program, each))
    return (each for each in found if isinstance(each, ast.Name))


def _written(program: Program, node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.AugAssign) and program.value(node.target).kind not in _PLAIN:
        yield node.target
    elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        yield node.value
    elif isinstance(node, ast.Call) and (found := operation(program, node)) is not None:
        if not found.does.does("differentiating"):  # which writes to gradients, and no step reads those behind it
            yield from (each for argument in found.does.writes for each in argument.of(node))
    elif isinstance(node, ast.Call) and (works_in_place(program, node) or _runs_writing(program, node)):
        yield from arguments_of(node)


def _runs_writing(program: Program, call: ast.Call) -> bool:
    writes = (each for body in program.get(ModuleCalls).callees(call) for each in _writes_of(program, body))
    return any(each.to.origin is Origin.PARAMETER and not (each.deep or each.attribute) for each in writes)


def _writes_of(program: Program, body: ast.AST) -> Iterable[Write]:
    return program.get(Memory).summary(body).writes if isinstance(body, ast.FunctionDef) else ()


def _bases(program: Program, node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Name):
        for value in program.get(Flow).graph(node).definitions(node):
            if isinstance(value, Definition) and value.source is not None:
                yield value.source
    elif isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        yield node.value
    elif isinstance(node, ast.Call):
        entry = entry_of(program, node)
        if entry is None or entry.does("view") or entry.does("keeping") or entry.in_place:
            yield from arguments_of(node)
            if isinstance(node.func, ast.Attribute):
                yield node.func.value
    elif not isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare):
        yield from (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))

"""Finds numbers that the host reads from the device, and that only other steps compute with: they may stay there."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from perflint.analysis.heat.syncs import storage_of
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Graph
from perflint.analysis.program import Program
from perflint.analysis.values.dtypes import has_no_axes
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.walk import own_nodes
from perflint.transforms.capture.host_part import HALF, Around, is_within
from perflint.transforms.capture.late import is_setting
from perflint.transforms.collected import is_new
from perflint.transforms.host_reads import item_of
from perflint.transforms.operations import Replace
from perflint.transforms.output import is_output
from perflint.transforms.template import expression

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)


@dataclass(frozen=True)
class Kept:
    """The variable `name`, of the number that is read by each of `reads`; `is_mixed`: or of one of the host.

    The host looks at it where it is `shown`.
    """

    name: str
    reads: tuple[ast.Call, ...]
    shown: tuple[ast.Name, ...]
    is_mixed: bool

    def replaced(self, program: Program) -> Iterable[Replace]:
        for read in self.reads:
            assert isinstance(read.func, ast.Attribute)
            tensor = storage_of(read.func.value)
            copy = "" if is_new(program, tensor) else ".clone()"
            shape = "" if has_no_axes(program, tensor) else ".squeeze()"
            yield Replace(read, expression(f"{{x}}.detach(){copy}{shape}", x=tensor))
        for name in self.shown:
            yield Replace(name, expression(f"float({self.name})" if self.is_mixed else f"{self.name}.item()"))


def kept(program: Program, block: Iterable[ast.stmt], around: Around) -> list[Kept]:
    """The numbers that steps in `block` set or compute with, and that no host needs but to show them."""
    if ".item()" not in program.text or any(each in program.text for each in HALF):
        return []
    names = {node.id: node for each in block for node in own_nodes(each) if isinstance(node, ast.Name)}
    found = (_kept(program, program.get(Flow).graph(each), each.id, around) for each in names.values())
    return [each for each in found if each is not None]


def _kept(program: Program, graph: Graph, name: str, around: Around) -> Kept | None:
    uses = [each for each in graph.values if isinstance(each, ast.Name) and each.id == name]
    if name in graph.shared or name in graph.captured:
        return None
    reads, shown, is_mixed = list[ast.Call](), list[ast.Name](), False
    for each in uses:
        if isinstance(each.ctx, ast.Load):
            if _is_shown(program, each):
                shown.append(each)
            elif not _is_operand(program, each):
                return None
            continue
        value = graph.value(each)
        given = value.given if isinstance(value, Definition) else None
        if isinstance(given, ast.Call) and _is_read(program, given):
            reads.append(given)
        elif given is None or is_within(graph, each, around) or not _is_fixed(program, given):
            return None
        else:
            is_mixed = True
    is_needed = any(isinstance(each.ctx, ast.Load) and each not in shown for each in uses)
    is_anew = any(is_within(graph, each, around) for each in reads)
    return Kept(name, tuple(reads), tuple(shown), is_mixed) if is_needed and is_anew else None


def _is_read(program: Program, node: ast.expr) -> bool:
    tensor = item_of(node)
    value = program.value(tensor) if tensor is not None else None
    return value is not None and value.kind is Kind.TENSOR and value.place is not Place.HOST


def _is_fixed(program: Program, node: ast.expr) -> bool:
    return program.value(node).kind is Kind.NUMBER or (isinstance(node, ast.Attribute) and is_setting(program, node))


def _is_operand(program: Program, name: ast.Name) -> bool:
    """Does it compute with a tensor, which puts it on the device?"""
    node: ast.expr = name
    while isinstance(around := program.parent(node), ast.UnaryOp) and isinstance(around.op, ast.USub):
        node = around
    if not isinstance(around, ast.BinOp) or not isinstance(around.op, _ARITHMETIC):
        return False
    value = program.value(around.right if around.left is node else around.left)
    return value.kind is Kind.TENSOR and value.place is not Place.HOST


def _is_shown(program: Program, name: ast.Name) -> bool:
    around = program.parent(name)
    while isinstance(around, ast.FormattedValue | ast.JoinedStr | ast.Tuple):
        around = program.parent(around)
    return isinstance(around, ast.Call) and is_output(program, around)

"""How a program reads one number from the device: the chain from the tensor to the Python number."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.analysis.heat.syncs import Sync, syncs
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import receiver_of
from perflint.transforms.operations import Replace, expression

_LINKS = frozenset({"detach", "cpu", "item", "numpy"})
_CONVERSIONS = ("float", "int")
_READS = frozenset({"item", "cpu", "numpy", *_CONVERSIONS})


@dataclass(frozen=True)
class Read:
    """`top` is the value of the tensor `base` on the host; `converts_to`: by float() or int(), or neither."""

    top: ast.expr
    base: ast.expr
    is_scalar: bool
    converts_to: str

    def replaced(self, suffix: str) -> Replace:
        return Replace(self.top, expression(f"{{base}}{suffix}", base=self.base))


def read_of(program: Program, sync: Sync) -> Read:
    top: ast.expr = sync.node
    while (above := _above(program, top)) is not None:
        top = above
    base, links = top, list[str]()
    while (link := link_of(program, base)) is not None:
        links.append(link[0])
        base = link[1]
    converts_to = next((name for name in ("int", "float") if name in links), "")  # float(int(x)) cuts, too
    return Read(top, base, "item" in links or bool(converts_to), converts_to)


def item_of(node: ast.AST) -> ast.expr | None:
    return receiver_of(node, "item")


def link_of(program: Program, node: ast.AST | None) -> tuple[str, ast.expr] | None:
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return node.attr, node.value
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in _LINKS and not node.args:
        return node.func.attr, node.func.value
    name = program.qualified(node.func).removeprefix("builtins.")
    return (name, node.args[0]) if name in _CONVERSIONS and len(node.args) == 1 and not node.keywords else None


def _above(program: Program, node: ast.expr) -> ast.expr | None:
    parent = program.parent(node)
    call = program.parent(parent) if isinstance(parent, ast.Attribute) else parent
    link = link_of(program, call)
    return call if isinstance(call, ast.Call) and link is not None and link[1] is node else None


def way_to(program: Program, start: ast.expr, end: ast.expr) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The expressions from `start` up to `end`, each with the part of it that leads down to `start`."""
    child: ast.AST = start
    while child is not end:
        parent = program.parent(child)
        assert parent is not None
        yield parent, child
        child = parent


def reads_device(program: Program, node: ast.AST) -> bool:
    implicit = program.get(implicit_reads)
    return any(
        isinstance(each, ast.expr) and (each in implicit or tensor_read(program, each) is not None)
        for each in ast.walk(node)
    )


def tensor_read(program: Program, node: ast.expr) -> ast.expr | None:
    base, reads = node, False
    while True:
        func = base.func if isinstance(base, ast.Call) and not base.args else None
        if isinstance(func, ast.Attribute) and func.attr == "tolist":
            base, reads = func.value, True
            continue
        link = link_of(program, base)
        if link is None or (link[0] in _CONVERSIONS and program.value(link[1]).kind is not Kind.TENSOR):
            return base if reads else None
        base, reads = link[1], reads or link[0] in _READS


def _reads_of(program: Program) -> list[Sync]:
    return list(syncs(program))


def implicit_reads(program: Program) -> set[ast.expr]:
    return {sync.tensor for sync in program.get(_reads_of) if not sync.explicit}


def waiting_reads(program: Program) -> set[ast.expr]:
    return {sync.node for sync in program.get(_reads_of)}

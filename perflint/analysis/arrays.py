"""Finds arrays of numpy's that are made of sizes alone, such as masks, grids and tables of angles."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import elements_of


def is_of_sizes(program: Program, node: ast.expr, around: tuple[ast.expr, ...] = ()) -> bool:
    """Is it an array of constants, or of numbers that are counted, or computed of such alone?

    Not what a loop carries: `around` are the expressions that are made of it.
    """
    if node in around:
        return False
    around = (*around, node)
    if isinstance(node, ast.Name):
        sources = _sources(program, node)
        return bool(sources) and all(is_of_sizes(program, each, around) for each in sources)
    if isinstance(node, ast.BinOp):
        return _any_of_sizes(program, [node.left, node.right], around)
    if isinstance(node, ast.Compare):
        return _any_of_sizes(program, [node.left, *node.comparators], around)
    if isinstance(node, ast.UnaryOp):
        return is_of_sizes(program, node.operand, around)
    if not isinstance(node, ast.Call):
        return False
    library, _, name = program.qualified(node.func).partition(".")
    if library == "numpy" and "." not in name:
        return _makes(name) or _any_of_sizes(
            program, [part for each in node.args for part in elements_of(each)], around
        )
    return (
        isinstance(node.func, ast.Attribute)
        and _reshapes(node.func.attr)
        and is_of_sizes(program, node.func.value, around)
    )


def _makes(name: str) -> bool:
    """Does the function of numpy's fill an array with constants, or count, as torch's of the same name does?"""
    entry = torch_ops.of_function(f"torch.{name}")
    return entry is not None and "factory" in entry.traits and "random" not in entry.traits


def _reshapes(method: str) -> bool:
    entry = torch_ops.of_method(method)
    return method == "astype" or (entry is not None and not entry.traits.isdisjoint(("view", "copying")))


def _any_of_sizes(program: Program, parts: list[ast.expr], around: tuple[ast.expr, ...]) -> bool:
    """Is one of the `parts` such an array, and are the others such arrays or numbers?"""
    others = [each for each in parts if not is_of_sizes(program, each, around)]
    return len(others) < len(parts) and all(program.value(each).kind is Kind.NUMBER for each in others)


def _sources(program: Program, name: ast.Name) -> list[ast.expr]:
    """What the variable may hold there, unless something writes to that, or it isn't known."""
    found = program.get(Flow).graph(name).definitions(name)
    definitions = [each for each in found if isinstance(each, Definition) and each.updates is None and not each.steps]
    sources = [each.source for each in definitions if each.source is not None]
    is_written = any(True for each in sources for _ in program.get(Memory).writes_after(each, each))
    return sources if len(sources) == len(found) and not is_written else []

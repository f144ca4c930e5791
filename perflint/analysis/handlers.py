"""Finds what may handle an error that code raises: in its function, around calls of that, and in other files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from perflint.analysis.call_graph import callers
from perflint.analysis.facts import Program
from perflint.analysis.ir.managers import may_swallow
from perflint.analysis.links import Manner
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, TRIES

_OTHERS = frozenset(
    f"builtins.{each}" for each in "KeyboardInterrupt SystemExit GeneratorExit ImportError ModuleNotFoundError".split()
)  # than errors of the code that computes


def handlers_in_file(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    """What may handle an error of `node`, in its function and in those of this file that lead to it."""
    blocks = program.get(_handling)
    for site in callers(program, node) if blocks else ():
        yield from _around(program, site, blocks)


def handlers(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    """What may handle an error of `node`: handlers, managers, and functions that other files call where they do.

    Nothing is known of those who call these in turn, in yet other files.
    """
    blocks = program.get(_handling)
    for site in callers(program, node):
        yield from _around(program, site, blocks)
        function = program.function_of(site)
        if function is not None and program.is_called(function, Manner.HANDLED):
            yield function


def is_handled(program: Program, node: ast.AST) -> bool:
    """May any code run when `node` has raised an error: a handler, what is to be done finally, a manager's own?"""
    blocks = program.get(_finishing)
    sites = callers(program, node) if blocks else ()
    return any(handlers(program, node)) or any(True for site in sites for _ in _around(program, site, blocks))


def _around(program: Program, node: ast.AST, blocks: Mapping[ast.AST, Sequence[ast.AST]]) -> Iterator[ast.AST]:
    child = node
    for parent in program.ancestors(node) if blocks else ():
        if isinstance(parent, FUNCTIONS):
            return
        if parent in blocks and child in parent.body:  # type: ignore[attr-defined]
            yield from blocks[parent]
        child = parent


def _finishing(program: Program) -> Mapping[ast.AST, Sequence[ast.AST]]:
    """The statements after whose bodies something runs in any case, each with that: managers, where of this file."""
    found: dict[ast.AST, list[ast.AST]] = {each: [*getattr(each, "finalbody", ())] for each in program.of_type(*TRIES)}
    entries: Sequence[ast.With | ast.AsyncWith] = program.of_type(ast.With, ast.AsyncWith)
    for entered in entries:
        managers = [item.context_expr for item in entered.items]
        kinds = [program.value(getattr(each, "func", each)).kind for each in managers]
        found[entered] = [each for each, kind in zip(managers, kinds, strict=True) if kind is not Kind.LIBRARY]
    return {block: each for block, each in found.items() if each}


def _handling(program: Program) -> Mapping[ast.AST, Sequence[ast.AST]]:
    """The statements that handle errors of their bodies, each with what does."""
    found: dict[ast.AST, list[ast.AST]] = {}
    for block in program.of_type(*TRIES):
        found[block] = [each for each in getattr(block, "handlers", ()) if not _lets_through(program, each)]
    entries: Sequence[ast.With | ast.AsyncWith] = program.of_type(ast.With, ast.AsyncWith)
    for entered in entries:
        managers = [item.context_expr for item in entered.items]
        found[entered] = [each for each in managers if may_swallow(program, each)]
    return {block: each for block, each in found.items() if each}


def _lets_through(program: Program, handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return False
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(program.qualified(each) in _OTHERS for each in kinds)

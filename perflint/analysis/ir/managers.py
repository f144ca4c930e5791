"""Tells which context managers may end an exception that leaves their block, so that what follows the block runs."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import own_nodes, returned_values
from perflint.torch_ops import libraries

_SWALLOW = frozenset({"suppress", "ExitStack", "AsyncExitStack"})  # of contextlib, by their purpose
_EXITS = frozenset({"__exit__", "__aexit__"})


def may_swallow(program: Program, manager: ast.expr) -> bool:
    """May an exception in the block of `manager` end there? Of those not analysed, any may end it."""
    called = manager.func if isinstance(manager, ast.Call) else manager
    value = program.value(called)
    if value.kind is Kind.LIBRARY:
        name = value.name.rpartition(".")[2]
        return name in _SWALLOW or not (libraries.is_pure(value.name) or value.name.startswith("torch."))
    if isinstance(value.node, ast.FunctionDef | ast.AsyncFunctionDef):
        return _may_catch(program, value.node)
    built = program.value(manager).node
    return not isinstance(built, ast.ClassDef) or any(
        isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name in _EXITS and _may_be_true(each)
        for owner in program.lineage(built)
        for each in owner.body
    )


def _may_catch(program: Program, function: ast.AST) -> bool:
    """Does a generator, of which a manager is made, yield where an exception may be handled?"""
    yields = (node for node in own_nodes(function) if isinstance(node, ast.Yield))
    return any(
        bool(getattr(around, "handlers", ()))
        or any(may_swallow(program, each.context_expr) for each in getattr(around, "items", ()))
        for node in yields
        for around in program.ancestors(node)
        if around is not function
    )


def _may_be_true(function: ast.AST) -> bool:
    return any(not isinstance(each, ast.Constant) or bool(each.value) for each in returned_values(function))

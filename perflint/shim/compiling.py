"""Compiles a patched text as if it were the user's own file: with that file's lines, and with counters in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType

from perflint.shim.counters import CALL
from perflint.shim.plan import PatchedFile

_DESCRIPTORS = ("staticmethod", "classmethod", "property")


def compiled(file: PatchedFile, filename: str) -> CodeType:
    """The code of `file`; raises what compiling raises."""
    code: CodeType = compile(_tree(file), filename, "exec", dont_inherit=True)
    return code


def _tree(file: PatchedFile) -> ast.Module:
    tree = ast.parse(file.text)
    _add_probes(tree, dict(file.probes), file.counter)
    for name, function in functions(tree):
        if name in file.calls:
            _tell_calls(function)
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            _move(node, file.lines)
    return tree


def _add_probes(tree: ast.Module, numbers: Mapping[int, int], counter: str) -> None:
    for node in list(ast.walk(tree)) if numbers else ():
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                block[:] = [each for statement in block for each in _probed(statement, numbers, counter)]


def _probed(statement: ast.stmt, numbers: Mapping[int, int], counter: str) -> Sequence[ast.stmt]:
    number = numbers.get(statement.lineno)
    if number is None:
        return (statement,)
    probe = ast.Expr(ast.Call(ast.Name(counter, ast.Load()), [ast.Constant(number)], []))
    for node in ast.walk(probe):
        ast.copy_location(node, statement)
    return (probe, statement)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module, by their names, and the methods of its classes as `Class.method`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, ast.FunctionDef))


def _tell_calls(function: ast.FunctionDef) -> None:
    """Decorate a function by what the verifier has put there; descriptors are made of what decorators return."""
    kinds = [isinstance(each, ast.Name) and each.id in _DESCRIPTORS for each in function.decorator_list]
    place = len(kinds) - kinds[::-1].index(True) if True in kinds else 0
    teller = ast.copy_location(ast.Name(CALL, ast.Load()), function)
    function.decorator_list.insert(place, teller)


def _move(node: ast.AST, lines: Sequence[int]) -> None:
    """Place a node of the patched text in the user's; columns mean nothing in a line that isn't the same there."""
    first, last = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
    node.lineno = abs(lines[first - 1])  # type: ignore[attr-defined]
    node.end_lineno = max(abs(lines[last - 1]), node.lineno)  # type: ignore[attr-defined]
    if lines[last - 1] < 0:
        node.end_col_offset = 0  # type: ignore[attr-defined]
    if lines[first - 1] < 0 or (lines[last - 1] < 0 and node.end_lineno == node.lineno):  # type: ignore[attr-defined]
        node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]

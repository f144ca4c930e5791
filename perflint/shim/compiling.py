"""Compiles a patched text with the line numbers of the original file, and with counters in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import CodeType

from perflint.shim.hooks import CALL, CUT, DUE
from perflint.shim.plan import PatchedFile
from perflint.syntax.walk import grouped

_DESCRIPTORS = ("staticmethod", "classmethod", "property")


def compiled(file: PatchedFile, filename: str) -> CodeType:
    code: CodeType = compile(_tree(file), filename, "exec", dont_inherit=True)
    return code


def _tree(file: PatchedFile) -> ast.Module:
    tree = ast.parse(file.text)
    places = [(ast.Pass(), line, lost) for line, lost in file.lost]
    _insert(tree, places)
    _insert(tree, [(_probe(file.counter, number), line, 0) for line, number in file.probes])
    for name, function in functions(tree):
        if name in file.calls:
            _tell_calls(function)
    for node in [*ast.walk(tree)] if file.shortened else ():
        _shorten(node, file)
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            _move(node, file.lines)
    for place, _, lost in places:
        place.lineno = place.end_lineno = lost
    return tree


def _shorten(node: ast.AST, file: PatchedFile) -> None:
    if isinstance(node, ast.For) and node.lineno in file.shortened:
        node.iter = _around(CUT, node.iter)
    elif isinstance(node, ast.If) and node.lineno in file.shortened:
        node.test = _around(DUE, node.test, ast.Constant(abs(file.lines[node.lineno - 1])))


def _around(function: str, node: ast.expr, *more: ast.expr) -> ast.expr:
    call = ast.copy_location(ast.Call(ast.Name(function, ast.Load()), [node, *more], []), node)
    for each in (call.func, *more):
        ast.copy_location(each, node)
    return call


def _probe(counter: str, number: int) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(counter, ast.Load()), [ast.Constant(number)], []))


def _insert(tree: ast.Module, inserted: Sequence[tuple[ast.stmt, int, int]]) -> None:
    at = grouped((line, statement) for statement, line, _ in inserted)
    for node in list(ast.walk(tree)) if at else ():
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                block[:] = [each for statement in block for each in (*_placed(at, statement), statement)]


def _placed(at: dict[int, list[ast.stmt]], statement: ast.stmt) -> Sequence[ast.stmt]:
    found = at.pop(statement.lineno, ())  # once, before the first and outermost of the statements of a line
    for each in found:
        for node in ast.walk(each):
            ast.copy_location(node, statement)
    return found


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, ast.FunctionDef))


def _tell_calls(function: ast.FunctionDef) -> None:
    kinds = [isinstance(each, ast.Name) and each.id in _DESCRIPTORS for each in function.decorator_list]
    place = len(kinds) - kinds[::-1].index(True) if True in kinds else 0
    teller = ast.copy_location(ast.Name(CALL, ast.Load()), function)
    function.decorator_list.insert(place, teller)


def _move(node: ast.AST, lines: Sequence[int]) -> None:
    """Columns are kept only where the line is unchanged."""
    first, last = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
    node.lineno = abs(lines[first - 1])  # type: ignore[attr-defined]
    node.end_lineno = max(abs(lines[last - 1]), node.lineno)  # type: ignore[attr-defined]
    if lines[last - 1] < 0:
        node.end_col_offset = 0  # type: ignore[attr-defined]
    if lines[first - 1] < 0 or (lines[last - 1] < 0 and node.end_lineno == node.lineno):  # type: ignore[attr-defined]
        node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]

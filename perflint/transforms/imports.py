"""Brings a name of another module into a program, where its imports are."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.syntax.edits import Edit
from perflint.transforms.blocked import Blocked
from perflint.transforms.names import names_in

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_Import = ast.Import | ast.ImportFrom


def importing(program: Program, module: str, name: str) -> tuple[str, tuple[Edit, ...]]:
    """What the program calls `name` of `module`, and the edit that imports it if it doesn't yet; raises Blocked."""
    imports = [each for each in program.tree.body if isinstance(each, ast.ImportFrom)]
    found = [each for each in imports if each.module == module and not each.level]
    for alias in (alias for node in found for alias in node.names):
        if alias.name in (name, "*"):
            return alias.asname or name, ()
    if name in names_in(program.tree):
        raise Blocked(f"`{name}` is something else in this file")
    if found:
        last = found[-1].names[-1]
        end = program.source.offset(last.end_lineno or last.lineno, last.end_col_offset or 0)
        return name, (Edit(end, end, f", {name}"),)
    place = _place(program, module)
    broken = "" if place == 0 or program.text[place - 1] in "\r\n" else "\n"
    return name, (Edit(place, place, f"{broken}from {module} import {name}\n"),)


def _place(program: Program, module: str) -> int:
    """Beside the imports of torch, in the order of names; else behind the imports at the top, or what precedes them."""
    head: list[ast.stmt] = []
    for statement in program.tree.body:
        if not (isinstance(statement, _Import) or _is_docstring(program, statement)):
            break
        head.append(statement)
    group = _group_of_torch(head)
    before: list[ast.stmt] = []
    for each in group:
        if _order(each) > (True, module):
            break
        before.append(each)
    if group and not before:
        return program.source.line_start(group[0].lineno)
    last = before or head
    return program.source.line_end(last[-1].end_lineno or last[-1].lineno) if last else _first_line(program)


def _group_of_torch(head: list[ast.stmt]) -> list[_Import]:
    """The imports that stand together with the first one of torch, no blank line between them."""
    groups: list[list[_Import]] = []
    for each in head:
        if not isinstance(each, _Import) or (isinstance(each, ast.ImportFrom) and each.module == "__future__"):
            continue
        if groups and (groups[-1][-1].end_lineno or 0) + 1 >= each.lineno:
            groups[-1].append(each)
        else:
            groups.append([each])
    return next((group for group in groups if any(_order(each)[1].startswith("torch") for each in group)), [])


def _order(node: _Import) -> tuple[bool, str]:
    """Where an import stands among others: whole modules first, each by its name."""
    if isinstance(node, ast.Import):
        return False, node.names[0].name.lower()
    return True, "~" if node.level else (node.module or "").lower()


def _is_docstring(program: Program, statement: ast.stmt) -> bool:
    return statement is program.tree.body[0] and ast.get_docstring(program.tree, clean=False) is not None


def _first_line(program: Program) -> int:
    """The start of the first line that is not part of the comments which begin the file."""
    line = 1
    while line < program.source.line_count and program.source.line_text(line).startswith("#"):
        line += 1
    return program.source.line_start(line)

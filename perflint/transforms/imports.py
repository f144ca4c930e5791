"""Brings a name of another module into a program, where its imports are."""

from __future__ import annotations

import ast
import itertools

from perflint.analysis.program import Program
from perflint.transforms.blocked import Blocked
from perflint.transforms.names import names_in
from perflint.transforms.operations import AddName, InsertAfter, InsertBefore, Operation
from perflint.transforms.template import statement

_Import = ast.Import | ast.ImportFrom


def importing(program: Program, module: str, name: str) -> tuple[str, tuple[Operation, ...]]:
    """What the program calls `name` of `module`, and what imports it if it doesn't yet; raises Blocked."""
    imports = [each for each in program.tree.body if isinstance(each, ast.ImportFrom)]
    found = [each for each in imports if each.module == module and not each.level]
    for alias in (alias for node in found for alias in node.names):
        if alias.name in (name, "*"):
            return alias.asname or name, ()
    if name in names_in(program.tree):
        raise Blocked(f"`{name}` is something else in this file")
    if found:
        return name, (AddName(found[-1], name),)
    return name, (_placed(program, statement(f"from {module} import {name}"), module),)


def _placed(program: Program, new: ast.stmt, module: str) -> Operation:
    """Beside the imports of torch, in the order of names; else after the imports at the top, or what precedes them."""
    head: list[ast.stmt] = []
    for each in program.tree.body:
        if not (isinstance(each, _Import) or _is_docstring(program, each)):
            break
        head.append(each)
    group = _group_of_torch(head)
    before = [*itertools.takewhile(lambda each: _order(each) <= (True, module), group)]
    if group and not before:
        return InsertBefore(group[0], (new,))
    last = before or head
    return InsertAfter(last[-1], (new,)) if last else InsertBefore(program.tree.body[0], (new,))


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

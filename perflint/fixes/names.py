"""How a program calls torch."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflint.program import Program


def name_of_torch(program: Program) -> str:
    """How the program calls torch; empty where it does not import it as a whole."""
    imports = (alias for node in program.tree.body if isinstance(node, ast.Import) for alias in node.names)
    return next((alias.asname or "torch" for alias in imports if alias.name == "torch"), "")

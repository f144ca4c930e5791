"""How a program reads one number from the device: the chain from the tensor to the Python number."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.analysis.heat.syncs import Sync
from perflint.analysis.program import Program
from perflint.transforms.operations import Replace
from perflint.transforms.template import expression

_LINKS = frozenset({"detach", "cpu", "item", "numpy"})
_CONVERSIONS = ("builtins.float", "builtins.int")


@dataclass(frozen=True)
class Read:
    """`top` is the value of the tensor `base` on the host; `converts_to`: by float() or int(), or neither."""

    top: ast.expr
    base: ast.expr
    is_scalar: bool
    converts_to: str

    def replaced(self, suffix: str) -> Replace:
        """Puts the tensor itself, with `suffix` behind it, in the place of its value."""
        return Replace(self.top, expression(f"{{base}}{suffix}", base=self.base))


def read_of(program: Program, sync: Sync) -> Read:
    """The whole chain of which `sync` is a link."""
    top: ast.expr = sync.node
    while (above := _link_above(program, top)) is not None:
        top = above
    base, scalar, converts_to = top, False, ""
    while True:
        if (
            isinstance(base, ast.Call)
            and isinstance(base.func, ast.Attribute)
            and base.func.attr in _LINKS
            and not base.args
        ):
            scalar |= base.func.attr == "item"
            base = base.func.value
        elif (
            isinstance(base, ast.Call)
            and program.qualified(base.func) in _CONVERSIONS
            and len(base.args) == 1
            and not base.keywords
        ):
            name = program.qualified(base.func).rpartition(".")[2]
            scalar, converts_to = True, "int" if "int" in (converts_to, name) else name  # float(int(x)) cuts, too
            base = base.args[0]
        elif isinstance(base, ast.Attribute) and base.attr == "data":
            base = base.value
        else:
            return Read(top, base, scalar, converts_to)


def _link_above(program: Program, node: ast.expr) -> ast.expr | None:
    parent = program.parent(node)
    if isinstance(parent, ast.Attribute) and parent.attr in _LINKS:
        call = program.parent(parent)
        return call if isinstance(call, ast.Call) and call.func is parent and not call.args else None
    if (
        isinstance(parent, ast.Call)
        and parent.args == [node]
        and not parent.keywords
        and program.qualified(parent.func) in _CONVERSIONS
    ):
        return parent
    return None


def way_to(program: Program, start: ast.expr, end: ast.expr) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The expressions from `start` up to `end`, each with the part of it that leads down to `start`."""
    child: ast.AST = start
    while child is not end:
        parent = program.parent(child)
        assert parent is not None
        yield parent, child
        child = parent

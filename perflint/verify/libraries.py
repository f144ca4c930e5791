"""Finds the libraries that a program imports, which can be imported once for all its starts."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from perflint.documents.lines import at_line
from perflint.project.closure import Closure, is_installed
from perflint.verify.forks import AT_START

_OURS = ("perflint", "numpy", "torch")  # these are imported anyway
_STARTS = ("run", "call", "check_call", "check_output", "Popen", "system", "popen")
_WRITERS_IN_C = frozenset(
    ("apsw", "av", "ctypes", "duckdb", "imageio", "leveldb", "lmdb", "moviepy", "netCDF4", "plyvel", "tables")
)
_WRITERS = ("setdefault", "update", "pop", "clear")


class Notes:
    """What is noted of a program's modules as its closure is walked.

    `changed` are variables of the environment, "" for those whose names are not known; `others` are the files and lines
    from where on files may be written otherwise than by Python's functions: programs are started that may be no Python,
    or libraries imported that write in C.
    """

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self.others: list[str] = []

    def visit(self, path: Path, text: str, tree: ast.Module) -> None:
        """Note what is of interest in a module."""
        if "env" in text:
            self.changed |= {*_changed(tree)}
        if "subprocess" in text or "os." in text:
            calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _starts(node.func))
            own = (call for call in calls if "executable" not in ast.dump(call))
            self.others += (at_line(str(path), call.lineno) for call in own)
        if any(name in text for name in _WRITERS_IN_C):
            nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
            self.others += (at_line(str(path), node.lineno) for node in nodes if _writes_in_c(node))


def libraries(closure: Closure | None, notes: Notes) -> tuple[str, ...] | None:
    """What the modules of a program import from where packages are installed, as they are imported themselves.

    These are modules, and names of modules, as some load what is behind a name only when that is asked for.

    Nothing of that where the program changes variables that libraries may read meanwhile; None where these are read as
    Python or torch start, or where the program isn't found as a file of its own.
    """
    if closure is None or any(module.imports is None for module in closure.modules):
        return None
    if any(not name or name.startswith(AT_START) for name in notes.changed):
        return None
    imports = (each for module in closure.modules for each in module.imports or ())
    always = dict.fromkeys(each.name for each in imports if each.always and not each.files)
    return () if notes.changed else tuple(name for name in always if _is_installed(name) and not name.endswith("*"))


def _writes_in_c(node: ast.Import | ast.ImportFrom) -> bool:
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
    return any(each.partition(".")[0] in _WRITERS_IN_C for each in names)


def _starts(function: ast.expr) -> bool:
    owner = getattr(getattr(function, "value", None), "id", "")
    return owner in ("os", "subprocess") and getattr(function, "attr", "") in _STARTS


def _is_installed(name: str) -> bool:
    """Whether a module comes with a package that is installed, and is none of Python's own."""
    outermost = name.partition(".")[0]
    if outermost in sys.stdlib_module_names or outermost in _OURS:
        return False
    return is_installed(outermost)


def _changed(tree: ast.Module) -> Iterator[str]:
    """The variables of the environment that a module changes, "" for those whose names are not known."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is_environment(node.value):
            yield _text(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _writes(node.func):
            yield _text(node.args[0]) if node.args else ""


def _writes(function: ast.Attribute) -> bool:
    return function.attr == "putenv" or (function.attr in _WRITERS and _is_environment(function.value))


def _is_environment(node: ast.expr) -> bool:
    return "environ" in (getattr(node, "attr", ""), getattr(node, "id", ""))


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

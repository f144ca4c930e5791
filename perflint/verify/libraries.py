"""Finds the libraries that a program imports, which can be imported once for all its starts."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

from perflint.documents.document import read
from perflint.engine.errors import UserError
from perflint.verify.forks import AT_START
from perflint.verify.messages import Kind, Program

_OURS = ("perflint", "numpy", "torch")  # these are imported anyway
_INSTALLED = ("site-packages", "dist-packages")
_WRITERS = ("setdefault", "update", "pop", "clear")


def libraries(program: Program) -> tuple[str, ...] | None:
    """What the modules of a program import from where packages are installed, as they are imported themselves.

    Nothing of that where the program changes variables that libraries may read meanwhile; None where these are read as
    Python or torch start, or where the program isn't found as a file of its own.
    """
    first = _first(program)
    if first is None:
        return None
    folders = [first.parent if program.kind is Kind.SCRIPT else program.folder, *_joined()]
    found: dict[str, None] = {}
    changes: set[str] = set()
    seen, pending = {first}, [first]
    while pending:
        path = pending.pop()
        try:
            tree = ast.parse(read(path).text)
        except (UserError, OSError, SyntaxError, ValueError):
            return None
        changes |= {*_changed(tree)}
        for name, is_at_import, level in _imported(tree):
            own = _own(name, [path.parents[level - 1]] if 0 < level <= len(path.parents) else folders)
            pending += [each for each in own if each not in seen]
            seen |= {*own}
            if is_at_import and not own and _is_installed(name):
                found.setdefault(name)
    if any(not name or name.startswith(AT_START) for name in changes):
        return None
    return () if changes else tuple(found)


def _first(program: Program) -> Path | None:
    if program.kind is Kind.SCRIPT:
        path = (program.folder / program.name).resolve()
        return path if path.suffix == ".py" and path.is_file() else None
    name = program.name.partition(":")[0]
    own = _own(f"{name}.__main__" if program.kind is Kind.MODULE else name, [program.folder])
    return own[-1] if own else None


def _joined() -> Iterator[Path]:
    yield from map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))


def _imported(tree: ast.Module) -> Iterator[tuple[str, bool, int]]:
    """The modules that are imported, whether that is done whenever this one is, and from how far up (0: absolute)."""
    always = {*map(id, tree.body)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in always, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                yield node.module, id(node) in always and not node.level, node.level
            package = f"{node.module}." if node.module else ""
            yield from ((f"{package}{alias.name}", False, node.level) for alias in node.names)


def _own(name: str, folders: Iterable[Path]) -> list[Path]:
    """The files of the program that importing a module runs: of the packages around it, and its own."""
    parts = name.split(".")
    for folder in folders:
        found = []
        for number in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:number])
            found += [path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()][:1]
        if found or folder.joinpath(parts[0]).is_dir():
            return [path.resolve() for path in found]
    return []


def _is_installed(name: str) -> bool:
    """Whether a module comes with a package that is installed, and is none of Python's own."""
    outermost = name.partition(".")[0]
    if outermost in sys.stdlib_module_names or outermost in _OURS:
        return False
    with suppress(ValueError, ImportError):
        spec = PathFinder.find_spec(outermost, _installed())
        return bool(spec and spec.origin)
    return False


def _installed() -> Sequence[str]:
    return [each for each in sys.path if Path(each).name in _INSTALLED]


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

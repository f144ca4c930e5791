"""Walks the import closure of a program: the files of its project that running it can import."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from perflint.documents import NOTEBOOK
from perflint.documents.disk import Unreadable
from perflint.documents.document import read
from perflint.syntax.walk import text_of

INSTALLED = ("site-packages", "dist-packages")
_IMPORTERS = ("import_module", "__import__")
_BY_SETTINGS = frozenset(("hydra", "gin", "jsonargparse"))  # libraries that import what files of settings name
_ADDS = ("append", "insert", "extend")
_SOURCES = "src"  # where many projects keep what is installed as a link
_SPECIAL = re.compile(r"""import_module|__import__|sys\.path|\.py["'\s]""")  # else there are imports alone to be seen
_PARTS = ("body", "orelse", "finalbody", "handlers", "cases")  # of statements
_HIDDEN = (".", "__pycache__")


class Import(NamedTuple):
    """A module that is imported, or a name of one, and the own `files` that this runs.

    It is imported `always` if it is whenever the importing one is; not so by relative imports, for no library is.
    """

    name: str
    always: bool
    files: tuple[Path, ...]


class Module(NamedTuple):
    """A file of a closure, and what it imports, which is None where it can't be read."""

    path: Path
    imports: tuple[Import, ...] | None


Visit = Callable[[Path, str, ast.Module], object]  # is called with each file that is read, its text and its tree


@dataclass(frozen=True)
class Closure:
    """The modules that a program can import, itself first.

    They stay the same while none of them changes, none appears at `looked_at`, and none comes or goes below `folders`.
    """

    modules: tuple[Module, ...]
    looked_at: frozenset[str]
    folders: frozenset[Path]

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(module.path for module in self.modules)


def of_program(
    name: str,
    launched: Sequence[str],
    *,
    is_module: bool,
    folder: Path,
    top: Path,
    visit: Visit = lambda *_: None,
) -> Closure | None:
    """The closure of a script or module that is started in `folder`, and of those that are `launched` by it.

    Imports are looked for on Python's path, and in the folders around the importing file up to `top`, which is the
    project's. None where the program is no file of its own, so that nobody knows what it imports.
    """
    scripts = [(folder / each).resolve() for each in launched if each.endswith(".py")]
    modules = [each for each in launched if not each.endswith(".py")]
    start = folder
    if is_module:
        modules.append(name)
    else:
        script = (folder / name).resolve()
        scripts.append(script)
        start = script if script.is_dir() else script.parent
    walk = _Walk((start, *_joined(top)), top, visit)
    first = [path for each in modules for path in walk.found(f"{each}.__main__", (folder, *walk.path))]
    first += [path for each in scripts for path in (each, each / "__main__.py") if _is_source(path)]
    return walk.closure(first) if first else None


@cache
def is_installed(name: str) -> bool:
    with suppress(ValueError, ImportError):
        spec = PathFinder.find_spec(name, [each for each in sys.path if Path(each).name in INSTALLED])
        return bool(spec and spec.origin)
    return False


def _is_source(path: Path) -> bool:
    return path.suffix in (".py", NOTEBOOK) and path.is_file()


def _joined(top: Path) -> Iterator[Path]:
    joined = map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    links = (Path(each) for each in sys.path if each)  # of packages that are installed as links
    folders = (*joined, *(each for each in links if each.is_relative_to(top)))
    yield from (each for each in folders if not (each.name in INSTALLED or any(each.glob("*.dist-info"))))


class _Walk:
    """Follows imports through the folders `path`, and through those around each file up to `top`."""

    def __init__(self, path: Sequence[Path], top: Path, visit: Visit = lambda *_: None) -> None:
        self.path, self._top, self._visit = list(dict.fromkeys(path)), top, visit
        self._looked_at: set[str] = set()
        self._folders: set[Path] = set()
        self._known: dict[tuple[str, tuple[Path, ...]], tuple[Path, ...]] = {}

    def closure(self, first: Iterable[Path]) -> Closure:
        seen: dict[Path, Module | None] = dict.fromkeys(first)
        pending = [*seen]
        for path in pending:
            module = seen[path] = self._module(path)
            news = dict.fromkeys(file for each in module.imports or () for file in each.files if file not in seen)
            pending += news
            seen |= news
        modules = tuple(module for module in seen.values() if module)
        return Closure(modules, frozenset(self._looked_at), frozenset(self._folders))

    def found(self, name: str, folders: Iterable[Path]) -> tuple[Path, ...]:
        """The files that importing a module from one of these folders runs: of the packages around it, and its own."""
        places = tuple(dict.fromkeys(folders))
        if (name, places) not in self._known:
            self._known[name, places] = next(filter(None, (self._in(folder, name) for folder in places)), ())
        return self._known[name, places]

    def _in(self, folder: Path, name: str) -> tuple[Path, ...]:
        found, place = list[Path](), folder
        for part in name.split("."):
            candidates = (place / part / "__init__.py", place / f"{part}.py")
            self._looked_at |= {*map(str, candidates)}
            files = [path.resolve() for path in candidates if path.is_file()][:1]
            # a link may lead to an installed package
            found += (path for path in files if path.is_relative_to(self._top) or {*INSTALLED}.isdisjoint(path.parts))
            place /= part
            if not place.is_dir():
                break
        return tuple(found)

    def _module(self, path: Path) -> Module:
        try:
            text = read(path).text
            tree = ast.parse(text)
        except (Unreadable, OSError, SyntaxError, ValueError, RecursionError):
            return Module(path, None)
        self._visit(path, text, tree)
        nodes = [*(ast.walk(tree) if _SPECIAL.search(text) else _statements(tree))]
        self.path += [each for each in self._added(path, nodes) if each not in self.path]
        around = [each for each in path.parents if each.is_relative_to(self._top)]
        folders = (*around, self._top / _SOURCES)
        imports = []
        for name, always, level in _imported(tree, nodes):
            base = path.parents[level - 1 : level] if level else self._folders_of(name, folders)
            imports.append(Import(name, always, self.found(name, base)))
        imports += (Import(name, False, (file,)) for name, file in self._run_by_name(path, nodes))
        is_package = (path.parent / "__init__.py").is_file()  # others may import what their arguments name
        by_settings = any(each.name.partition(".")[0] in _BY_SETTINGS for each in imports)
        if by_settings or (is_package and not _are_known(nodes)):
            imports.append(Import("", False, self._below(path.parent)))
        return Module(path, tuple(imports))

    def _folders_of(self, name: str, around: Sequence[Path]) -> Sequence[Path]:
        """Where a module may be found: of what is installed for Python, only on the program's path and beside the file.

        All else is `around` the file, the nearest first: programs may put it on their path in ways that nobody sees.
        """
        beyond = () if is_installed(name.partition(".")[0]) else around[1:]
        return (*self.path, *around[:1], *beyond)

    def _added(self, path: Path, nodes: Iterable[ast.AST]) -> Iterator[Path]:
        """The folders that a module adds to Python's path by what their names are in its text."""
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDS:
                owner = node.func.value
                if isinstance(owner, ast.Attribute) and owner.attr == "path":
                    words = [*filter(None, map(text_of, ast.walk(node)))]
                    bases = (self.path[0], *path.parents)
                    places = ((base / word).resolve() for word in (*words, "/".join(words)) for base in bases)
                    yield from (place for place in places if place.is_relative_to(self._top) and place.is_dir())

    def _run_by_name(self, path: Path, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Path]]:
        documented = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        texts = (text_of(node) for node in nodes if id(node) not in documented)
        for word in dict.fromkeys(word for text in texts for word in text.split() if word.endswith(".py")):
            for folder in (self.path[0], path.parent):
                self._looked_at.add(str(folder / word))
                if _is_source(folder / word):
                    yield word, (folder / word).resolve()
                    break

    def _below(self, folder: Path) -> tuple[Path, ...]:
        self._folders.add(folder)
        found = []
        for place, folders, names in os.walk(folder):
            folders[:] = [each for each in folders if not each.startswith(_HIDDEN) and each not in INSTALLED]
            found += [Path(place, name).resolve() for name in names if name.endswith(".py")]
        return tuple(sorted(found))


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    pending: list[ast.AST] = [tree]
    for node in pending:
        for part in _PARTS:
            pending += getattr(node, part, ())
    yield from pending


def _imported(tree: ast.Module, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, bool, int]]:
    """The modules that are imported, whether that is done whenever this one is, and from how far up (0: absolute)."""
    always = {*map(id, tree.body)}
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in always, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                yield node.module, id(node) in always and not node.level, node.level
            package = f"{node.module}." if node.module else ""
            is_always = id(node) in always and not node.level
            yield from ((f"{package}{alias.name}", is_always, node.level) for alias in node.names)
        elif isinstance(node, ast.Call) and _is_importer(node.func) and node.args and (name := text_of(node.args[0])):
            yield name.lstrip("."), False, len(name) - len(name.lstrip("."))


def _is_importer(function: ast.expr) -> bool:
    return (getattr(function, "attr", "") or getattr(function, "id", "")) in _IMPORTERS


def _are_known(nodes: Iterable[ast.AST]) -> bool:
    calls = (node for node in nodes if isinstance(node, ast.Call) and _is_importer(node.func))
    return all(node.args and text_of(node.args[0]) for node in calls)

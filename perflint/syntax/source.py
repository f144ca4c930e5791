"""One parsed file: its text and tree, places in both, its edits, and whether it is a script or a test."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from perflint.syntax.walk import Walk, path_of

_NEWLINE = re.compile(r"\r\n|\r|\n")


class Source:
    """A program's text; offsets count characters from 0, lines and columns from 1."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._ascii = text.isascii()

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _NEWLINE.finditer(self.text))]

    @cached_property
    def width(self) -> int:
        """How wide new lines may be: as those of the text but for one in a hundred, from 88 to 120 characters."""
        lengths = sorted(map(len, self.text.splitlines()))
        return min(max([88, *lengths[-1 - len(lengths) // 100 :][:1]]), 120)

    @property
    def line_count(self) -> int:
        """How many lines the text has; a final line break starts one more."""
        return len(self._starts)

    def line_start(self, line: int) -> int:
        return self._starts[line - 1]

    def line_end(self, line: int) -> int:
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def line_text(self, line: int) -> str:
        return self.text[self._starts[line - 1] : self.line_end(line)]

    def offset(self, line: int, utf8_column: int) -> int:
        """The offset of a position as `ast` gives it, whose columns count UTF-8 bytes from 0."""
        start = self._starts[line - 1]
        if self._ascii:
            return start + utf8_column
        return start + len(
            self.line_text(line).encode("utf-8", "surrogatepass")[:utf8_column].decode("utf-8", "surrogatepass")
        )

    def position(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def span(
        self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias | ast.excepthandler
    ) -> tuple[int, int]:
        """The offsets [start, end) of `node`; of a decorated definition, without its decorators."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def segment(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias | ast.excepthandler) -> str:
        start, end = self.span(node)
        return self.text[start:end]


class Safety(str, Enum):
    """What a fix promises about results; `perflint verify` holds it to that."""

    EXACT = "exact"  # bitwise the same results
    ROUNDING = "rounding"  # the same mathematics in another order of floats
    PRECISION = "precision"  # other number formats: TF32, bfloat16
    BEHAVIOUR = "behaviour"  # random streams, types or memory change

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, order=True)
class Edit:
    """Replace the characters [start, end) of the checked text by `text`."""

    start: int
    end: int
    text: str


class Unrenderable(Exception):
    """A fix that cannot be written, and why."""


Change = tuple[Edit, ...] | Callable[[], tuple[Edit, ...]]


class Terms:
    """What a fix promises, and what else keeps it from being applied without being asked for.

    `requires` names the distribution that the fixed program newly imports. `assumes` says what a run has shown and
    nothing proves: the fixed program asks, and does what the original one does elsewhere. `is_awkward`: few would write
    such code by hand, or merge it.
    """

    safety: Safety
    requires: str
    assumes: str
    is_awkward: bool

    @property
    def is_safe(self) -> bool:
        return self.safety in (Safety.EXACT, Safety.ROUNDING) and not self.proviso

    @property
    def proviso(self) -> str:
        if self.requires or self.assumes:
            return f"adds a dependency, {self.requires}" if self.requires else "assumes what a run has shown"
        return "is code that few would write by hand" if self.is_awkward else ""


@dataclass(frozen=True)
class Fix(Terms):
    """A patch: all of its edits are applied, or none.

    `change` is its edits, or gives them when asked (see `perflint.transforms.rewrite`).
    """

    title: str
    safety: Safety
    change: Change = field(compare=False)
    requires: str = ""
    assumes: str = ""
    is_awkward: bool = False

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """What the change does to the text; raises Unrenderable."""
        return self.change() if callable(self.change) else self.change

    def __reduce__(self) -> tuple[type[Fix], tuple[object, ...]]:
        """For other processes: the edits, if they are written, and not the program that they are made of."""
        written = () if callable(self.change) else self.change
        edits = self.__dict__.get("edits", written)
        return Fix, (self.title, self.safety, edits, self.requires, self.assumes, self.is_awkward)


def is_main_guard(statement: ast.AST) -> bool:
    """Does it ask for the name of the module, as `if __name__ == "__main__":` does?"""
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


class Module(Walk):
    """One file, parsed.

    Raises SyntaxError (ValueError for null bytes, RecursionError for nesting beyond Python's own limits) where the
    text is not a program of the running Python.
    """

    def __init__(self, text: str, tree: ast.Module | None = None) -> None:
        super().__init__(tree or ast.parse(text, type_comments=False))
        self.text = text
        self.source = Source(text)

    def stands_before(self, one: ast.AST, other: ast.AST) -> bool:
        """Does `one` stand before `other`, no part of it, and not in another branch of the same `if`?"""
        ways = [[node, *self.ancestors(node)][::-1] for node in (one, other)]
        depth = next((at for at, (a, b) in enumerate(zip(*ways, strict=False)) if a is not b), 0)
        if not depth:
            return False  # one holds the other
        around, first, second = ways[0][depth - 1], ways[0][depth], ways[1][depth]
        parts = [(name, each) for name, part in ast.iter_fields(around) for each in _listed(part)]
        (name, at), (other_name, behind) = (
            next((name, at) for at, (name, each) in enumerate(parts) if each is node) for node in (first, second)
        )
        return at < behind and not (isinstance(around, ast.If) and {name, other_name} == {"body", "orelse"})

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        return self.source.span(node)

    def segment(self, node: ast.expr | ast.stmt) -> str:
        return self.source.segment(node)

    @cached_property
    def is_script(self) -> bool:
        """Does running it do something: a main guard, or a loop or call at module level?"""
        return any(
            isinstance(statement, ast.For | ast.While | ast.With)
            or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call))
            or is_main_guard(statement)
            for statement in self.tree.body
        )

    @cached_property
    def imports_test_framework(self) -> bool:
        return _imports_framework(self.tree)


# What the text alone tells of a module, as far as that was asked for: by the names of the attributes that hold it.
OF_TEXT = frozenset({"tree", "text", "source", "_sorted"}) | {
    name for cls in (Walk, Module) for name, each in vars(cls).items() if isinstance(each, cached_property)
}


def _listed(part: object) -> list[object]:
    return part if isinstance(part, list) else [part]


_FRAMEWORKS = frozenset({"pytest", "unittest"})
_TEST_CLASS = re.compile(r"Test(s|Case|[A-Z_]|$)|\w+Tests?(Case)?$")


def holds_tests(tree: ast.Module, *, is_script: bool) -> bool:
    """Are the functions called `test_...` for a test runner, rather than part of training like `test_epoch(model)`?

    A runner calls functions without arguments, unless it is pytest, which has fixtures.
    """
    tests = list(_tests(tree))
    if not tests:
        return False
    if _imports_framework(tree):
        return True
    return not is_script and not any(test.args.args[is_method:] for test, is_method in tests)


def _tests(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, bool]]:
    """The functions of which each may be a test, and whether it is a method."""
    yield from ((each, False) for each in _named_so(tree.body))
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and _is_test_class(statement):
            yield from ((each, True) for each in _named_so(statement.body))


def _named_so(block: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef]:
    return (each for each in block if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"))


def _is_test_class(node: ast.ClassDef) -> bool:
    return bool(_TEST_CLASS.match(node.name)) or any(path_of(base).endswith("TestCase") for base in node.bases)


def _imports_framework(tree: ast.Module) -> bool:
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            names = [statement.module or ""]
        else:
            continue
        if any(name.partition(".")[0] in _FRAMEWORKS for name in names):
            return True
    return False

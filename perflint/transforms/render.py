"""Applies rewrites' operations to the libcst tree of the program, and gives what changed as edits."""

from __future__ import annotations

import ast
import bisect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

import libcst as cst

from perflint.syntax.source import Edit, Source
from perflint.transforms.blocks import Block, Changes
from perflint.transforms.code import Coder, fitted, in_brackets, unbroken
from perflint.transforms.keywords import hangs, with_keywords, with_names
from perflint.transforms.operations import (
    AddKeywords,
    AddName,
    Decorate,
    InsertAfter,
    InsertBefore,
    Operation,
    Replace,
    ReplaceStatements,
    is_new,
)
from perflint.transforms.trees import Trees, first_offset, trees_of

_OPEN = (
    *(cst.Arg, cst.Index, cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Return, cst.Expr, cst.If, cst.While),
    *(cst.FormattedStringExpression, cst.Element, cst.Assert, cst.Decorator),
)
_ENCLOSED = (cst.Arg, cst.SubscriptElement, cst.List, cst.Set, cst.Dict, cst.BaseComp)
_CLOSED = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.BaseNumber, cst.BaseString, cst.List, cst.Tuple)

_TOKENS = re.compile(r"\w+|\s+|.")
_ALIKE = 0.4  # of the tokens of two lines


def render(source: Source, operations: Sequence[Operation]) -> tuple[Edit, ...]:
    """The edits that make `operations` of the program `source`.

    Raises Unrenderable for syntax unknown to libcst, and statements that share a line with others.
    """
    trees = trees_of(source.text)
    regions = [region for each in operations if (region := _region(trees, each))]
    return _edits(trees, _Rendering(trees, operations).module(), regions)


def _region(trees: Trees, operation: Operation) -> tuple[int, int, bool] | None:
    if isinstance(operation, Replace):
        return *trees.span(operation.old), False
    if not isinstance(operation, ReplaceStatements) or any(map(_keeps, operation.new)):
        return None
    return trees.span(operation.old[0])[0], trees.span(operation.old[-1])[1], True


def _keeps(node: ast.AST) -> bool:
    if isinstance(node, ast.stmt) and not is_new(node):
        return True
    return any(_keeps(each) for each in ast.iter_child_nodes(node) if not isinstance(each, ast.expr))


def _moved(operation: Operation) -> Iterator[ast.stmt]:
    if isinstance(operation, InsertBefore | InsertAfter):
        pending: list[ast.AST] = [*operation.new]
        for node in pending:
            if isinstance(node, ast.stmt) and not is_new(node):
                yield node
            elif is_new(node):
                pending += ast.iter_child_nodes(node)


def changed(source: Source, change: Callable[[cst.Module], cst.Module]) -> tuple[Edit, ...]:
    trees = trees_of(source.text)
    return _edits(trees, change(trees.module))


def _edits(trees: Trees, module: cst.Module, regions: Sequence[tuple[int, int, bool]] = ()) -> tuple[Edit, ...]:
    """The edits that turn the program into `module`; unchanged statements at either end stay unread."""
    old, new = trees.module.body, module.body
    front, back = 0, 0
    if (trees.module.header, trees.module.footer) == (module.header, module.footer):
        front, back = _shared(old, new)
    start, end = 0, len(trees.text)
    if 0 < front < len(old) and back:
        start, end = _begin(trees, old[front]), _begin(trees, old[len(old) - back])
        text = "".join(map(module.code_for_node, new[front : len(new) - back]))
    else:
        text = module.code
    try:
        ast.parse(trees.text[:start] + text + trees.text[end:])
    except SyntaxError as error:
        raise RuntimeError(f"what a fix makes of the program is no program: {error}") from error
    return trees.placed(merged(difference(trees.text[start:end], text, start), trees.text, regions))


def _shared(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """How many items both have in common at the front, and behind these at the back."""
    most = min(len(old), len(new))
    front = next((i for i in range(most) if old[i] != new[i]), most)
    return front, next((i for i in range(most - front) if old[-1 - i] != new[-1 - i]), most - front)


def _begin(trees: Trees, line: cst.CSTNode) -> int:
    above = "".join(map(trees.module.code_for_node, getattr(line, "leading_lines", ())))
    return trees.text.rfind("\n", 0, first_offset(trees, line)) + 1 - len(above)


class _Rendering(cst.CSTTransformer):
    def __init__(self, trees: Trees, operations: Sequence[Operation]) -> None:
        super().__init__()
        self._trees, self._coder = trees, Coder(trees, self._updated)
        self._expressions: dict[cst.CSTNode, Replace] = {}
        self._keywords: dict[cst.CSTNode, AddKeywords] = {}
        self._names: dict[cst.CSTNode, list[str]] = defaultdict(list)
        self._decorators: dict[cst.CSTNode, list[ast.expr]] = defaultdict(list)
        self._statements: dict[cst.CSTNode, Changes] = defaultdict(Changes)
        places = set()
        for operation in operations:
            places.add(first_offset(trees, self._note(operation)))
        self._places = sorted(places)
        self._moved = {trees.line(each) for operation in operations for each in _moved(operation)}

    def _note(self, operation: Operation) -> cst.CSTNode:
        node: cst.CSTNode
        if isinstance(operation, Replace):
            node = self._trees.expression(operation.old)
            self._expressions[node] = operation
        elif isinstance(operation, AddKeywords):
            node = self._trees.expression(operation.call)
            self._keywords[node] = operation
        elif isinstance(operation, AddName):
            node = self._trees.statement(operation.statement)
            self._names[node].append(operation.name)
        elif isinstance(operation, Decorate):
            node = self._trees.statement(operation.definition)
            self._decorators[node].append(operation.decorator)
        elif isinstance(operation, ReplaceStatements):
            node = self._trees.line(operation.old[0])
            self._statements[node].replaced = operation
        else:
            node = self._trees.line(operation.statement)
            changes = self._statements[node]
            (changes.before if isinstance(operation, InsertBefore) else changes.after).extend(operation.new)
        return node

    def module(self) -> cst.Module:
        return cst.ensure_type(self._trees.module.visit(self), cst.Module)

    def _updated(self, piece: Any) -> Any:
        return piece.visit(self) if self._changes(piece) else piece

    def _changes(self, node: cst.CSTNode) -> bool:
        start, end = first_offset(self._trees, node), self._trees.spans[node][1]
        at = bisect.bisect_left(self._places, start)
        return at < len(self._places) and self._places[at] <= end

    def on_visit(self, node: cst.CSTNode) -> bool:
        return self._changes(node) if node in self._trees.spans else True

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        if isinstance(original_node, cst.BaseExpression):
            if replace := self._expressions.pop(original_node, None):  # which may have the old one in the new
                written = self._replaced(original_node, replace.new)
                self._expressions[original_node] = replace
                return written
            if isinstance(original_node, cst.Call) and (add := self._keywords.get(original_node)):
                given = [(name, self._coder.expression(value)) for name, value in add.keywords]
                return with_keywords(self._trees, original_node, updated_node, given)
        elif names := self._names.get(original_node):
            return with_names(updated_node, names)
        elif decorators := self._decorators.get(original_node):
            fresh = [cst.Decorator(self._coder.expression(each)) for each in decorators]
            return updated_node.with_changes(decorators=[*updated_node.decorators, *fresh])
        elif isinstance(original_node, cst.Module | cst.IndentedBlock) and not self._statements.keys().isdisjoint(
            original_node.body
        ):
            return Block(self._trees, self._coder, self._statements, self._moved).written(original_node, updated_node)
        elif isinstance(original_node, cst.SimpleStatementLine):
            return self._in_width(original_node, updated_node)
        return updated_node

    def _replaced(self, old: cst.BaseExpression, new: ast.expr) -> cst.BaseExpression:
        written = self._coder.expression(new)
        if isinstance(old, cst.Call) and isinstance(written, cst.Call):
            written = self._in_lines(old, written)
        if isinstance(old, cst.Attribute) and isinstance(written, cst.Attribute):
            written = written.with_changes(dot=old.dot)
        needs_none = isinstance(written, cst.Name) and "#" not in self._trees.module.code_for_node(old)
        if old.lpar and not isinstance(old, cst.Tuple | cst.GeneratorExp) and not needs_none:
            return written.with_changes(lpar=old.lpar, rpar=old.rpar)
        is_open = isinstance(self._trees.parents.get(old), _OPEN) or isinstance(written, _CLOSED)
        if not is_open:
            return in_brackets(written, needed=True)
        return written if self._is_enclosed(old) else unbroken(written)

    def _in_lines(self, old: cst.Call, written: cst.Call) -> cst.Call:
        trees, (start, end) = self._trees, self._trees.spans[old]
        text = trees.module.code_for_node(written)
        if "\n" not in trees.text[start:end] or "\n" in text:
            return written
        statement: cst.CSTNode = old
        while not isinstance(statement, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            statement = trees.parents[statement]
        places = (start, trees.spans[statement][0])
        line, first = (trees.text[trees.text.rfind("\n", 0, at) + 1 : at] for at in places)
        deeper = line[: len(line) - len(line.lstrip())].removeprefix(first)
        line += text + trees.text[end:].partition("\n")[0]
        return fitted(written, line, self._coder.indent, trees.width, deeper)

    def _in_width(self, old: cst.SimpleStatementLine, line: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
        """The line, its call or list below its bracket if it has become too long, where all of the file's are."""
        trees, (small, *rest) = self._trees, line.body
        start, end = trees.spans[old.body[0]][0], trees.spans[old.body[-1]][1]
        before = trees.text[trees.text.rfind("\n", 0, start) + 1 : start]
        text, value = before + trees.module.code_for_node(small), getattr(small, "value", None)
        was_long = len(before) + end - start > trees.width or "\n" in trees.text[start:end]
        if rest or was_long or "\n" in text or len(text) <= trees.width or not hangs(trees):
            return line
        if not isinstance(value, cst.ListComp) and not (isinstance(value, cst.Call) and value.args):
            return line
        laid = fitted(value, text, self._coder.indent, trees.width)
        return line.with_changes(body=[small.with_changes(value=laid)])

    def _is_enclosed(self, node: cst.CSTNode) -> bool:
        while (around := self._trees.parents.get(node)) is not None:
            if isinstance(around, _ENCLOSED) or (isinstance(around, cst.BaseExpression) and around.lpar):
                return True
            if isinstance(around, cst.BaseSmallStatement | cst.BaseCompoundStatement):
                return False
            node = around
        return False


def difference(old: str, new: str, start: int = 0) -> list[Edit]:
    """The edits that turn `old`, which begins at `start`, into `new`; a line only indented is an edit by itself.

    Both have `\n` at the ends of lines.
    """
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    offsets = [start]
    for line in before:
        offsets.append(offsets[-1] + len(line))
    return _joined(_changes(before, after, offsets))


def _changes(before: list[str], after: list[str], offsets: list[int]) -> Iterator[Edit]:
    matcher = SequenceMatcher(None, [line.strip() for line in before], [line.strip() for line in after], autojunk=False)
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(before[first:last], after[begin:end], strict=True)
            for number, (one, other) in enumerate(pairs, first):
                yield from _trimmed(one, other, offsets[number])
        else:
            for old_lines, new_lines in _paired(before[first:last], after[begin:end]):
                yield from _trimmed("".join(old_lines), "".join(new_lines), offsets[first])
                first += len(old_lines)


def _joined(edits: Iterable[Edit]) -> list[Edit]:
    joined: list[Edit] = []
    for edit in edits:
        if joined and joined[-1].end == edit.start:
            last = joined.pop()
            edit = Edit(last.start, edit.end, last.text + edit.text)
        joined.append(edit)
    return joined


def _paired(old: list[str], new: list[str]) -> list[tuple[list[str], list[str]]]:
    """Which lines became which: those alike at top or bottom; the rest is one piece."""
    shared = min(len(old), len(new))
    top = [([one], [other]) for one, other in zip(old, new, strict=False)]
    if len(old) == len(new):
        return top
    bottom = [([one], [other]) for one, other in zip(old[-shared:], new[-shared:], strict=True)] if shared else []
    likeness = [sum(_alike(one[0], other[0]) for one, other in pairs) for pairs in (top, bottom)]
    if not any(likeness):
        return [(old, new)]
    if likeness[0] >= likeness[1]:
        return [*top, (old[shared:], new[shared:])]
    return [(old[: len(old) - shared], new[: len(new) - shared]), *bottom]


def _alike(one: str, other: str) -> float:
    ratio = SequenceMatcher(None, _TOKENS.findall(one), _TOKENS.findall(other), autojunk=False).ratio()
    return ratio if ratio > _ALIKE else 0.0


def merged(edits: Iterable[Edit], text: str, regions: Sequence[tuple[int, int, bool]]) -> Iterator[Edit]:
    """The edits, those in one of the `regions` as one, of the whole region where that is `whole`.

    Other fixes that touch it would otherwise be taken to go together with this one.
    """
    rest = sorted(edits)
    for start, end, whole in sorted(regions):
        inside = [each for each in rest if start <= each.start < end or (each.start < end and start < each.end)]
        if not inside:
            continue
        rest = [each for each in rest if each not in inside]
        first = min(start, inside[0].start) if whole else inside[0].start
        last = max(end, inside[-1].end) if whole else inside[-1].end
        written, at = "", first
        for edit in inside:
            written += text[at : edit.start] + edit.text
            at = edit.end
        rest = sorted([*rest, Edit(first, last, written + text[at:last])])
    yield from rest


def _trimmed(old: str, new: str, start: int) -> Iterator[Edit]:
    if old == new:
        return
    one, other = _TOKENS.findall(old), _TOKENS.findall(new)
    front, back = _shared(one, other)
    start += len("".join(one[:front]))
    gone, come = "".join(one[front : len(one) - back]), "".join(other[front : len(other) - back])
    yield Edit(start, start + len(gone), come)

"""Writes the statements of a block of which some are replaced, without losing a comment."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from perflint.syntax.source import Unrenderable
from perflint.syntax.walk import BLOCKS
from perflint.transforms.code import Coder, comment_line, continued, fitted, with_blocks
from perflint.transforms.operations import FIT, ReplaceStatements, is_new, note_of
from perflint.transforms.trees import Line, Trees

_BEHIND = cst.SimpleWhitespace("  ")


@dataclass
class Changes:
    replaced: ReplaceStatements | None = None
    before: list[ast.stmt] = field(default_factory=list)
    after: list[ast.stmt] = field(default_factory=list)


@dataclass(frozen=True)
class _Comment:
    line: int
    text: str


class Block:
    def __init__(
        self,
        trees: Trees,
        coder: Coder,
        changes: Mapping[cst.CSTNode, Changes],
        moved: Collection[cst.CSTNode] = (),
    ) -> None:
        self._trees, self._coder, self._changes, self._moved = trees, coder, changes, moved
        self._above: dict[cst.CSTNode, Sequence[cst.EmptyLine]] = {}  # what stands above a line from now on
        self._comments: list[_Comment] = []  # that are still to be written
        self._head: Sequence[cst.EmptyLine] = ()  # what stands above the next new statement
        self._unit: str | None = None
        self._column = 0

    def written(self, old: cst.Module | cst.IndentedBlock, updated: Any) -> Any:
        body: list[Any] = []
        over: list[cst.EmptyLine] = []  # comments of what went, which go to the next statement
        if isinstance(old, cst.IndentedBlock):
            self._unit = old.indent
        elif old.body:
            self._above[old.body[0]] = (*old.header, *_above(old.body[0]))
        index, lines = 0, list[Any]()
        while index < len(old.body):
            line: Any = old.body[index]
            changes = self._changes.get(line)
            if changes is None:
                lines, count = [updated.body[index]], 1
                if line in self._above:
                    lines = [lines[0].with_changes(leading_lines=self._above[line])]
            else:
                lines, count = self._changed(old.body[index:], changes)
            if lines and not body and (index or changes) and isinstance(old, cst.IndentedBlock):
                lines = [_close(lines[0]), *lines[1:]]  # as the first line of the block
            body += [_under(over, lines[0]), *lines[1:]] if lines else []
            if lines:
                over = []
            if changes is not None:
                over += [] if lines or line in self._moved else list(self._leading(line))
                over += [comment_line(each.text) for each in self._comments]
                if changes.replaced:
                    over += self._blanks_behind(old.body[index + count - 1], {*self._kept(changes.replaced.new)})
                self._comments = []
            index += count
        if isinstance(updated, cst.Module):
            kept = {"header": ()} if old.body else {}
            return updated.with_changes(body=body, footer=[*over, *updated.footer], **kept)
        body = body or [cst.SimpleStatementLine([cst.Pass()])]
        return updated.with_changes(body=body, footer=[*over, *updated.footer])

    def _leading(self, line: cst.CSTNode) -> Sequence[cst.EmptyLine]:
        return self._above.get(line, _above(line))

    def _changed(self, rest: Sequence[Any], changes: Changes) -> tuple[list[Any], int]:
        first = rest[0]
        start = self._trees.spans[first][0]
        self._column = start - self._trees.text.rfind("\n", 0, start) - 1
        count, replaced = 1, changes.replaced
        middle: list[Any] = []
        if changes.before or (replaced and replaced.new):
            self._split(first, changes)
        before = self._lines(changes.before)
        if replaced:
            count = self._count(rest, replaced)
            kept = {*self._kept(replaced.new), *self._moved}
            self._comments = [each for line in rest[:count] for each in self._lost(line, kept, line is first)]
            if rest[0] in self._trees.module.body and isinstance(getattr(rest[0], "body", None), cst.IndentedBlock):
                self._unit = rest[0].body.indent
            middle = self._lines(replaced.new, default=not _tells(replaced.new), last=replaced.old[-1].end_lineno or 0)
        else:
            middle = [self._kept_line(first)]
        if changes.before and isinstance(changes.before[-1], ast.FunctionDef):
            blanks = 2 if first in self._trees.module.body else 1
            around = self._trees.parents[first]
            is_first = blanks == 1 and first is getattr(around, "body", [None])[0]
            before = [*before[:is_first], *(_spaced(each, blanks) for each in before[is_first:])]
            middle = [_spaced(middle[0], blanks), *middle[1:]]
        lines = [*before, *middle, *self._lines(changes.after)]
        return lines, count

    def _split(self, first: Any, changes: Changes) -> None:
        new = [*changes.before, *(changes.replaced.new if changes.replaced else ())]
        lines = list(self._leading(first))
        if first in self._moved:
            self._head = list(itertools.takewhile(lambda each: each.comment is None, lines))
            return
        if not is_new(new[0]) and self._trees.line(new[0]) is first:
            return
        stays = changes.replaced is None or first in {*self._kept(changes.replaced.new)}
        stays = stays and not isinstance(new[0], ast.With)  # which is about what the comment says of it
        cut = len(lines)
        while stays and cut and lines[cut - 1].comment is not None:
            cut -= 1
        if not cut and first is self._trees.module.body[0]:
            cut = len(lines)  # what a file begins with says how to read it
        self._head, self._above[first] = lines[:cut], lines[cut:]

    def _count(self, rest: Sequence[Any], replaced: ReplaceStatements) -> int:
        given = {id(self._trees.statement(each)) for each in replaced.old}
        lines = list(dict.fromkeys(map(self._trees.line, replaced.old)))
        parts = [part for line in lines for part in _parts(line)]
        if {id(part) for part in parts} != given or any(a is not b for a, b in zip(lines, rest, strict=False)):
            raise Unrenderable(f"line {replaced.old[0].lineno}: it shares a line with something else")
        return len(lines)

    def _kept(self, new: Sequence[ast.AST]) -> Iterator[cst.CSTNode]:
        for node in new:
            if is_new(node) or not isinstance(node, ast.expr | ast.stmt):
                yield from self._kept(list(ast.iter_child_nodes(node)))
            elif isinstance(node, ast.stmt):
                yield self._trees.line(node)
            elif (piece := self._trees.piece(node)) is not None:
                yield piece
            else:
                yield from self._kept(list(ast.iter_child_nodes(node)))

    def _lost(self, node: cst.CSTNode, kept: set[cst.CSTNode], is_first: bool) -> Iterator[_Comment]:
        if node in kept:
            return
        above = _above(node) if is_first else ()
        for child in node.children:
            if isinstance(child, cst.Comment):
                yield _Comment(self._trees.number(child), child.value)
            elif not any(child is each for each in above):
                yield from self._lost(child, kept, False)

    def _blanks_behind(self, line: cst.CSTNode, kept: set[cst.CSTNode]) -> list[cst.EmptyLine]:
        """The blank lines with which the last block of `line` ends, unless some of it is kept, with them."""
        blanks: list[cst.EmptyLine] = []
        while line not in kept and (block := _last_block(line)) is not None:
            blanks = [*itertools.takewhile(lambda each: each.comment is None, reversed(block.footer)), *blanks]
            line = block.body[-1]
        return [cst.EmptyLine(indent=False) for _ in blanks] if line not in kept else []

    # -- new statements

    def _lines(self, new: Sequence[ast.stmt], *, default: bool = False, last: int = 0) -> list[Any]:
        lines: list[Any] = []
        whole = self._whole(new)
        for number, statement in enumerate(new, 1):
            if statement in whole:
                continue
            until = last if default and number == len(new) else note_of(statement).last
            head, self._head = self._head, ()
            line = self._new(statement, until) if is_new(statement) else self._old(statement, new)
            is_spaced = bool(_above(line)) and _above(line)[0].comment is None
            lines.append(line if is_spaced and all(each.comment is None for each in head) else _under(head, line))
        return lines

    def _whole(self, new: Sequence[ast.stmt]) -> set[ast.stmt]:
        old = [each for each in new if not is_new(each)]
        lines = [self._trees.line(each) for each in old]
        return {
            each
            for each, line, before in zip(old[1:], lines[1:], lines, strict=False)
            if line is before and lines.count(line) == len(line.body)  # type: ignore[arg-type]
        }

    def _old(self, statement: ast.stmt, new: Sequence[ast.stmt]) -> Any:
        line = self._trees.line(statement)
        above = [comment_line(each.text) for each in self._take(statement.lineno - 1)]
        given = {self._trees.statement(each) for each in new if not is_new(each)}
        if given.issuperset(_parts(line)):
            further = self._column - statement.col_offset
            return _under(above, continued(self._kept_line(line), further, self._unit or self._coder.indent))
        small = self._coder.update(self._trees.statement(statement))
        return _under(above, cst.SimpleStatementLine([small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]))

    def _kept_line(self, line: Any) -> Any:
        updated = self._coder.update(line)
        above = self._above.get(line, _above(updated))
        if line in self._trees.module.body:
            above = [_blank(each) for each in above]
        return updated.with_changes(leading_lines=above)

    def _new(self, statement: ast.stmt, last: int) -> Any:
        line: Any = self._coder.statement(statement)
        if isinstance(statement, ast.Assign | ast.Expr) and note_of(statement.value).rows == (FIT,):
            (made,) = line.body
            text = " " * self._column + self._trees.module.code_for_node(made)
            value = fitted(made.value, text, self._coder.indent, self._trees.width)
            line = line.with_changes(body=[made.with_changes(value=value)])
        comments = self._take(last)
        is_short = "\n" not in self._trees.module.code_for_node(line).strip() or not isinstance(
            line, cst.SimpleStatementLine
        )
        is_behind = bool(comments) and comments[-1].line == last and note_of(statement).alone and is_short
        behind = comments.pop() if is_behind else None
        blocks = {name: block for name in BLOCKS if (block := getattr(statement, name, None))}
        if blocks:
            self._column += len(self._unit or self._coder.indent)
            inside: dict[str, Sequence[Any]] = {name: self._lines(block) for name, block in blocks.items()}
            if isinstance(statement, ast.FunctionDef):
                inside["body"] = [_close(inside["body"][0]), *inside["body"][1:]]
            line = with_blocks(line, inside, self._unit)
            self._column -= len(self._unit or self._coder.indent)
        if behind is not None:
            trailing = cst.TrailingWhitespace(_BEHIND, cst.Comment(behind.text))
            if isinstance(line, cst.SimpleStatementLine):
                line = line.with_changes(trailing_whitespace=trailing)
            else:
                line = line.with_changes(body=line.body.with_changes(header=trailing))
        above = [comment_line(each.text) for each in comments]
        if note_of(statement).is_apart:
            above.insert(0, cst.EmptyLine(indent=False))
        return _under(above, line)

    def _take(self, last: int) -> list[_Comment]:
        taken = [each for each in self._comments if each.line <= last]
        self._comments = [each for each in self._comments if each not in taken]
        return taken


def _parts(line: Line) -> Sequence[cst.CSTNode]:
    return line.body if isinstance(line, cst.SimpleStatementLine) else [line]


def _last_block(line: cst.CSTNode) -> cst.IndentedBlock | None:
    clause: Any = line
    for name in ("body", "handlers", "orelse", "finalbody"):
        last = getattr(line, name, None)
        clause = (last[-1] if isinstance(last, Sequence) and last else last) or clause
    if clause is not line and not isinstance(clause, cst.BaseSuite):
        return _last_block(clause)
    return clause if isinstance(clause, cst.IndentedBlock) else None


def _tells(new: Sequence[ast.stmt]) -> bool:
    return any(note_of(node).last for each in new for node in ast.walk(each) if isinstance(node, ast.stmt))


def _above(line: cst.CSTNode) -> Sequence[cst.EmptyLine]:
    found: Sequence[cst.EmptyLine] = getattr(line, "leading_lines", ())
    return found


def _blank(line: cst.EmptyLine) -> cst.EmptyLine:
    is_blank = line.comment is None and not line.whitespace.value
    return line.with_changes(indent=False) if is_blank else line


def _under(above: Sequence[cst.EmptyLine], line: Any) -> Any:
    return line.with_changes(leading_lines=[*above, *line.leading_lines]) if above else line


def _close(line: Any) -> Any:
    return line.with_changes(leading_lines=[*itertools.dropwhile(lambda each: each.comment is None, _above(line))])


def _spaced(line: Any, blanks: int) -> Any:
    above = _above(line)
    there = len([*itertools.takewhile(lambda each: each.comment is None, above)])
    more = [cst.EmptyLine(indent=False) for _ in range(blanks - there)]
    return line.with_changes(leading_lines=[*more, *above])

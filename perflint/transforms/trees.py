"""The libcst tree of a program, and its nodes by their `ast` counterparts."""

from __future__ import annotations

import ast
import bisect
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property, lru_cache

import libcst as cst
from libcst._nodes.internal import CodegenState  # its metadata takes several passes, and ten times as long

from perflint.syntax.source import Edit, Source, Unrenderable

_FOREIGN = re.compile(r"\r(?=\n)|(?:(?<=\n)|(?<=\r)|\A)[ \t]*\f")  # what libcst does not give back as it was
_DEFINITIONS = (cst.FunctionDef, cst.ClassDef)
_STATEMENTS = (cst.BaseSmallStatement, cst.BaseCompoundStatement)
_PIECES = (cst.BaseExpression, cst.Slice)

Statement = cst.BaseSmallStatement | cst.BaseCompoundStatement
Piece = cst.BaseExpression | cst.Slice
Line = cst.SimpleStatementLine | cst.BaseCompoundStatement


class _Place:
    """What `with` measures: a node's code, or from the begin of one node in it to the end of another."""

    def __init__(self, places: _Places, node: cst.CSTNode, first: cst.CSTNode | None, last: cst.CSTNode | None) -> None:
        self._places, self._node, self._first, self._last = places, node, first, last

    def __enter__(self) -> None:
        self._start = self._places.at

    def __exit__(self, *_: object) -> None:
        spans = self._places.spans
        start = spans[self._first][0] if self._first is not None else self._start
        spans[self._node] = start, spans[self._last][1] if self._last is not None else self._places.at


class _Places(CodegenState):
    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self.at = 0
        self.spans: dict[cst.CSTNode, tuple[int, int]] = {}
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._around: list[tuple[cst.CSTNode, int]] = []
        module._codegen(self)

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        self.at += len(value)

    def pop_trailing_newline(self) -> None:
        self.at -= len(self.tokens[-1]) if self.tokens else 0
        super().pop_trailing_newline()

    def before_codegen(self, node: cst.CSTNode) -> None:
        if self._around:
            self.parents[node] = self._around[-1][0]
        self._around.append((node, self.at))

    def after_codegen(self, node: cst.CSTNode) -> None:
        _, start = self._around.pop()
        self.spans.setdefault(node, (start, self.at))

    def record_syntactic_position(  # type: ignore[override]  # a context manager, but no generator, which is slower
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> _Place:
        return _Place(self, node, start_node, end_node)


class Trees:
    """A libcst module, and its nodes by place.

    Its text has `\n` at the ends of lines and no form feeds before them; `spans` count characters of that. Raises
    Unrenderable where libcst can't parse it.
    """

    def __init__(self, text: str) -> None:
        self._source = Source(text)
        self._gone = [at for match in _FOREIGN.finditer(text) for at in range(*match.span())]
        # Where each would stand in the text without, doubled: what stands there now is after a form feed, before a \r.
        self._seams = [2 * (at - number) + (text[at] == "\r") for number, at in enumerate(self._gone)]
        self.text = _FOREIGN.sub("", text).replace("\r", "\n")
        try:
            self.module = cst.parse_module(self.text)
        except (cst.ParserSyntaxError, cst.CSTValidationError) as error:
            raise Unrenderable("libcst, which writes fixes, cannot parse this file") from error
        places = _Places(self.module)
        if "".join(places.tokens) != self.text:
            raise Unrenderable("libcst, which writes fixes, does not give this file back as it is")
        self._plain = Source(self.text)
        self.spans, self.parents = places.spans, places.parents
        self.width = self._plain.width
        self._expressions: dict[tuple[int, int], Piece] = {}
        self._statements: dict[int, Statement] = {}
        for node, span in self.spans.items():
            if isinstance(node, _STATEMENTS):
                self._statements[span[0]] = node
            elif isinstance(node, _PIECES):
                if isinstance(node, cst.Tuple | cst.GeneratorExp) and node.lpar:
                    span = self.spans[node.lpar[-1]][0], self.spans[node.rpar[0]][1]
                self._expressions[span] = node

    @cached_property
    def quote(self) -> str:
        quotes = Counter(node.quote for node in self.spans if isinstance(node, cst.SimpleString))
        return "'" if quotes["'"] > quotes['"'] else '"'

    def plain(self, offset: int) -> int:
        return offset - bisect.bisect_left(self._gone, offset)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        start, end = self._source.span(node)
        return self.plain(start), self.plain(end)

    def piece(self, node: ast.expr) -> Piece | None:
        return self._expressions.get(self.span(node))

    def expression(self, node: ast.expr) -> cst.BaseExpression:
        found = self.piece(node)
        if not isinstance(found, cst.BaseExpression):
            raise Unrenderable(f"line {node.lineno}: what is to change there stands in a string")
        return found

    def statement(self, node: ast.stmt) -> Statement:
        found = self._statements.get(self.span(node)[0])
        if found is None:
            raise Unrenderable(f"line {node.lineno}: it is not known where the statement stands")
        return found

    def line(self, node: ast.stmt) -> Line:
        found = self.statement(node)
        line = found if isinstance(found, cst.BaseCompoundStatement) else self.parents[found]
        if not isinstance(line, Line) or not isinstance(self.parents[line], cst.IndentedBlock | cst.Module):
            raise Unrenderable(f"line {node.lineno}: it shares a line with something else")
        return line

    def number(self, node: cst.CSTNode) -> int:
        return self._plain.position(self.spans[node][0])[0]

    def placed(self, edits: Iterator[Edit]) -> tuple[Edit, ...]:
        return tuple(Edit(self._back(edit.start), self._back(edit.end), edit.text) for edit in edits)

    def _back(self, offset: int) -> int:
        return offset + bisect.bisect_right(self._seams, 2 * offset)


@lru_cache(maxsize=8)
def trees_of(text: str) -> Trees:
    return Trees(text)


def first_offset(trees: Trees, node: cst.CSTNode) -> int:
    if isinstance(node, cst.IndentedBlock):
        return first_offset(trees, node.body[0]) if node.body else trees.spans[node][0]
    if isinstance(node, _DEFINITIONS) and node.decorators:
        return trees.spans[node.decorators[0]][0]
    parens = node.lpar if isinstance(node, cst.BaseExpression) else ()
    return trees.spans[parens[0] if parens else node][0]

"""Writes new code as libcst nodes, in the program's layout, with its own parts as they stand."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import libcst as cst

from perflint.syntax.walk import BLOCKS
from perflint.transforms.operations import is_new, note_of
from perflint.transforms.trees import Line, Piece, Trees

Node = TypeVar("Node", bound=ast.AST)
Parted = TypeVar("Parted", bound=cst.BaseExpression)

_KEPT, _LIKE, _ROWS = "_perflint_kept_", "_perflint_like_", "_perflint_rows_"
_MODULE = cst.Module([])
_STATEMENTS = (
    *(cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Return, cst.Expr),
    *(cst.For, cst.If, cst.While),
)
_LOOSE = (
    *(ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.NamedExpr, ast.Lambda, ast.Tuple),
    *(ast.Await, ast.Yield, ast.YieldFrom),
)
_SIMPLE = (cst.Name, cst.Integer, cst.UnaryOperation)


class Coder:
    """Makes libcst nodes of new code; `update` gives the current form of a node of the program."""

    def __init__(self, trees: Trees, update: Callable[[Any], Any]) -> None:
        self.trees, self.update = trees, update
        self.indent = trees.module.default_indent
        self.kept: dict[str, Piece] = {}
        self.rows: dict[str, tuple[int, ...]] = {}

    def expression(self, node: ast.expr) -> cst.BaseExpression:
        found = self._of_program(node)
        if isinstance(found, cst.BaseExpression):
            return in_brackets(self.update(found))
        written = cst.parse_expression(_text(self._marked(node))).visit(_Filling(self))
        assert isinstance(written, cst.BaseExpression)
        return written

    def statement(self, node: ast.stmt) -> Line:
        marked = self._marked(node)
        for name in BLOCKS:
            if getattr(node, name, None):
                setattr(marked, name, [ast.Pass()])
        (written,) = cst.parse_module(_text(marked) + "\n").body
        found = written.with_changes(leading_lines=()).visit(_Filling(self))
        if isinstance(found, cst.FunctionDef) and any(note_of(node).rows):
            found = _signed_in_rows(found, self.indent)
        assert isinstance(found, cst.SimpleStatementLine | cst.BaseCompoundStatement)
        return found

    def _marked(self, node: Node) -> Node:
        fields: dict[str, object] = {}
        for name in node._fields:
            value = getattr(node, name, None)
            if name in BLOCKS and isinstance(node, ast.stmt):
                fields[name] = []
            elif isinstance(value, list):
                fields[name] = [self._part(each) if isinstance(each, ast.AST) else each for each in value]
            else:
                fields[name] = self._part(value) if isinstance(value, ast.AST) else value
        return type(node)(**fields)

    def _of_program(self, node: ast.AST) -> Piece | None:
        return self.trees.piece(node) if isinstance(node, ast.expr) and not is_new(node) else None

    def _part(self, node: ast.AST) -> ast.AST:
        kept = self._of_program(node)
        if kept is None:
            return self._in_rows(self._marked(node), note_of(node).rows)
        number = f"{len(self.kept)}_"
        self.kept[number] = kept
        return _like(node, number) or ast.Name(_KEPT + number, getattr(node, "ctx", ast.Load()))

    def _in_rows(self, node: ast.AST, rows: tuple[int, ...]) -> ast.AST:
        if not any(rows) or not isinstance(node, ast.Call | ast.Tuple):
            return node
        mark = ast.Name(f"{_ROWS}{len(self.rows)}_", ast.Load())
        self.rows[mark.id] = rows
        return ast.Call(mark, [node], [])


def _text(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node))


def _like(node: ast.AST, number: str) -> ast.expr | None:
    if not isinstance(node, _LOOSE):
        return None
    mark = ast.Name(_LIKE + number, ast.Load())
    fields = {name: getattr(node, name) for name in node._fields}
    for name, value in fields.items():
        if isinstance(value, list) and name != "ops":
            fields[name] = [mark for _ in value]
        elif isinstance(value, ast.expr):
            fields[name] = mark
    return type(node)(**fields)


class _Filling(cst.CSTTransformer):
    def __init__(self, coder: Coder) -> None:
        super().__init__()
        self._coder = coder

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        node: Any = updated_node
        if isinstance(original_node, cst.SubscriptElement) and isinstance(original_node.slice, cst.Index):
            kept = self._kept(original_node.slice.value, _KEPT)
            return node.with_changes(slice=self._coder.update(kept)) if isinstance(kept, cst.Slice) else node
        if isinstance(node, cst.Slice):
            return _spaced(node)
        if isinstance(node, cst.SimpleString):
            return _quoted(node, self._coder.trees.quote)
        if isinstance(node, cst.Attribute):
            kept = self._kept(original_node.value, _KEPT)
            around = self._coder.trees.parents.get(kept) if kept is not None else None
            return node.with_changes(dot=around.dot) if isinstance(around, cst.Attribute) else node
        if isinstance(node, cst.Call):
            name = node.func.value if isinstance(node.func, cst.Name) else ""
            if name in self._coder.rows:
                return laid_out(node.args[0].value, self._coder.rows[name], self._coder.indent)
            only = node.args[0].value if len(node.args) == 1 else None
            if isinstance(only, cst.GeneratorExp):  # which ast gives brackets of its own
                return node.with_changes(args=[node.args[0].with_changes(value=only.with_changes(lpar=(), rpar=()))])
            return self._laid_out(original_node, node)
        if isinstance(node, cst.Assign | cst.Return | cst.For):
            node = _unpacked(node)
        if isinstance(node, _STATEMENTS):
            parts = {name: getattr(node, name, None) for name in ("value", "test", "iter")}
            return node.with_changes(**{name: unbroken(part) for name, part in parts.items() if part is not None})
        if isinstance(node, cst.BooleanOperation) and isinstance(node.right, cst.Comparison):  # ast.unparse brackets it
            return node.with_changes(right=in_brackets(node.right))
        kept = None
        if isinstance(original_node, cst.BaseExpression):
            kept = self._kept(original_node, _KEPT) or self._kept(_inner(original_node), _LIKE)
        if isinstance(kept, cst.BaseExpression):
            return in_brackets(self._coder.update(kept), needed=bool(original_node.lpar))
        return node

    def _laid_out(self, marked: cst.Call, node: cst.Call) -> cst.Call:
        kept = [self._kept(each.value, _KEPT) for each in marked.args]
        found = [self._coder.trees.parents.get(each) if each is not None else None for each in kept]
        call = self._coder.trees.parents.get(found[0]) if found and found[0] is not None else None
        if not isinstance(call, cst.Call) or len(call.args) != len(found):
            return node
        if any(one is not other for one, other in zip(call.args, found, strict=True)):
            return node
        if any(_handed(one) != _handed(new) for one, new in zip(call.args, node.args, strict=True)):
            return node
        laid = [arg.with_changes(value=new.value) for arg, new in zip(call.args, node.args, strict=True)]
        before, func = call.whitespace_before_args, call.whitespace_after_func
        return node.with_changes(args=laid, whitespace_before_args=before, whitespace_after_func=func)

    def _kept(self, node: cst.CSTNode | None, prefix: str) -> Piece | None:
        is_mark = isinstance(node, cst.Name) and node.value.startswith(prefix)
        return self._coder.kept[node.value.removeprefix(prefix)] if is_mark else None  # type: ignore[union-attr]


def _handed(argument: cst.Arg) -> tuple[str, str]:
    return argument.star, argument.keyword.value if argument.keyword is not None else ""


def _inner(node: cst.CSTNode) -> cst.CSTNode | None:
    if isinstance(node, cst.Tuple):
        return node.elements[0].value if node.elements else None
    parts = (getattr(node, field, None) for field in ("left", "expression", "body", "value", "item"))
    return next((part.item if isinstance(part, cst.From) else part for part in parts if part is not None), None)


def laid_out(node: cst.BaseExpression, rows: tuple[int, ...], indent: str) -> cst.BaseExpression:
    parts: Sequence[Any] = node.args if isinstance(node, cst.Call) else node.elements  # type: ignore[attr-defined]
    ends = set(itertools.accumulate(rows))
    row, end, blank = _line_break(indent), _line_break(""), cst.SimpleWhitespace(" ")
    between = [end if at == len(parts) else row if at in ends else blank for at in range(1, len(parts) + 1)]
    laid: list[Any] = []
    for part, after in zip(parts, between, strict=True):
        value = part.value.visit(_Deeper(indent))
        laid.append(part.with_changes(value=value, comma=cst.Comma(whitespace_after=after)))
    if len(rows) == 1 and isinstance(node, cst.Call):
        laid[-1] = laid[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=end)
    if isinstance(node, cst.Call):
        return node.with_changes(args=laid, whitespace_before_args=row)
    return node.with_changes(elements=laid, lpar=[cst.LeftParen(row)], rpar=[cst.RightParen()])


def _signed_in_rows(node: cst.FunctionDef, indent: str) -> cst.FunctionDef:
    *params, last = node.params.params
    row, end = _line_break(indent), _line_break("")
    laid = [each.with_changes(comma=cst.Comma(whitespace_after=row)) for each in params]
    laid.append(last.with_changes(comma=cst.Comma(whitespace_after=end)))
    return node.with_changes(params=node.params.with_changes(params=laid), whitespace_before_params=row)


def fitted(made: Parted, line: str, indent: str, width: int, deeper: str = "") -> Parted:
    """A call or list in `line`, its parts on lines of their own if it is too long.

    `deeper` is by how much the line is indented more than its statement.
    """
    if len(line) <= width:
        return made
    if isinstance(made, cst.ListComp):
        inner = len(line) - len(line.lstrip()) + len(indent) + len(_MODULE.code_for_node(made)) - 2
        return _listed_in_rows(made, indent, apart=inner > width)  # type: ignore[return-value]
    call = cst.ensure_type(made, cst.Call)
    bare = (_MODULE.code_for_node(each.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for each in call.args)
    count, column = len(call.args), len(line) - len(line.lstrip())
    fits = column + len(indent) + len(", ".join(bare)) <= width
    return laid_out(call, (count,) if fits else (1,) * count, indent).visit(_Deeper(deeper))  # type: ignore[return-value]


def _listed_in_rows(made: cst.ListComp, indent: str, *, apart: bool) -> cst.ListComp:
    row, clauses = _line_break(indent), made.for_in
    if apart:
        ifs = [each.with_changes(whitespace_before=row) for each in clauses.ifs]
        clauses = clauses.with_changes(whitespace_before=row, ifs=ifs)
    start = made.lbracket.with_changes(whitespace_after=row)
    end = made.rbracket.with_changes(whitespace_before=_line_break(""))
    return made.with_changes(lbracket=start, for_in=clauses, rbracket=end)


def _line_break(indent: str) -> cst.ParenthesizedWhitespace:
    return cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(indent))


class _Deeper(cst.CSTTransformer):
    def __init__(self, indent: str) -> None:
        super().__init__()
        self._indent = indent

    def leave_ParenthesizedWhitespace(
        self, original_node: cst.ParenthesizedWhitespace, updated_node: cst.ParenthesizedWhitespace
    ) -> cst.ParenthesizedWhitespace:
        deeper = cst.SimpleWhitespace(self._indent + updated_node.last_line.value)
        return updated_node.with_changes(last_line=deeper) if updated_node.indent else updated_node


class _Continued(cst.CSTTransformer):
    def __init__(self, further: int, blank: str) -> None:
        super().__init__()
        self._further, self._blank = further, blank

    def visit_ParenthesizedWhitespace(self, node: cst.ParenthesizedWhitespace) -> bool:
        return False  # which follows the indent by itself

    def leave_SimpleWhitespace(
        self, original_node: cst.SimpleWhitespace, updated_node: cst.SimpleWhitespace
    ) -> cst.SimpleWhitespace:
        first, *rest = updated_node.value.split("\n")
        moved = (self._blank * self._further + each if self._further > 0 else self._nearer(each) for each in rest)
        return updated_node.with_changes(value="\n".join((first, *moved)))

    def _nearer(self, line: str) -> str:
        return line[min(-self._further, len(line) - len(line.lstrip())) :]


def continued(line: Line, further: int, indent: str) -> Line:
    """`line` with what follows its backslashes `further` columns further in, where `line` itself is to stand."""
    return cast(Line, line.visit(_Continued(further, indent[:1]))) if further else line


def in_brackets(node: cst.BaseExpression, *, needed: bool = False) -> cst.BaseExpression:
    if isinstance(node, cst.GeneratorExp) or (isinstance(node, cst.Tuple) and not needed):
        return node
    if needed and node.lpar:
        return node.with_changes(lpar=node.lpar[-1:], rpar=node.rpar[:1])
    return node.with_changes(lpar=(cst.LeftParen(),) if needed else (), rpar=(cst.RightParen(),) if needed else ())


def unbroken(node: cst.BaseExpression) -> cst.BaseExpression:
    text = _MODULE.code_for_node(node)
    if "\n" not in text:
        return node
    with suppress(SyntaxError):
        ast.parse(text, mode="eval")
        return node
    return in_brackets(node, needed=True)


def _spaced(node: cst.Slice) -> cst.Slice:
    parts = [part for part in (node.lower, node.upper, node.step) if part is not None]
    if all(isinstance(part, _SIMPLE) for part in parts):
        return node
    before = cst.SimpleWhitespace(" " if node.lower is not None else "")
    after = cst.SimpleWhitespace(" " if node.upper is not None else "")
    return node.with_changes(first_colon=cst.Colon(whitespace_before=before, whitespace_after=after))


def _quoted(node: cst.SimpleString, quote: str) -> cst.SimpleString:
    inner = node.value[1:-1]
    if node.value[:1] not in "'\"" or node.value[:3] in ("'''", '"""') or quote in inner or "\\" in inner:
        return node
    return node.with_changes(value=f"{quote}{inner}{quote}")


def _unpacked(node: cst.Assign | cst.Return | cst.For) -> cst.CSTNode:
    if isinstance(node, cst.Assign):
        targets = [each.with_changes(target=_bare(each.target)) for each in node.targets]
        return node.with_changes(targets=targets)
    if isinstance(node, cst.For):
        return node.with_changes(target=_bare(node.target))
    return node.with_changes(value=_bare(node.value)) if node.value is not None else node


def _bare(node: Any) -> Any:
    is_plain = isinstance(node, cst.Tuple) and len(node.elements) > 1 and len(node.lpar) == 1
    if not is_plain or "\n" in _MODULE.code_for_node(node):
        return node
    return node.with_changes(lpar=(), rpar=())


def comment_line(text: str) -> cst.EmptyLine:
    return cst.EmptyLine(comment=cst.Comment(text))


def with_blocks(node: Line, blocks: dict[str, Sequence[Line]], unit: str | None) -> Line:
    changes: dict[str, Any] = {}
    for name, lines in blocks.items():
        block = cst.IndentedBlock(body=lines, indent=unit)
        clause = getattr(node, name)
        changes[name] = block if isinstance(clause, cst.BaseSuite) else clause.with_changes(body=block)
    return node.with_changes(**changes)

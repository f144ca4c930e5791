"""Keyword arguments added to a call, and names to an import, in their own layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import libcst as cst

from perflint.transforms.code import laid_out
from perflint.transforms.trees import Trees

_OPEN, _CLOSE = "([{", ")]}"
_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
_NOTHING, _BLANK = cst.SimpleWhitespace(""), cst.SimpleWhitespace(" ")
_HUNG = re.compile(r"[(\[{]\n")  # as Black lays out calls: below the bracket
_ALIGNED = re.compile(r"[(\[{][^()\[\]{}\n]+,[ \t]*(#.*)?\n")  # behind it

Given = Sequence[tuple[str, cst.BaseExpression]]


def with_keywords(trees: Trees, old: cst.Call, call: cst.Call, given: Given) -> cst.Call:
    place = next((at for at, each in enumerate(call.args) if each.star == "**"), len(call.args))
    front, rest = call.args[:place], call.args[place:]
    equal = next((each.equal for each in reversed(call.args) if isinstance(each.equal, cst.AssignEqual)), _EQUAL)
    fresh = [cst.Arg(value, cst.Name(name), equal=equal) for name, value in given]
    if not front:
        fresh = _parted(fresh, _BLANK)
        return call.with_changes(args=[*fresh, *rest] if rest else [*fresh[:-1], _last(fresh[-1])])
    above = front[-2].comma.whitespace_after if len(front) > 1 else call.whitespace_before_args  # type: ignore[union-attr]
    if isinstance(above, cst.ParenthesizedWhitespace):
        fits = _is_filled(front) and not rest and _inline(trees, old, place - 1, given) is _BLANK
        return call.with_changes(args=[*_behind(front, fresh, _BLANK if fits else above), *rest])
    first = _inline(trees, old, place - 1, given)
    if first is not _BLANK and _is_hung(trees, old):
        bare = [each.with_changes(whitespace_after_arg=_NOTHING) for each in (*front, *fresh, *rest)]
        texts = (trees.module.code_for_node(_last(each)) for each in bare)
        indent = trees.module.default_indent
        fits = len(_indent(trees, old)) + len(indent) + len(", ".join(texts)) <= trees.width
        rows = (len(bare),) if fits else (1,) * len(bare)
        return cst.ensure_type(laid_out(call.with_changes(args=bare), rows, indent), cst.Call)
    return call.with_changes(args=[*_behind(front, fresh, above, first), *rest])


def _indent(trees: Trees, call: cst.Call) -> str:
    start = trees.text.rfind("\n", 0, trees.spans[call][0]) + 1
    line = trees.text[start:].partition("\n")[0]
    return line[: len(line) - len(line.lstrip())]


def _is_filled(arguments: Sequence[cst.Arg]) -> bool:
    gaps = [each.comma.whitespace_after for each in arguments[:-1] if isinstance(each.comma, cst.Comma)]
    last = arguments[-1]
    is_closed = not isinstance(last.comma, cst.Comma) and isinstance(last.whitespace_after_arg, cst.SimpleWhitespace)
    return is_closed and not all(isinstance(each, cst.ParenthesizedWhitespace) for each in gaps)


def _is_hung(trees: Trees, call: cst.Call) -> bool:
    """Only calls in the first line of their statement, with arguments on one line, where the file breaks calls so."""
    inside = trees.text[trees.spans[call.args[0]][0] : trees.spans[call.args[-1]][1]]
    statement: cst.CSTNode = call
    while not isinstance(statement, cst.SimpleStatementLine | cst.Module):
        statement = trees.parents.get(statement) or trees.module
    start = trees.spans[statement][0] if statement in trees.spans else 0
    if "\n" in inside or "\n" in trees.text[start : trees.spans[call][0]].lstrip():
        return False
    is_below = isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace)
    return is_below or hangs(trees)


def hangs(trees: Trees) -> bool:
    """Do all of the file's brackets that are broken hold lines of their own, as Black lays them out?"""
    return bool(_HUNG.search(trees.text)) and not _ALIGNED.search(trees.text)


def with_names(node: cst.ImportFrom, names: Sequence[str]) -> cst.ImportFrom:
    assert not isinstance(node.names, cst.ImportStar)
    above = node.lpar.whitespace_after if isinstance(node.lpar, cst.LeftParen) else _BLANK
    fresh = [cst.ImportAlias(cst.Name(name)) for name in names]
    return node.with_changes(names=_behind(node.names, fresh, above))


def _behind(
    front: Sequence[Any],
    fresh: Sequence[Any],
    above: cst.BaseParenthesizableWhitespace,
    first: cst.BaseParenthesizableWhitespace | None = None,
) -> list[Any]:
    """The items `front` followed by `fresh` ones: on lines of their own if a line break is `above` the last one.

    `first` stands before the first of them, if not the same as between them.
    """
    *kept, last = front
    is_broken = isinstance(above, cst.ParenthesizedWhitespace)
    between = above.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=()) if is_broken else _BLANK
    first = first or between
    has_comma = isinstance(last.comma, cst.Comma)
    tail = last.comma.whitespace_after if has_comma else getattr(last, "whitespace_after_arg", _NOTHING)
    if is_broken and isinstance(tail, cst.ParenthesizedWhitespace):
        first = first.with_changes(first_line=tail.first_line)  # a comment after an item stays there
        tail = tail.with_changes(first_line=cst.TrailingWhitespace())
    *more, final = _parted(fresh, between)
    final = final.with_changes(comma=cst.Comma(whitespace_after=tail)) if has_comma else _last(final)
    before = last.with_changes(comma=cst.Comma(whitespace_after=first))
    if isinstance(last, cst.Arg):
        before = before.with_changes(whitespace_after_arg=_NOTHING)
        final = final if has_comma else final.with_changes(whitespace_after_arg=tail)
    return [*kept, before, *more, final]


def _parted(items: Sequence[Any], between: cst.BaseParenthesizableWhitespace) -> list[Any]:
    return [each.with_changes(comma=cst.Comma(whitespace_after=between)) for each in items]


def _last(item: Any) -> Any:
    return item.with_changes(comma=cst.MaybeSentinel.DEFAULT)


def _inline(trees: Trees, call: cst.Call, at: int, given: Given) -> cst.BaseParenthesizableWhitespace:
    text, start, end = trees.text, trees.spans[call.args[at]][1], trees.spans[call][1]
    column = start - text.rfind("\n", 0, start)
    rest = len(text[start:end].partition("\n")[0])
    length = sum(len(f", {name}={trees.module.code_for_node(value)}") for name, value in given)
    if column + length + rest <= trees.width or _is_held(trees, call):
        return _BLANK
    breaks = (each.comma.whitespace_after for each in reversed(call.args[:at]) if isinstance(each.comma, cst.Comma))
    for broken in (*breaks, call.whitespace_before_args):
        if isinstance(broken, cst.ParenthesizedWhitespace):  # as its other lines are
            return broken.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=())
    aligned = trees.spans[call.args[0]][0]
    line = text[text.rfind("\n", 0, aligned) + 1 : aligned]
    indent = line[: len(line) - len(line.lstrip())].ljust(len(line))
    return cst.ParenthesizedWhitespace(indent=False, last_line=cst.SimpleWhitespace(indent))


def _is_held(trees: Trees, call: cst.Call) -> bool:
    """Does it stand in another bracket that is opened on its line, or beside another one?"""
    start, end = trees.spans[call]
    before = trees.text[trees.text.rfind("\n", 0, start) + 1 : start]
    behind = trees.text[end:].partition("\n")[0].partition("#")[0]
    is_beside = not {*before}.isdisjoint(_CLOSE) or not {*behind}.isdisjoint(_OPEN)
    return is_beside or sum(map(before.count, _OPEN)) > sum(map(before.count, _CLOSE))

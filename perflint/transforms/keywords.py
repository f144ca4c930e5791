"""Adds keyword arguments to a call in the call's own layout."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from perflint.transforms.trees import Trees

_OPEN, _CLOSE = "([{", ")]}"
_WIDTH = 120
_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
_NOTHING, _BLANK = cst.SimpleWhitespace(""), cst.SimpleWhitespace(" ")

Given = Sequence[tuple[str, cst.BaseExpression]]


def with_keywords(trees: Trees, old: cst.Call, call: cst.Call, given: Given) -> cst.Call:
    """`call`, which was `old`, with these keywords before any `**`; on lines of their own where its arguments are."""
    place = next((at for at, each in enumerate(call.args) if each.star == "**"), len(call.args))
    front, rest = call.args[:place], call.args[place:]
    fresh = [cst.Arg(value, cst.Name(name), equal=_EQUAL) for name, value in given]
    if not front:
        fresh = _parted(fresh, _BLANK)
        return call.with_changes(args=[*fresh, *rest] if rest else [*fresh[:-1], _last(fresh[-1])])
    last = front[-1]
    above = front[-2].comma.whitespace_after if len(front) > 1 else call.whitespace_before_args  # type: ignore[union-attr]
    first: cst.BaseParenthesizableWhitespace
    between: cst.BaseParenthesizableWhitespace
    if isinstance(above, cst.ParenthesizedWhitespace):
        first = between = above.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=())
    else:
        first, between = _inline(trees, old, place - 1, given), _BLANK
    has_comma = isinstance(last.comma, cst.Comma)
    tail = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else last.whitespace_after_arg
    if isinstance(above, cst.ParenthesizedWhitespace) and isinstance(tail, cst.ParenthesizedWhitespace):
        first = first.with_changes(first_line=tail.first_line)  # a comment behind an argument stays there
        tail = tail.with_changes(first_line=cst.TrailingWhitespace())
    before = last.with_changes(comma=cst.Comma(whitespace_after=first), whitespace_after_arg=_NOTHING)
    *more, final = _parted(fresh, between)
    if has_comma:
        final = final.with_changes(comma=cst.Comma(whitespace_after=tail))
    else:
        final = _last(final).with_changes(whitespace_after_arg=tail)
    return call.with_changes(args=[*front[:-1], before, *more, final, *rest])


def _parted(arguments: Sequence[cst.Arg], between: cst.BaseParenthesizableWhitespace) -> list[cst.Arg]:
    return [each.with_changes(comma=cst.Comma(whitespace_after=between)) for each in arguments]


def _last(argument: cst.Arg) -> cst.Arg:
    return argument.with_changes(comma=cst.MaybeSentinel.DEFAULT)


def _inline(trees: Trees, call: cst.Call, at: int, given: Given) -> cst.BaseParenthesizableWhitespace:
    """What stands in front of the keywords behind the argument number `at`: a new line where they would not fit."""
    text, start, end = trees.text, trees.spans[call.args[at]][1], trees.spans[call][1]
    column = start - text.rfind("\n", 0, start)
    rest = len(text[start:end].partition("\n")[0])
    length = sum(len(f", {name}={trees.module.code_for_node(value)}") for name, value in given)
    if column + length + rest <= _WIDTH or _is_held(trees, call):
        return _BLANK
    aligned = trees.spans[call.args[0]][0]
    indent = aligned - text.rfind("\n", 0, aligned) - 1
    return cst.ParenthesizedWhitespace(indent=False, last_line=cst.SimpleWhitespace(" " * indent))


def _is_held(trees: Trees, call: cst.Call) -> bool:
    """Does the call stand inside brackets that open on its line, which may hold others that grow too?"""
    start = trees.spans[call][0]
    before = trees.text[trees.text.rfind("\n", 0, start) + 1 : start]
    return sum(map(before.count, _OPEN)) > sum(map(before.count, _CLOSE))

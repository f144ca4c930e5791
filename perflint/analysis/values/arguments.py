"""The evaluated arguments of a call, and which parameter of a function gets which."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.values.values import UNKNOWN, Kind, Value, contains_tensor
from perflint.syntax.scopes import is_static, matched
from perflint.syntax.walk import Function

_TABLE_KINDS = {
    Kind.NUMBER: torch_ops.NUMBER,
    Kind.TENSOR: torch_ops.TENSOR,
    Kind.NONE: torch_ops.NONE,
    Kind.UNKNOWN: torch_ops.UNKNOWN,
}


class Arguments(NamedTuple):
    """Evaluated arguments; `open` where a `*` or `**` may bring more than is known."""

    positional: tuple[Value, ...]
    keywords: Mapping[str, Value]
    open: bool

    @staticmethod
    def of(evaluate: Callable[[ast.expr], Value], node: ast.Call) -> Arguments:
        """`evaluate` the arguments of a call, in source order."""
        positional = tuple([evaluate(argument) for argument in node.args])
        spread = ast.Starred in map(type, node.args)
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = evaluate(keyword.value)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
                continue
            spread |= not (value.kind is Kind.MAPPING and value.sure)
            keywords.update((str(key), part) for key, part in value.entries.items())
            if value.item is not None and not value.keys:
                keywords["**"] = value.item
        return Arguments(positional, keywords, spread)

    @property
    def all(self) -> tuple[Value, ...]:
        """Every argument, whatever it is called."""
        return (*self.positional, *self.keywords.values())

    @property
    def first(self) -> Value:
        """The first one by position."""
        return self.positional[0] if self.positional else UNKNOWN

    @property
    def tensors(self) -> list[Value]:
        """The tensors among the arguments, or in them."""
        return [inner for value in self.all if (inner := contains_tensor(value)) is not None]

    @property
    def on_device(self) -> bool:
        """Is there a device tensor among the arguments, or in one?"""
        return any(value.on_device for value in self.tensors)

    def get(self, position: int, keyword: str) -> Value | None:
        """The argument at `position` or called `keyword`."""
        if keyword in self.keywords:
            return self.keywords[keyword]
        return self.positional[position] if 0 <= position < len(self.positional) else None

    def select(self, entry: torch_ops.Operation) -> torch_ops.Operation:
        """What a call with these arguments gives, where the table knows several ways to call."""
        if not entry.variants:
            return entry
        named = {key: _table_kind(value) for key, value in self.keywords.items()}
        return entry.select([*map(_table_kind, self.positional)], named)


def _table_kind(value: Value) -> str:
    if value.is_literal and isinstance(value.literal, bool):
        return torch_ops.TRUE if value.literal else torch_ops.FALSE
    if value.kind is Kind.METHOD and not value.sure:
        return torch_ops.UNKNOWN
    return _TABLE_KINDS.get(value.kind, torch_ops.OTHER)


def received(function: Function, arguments: Arguments, owner: Value | None) -> dict[str, Value]:
    """Which value each parameter of `function` gets; `owner` is the object that a method is bound to."""
    bound = (owner,) if owner is not None and not is_static(function) else ()
    values = matched(function, (*bound, *arguments.positional), arguments.keywords)
    return {name: value for name, value in values.items() if not value.is_blank}

"""Binds the arguments of a call to the parameters of what it calls."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from perflint.syntax.walk import Function, name_called, own_nodes, path_of, stores

_HANDING = frozenset({"enumerate", "iter", "tqdm"})  # what walks all items of its argument, as they are

Argument = TypeVar("Argument")


@dataclass(frozen=True)
class Bound:
    """The arguments of one call.

    `given` maps each parameter that is given directly to its expression, in the order of the parameters. `rest`
    and `others` are the positional arguments and the keywords that none of the parameters takes. `is_open`: a `*` or
    `**` stands in the call, so that a parameter which isn't in `given` may be given all the same.
    """

    given: Mapping[str, ast.expr]
    rest: tuple[ast.expr, ...] = ()
    others: tuple[ast.keyword, ...] = ()
    is_open: bool = False

    def get(self, *names: str) -> ast.expr | None:
        """The argument for the parameter of that name, or the first of these names (`dim`, `axis`) that is given."""
        return next((self.given[name] for name in names if name in self.given), None)


def bind(call: ast.Call, callee: Function | Sequence[str], *, skipped: int = 0) -> Bound:
    """The arguments of `call` by the parameters of `callee`: a function, or the names of what it takes, in order.

    `skipped` parameters at the front are given already, such as the `self` of a bound method.
    """
    stars = (position for position, each in enumerate(call.args) if isinstance(each, ast.Starred))
    plain = call.args[: next(stars, len(call.args))]
    keywords = {each.arg: each.value for each in call.keywords if each.arg is not None}
    given = matched(callee, plain, keywords, skipped=skipped)
    rest = plain[max(len(_parameter_names(callee)[0]) - skipped, 0) :]
    others = tuple(each for each in call.keywords if each.arg is not None and each.arg not in given)
    is_open = len(plain) < len(call.args) or any(each.arg is None for each in call.keywords)
    return Bound(given, tuple(rest), others, is_open)


def matched(
    callee: Function | Sequence[str],
    positional: Sequence[Argument],
    keywords: Mapping[str, Argument],
    *,
    skipped: int = 0,
) -> dict[str, Argument]:
    """Which of the arguments each parameter of `callee` is given, by its position or its name."""
    by_position, by_name = _parameter_names(callee)
    given = dict(zip(by_position[skipped:], positional, strict=False))
    given.update((name, keywords[name]) for name in (*by_position[skipped:], *by_name) if name in keywords)
    return given


def parameters_of(function: Function) -> list[ast.arg]:
    """All parameters of `function`, in their order, `*args` and `**kwargs` last."""
    arguments = function.args
    extra = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def defaults_of(function: Function) -> dict[str, ast.expr]:
    """The defaults of the parameters that have one."""
    taken = function.args
    pairs = [
        *zip(reversed((*taken.posonlyargs, *taken.args)), reversed(taken.defaults), strict=False),
        *zip(taken.kwonlyargs, taken.kw_defaults, strict=True),
    ]
    return {parameter.arg: default for parameter, default in pairs if default is not None}


def handed_on(function: Function) -> str:
    """The parameter of a generator whose items it yields, and does nothing else with; empty for others."""
    nodes = own_nodes(function)
    yields = [each for each in nodes if isinstance(each, ast.Yield | ast.YieldFrom)]
    item = path_of(yields[0].value) if len(yields) == 1 and isinstance(yields[0], ast.Yield) and yields[0].value else ""
    if not item or sum(isinstance(each, ast.Name) and each.id == item for each in nodes) > 2:
        return ""
    for loop in (each for each in nodes if isinstance(each, ast.For)):
        is_counted = isinstance(loop.target, ast.Tuple) and name_called(loop.iter) == "enumerate"
        target = loop.target.elts[-1] if isinstance(loop.target, ast.Tuple) and is_counted else loop.target
        given = loop.iter.args if isinstance(loop.iter, ast.Call) and name_called(loop.iter) in _HANDING else []
        walked = path_of(given[0] if given else loop.iter)
        if path_of(target) == item and not stores(function, walked):
            return next((each.arg for each in parameters_of(function) if each.arg == walked), "")
    return ""


def is_static(function: Function) -> bool:
    """Is `function` a method that is given no object?"""
    return _is_decorated(function, "staticmethod")


def is_of_class(function: Function) -> bool:
    """Is `function` a method that is given the class, also where it is called of an object?"""
    return _is_decorated(function, "classmethod")


def _is_decorated(function: Function, name: str) -> bool:
    return any(getattr(each, "id", "") == name for each in getattr(function, "decorator_list", ()))


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """What `call` gives by the keyword `name`."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """Every argument of `call`, whatever it is called; what a `*` or `**` spreads as it stands there."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _parameter_names(callee: Function | Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the parameters that go by position, and of those that go by keyword alone."""
    if not isinstance(callee, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return tuple(callee), ()
    taken = callee.args
    return tuple(each.arg for each in (*taken.posonlyargs, *taken.args)), tuple(each.arg for each in taken.kwonlyargs)

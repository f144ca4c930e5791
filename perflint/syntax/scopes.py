"""The names of a program: which a statement binds, needs at once or uses later, and what arguments are bound to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from perflint.syntax.source import Module
from perflint.syntax.walk import (
    COMPREHENSIONS,
    FUNCTIONS,
    Function,
    bindings_of,
    name_called,
    own_nodes,
    path_of,
    stores,
)

_HANDING = frozenset({"enumerate", "iter", "tqdm"})  # what walks all items of its argument, as they are

Argument = TypeVar("Argument")


@dataclass(frozen=True)
class Bound:
    """The arguments of one call.

    `given` maps each parameter that is given directly to its expression, in the order of the parameters. `rest` and
    `others` are positional arguments and keywords that no parameter takes. `is_open`: a `*` or `**` in the call may
    give further ones.
    """

    given: Mapping[str, ast.expr]
    rest: tuple[ast.expr, ...] = ()
    others: tuple[ast.keyword, ...] = ()
    is_open: bool = False

    def get(self, *names: str) -> ast.expr | None:
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
    """Which argument each parameter of `callee` is given, by its position or its name."""
    by_position, by_name = _parameter_names(callee)
    given = dict(zip(by_position[skipped:], positional, strict=False))
    given.update((name, keywords[name]) for name in (*by_position[skipped:], *by_name) if name in keywords)
    return given


def parameters_of(function: Function) -> list[ast.arg]:
    arguments = function.args
    extra = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def defaults_of(function: Function) -> dict[str, ast.expr]:
    taken = function.args
    pairs = [
        *zip(reversed((*taken.posonlyargs, *taken.args)), reversed(taken.defaults), strict=False),
        *zip(taken.kwonlyargs, taken.kw_defaults, strict=True),
    ]
    return {parameter.arg: default for parameter, default in pairs if default is not None}


def handed_on(function: Function) -> str:
    """The parameter of a generator that only yields its items; empty for others."""
    nodes = own_nodes(function)
    yields = [each for each in nodes if isinstance(each, (ast.Yield, ast.YieldFrom))]
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
    return _is_decorated(function, "staticmethod")


def is_of_class(function: Function) -> bool:
    return _is_decorated(function, "classmethod")


def _is_decorated(function: Function, name: str) -> bool:
    return any(getattr(each, "id", "") == name for each in getattr(function, "decorator_list", ()))


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """What `call` gives by the keyword `name`."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """Every argument of `call`; what a `*` or `**` spreads as it stands there."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _parameter_names(callee: Function | Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return _names_in(callee.args) if isinstance(callee, FUNCTIONS) else (tuple(callee), ())


@lru_cache(maxsize=1024)
def _names_in(taken: ast.arguments) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(each.arg for each in (*taken.posonlyargs, *taken.args)), tuple(each.arg for each in taken.kwonlyargs)


_DECLARING = frozenset({ast.Global, ast.Nonlocal})


def bound_names(*statements: ast.stmt) -> set[str]:
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return set().union(
        *(_bound_by([each] if isinstance(each, definitions) else own_nodes(each)) for each in statements)
    )


def surely_bound_names(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that assignments among `statements` bind whichever branches are taken."""
    found = set[str]()
    for each in statements:
        if isinstance(each, ast.With):
            found |= surely_bound_names(each.body)
        elif isinstance(each, ast.If):
            left = [part for part in (each.body, each.orelse) if not (part and isinstance(part[-1], ast.Raise))]
            found |= set[str].intersection(*map(surely_bound_names, left)) if left else set()
        elif isinstance(each, ast.Assign | ast.AnnAssign | ast.AugAssign):
            names = (node for target, _ in bindings_of(each) for node in ast.walk(target) if isinstance(node, ast.Name))
            found |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return found


def _bound_by(nodes: Sequence[ast.AST]) -> set[str]:
    names: set[str] = set()
    private: set[ast.AST] = set()  # the targets of comprehensions, which nobody else sees
    for node in nodes:
        cls = node.__class__
        if cls not in _BINDING:
            continue
        if cls is ast.Name:
            if node.ctx.__class__ is not ast.Load and node not in private:  # type: ignore[attr-defined]
                names.add(node.id)  # type: ignore[attr-defined]
        elif cls is ast.comprehension:  # which stands before its target
            private.update(ast.walk(node.target))  # type: ignore[attr-defined]
        elif cls is ast.Import or cls is ast.ImportFrom:
            names.update(each.asname or each.name.partition(".")[0] for each in node.names)  # type: ignore[attr-defined]
        elif name := getattr(node, _BINDING[cls]):
            names.add(name)
    return names


_BINDING: dict[type[ast.AST], str] = {
    ast.Name: "id",
    ast.comprehension: "target",
    **dict.fromkeys((ast.Import, ast.ImportFrom), "names"),
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler), "name"),
    **dict.fromkeys((ast.MatchAs, ast.MatchStar), "name"),
    ast.MatchMapping: "rest",
}


def definition_names(program: Module, statement: ast.stmt) -> set[str]:
    """The names read when `statement` runs: of a definition in decorators, defaults, bases and class body."""
    deferred = any(
        isinstance(each, ast.ImportFrom)
        and each.module == "__future__"
        and any(a.name == "annotations" for a in each.names)
        for each in program.tree.body[:3]
    )
    names: set[str] = set()
    for part in _read_at_once(statement, deferred):
        names.update(
            node.id for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        )
    return names


def _read_at_once(node: ast.AST, deferred: bool) -> Iterable[ast.AST]:
    if isinstance(node, ast.Lambda):
        yield from _defaults(node.args)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from node.decorator_list
        yield from _defaults(node.args)
        if not deferred:
            yield from (
                each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg) and each.annotation
            )
            if node.returns is not None:
                yield node.returns
    elif isinstance(node, ast.ClassDef):
        yield from (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords))
        for each in node.body:
            yield from _read_at_once(each, deferred)
    else:
        yield node


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]


def used_names(definitions: Iterable[ast.stmt]) -> set[str]:
    return {name for each in definitions for name in _free_names(each)}


def _free_names(node: ast.AST) -> set[str]:
    if isinstance(node, COMPREHENSIONS):
        bound = {
            name.id
            for generator in node.generators
            for name in ast.walk(generator.target)
            if isinstance(name, ast.Name)
        }
        return _in_children(node) - bound
    if isinstance(node, ast.ClassDef):
        return _in_children(node)  # what the body binds is not seen by its methods
    if isinstance(node, FUNCTIONS):
        return _in_children(node) - local_names(node)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return {node.id}
    return _in_children(node)


def _in_children(node: ast.AST) -> set[str]:
    return {name for child in ast.iter_child_nodes(node) for name in _free_names(child)}


@lru_cache(maxsize=256)
def local_names(function: Function) -> frozenset[str]:
    """The names of a function's own: parameters and what it binds, unless it declares them global."""
    own = own_nodes(function)[1:]
    names = _bound_by(own).union(each.arg for each in parameters_of(function))
    foreign = (node.names for node in own if node.__class__ in _DECLARING)  # type: ignore[attr-defined]
    return frozenset(names.difference(*foreign))

"""Decides whether a call may draw random numbers, and whether workers keep the order in which loaders and code do."""

from __future__ import annotations

import ast
import re

from perflint import torch_ops
from perflint.analysis.data.callables import HARMLESS_METHODS, Callables, Callees, Part
from perflint.analysis.data.iteration import Iteration
from perflint.analysis.data.loaders import LoaderCall, Loaders
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, Function
from perflint.torch_ops import libraries

_DRAWING = frozenset("choice permutation shuffle normal uniform integers rand randn random sample rvs".split())


class Draws:
    """Random draws in the functions, classes and transforms of one program."""

    def __init__(self, program: Program, callables: Callables | None = None) -> None:
        self._program = program
        self._callables = callables or program.get(Callables)
        self._callees = program.get(Callees)
        self._known: dict[Function, bool] = {}

    def of_object(self, call: ast.Call) -> Draws:
        """Those of the object that `call` makes, whatever other objects of the class are given."""
        return Draws(self._program, self._callables.made_at(call))

    def may_call(self, node: ast.AST) -> bool:
        """May calling the value of `node`, a transform or a function, draw random numbers?"""
        return any(map(self._part_draws, self._callables.of(node)))

    def _part_draws(self, part: Part) -> bool:
        if isinstance(part, FUNCTIONS):
            return self.may_run(part)
        return part is None or library_draws(part)

    def may_run(self, function: Function) -> bool:
        """May running the body of `function` draw random numbers?"""
        if function not in self._known:
            self._known[function] = True  # while it is being computed, for transforms that run one another
            calls = (call for each in self._callees.reached([function]) for call in self._callees.calls(each))
            self._known[function] = any(map(self._may_draw, calls))
        return self._known[function]

    def _may_draw(self, call: ast.Call) -> bool:
        """May a call draw random numbers, other than in the functions of this file that it runs?"""
        value = self._program.value(call.func)
        if self._program.callee(call) is not None:
            return False
        if value.kind is Kind.LIBRARY:
            return library_draws(value.name)
        if value.kind is Kind.CLASS:
            return False  # without an __init__ of its own
        if isinstance(call.func, ast.Attribute):
            return self._method_draws(call.func)
        return self._may_call_unseen(call.func)

    def _may_call_unseen(self, node: ast.AST) -> bool:
        parts = self._callables.of(node)
        return any(self._part_draws(part) for part in parts if not isinstance(part, FUNCTIONS))

    def _method_draws(self, function: ast.Attribute) -> bool:
        owner = self._program.value(function.value)
        if self._callables.is_generator(function.value):
            return function.attr not in libraries.OF_STATE
        if owner.kind is Kind.TENSOR:
            entry = torch_ops.of_method(function.attr)
            return entry is not None and "random" in entry.traits
        if owner.kind in (Kind.NUMPY, Kind.STRING, Kind.SEQUENCE, Kind.MAPPING, Kind.NUMBER):
            return function.attr in _DRAWING
        is_of_base = isinstance(function.value, ast.Call) and (
            self._program.qualified(function.value.func) == "builtins.super"
        )
        if is_of_base or function.attr in HARMLESS_METHODS:
            return is_of_base
        if self._callables.is_made_by_library(function.value):
            return function.attr in _DRAWING
        return self._may_call_unseen(function)


def library_draws(name: str) -> bool:
    """May calling the library function, or class, called `name` draw random numbers? True where it is unknown."""
    if not name.startswith("torch."):
        return libraries.may_draw(name)
    if (entry := torch_ops.of_function(name)) is not None:
        return "random" in entry.traits
    is_known = name == "torch.load" or torch_ops.class_kind(name) == "tensor-type" or name.endswith(".default_collate")
    return "rand" in name or not is_known


# These make the iterators of what they are given at once, and read from them later, or from one after the other.
_EARLY = re.compile(r"builtins\.(iter|zip|map|filter)|itertools\.\w+")
_NO_LOADERS = frozenset({Kind.TENSOR, Kind.NUMPY, Kind.FUNCTION, Kind.LIBRARY, Kind.NUMBER, Kind.STRING})
_ORDERLY = frozenset({"SequentialSampler", "DistributedSampler"})


def order_changed(program: Program, loader: LoaderCall) -> str:
    """Why workers may change when the order of a shuffling `loader` is drawn; empty where they don't.

    Without workers that is when the first batch is read, which is at once where a plain loop walks the loader.
    """
    shuffle = program.get(Loaders).setting(loader.call, "shuffle", loader.offset)
    samplers = [loader.argument(name) for name in ("sampler", "batch_sampler")]
    made = [each for sampler in samplers if sampler is not None for each in program.get(Origins).of(sampler)]
    if shuffle.is_missing and all(_is_orderly(program, each) for each in made):
        return ""
    if made or loader.argument("generator") is not None:
        return "its sampler, or generator, may draw at another moment"
    walkers = program.of_type(ast.Call, ast.GeneratorExp)
    first = next(filter(None, (_early(program, each, loader) for each in walkers)), None)
    return f"`{' '.join(program.segment(first).split())}` may draw its order earlier" if first is not None else ""


def _early(program: Program, node: ast.expr, loader: LoaderCall) -> ast.expr | None:
    """The node, if it may make the iterator of the loader before something asks that for an item."""
    is_walked = isinstance(program.parent(node), ast.For | ast.comprehension | ast.Call | ast.Starred | ast.YieldFrom)
    if isinstance(node, ast.GeneratorExp):
        given = [] if is_walked else [node.generators[0].iter]
    else:
        assert isinstance(node, ast.Call)
        name = program.qualified(node.func)
        is_early = _EARLY.fullmatch(name) or (name == "builtins.enumerate" and not is_walked)
        given = node.args if is_early else []
    return node if any(_may_be(program, each, loader) for each in given) else None


def _may_be(program: Program, node: ast.expr, loader: LoaderCall) -> bool:
    """May it be the loader, as a parameter of unknown callers may that is handed to `iter`?"""
    if isinstance(node, ast.Starred):
        held = program.value(node.value)
        parts = (held.item, *(held.items or ()))  # which of them is not followed
        return any(part.kind is Kind.LOADER for part in parts if part)
    is_known = program.value(node).kind in _NO_LOADERS
    may_be_given = not is_known and isinstance(program.parent(node), ast.Call)
    origins = [each for each, is_held, _ in program.get(Iteration).reached(node) if not is_held]
    return any(each is loader.call or (may_be_given and isinstance(each, ast.arg)) for each in origins)


def _is_orderly(program: Program, sampler: ast.AST) -> bool:
    """Is it None, or a sampler that draws nothing?"""
    name = program.qualified(sampler.func) if isinstance(sampler, ast.Call) else ""
    return getattr(sampler, "value", sampler) is None or name.rpartition(".")[2] in _ORDERLY

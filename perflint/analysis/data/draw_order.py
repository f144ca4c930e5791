"""Decides whether a call may draw random numbers, and whether workers keep the order in which loaders and code do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import torch_ops
from perflint.analysis.data.effects import HARMLESS_METHODS, Callables, Callees, Part
from perflint.analysis.data.iteration import Iteration
from perflint.analysis.data.loaders import LoaderCall, Loaders
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, Function, last_name, receiver_of
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


# These make the iterators of their arguments when they are called, or (the second) when they are iterated over.
_EAGER = re.compile(r"builtins\.(iter|enumerate|zip|map|filter)|itertools\.\w+")
_LAZY = re.compile(r"tqdm\b.*|rich\.progress\.track")
_READS_ALL = re.compile(r"builtins\.(next|list|tuple|set|dict|sum|sorted|max|min|any|all)")
_DRAWLESS = frozenset({"builtins.range", "itertools.count", "itertools.repeat"})
_ORDERLY = frozenset({"SequentialSampler", "DistributedSampler"})


class DrawOrder:
    """The orders of draws in one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._loaders = program.get(Loaders)
        self._origins = program.get(Origins)
        self._iteration = program.get(Iteration)
        self._early = dict(self._read_early())
        self._together = next(filter(self._takes_loaders, program.of_type(ast.Call)), None)

    def changed(self, loader: LoaderCall) -> str:
        """What would draw other numbers if the loader had workers; empty if nothing would."""
        if not self._is_shuffled(loader):
            return ""
        keys = (loader.call, *self._known_names(loader.call))
        maker = next((self._early[key] for key in keys if key in self._early), self._together)
        if maker is not None:
            return f"`{' '.join(self._program.segment(maker).split())}` would draw its order earlier"
        return "its generator draws other numbers in between" if self._shares_generator(loader) else ""

    def _is_shuffled(self, loader: LoaderCall) -> bool:
        setting = self._loaders.setting(loader.call, "shuffle", loader.offset)
        samplers = [loader.argument(name) for name in ("sampler", "batch_sampler")]
        return not setting.is_missing or any(each is not None and self._may_shuffle(each) for each in samplers)

    def _may_shuffle(self, sampler: ast.expr) -> bool:
        return any(
            not (isinstance(origin, ast.Constant) and origin.value is None)
            and not (isinstance(origin, ast.Call) and self._last_name(origin) in _ORDERLY)
            for origin in self._origins.of(sampler)
        )

    def _last_name(self, call: ast.Call) -> str:
        return self._program.qualified(call.func).rpartition(".")[2]

    # -- iterators that are made before they are read

    def _read_early(self) -> Iterator[tuple[ast.AST | str, ast.expr]]:
        """The loaders, or names of what may be one, of which iterators are made before they are read; and where."""
        for call in self._program.of_type(ast.Call):
            name = self._program.qualified(call.func)
            if _EAGER.fullmatch(name):
                early = (argument for argument in call.args if self._is_early(argument, call))
                yield from ((each, call) for argument in early for each in self._iterated(argument))
            elif (walked := receiver_of(call, "__iter__")) is not None and not call.args:
                yield from ((each, call) for each in self._iterated(walked))
        for generator in self._program.of_type(ast.GeneratorExp):
            if not self._is_read_at_once(generator):
                yield from ((each, generator) for each in self._iterated(generator.generators[0].iter))

    def _takes_loaders(self, call: ast.Call) -> bool:
        """Is it `zip(*loaders)`? Which loaders these are is not followed."""
        if not _EAGER.fullmatch(self._program.qualified(call.func)):
            return False
        listed = [self._program.value(each.value) for each in call.args if isinstance(each, ast.Starred)]
        return any(part and part.kind is Kind.LOADER for value in listed for part in (value.item, *(value.items or ())))

    def _is_early(self, argument: ast.expr, call: ast.Call) -> bool:
        """May anything be drawn between the making of the iterator of `argument` and the reading of its first item?"""
        others = (each for each in call.args if each is not argument)
        return not self._is_read_at_once(call) or any(map(self._may_draw, others))

    def _is_read_at_once(self, node: ast.expr) -> bool:
        """Is the iterator that `node` makes asked for its first item before anything else happens?"""
        parent = self._program.parent(node)
        if isinstance(parent, ast.For | ast.AsyncFor | ast.comprehension):
            around = self._program.parent(parent)
            return not isinstance(around, ast.GeneratorExp) or self._is_read_at_once(around)
        if not isinstance(parent, ast.Call) or node not in parent.args:
            return isinstance(parent, ast.YieldFrom | ast.Starred)
        name = self._program.qualified(parent.func)
        if _READS_ALL.fullmatch(name):
            return True
        return bool(_EAGER.fullmatch(name) or _LAZY.fullmatch(name)) and self._is_read_at_once(parent)

    def _may_draw(self, node: ast.expr) -> bool:
        """May making an iterator of `node`, or asking that for an item, draw random numbers?"""
        if self._program.value(node).kind in (Kind.TENSOR, Kind.NUMPY, Kind.FUNCTION, Kind.LIBRARY, Kind.NUMBER):
            return False
        return any(
            not (isinstance(origin, ast.List | ast.Tuple | ast.Dict | ast.ListComp | ast.Constant | ast.Lambda))
            and not (isinstance(origin, ast.Call) and self._program.qualified(origin.func) in _DRAWLESS)
            for origin in self._origins.of(node)
        )

    def _iterated(self, node: ast.expr) -> Iterator[ast.AST | str]:
        """The calls that build the loaders which `node` may be, or hold, and names where those are not known."""
        for held in (False, True):
            for origin, _, is_last in self._iteration.reached(node, held=held):
                if origin in self._loaders.by_call:
                    yield origin
                elif is_last:
                    yield last_name(origin)

    def _known_names(self, call: ast.Call) -> Iterator[str]:
        """The names by which unanalysed code knows a loader: of its variable, or of the function that returns it."""
        statement = self._program.statement_of(call)
        function = self._program.function_of(call)
        if isinstance(statement, ast.Assign):
            yield from filter(None, map(last_name, statement.targets))
        elif isinstance(statement, ast.Return) and isinstance(function, ast.FunctionDef):
            yield function.name

    # -- generators

    def _shares_generator(self, loader: LoaderCall) -> bool:
        """Is the sampler's generator given to more than loaders and samplers?"""
        samplers = [loader.call]
        for argument in (loader.argument(name) for name in ("sampler", "batch_sampler")):
            samplers += [each for each in self._origins.of(argument) if isinstance(each, ast.Call)] if argument else []
        given = [keyword.value for each in samplers for keyword in each.keywords if keyword.arg == "generator"]
        mine = {origin for each in given for origin in self._origins.of(each)}
        if any(self._program.qualified(each) == "torch.default_generator" for each in mine):
            return True
        return any(
            keyword.arg == "generator" and not mine.isdisjoint(self._origins.of(keyword.value))
            for call in (self._program.of_type(ast.Call) if mine else ())
            if not self._is_of_loading(call)
            for keyword in call.keywords
        )

    def _is_of_loading(self, call: ast.Call) -> bool:
        name = self._program.qualified(call.func)
        is_sampler = torch_ops.class_kind(name) == "sampler"
        return call in self._loaders.by_call or is_sampler or name.endswith(".random_split")

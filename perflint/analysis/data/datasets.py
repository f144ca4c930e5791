"""Analyses the dataset of a loader: whether workers can read it, and would read the same in the same order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from perflint import torch_ops
from perflint.analysis.data.callables import Callees, Draws, SideEffects
from perflint.analysis.data.iteration import Iteration
from perflint.analysis.data.loaders import LoaderCall, Loaders
from perflint.analysis.data.obstacles import OF_TENSORS, Isolation, Pickling, Residence
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind, contains_tensor
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import (
    COMPREHENSIONS,
    FUNCTIONS,
    LOOPS,
    Function,
    method_of,
    own_nodes,
    returned_values,
)

_WRAPPERS = frozenset({"Subset", "ConcatDataset", "StackDataset", "ChainDataset", "random_split"})
_FIXED_DATASETS = frozenset({"MNIST", "CIFAR10", "CIFAR100"})  # whose items draw no random numbers
_CONVERTING = frozenset({"cast", "view", "keeping", "copying", "adopting", "of_data", "measuring"})
_CONVERSIONS = frozenset(f"builtins.{name}" for name in ("int", "float", "bool", "str", "len", "tuple", "list", "dict"))
_DEPTH = 4  # of datasets in others


@dataclass(frozen=True)
class Source:
    """What is known of the dataset of a loader: `obstacle` is why workers cannot read it, empty if they can.

    `may_draw`: workers may draw other random numbers. `unproved` is why it is not proved that they read the same apart
    from that. `on_device`: the items lie there. `is_in_memory`: they are cut out of tensors or lists in memory, and
    reading one is no work for a worker. `moved` is why they may lie on the device, `if_moved` what isn't known here,
    and would put them there.
    """

    may_draw: bool = True
    obstacle: str = ""
    is_iterable: bool = False
    on_device: bool = False
    uses_device: bool = False  # to make each item
    moved: str = ""
    if_moved: str = ""
    unproved: str = ""
    is_in_memory: bool = False


class Datasets:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)
        self._pickling = program.get(Pickling)
        self._callees = program.get(Callees)
        self._draws = program.get(Draws)
        self._effects = program.get(SideEffects)
        self._isolation = Isolation(program)
        self._residence = program.get(Residence)
        self._open: set[ast.AST] = set()  # what is being examined, for a dataset that is made of itself

    def of(self, loader: LoaderCall) -> Source:
        callbacks = {name: loader.argument(name) for name in ("dataset", "collate_fn", "worker_init_fn")}
        dataset = callbacks.pop("dataset")
        source = self._joined(self._examine(dataset)) if dataset is not None else Source()
        functions = [each for node in (dataset, *callbacks.values()) if node is not None for each in self._run_by(node)]
        may_draw = source.may_draw or self._callbacks_draw(loader) or self._sampler_may_draw(loader)
        obstacles = [source.obstacle, *(self._callback_obstacle(*each) for each in callbacks.items())]
        obstacle = next(filter(None, obstacles), "") or self._isolation.changed(loader, functions)
        start = self._start_effect(callbacks["worker_init_fn"])
        unproved = start or ("" if obstacle or may_draw else self._isolation.unproved(loader, functions))
        in_memory = dataset is not None and callbacks["collate_fn"] is None and self._is_in_memory(dataset)
        joins = self._callees.of(callbacks["collate_fn"]) if callbacks["collate_fn"] is not None else ()
        known = replace(source, obstacle=obstacle, unproved=unproved, is_in_memory=in_memory)
        joined = list(self._callees.reached(joins))
        uses_device = source.uses_device or self._residence.uses_device(joined)
        used = [callbacks["collate_fn"], *(call.func for each in joined for call in self._callees.calls(each))]
        if_moved = source.if_moved or next(filter(None, map(self._residence.used_elsewhere, used)), "")
        return replace(known, may_draw=may_draw, uses_device=uses_device, if_moved=if_moved)

    def _is_in_memory(self, dataset: ast.expr, depth: int = _DEPTH) -> bool:
        origins = self._origins.of(dataset)
        return bool(origins) and all(self._holds_items(each, depth) for each in origins)

    def _holds_items(self, origin: ast.AST, depth: int) -> bool:
        if isinstance(origin, ast.List | ast.Tuple | ast.ListComp):
            return True
        if not isinstance(origin, ast.Call):
            return self._program.value(origin).kind in (Kind.TENSOR, Kind.NUMPY)
        value = self._program.value(origin.func)
        if value.kind is Kind.CLASS:
            getitem = method_of(value.node, "__getitem__")
            return getitem is not None and all(map(self._only_cuts, self._callees.reached([getitem])))
        name, last = value.name, value.name.rpartition(".")[2]
        if name.startswith("torch.utils.data.") and last in _WRAPPERS and depth:
            parts = [part for argument in origin.args[:1] for part in self._elements(argument)]
            return bool(parts) and all(part is not None and self._is_in_memory(part, depth - 1) for part in parts)
        is_counted = name == "builtins.range"
        return is_counted or name in OF_TENSORS or self._program.value(origin).kind in (Kind.TENSOR, Kind.NUMPY)

    def _only_cuts(self, function: Function) -> bool:
        for node in own_nodes(function):
            if isinstance(node, (*LOOPS, *COMPREHENSIONS, ast.With, ast.BinOp)):
                return False
            if isinstance(node, ast.Call) and not self._only_converts(node):
                return False
        return True

    def _only_converts(self, call: ast.Call) -> bool:
        found = operation(self._program, call)
        if found is not None:
            return bool(found.does.views) or not found.traits.isdisjoint(_CONVERTING)
        value = self._program.value(call.func)
        is_type = torch_ops.class_kind(value.name) == "tensor-type"
        return value.kind is Kind.FUNCTION or value.name in _CONVERSIONS or is_type

    def _start_effect(self, callback: ast.expr | None) -> str:
        if callback is None or self._program.value(callback).kind is Kind.NONE:
            return ""
        functions = self._callees.of(callback)
        changed = [path for function in functions for path in self._effects.left_behind(function)]
        if changed:
            return f"worker_init_fn changes {changed[0]} in the workers"
        return "" if functions else "worker_init_fn is defined elsewhere"

    def _run_by(self, node: ast.expr, depth: int = _DEPTH) -> Iterator[Function]:
        yield from self._callees.of(node)
        for call in self._origins.calls(node) if depth else ():
            getitem = method_of(self._program.value(call.func).node, "__getitem__")
            if getitem is not None:
                yield getitem
            else:
                parts = (part for argument in arguments_of(call) for part in self._elements(argument))
                for part in filter(None, parts):
                    yield from self._run_by(part, depth - 1)

    def _joined(self, sources: Iterable[Source]) -> Source:
        found = list(sources) or [Source()]
        return Source(
            any(each.may_draw for each in found),
            next((each.obstacle for each in found if each.obstacle), ""),
            any(each.is_iterable for each in found),
            any(each.on_device for each in found),
            any(each.uses_device for each in found),
            next((each.moved for each in found if each.moved), ""),
            next((each.if_moved for each in found if each.if_moved), ""),
        )

    def _examine(self, node: ast.expr) -> Iterator[Source]:
        value = self._program.value(node)
        if value.kind in (Kind.DATASET, Kind.TENSOR, Kind.SEQUENCE):
            inner = contains_tensor(value) or (contains_tensor(value.item) if value.item is not None else None)
            yield Source(False, on_device=inner is not None and inner.on_device and inner.sure)
        moved = self._residence.moved(node)
        yield Source(False, moved, moved=moved, if_moved=self._residence.unknown(node))
        for origin in self._origins.of(node):
            if origin not in self._open:
                self._open.add(origin)
                yield self._examine_origin(origin)
                self._open.remove(origin)

    def _examine_origin(self, origin: ast.AST) -> Source:
        if isinstance(origin, ast.List | ast.Tuple | ast.ListComp):
            return Source(may_draw=False)
        if not isinstance(origin, ast.Call):
            value = self._program.value(origin)
            return Source(may_draw=value.kind not in (Kind.TENSOR, Kind.NUMPY), is_iterable=_is_iterable(value.name))
        value = self._program.value(origin.func)
        if value.kind is Kind.CLASS and isinstance(value.node, ast.ClassDef):
            return self._own_dataset(origin, value.node)
        name = value.name if value.kind is Kind.LIBRARY else ""
        last = name.rpartition(".")[2]
        if name.startswith("torch.utils.data.") and last in _WRAPPERS:
            return self._joined(self._inside(origin))
        if name in OF_TENSORS:
            made = [each for argument in origin.args for each in self._made_elsewhere(argument)]
            moved = any(self._residence.names_device(given) for each in made for given in arguments_of(each))
            return Source(bool(made), on_device=moved)
        fixed = name.startswith("torchvision.datasets.") and last in _FIXED_DATASETS
        may_draw = not fixed or any(self._argument_may_draw(argument) for argument in arguments_of(origin))
        return Source(may_draw, self._pickling.within(arguments_of(origin)), _is_iterable(name))

    def _made_elsewhere(self, tensor: ast.expr) -> Iterator[ast.Call]:
        if not self._program.value(tensor).sure or self._program.value(tensor).kind is not Kind.TENSOR:
            for origin in self._origins.of(tensor):
                name = self._program.qualified(origin.func) if isinstance(origin, ast.Call) else ""
                if isinstance(origin, ast.Call) and not name.startswith(("torch.", "numpy.", "builtins.")):
                    yield origin

    def _inside(self, call: ast.Call) -> Iterator[Source]:
        for argument in call.args[:1] or [keyword.value for keyword in call.keywords[:1]]:
            for part in self._elements(argument):
                if isinstance(part, ast.expr):
                    yield from self._examine(part)
                else:
                    yield Source()

    def _elements(self, argument: ast.expr) -> Iterator[ast.expr | None]:
        """The datasets that are given, one or a list of them; None for what is not known."""
        if isinstance(argument, ast.List | ast.Tuple):
            yield from argument.elts
            return
        for origin in self._origins.of(argument):
            if isinstance(origin, ast.List | ast.Tuple):
                yield from (*origin.elts, None)  # more may be appended
            elif isinstance(origin, ast.ListComp | ast.GeneratorExp):
                yield origin.elt if isinstance(origin.elt, ast.Call) and origin is argument else None
            else:
                yield origin if isinstance(origin, ast.expr) else None

    def _argument_may_draw(self, argument: ast.expr) -> bool:
        if self._program.value(argument).kind in (Kind.STRING, Kind.NUMBER, Kind.NONE):
            return False
        origins = self._origins.of(argument)
        if all(
            isinstance(origin, ast.Constant | ast.Attribute | ast.JoinedStr | ast.BinOp | ast.arg) for origin in origins
        ):
            return any(isinstance(origin, ast.arg) and "transform" in origin.arg for origin in origins)
        if all(
            isinstance(o, ast.Call) and self._program.qualified(o.func).startswith(("os.", "pathlib.")) for o in origins
        ):
            return False
        return self._draws.may_call(argument)

    # -- datasets defined in this file

    def _own_dataset(self, call: ast.Call, node: ast.ClassDef) -> Source:
        program = self._program
        bases = (base for each in program.lineage(node) for base in program.base_names(each))
        walks_itself = method_of(node, "__iter__") and not method_of(node, "__getitem__")
        if walks_itself or any(map(_is_iterable, bases)):
            return Source(is_iterable=True)
        functions = self._residence.run_by_items(node)
        if not functions:
            return Source(obstacle=self._pickling.within([call]) or self._pickling.within(arguments_of(call)))
        getitem = functions[0]
        moved = self._residence.uses_device(functions)
        tensors = (contains_tensor(program.value(each)) for each in returned_values(getitem))
        resident = any(each is not None and each.on_device and each.sure for each in tensors)
        obstacle = self._pickling.within(arguments_of(call)) or self._pickling.kept_by(node)
        obstacle = obstacle or self._private_write(getitem, "it", "is read")
        if moved:
            obstacle = f"{node.name}.__getitem__ uses the device, which a forked worker cannot"
        return Source(
            self._draws.of_object(call).may_run(getitem),
            obstacle,
            on_device=resident and not moved,
            uses_device=moved,
            if_moved=self._residence.unknown_cut(getitem),
        )

    def _private_write(self, function: Function, what: str, when: str) -> str:
        changed = next(iter(self._effects.left_behind(function)), "")
        return f"{what} changes {changed} as it {when}, and every worker would have its own" if changed else ""

    # -- what is passed

    def _callback_obstacle(self, name: str, callback: ast.expr | None) -> str:
        for origin in self._origins.of(callback) if callback is not None else ():
            if reason := self._pickling.within([origin]):
                return reason
            if isinstance(origin, FUNCTIONS) and self._residence.uses_device([origin]):
                return f"{name} uses the device, which a forked worker cannot"
        functions = self._callees.of(callback) if callback is not None and name == "collate_fn" else ()
        return next(filter(None, (self._private_write(each, name, "runs") for each in functions)), "")

    def hands_out_own_items(self, loader: LoaderCall) -> bool:
        size, collate = loader.argument("batch_size"), loader.argument("collate_fn")
        if size is not None and self._program.value(size).kind is Kind.NONE:
            return True
        return collate is not None and any(map(self._effects.passes_on, self._callees.of(collate)))

    def _callbacks_draw(self, loader: LoaderCall) -> bool:
        callback = loader.argument("collate_fn")
        return callback is not None and self._draws.may_call(callback)

    def _sampler_may_draw(self, loader: LoaderCall) -> bool:
        """May the sampler draw while batches are read, rather than before? Workers make it run ahead of the model."""
        for name in ("sampler", "batch_sampler"):
            sampler = loader.argument(name)
            for origin in self._origins.of(sampler) if sampler is not None else ():
                known = (
                    isinstance(origin, ast.Call)
                    and torch_ops.class_kind(self._program.qualified(origin.func)) == "sampler"
                )
                if not known and not (isinstance(origin, ast.Constant) and origin.value is None):
                    return True
        return False


def _is_iterable(name: str) -> bool:
    return name == "iterable-dataset" or torch_ops.class_kind(name) == "iterable-dataset"


# These make the iterators of what they are given at once, and read from them later, or from one after the other.
_EARLY = re.compile(r"builtins\.(iter|zip|map|filter)|itertools\.\w+")
_NO_LOADERS = frozenset({Kind.TENSOR, Kind.NUMPY, Kind.FUNCTION, Kind.LIBRARY, Kind.NUMBER, Kind.STRING})
_ORDERLY = frozenset({"SequentialSampler", "DistributedSampler"})


def order_changed(program: Program, loader: LoaderCall) -> str:
    """Why workers may change when the order of a shuffling `loader` is drawn; empty where they don't.

    Without workers that is when the first batch is read: at once where a plain loop walks the loader.
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
    if isinstance(node, ast.Starred):
        held = program.value(node.value)
        parts = (held.item, *(held.items or ()))  # which of them is not followed
        return any(part.kind is Kind.LOADER for part in parts if part)
    is_known = program.value(node).kind in _NO_LOADERS
    may_be_given = not is_known and isinstance(program.parent(node), ast.Call)
    origins = [each for each, is_held, _ in program.get(Iteration).reached(node) if not is_held]
    return any(each is loader.call or (may_be_given and isinstance(each, ast.arg)) for each in origins)


def _is_orderly(program: Program, sampler: ast.AST) -> bool:
    name = program.qualified(sampler.func) if isinstance(sampler, ast.Call) else ""
    return getattr(sampler, "value", sampler) is None or name.rpartition(".")[2] in _ORDERLY

"""What keeps a dataset from workers: items on the device, what can't be pickled, and what others change meanwhile."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from itertools import chain

from perflint import torch_ops
from perflint.analysis.data.callables import Callees, SideEffects
from perflint.analysis.data.loaders import LoaderCall, Loaders
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Outer
from perflint.analysis.links import Heat
from perflint.analysis.memory.roles import FILLS, TAKES
from perflint.analysis.values.values import ELSEWHERE, UNKNOWN, Kind, Place, Value, contains_tensor
from perflint.syntax.scopes import arguments_of, keyword_of
from perflint.syntax.source import is_main_guard
from perflint.syntax.walk import (
    FUNCTIONS,
    Function,
    bindings_of,
    method_of,
    name_called,
    own_nodes,
    receiver_of,
    returned_values,
    text_of,
)

OF_TENSORS = ("torch.utils.data.TensorDataset", "torch.utils.data.dataset.TensorDataset")
_FILLING = frozenset({"append", "extend", "insert", "add", "setdefault"})
_HELD = frozenset({Kind.MODULE, Kind.DEVICE, Kind.NUMBER, Kind.STRING, Kind.NONE, Kind.NUMPY})  # which are no items


class Residence:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)
        self._callees = program.get(Callees)

    def moves(self, call: ast.Call) -> bool:
        told = keyword_of(call, "device")
        if not isinstance(call.func, ast.Attribute):
            return False
        if call.func.attr == "cuda":
            return True
        if call.func.attr == "to" and call.args:
            value = self._program.value(call.args[0])
            is_device = value.kind is Kind.DEVICE or "device" in ast.dump(call.args[0])
            return self._is_device(value) and (is_device or value.is_literal)
        is_torch = call.func.attr == "to" or self._program.qualified(call.func).startswith("torch.")
        return is_torch and told is not None and self._is_device(self._program.value(told))

    def uses_device(self, functions: Iterable[Function]) -> bool:
        return any(self.moves(call) or self._sends(call) for each in functions for call in self._callees.calls(each))

    def _sends(self, call: ast.Call) -> bool:
        """Does it tell code of another file of a device?"""
        return bool(self.used_elsewhere(call.func)) and any(map(self.names_device, arguments_of(call)))

    def names_device(self, node: ast.expr) -> bool:
        text = self._program.segment(node).lower()
        return self._program.value(node).kind is not Kind.TENSOR and ("device" in text or "cuda" in text)

    def _is_device(self, value: Value) -> bool:
        if value.is_literal:
            return isinstance(value.literal, int | str) and not str(value.literal).startswith("cpu")
        return value.kind not in (Kind.NONE, Kind.LIBRARY) and value.place is not Place.HOST

    def run_by_items(self, node: ast.ClassDef) -> list[Function]:
        lineage = self._program.lineage(node)
        found = [each for each in (method_of(base, "__getitem__") for base in lineage) if each is not None][:1]
        known: list[Function] = []
        while len(reached := list(self._callees.reached(found))) > len(known):
            known = reached
            names = {getattr(each, "name", "") for each in known if self._program.class_around(each) in lineage}
            methods = (method_of(base, name) for base in lineage for name in sorted(names))
            found = [*dict.fromkeys([*found, *(each for each in methods if each is not None)])]
        return known

    # -- what this file shows

    def moved(self, dataset: ast.expr) -> str:
        origins = self._origins.of(dataset)
        places = chain(*(self._moved_in(each) for each in origins if isinstance(each, ast.Call)))
        return next(map(_told, chain(places, self._moved_outside(origins))), "")

    def _moved_in(self, call: ast.Call) -> Iterator[ast.AST]:
        made = self._program.value(call.func).node
        given = [*arguments_of(call), *([] if isinstance(made, ast.ClassDef) else [call])]
        lineage = self._program.lineage(made)
        kept = (value for target, value in self.stored if self._program.class_around(target) in lineage)
        yield from (place for each in chain(given, kept) if (place := self._mover(each)) is not None)

    @cached_property
    def stored(self) -> list[tuple[ast.Attribute, ast.expr]]:
        return [*self._stores()]

    def _stores(self) -> Iterator[tuple[ast.Attribute, ast.expr]]:
        for node in self._program.of_type(ast.Assign, ast.AnnAssign, ast.AugAssign):
            for target, value in bindings_of(node):
                parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                for part in parts:
                    owner = part.value if isinstance(part, ast.Subscript) else part
                    if isinstance(owner, ast.Attribute):
                        yield owner, value
        for call in self._program.of_type(ast.Call):
            if isinstance(filled := receiver_of(call, *_FILLING), ast.Attribute):
                yield from ((filled, given) for given in arguments_of(call))

    def _moved_outside(self, origins: Iterable[ast.AST]) -> Iterator[ast.AST]:
        wanted = set(origins)
        for call in self._program.of_type(ast.Call):
            owner = receiver_of(call) if self.moves(call) else None
            if owner is not None and not wanted.isdisjoint(self._origins.of(owner)):
                yield call
        for target, value in self.stored:
            if not wanted.isdisjoint(self._origins.of(target.value)) and (place := self._mover(value)) is not None:
                yield place

    def _mover(self, value: ast.AST) -> ast.AST | None:
        known = self._program.value(value)
        inner = contains_tensor(known)
        if known.kind in _HELD or self._is_of_host(value):
            return None
        if inner is not None and inner.on_device and inner.sure:
            return value
        parts = chain.from_iterable(
            ast.walk(origin) for origin in self._origins.of(value) if isinstance(origin, ast.expr)
        )
        return next((each for each in parts if isinstance(each, ast.Call) and self.moves(each)), None)

    # -- what other files may hold

    def unknown(self, dataset: ast.expr) -> str:
        """What would put the items on the device, and isn't known here; empty if nothing."""
        return next(filter(None, map(self._unknown_origin, self._origins.of(dataset))), "")

    def _unknown_origin(self, origin: ast.AST) -> str:
        if isinstance(origin, ast.arg):
            return f"`{origin.arg}` holds tensors of the device"
        made = self._program.value(origin.func) if isinstance(origin, ast.Call) else None
        if not isinstance(origin, ast.Call) or made is None:
            return ""
        used = [origin.func]
        if isinstance(made.node, ast.ClassDef):
            used = [base for each in self._program.lineage(made.node) for base in each.bases]
        elif made.name in OF_TENSORS:
            return self._unknown_parameter(arguments_of(origin))
        return next(filter(None, map(self.used_elsewhere, used)), "")

    def unknown_cut(self, getitem: Function) -> str:
        """The parameter that items are parts of, and that may be a tensor of the device."""
        values = [part for each in returned_values(getitem) for part in (getattr(each, "elts", None) or [each])]
        parts = (part for each in values for part in self._origins.of(each) if isinstance(part, ast.Subscript))
        return self._unknown_parameter(part.value for part in parts)

    def _unknown_parameter(self, nodes: Iterable[ast.expr]) -> str:
        held = (*_HELD, Kind.SEQUENCE, Kind.MAPPING)
        unknown = (each for each in nodes if self._program.value(each).kind not in held and not self._is_of_host(each))
        found = (origin for each in unknown for origin in self._origins.of(each) if isinstance(origin, ast.arg))
        return next(map(self._unknown_origin, found), "")

    def used_elsewhere(self, node: ast.expr | None) -> str:
        """That imported code uses the device; empty where it is of this file, or known not to."""
        if node is None:
            return ""
        value = self._program.value(node)
        is_elsewhere = value.kind is Kind.LIBRARY and value.name.partition(".")[0] not in ELSEWHERE
        return f"`{self._program.segment(node)}`, of another file, uses the device" if is_elsewhere else ""

    def _is_of_host(self, node: ast.AST) -> bool:
        inner = contains_tensor(self._program.value(node))
        return inner is not None and inner.place is Place.HOST and inner.sure


def _told(place: ast.AST) -> str:
    return f"line {getattr(place, 'lineno', 0)} may put its items on the device"


_HANDLES = frozenset(
    {"builtins.open", "h5py.File", "lmdb.open", "sqlite3.connect", "zipfile.ZipFile", "tarfile.open", "netCDF4.Dataset"}
)


_HOLDING = re.compile(r"[A-Z]\w*|defaultdict|partial")  # makes an object, which may keep what it is given


class Pickling:
    """Tells, in words, what spawned workers could not unpickle, or share; empty if nothing."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)

    def kept_by(self, node: ast.ClassDef, depth: int = 3) -> str:
        lineage = self._program.lineage(node)
        inits = [method_of(each, "__init__") for each in lineage]
        stored = self._program.get(Residence).stored
        stores = ((self._program.value(target.value).node, value) for target, value in stored)
        kept = [value for of, value in stores if of in lineage]
        first = (_whole(each) for each in kept if self._program.function_of(each) in inits)
        names = {self._program.qualified(made.func) for each in first for made in self._origins.calls(each)}
        opened = f"{node.name} keeps an open file, which workers cannot share" if names & _HANDLES else ""
        return self._unknown_to_workers(node) or opened or self.within(kept, depth)

    def within(self, nodes: Iterable[ast.AST], depth: int = 3) -> str:
        parts = (origin for node in nodes for origin in self._origins.of(node))
        return next(filter(None, (self._of_origin(each, depth) for each in parts)), "")

    def _of_origin(self, origin: ast.AST, depth: int) -> str:
        if isinstance(origin, ast.Lambda):
            return "a lambda cannot be pickled for workers"
        if isinstance(origin, ast.ClassDef | ast.FunctionDef):
            return self._unknown_to_workers(origin)
        parts = list[ast.expr]()
        if isinstance(origin, ast.Call):
            made = self._program.value(origin.func).node
            if isinstance(made, ast.ClassDef) and depth and (reason := self.kept_by(made, depth - 1)):
                return reason
            parts = arguments_of(origin) if _HOLDING.fullmatch(name_called(origin)) else []
        elif isinstance(origin, ast.List | ast.Tuple | ast.Dict | ast.Set):
            parts = [each for each in ast.iter_child_nodes(origin) if isinstance(each, ast.expr)]
        return self.within(parts, depth - 1) if depth else ""

    def _unknown_to_workers(self, node: ast.ClassDef | ast.FunctionDef) -> str:
        is_guarded = any(map(is_main_guard, self._program.ancestors(node)))
        where = "inside a function" if self._program.function_of(node) else "under the main guard" if is_guarded else ""
        return f"{node.name} is defined {where}, so that workers cannot unpickle it" if where else ""


def _whole(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


# State of the process, which differs in a worker, and effects outside of it.
_OF_PROCESS = re.compile(
    r"builtins\.(print|input|exec|eval|globals|breakpoint)"
    r"|os\.(?!(path|listdir|scandir|walk|fspath|stat|sep|PathLike)\b).*"
    r"|torch\.((get|set|use)_.*|save|is_grad_enabled)|torch\.utils\.data\.get_worker_info"
    r"|(threading|multiprocessing|inspect|logging|warnings)\..*"
    r"|(numpy|pickle|json|cv2|imageio|yaml)\.(\w+\.)*(dump|save\w*|imwrite|imsave|imshow|set\w+|get\w+)"
)
_SETTING = re.compile(r"set_default_\w+|set_start_method|use_deterministic_algorithms|seterr|setattr|vars|globals")
_PLAIN = frozenset(
    {Kind.NUMBER, Kind.STRING, Kind.NONE, Kind.LIBRARY, Kind.FUNCTION, Kind.METHOD, Kind.CLASS, Kind.DEVICE}
)


class Isolation:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._flow = program.get(Flow)
        self._origins = program.get(Origins)
        self._callees = program.get(Callees)
        self._effects = program.get(SideEffects)

    def changed(self, loader: LoaderCall, entries: Collection[Function]) -> str:
        """What a loop may change that items are made of, by `entries`; empty if nothing."""
        functions, scope = self._callees.reached(entries), self._program.function_of(loader.call)
        settings = (each for each in self._program.of_type(ast.Call) if _SETTING.fullmatch(name_called(each)))
        for node in chain(self._seen_elsewhere(functions), settings if functions else ()):
            around = self._program.function_of(node)
            is_later = around is not scope or self._flow.graph(node).runs_after(node, loader.call)
            if is_later and self._program.heat(node) is not Heat.ONCE:
                return f"line {node.lineno} may change what batches are made of, while they are read"
        return ""

    def unproved(self, loader: LoaderCall, entries: Collection[Function]) -> str:
        """Why `entries`, which make items, may do something else in workers; empty where it is proved that they don't.

        That is where the constructor makes all that they read, of numbers, texts and transforms of libraries.
        """
        functions = self._callees.reached(entries)
        settings = (each.func for each in self._program.of_type(ast.Call) if _SETTING.fullmatch(name_called(each)))
        found = chain(self._given(functions), self._read(functions), self._seen_elsewhere(functions))
        shared = next(chain(found, settings if functions else ()), None)
        if shared is not None:
            return f"line {shared.lineno} may change what workers read, by `{self._program.segment(shared)}`"
        return self._of_process(functions)

    # -- what items are made of

    def _mentions(self, functions: Collection[Function]) -> Iterator[ast.Name | ast.Attribute]:
        nodes = [node for each in functions for node in ast.walk(each)]
        attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
        names = {each.id for each in nodes if isinstance(each, ast.Name) and self._is_of_module(each)}
        classes = {info.node for each in functions if (info := self._program.class_of(each)) is not None}
        kin = classes.union(*map(self._program.lineage, classes))
        for node in self._program.of_type(ast.Attribute):
            is_own = getattr(node.value, "id", "") == "self" and self._program.class_around(node) not in kin
            if node.attr in attributes and not is_own and not self._program.qualified(node):
                yield node
        yield from (each for each in self._program.of_type(ast.Name) if each.id in names and self._is_of_module(each))

    def _is_of_module(self, name: ast.Name) -> bool:
        function = self._program.function_of(name)
        declared = (each.names for each in own_nodes(function) if isinstance(each, ast.Global)) if function else ()
        return function is None or name.id in chain(*declared) or isinstance(self._flow.graph(name).value(name), Outer)

    def _is_changed(self, node: ast.Name | ast.Attribute) -> bool:
        whole: ast.AST = node
        parent = self._program.parent(node)
        while isinstance(parent, ast.Subscript) and parent.value is whole:
            whole, parent = parent, self._program.parent(parent)
        method = parent.attr if isinstance(parent, ast.Attribute) else ""
        operation = torch_ops.of_method(method)
        is_written = method in FILLS | TAKES or (operation is not None and operation.in_place)
        return is_written or not isinstance(getattr(whole, "ctx", None), ast.Load)

    # -- what others may change

    def _given(self, functions: Collection[Function]) -> Iterator[ast.expr]:
        for node in (node for each in functions for node in own_nodes(each) if isinstance(node, ast.Attribute)):
            is_read = getattr(node.value, "id", "") == "self" and isinstance(node.ctx, ast.Load)
            if is_read and not all(map(self._is_its_own, self._origins.of(node))):
                yield node

    def _is_its_own(self, origin: ast.AST) -> bool:
        parent, around = self._program.parent(origin), self._program.function_of(origin)
        if self._is_plain(origin) or not isinstance(origin, ast.expr):
            return self._is_plain(origin) or isinstance(origin, FUNCTIONS)
        called = self._program.value(origin.func) if isinstance(origin, ast.Call) else UNKNOWN
        if called.kind is Kind.CLASS:  # what `in`, and the like, would run isn't followed
            methods = {getattr(each, "name", "") for base in self._program.lineage(called.node) for each in base.body}
            return not any(each.startswith("__") for each in methods - {"__init__", "__call__"})
        if ".transforms." in called.name:
            return True
        if getattr(around, "name", "") == "__init__":
            points = self._effects.points_to(origin)
            return not any(each.is_outside for each in points.cells.reach(points.of(origin)))
        is_given = isinstance(parent, ast.keyword) or (isinstance(parent, ast.Call) and origin in parent.args)
        return is_given and called.kind is Kind.LIBRARY

    def _read(self, functions: Collection[Function]) -> Iterator[ast.expr]:
        lineages = (self._program.lineage(info.node) for each in functions if (info := self._program.class_of(each)))
        constructors = [method_of(node, "__init__") for node in chain(*lineages)]
        for function in self._callees.reached([*functions, *filter(None, constructors)]):
            for node in own_nodes(function):
                is_outer = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and self._is_of_module(node)
                if is_outer and self._program.value(node).kind not in _PLAIN:
                    yield node  # type: ignore[misc]

    def _seen_elsewhere(self, functions: Collection[Function]) -> Iterator[ast.Name | ast.Attribute]:
        for node in self._mentions(functions):
            around, parent = self._program.function_of(node), self._program.parent(node)
            if around in functions or getattr(around, "name", "") == "__init__":
                continue
            is_called = isinstance(parent, ast.Call) and parent.func is node
            is_own = not isinstance(node, ast.Attribute) or getattr(node.value, "id", "") == "self"
            if self._is_changed(node) or not (is_own or is_called or self._is_plain(node)):
                yield node

    def _is_plain(self, node: ast.AST) -> bool:
        is_option = isinstance(node, ast.Attribute) and node.attr in self._program.get(Loaders).command_line
        return is_option or self._program.value(node).kind in _PLAIN

    def _of_process(self, functions: Collection[Function]) -> str:
        for node in (node for function in functions for node in own_nodes(function)):
            if not isinstance(node, ast.Attribute | ast.Name | ast.Call):
                continue
            name = "" if isinstance(node, ast.Call) else self._program.qualified(node)
            if _OF_PROCESS.fullmatch(name) or (isinstance(node, ast.Call) and _opens_to_write(node)):
                what = self._program.segment(node.func if isinstance(node, ast.Call) else node)
                return f"line {node.lineno} uses {what}, which differs in workers, or has effects outside of them"
        return ""


def _opens_to_write(call: ast.Call) -> bool:
    modes = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return name_called(call) == "open" and any(re.fullmatch(r"[rbt]*[wax+][wabtx+]*", text_of(each)) for each in modes)

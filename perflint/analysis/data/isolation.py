"""Why workers, each with a copy of the program as it was at their start, would not read what one process does."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from itertools import chain

from perflint import torch_ops
from perflint.analysis.data.effects import Callees, Effects
from perflint.analysis.data.loaders import LoaderCall, Loaders
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.heat.scale import Heat
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Outer
from perflint.analysis.memory.roles import FILLS, TAKES
from perflint.analysis.values.values import UNKNOWN, Kind
from perflint.syntax.walk import FUNCTIONS, Function, method_of, name_called, own_nodes

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
    """What keeps the workers of one program's loaders from reading the same."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._flow = program.get(Flow)
        self._origins = program.get(Origins)
        self._callees = program.get(Callees)
        self._effects = program.get(Effects)

    def changed(self, loader: LoaderCall, entries: Collection[Function]) -> str:
        """What a loop may change that items are made of, by `entries`; empty where nothing does."""
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
        """Where the program mentions what `functions` read: attributes by their names, and variables of the module."""
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
        """Is it bound anew, or written to, or an item of it?"""
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
        """The attributes that hold what is not made for the object, by its constructor or as that is called."""
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
        """The variables of the module that `functions`, or the constructors of their classes, read, but plain ones."""
        lineages = (self._program.lineage(info.node) for each in functions if (info := self._program.class_of(each)))
        constructors = [method_of(node, "__init__") for node in chain(*lineages)]
        for function in self._callees.reached([*functions, *filter(None, constructors)]):
            for node in own_nodes(function):
                is_outer = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and self._is_of_module(node)
                if is_outer and self._program.value(node).kind not in _PLAIN:
                    yield node  # type: ignore[misc]

    def _seen_elsewhere(self, functions: Collection[Function]) -> Iterator[ast.Name | ast.Attribute]:
        """Where others change what `functions` read, or have it in hand."""
        for node in self._mentions(functions):
            around, parent = self._program.function_of(node), self._program.parent(node)
            if around in functions or getattr(around, "name", "") == "__init__":
                continue
            is_called = isinstance(parent, ast.Call) and parent.func is node
            is_own = not isinstance(node, ast.Attribute) or getattr(node.value, "id", "") == "self"
            if self._is_changed(node) or not (is_own or is_called or self._is_plain(node)):
                yield node

    def _is_plain(self, node: ast.AST) -> bool:
        """Is it nothing that has parts which may change, such as an option of the command line?"""
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
    texts = [each.value for each in modes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return name_called(call) == "open" and any(re.fullmatch(r"[rbt]*[wax+][wabtx+]*", text) for text in texts)

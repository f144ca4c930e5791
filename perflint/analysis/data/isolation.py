"""Why workers, each with a copy of the program as it was at their start, would not read what one process does."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from perflint.analysis.data.effects import POSITION, Callees, Effects, PossibleEffects
from perflint.analysis.data.loaders import LoaderCall
from perflint.analysis.data.origins import Origins, parts_of
from perflint.analysis.facts import Program
from perflint.analysis.heat.scale import Heat
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Scope
from perflint.analysis.memory.locations import ANYWHERE, Location, Origin, Write
from perflint.analysis.values.values import Kind
from perflint.syntax.module import is_main_guard
from perflint.syntax.scopes import arguments_of, bound_names
from perflint.syntax.walk import Function, name_called, own_nodes, reachable, stores

# State of the process, which differs in a worker, and effects outside of it.
_OF_PROCESS = re.compile(
    r"builtins\.(print|input|exec|eval|globals|breakpoint)"
    r"|os\.(?!(path|listdir|scandir|walk|fspath|stat|sep|PathLike)\b).*"
    r"|torch\.((get|set|use)_.*|save|is_grad_enabled)|torch\.utils\.data\.get_worker_info"
    r"|(threading|multiprocessing|inspect|logging|warnings)\..*"
    r"|(numpy|pickle|json|cv2|imageio|yaml)\.(\w+\.)*(dump|save\w*|imwrite|imsave|imshow|set\w+|get\w+)"
)
_SETTING = re.compile(r"torch\.(set_(?!num_)\w+|use_deterministic_algorithms)|numpy\.seterr")
_STREAMS = re.compile(r"io\.(BytesIO|StringIO|open)|builtins\.(open|iter|zip|map|filter|enumerate)|itertools\..*")
_READ_ON = "items advance the stream or iterator {}, and every worker would have its own"
_OF_MODEL = frozenset({"weight", "bias", "state_dict", "parameters"})
_NO_OBJECT = (Kind.MODULE, Kind.TENSOR, Kind.OPTIMIZER, Kind.LOADER, Kind.NUMPY)  # with attributes of its own
_MADE = (ast.Call, ast.Dict, ast.List, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_EFFECTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.Expr, ast.Return, ast.For)


@dataclass
class Items:
    """What the items of a loader are made of, by these functions of the file.

    `owners` are the datasets; `attributes` are what is read of them, `others` of other objects, `variables` of the
    module. `tensors` and `held` are where what is read was made: what batches are cut of, and what datasets hold.
    """

    functions: list[Function]
    owners: set[ast.AST] = field(default_factory=set)
    classes: set[ast.AST] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    tensors: set[ast.AST] = field(default_factory=set)
    held: set[ast.AST] = field(default_factory=set)


class Isolation:
    """What keeps the workers of one program's loaders from reading the same."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)
        self._effects = program.get(Effects)
        self._possible = program.get(PossibleEffects)
        self._callees = program.get(Callees)
        self._hot: dict[Scope, list[Write]] = {}

    # -- writes while batches are read

    def items(self, loader: LoaderCall, functions: Collection[Function], tensors: Collection[ast.expr] = ()) -> Items:
        """What the items of `loader` are made of, which `functions` make, or which are cut of `tensors`."""
        found = Items(self._callees.reached(functions))
        dataset = loader.argument("dataset")
        found.owners.update(self._origins.of(dataset) if dataset is not None else ())
        for node in self._held_in(found.functions):
            if isinstance(node, ast.Attribute):
                found.attributes.add(node.attr)
                found.held.update(each for each in self._origins.of(node) if isinstance(each, _MADE))
            else:
                found.variables.add(node.id)
        for node in (node for each in found.functions for node in own_nodes(each) if isinstance(node, ast.Attribute)):
            if getattr(node.value, "id", "") != "self" and not self._program.qualified(node):
                found.others.add(node.attr)
        for function in found.functions:
            if (info := self._program.class_of(function)) is not None:
                found.classes.add(info.node)
        for tensor in tensors:
            found.tensors.update(self._origins.of(tensor))
            memory = self._effects.points_to(tensor).of(tensor)  # that of an array, which a tensor shows
            found.tensors.update(each.root for each in memory if isinstance(each.root, ast.AST))
        return found

    def written(self, loader: LoaderCall, items: Items) -> tuple[str, str]:
        """What is written to that items are made of while batches are read: for sure, and perhaps; else empty."""
        perhaps = ""
        for scope in (self._program.tree, *self._functions()):
            if scope in items.functions:
                continue
            for write in self._hot_writes(scope):
                is_reader = scope is self._scope(loader.call)
                if is_reader and not self._runs_behind(write.node, loader.call):
                    continue
                is_sure = self._is_read(write, scope, items, is_reader)
                if is_sure is not None:
                    line = getattr(write.node, "lineno", 0)
                    reason = f"line {line} changes {_written_name(write)} while batches are read"
                    if is_sure:
                        return reason, ""
                    perhaps = perhaps or reason
        return "", perhaps

    def unanalysed_writes(self, loader: LoaderCall, items: Items, entries: Collection[Function]) -> str:
        """What unanalysed code may change of what items are made of, as batches are read or by reading them."""
        return next(filter(None, (self._may_be_written(loader, items), *map(self._may_leave_behind, entries))), "")

    def _may_be_written(self, loader: LoaderCall, items: Items) -> str:
        """What may be written to in a loop, or at any time."""
        points = self._possible.points_to(loader.call)
        graph, scope = points.graph, self._scope(loader.call)
        for write in [*points.writes]:
            is_looped = any(graph.is_within(write.node, loop) for loop in graph.regions)
            is_behind = is_looped and graph.runs_after(write.node, loader.call)
            if (is_behind or write.deferred) and write.to.root is not write.node and not write.attribute:
                is_any = write.to == ANYWHERE
                if is_any or self._is_read(write, scope, items, True) is not None:
                    return f"line {getattr(write.node, 'lineno', 1)} may change what batches are made of"
        return ""

    def _may_leave_behind(self, function: Function) -> str:
        """What running `function` in a worker may change beside its arguments, if unanalysed code does."""
        for write in sorted(self._possible.summary(function).writes, key=_order):
            is_argument = write.to.origin is Origin.PARAMETER and not self._effects.is_self(function, write.to)
            if not write.attribute and not is_argument:
                name = getattr(function, "name", "a lambda")
                return f"{name} may change {_written_name(write)}, by code that is not analysed"
        return ""

    def _functions(self) -> Iterator[Function]:
        yield from self._program.of_type(ast.FunctionDef)
        yield from self._program.of_type(ast.AsyncFunctionDef)

    def _scope(self, node: ast.AST) -> Scope:
        return self._program.function_of(node) or self._program.tree

    def _runs_behind(self, node: ast.AST, loader: ast.AST) -> bool:
        return self._effects.graph(loader).runs_after(node, loader)

    def _hot_writes(self, scope: Scope) -> list[Write]:
        if scope not in self._hot:
            heat = self._program.heat
            nodes = (node for node in own_nodes(scope) if isinstance(node, _EFFECTS))
            is_hot = any(heat(node) is not Heat.ONCE for node in nodes)
            writes = self._effects.points_of(scope).writes if is_hot else ()
            self._hot[scope] = [
                each for each in sorted(writes, key=_order)
                if each.to.root is not each.node and each.attribute != POSITION and heat(each.node) is not Heat.ONCE
            ]  # fmt: skip
        return self._hot[scope]

    def _is_read(self, write: Write, scope: Scope, items: Items, is_reader: bool) -> bool | None:
        """Is it for sure, or perhaps, something that items are made of? None where it is not.

        A function that neither reads the items nor has got what it writes to from another is still making it.
        """
        place, names = write.to, _attribute_path(write)
        if names:
            if self._is_of_self(place, scope) and len(names) == 1:
                info = self._program.class_of(scope) if not isinstance(scope, ast.Module) else None
                is_own = info is not None and info.node in items.classes and _scope_name(scope) != "__init__"
                return True if is_own and names[0] in items.attributes else None
            if names[-1] in items.attributes and (write.attribute or self._may_be_object(place)):
                return True
            return False if write.attribute and names[-1] in items.others else None
        if place.origin is Origin.OUTER and place.root in items.variables:
            return True
        made = set(self._origins_of_root(place))
        if made & items.tensors:
            return True
        older = (each for each in made & (items.held | items.owners) if self._scope(each) is not scope or is_reader)
        return False if any(isinstance(each, _MADE) for each in older) and not write.attribute else None

    def _is_of_self(self, place: Location, scope: Scope) -> bool:
        return not isinstance(scope, ast.Module) and self._effects.is_self(scope, place)

    def _may_be_object(self, place: Location) -> bool:
        return all(self._program.value(each).kind not in _NO_OBJECT for each in self._origins_of_root(place))

    def _origins_of_root(self, place: Location) -> Iterator[ast.AST]:
        """Where the root of a location was made, as far as that is known."""
        if isinstance(place.root, ast.AST):
            yield from self._origins.of(place.root)
        for definition in self._program.get(Flow).graph_of(self._program.tree).bindings.get(str(place.root), ()):
            if definition.source is not None and not definition.steps:
                yield from self._origins.of(definition.source)

    # -- effects of reading

    def unproved(self, loader: LoaderCall, items: Items) -> str:
        """Why reading in workers may have other effects, or see other settings; empty where it is proved not to."""
        functions = items.functions
        found = (
            self._replaced(functions),
            self._bound_in_main(functions),
            self._model_or_stream(functions),
            self._of_process(functions),
            self._read_on(functions),
            self._special_methods(functions),
            self._setting(),
            self._start_method(loader, functions),
        )
        return next(filter(None, found), "")

    def _held_in(self, functions: Collection[Function]) -> Iterator[ast.Attribute | ast.Name]:
        """The attributes of their own objects, and the variables of others, that `functions` read."""
        for function in functions:
            nodes = list(ast.walk(function))  # those of inner functions, too: who knows when these run
            given = {node.arg for node in nodes if isinstance(node, ast.arg)}
            for node in nodes:
                if isinstance(node, ast.Name):
                    yield from () if node.id in given or stores(function, node.id) else (node,)
                elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self":
                    yield node

    def is_of_model(self, node: ast.expr) -> bool:
        """Is the value of `node` a model, a container of one, or something that changes as one is trained?"""
        found = reachable([node, *self._origins.of(node)], self._of_which)
        return any(self._program.value(each).kind is Kind.MODULE for each in found)

    def _of_which(self, node: ast.AST) -> list[ast.AST]:
        """The values of which `node` is made, or a part, and what they may come from."""
        parts: list[ast.expr] = list(parts_of(node))
        called = node.func if isinstance(node, ast.Call) else node
        if isinstance(called, ast.Attribute) and called.attr in _OF_MODEL:
            parts.append(called.value)
        elif isinstance(node, ast.Subscript | ast.Starred):
            parts.append(node.value)
        return [origin for part in parts for origin in (part, *self._origins.of(part))]

    def _model_or_stream(self, functions: Collection[Function]) -> str:
        """A model, whose weights would stay in the workers as they were, or a stream that is read from."""
        for node in self._held_in(functions):
            name = self._program.segment(node)
            if self.is_of_model(node):
                return f"{name} is a model or a part of one, which workers would keep as it is at their start"
            if any(_STREAMS.fullmatch(self._program.qualified(each.func)) for each in self._origins.calls(node)):
                return _READ_ON.format(name)
        return ""

    def _of_process(self, functions: Collection[Function]) -> str:
        for node in (node for function in functions for node in own_nodes(function)):
            if not isinstance(node, ast.Attribute | ast.Name | ast.Call):
                continue
            name = "" if isinstance(node, ast.Call) else self._program.qualified(node)
            is_of_process = bool(_OF_PROCESS.fullmatch(name)) or self._is_setting(node)
            if is_of_process or (isinstance(node, ast.Call) and _opens_to_write(node)):
                what = self._program.segment(node.func if isinstance(node, ast.Call) else node)
                return f"line {node.lineno} uses {what}, which differs in workers, or has effects outside of them"
        return ""

    def _is_setting(self, node: ast.AST) -> bool:
        """Is it an attribute of a module, or of something else of a library, that is assigned?"""
        is_assigned = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        return is_assigned and self._program.value(node.value).kind is Kind.LIBRARY  # type: ignore[attr-defined]

    def _read_on(self, functions: Collection[Function]) -> str:
        path = next((path for function in functions for path in self._effects.read_on(function)), "")
        return _READ_ON.format(path) if path else ""

    def _special_methods(self, functions: Collection[Function]) -> str:
        """What a special method of an object that is held writes to, as `in` calls one."""
        made = {each for node in self._held_in(functions) for each in self._origins.calls(node)}
        for owner in {self._program.value(each.func).node for each in made}:
            for method in owner.body if isinstance(owner, ast.ClassDef) else ():
                if isinstance(method, ast.FunctionDef) and method.name.startswith("__") and method.name != "__init__":
                    for path in self._effects.left_behind(method):
                        return f"{method.name} changes {path}, and every worker would have its own"
        return ""

    def _setting(self) -> str:
        """A setting of the library that a hot place changes, unless a `with` block restores it."""
        for call in self._program.of_type(ast.Call):
            name = self._program.qualified(call.func)
            is_kept = not isinstance(self._program.parent(call), ast.withitem)
            if is_kept and _SETTING.fullmatch(name) and self._program.heat(call) is not Heat.ONCE:
                return f"line {call.lineno} calls {name}() while batches are read, which workers would not see"
        return ""

    def _start_method(self, loader: LoaderCall, functions: Collection[Function]) -> str:
        """A start method that is set too late, or one under which workers lack what the program has set by then."""
        for call in self._program.of_type(ast.Call):
            if not self._program.segment(call.func).endswith("set_start_method"):
                continue
            if self._scope(call) is self._scope(loader.call) and self._runs_behind(call, loader.call):
                return f"line {call.lineno} sets the start method, which fails once workers have started"
            if functions and "fork" not in [getattr(each, "value", "") for each in arguments_of(call)]:
                return f"line {call.lineno} makes workers import the program again"
        return ""

    def _bound_in_main(self, functions: Collection[Function]) -> str:
        """A variable of the module that workers which import the program would lack, or find as it was at first."""
        rebound = {name for each in self._program.of_type(ast.Global) for name in each.names}
        guarded = bound_names(*(each for each in self._program.tree.body if is_main_guard(each)))
        for node in self._held_in(functions):
            if isinstance(node, ast.Name) and node.id in rebound | guarded:
                where = "under the main guard" if node.id in guarded else "in a function"
                return f"{node.id} is bound {where}, where workers that import the program don't come to"
        return ""

    def _replaced(self, functions: Collection[Function]) -> str:
        names = {_scope_name(each) for each in functions}
        for node in self._program.of_type(ast.Attribute):
            if isinstance(node.ctx, ast.Store) and node.attr in names:
                return f"line {node.lineno} replaces {node.attr}()"
        return ""


def _scope_name(scope: Scope) -> str:
    return getattr(scope, "name", "")


def _attribute_path(write: Write) -> list[str]:
    """The attributes on the way to what is written to."""
    return [part for part in (*write.to.path, write.attribute) if part.isidentifier()]


def _written_name(write: Write) -> str:
    """What is written to, in a word."""
    root = write.to.root
    own = root.arg if isinstance(root, ast.arg) else root if isinstance(root, str) else "it"
    return next(reversed(_attribute_path(write)), own)


def _order(write: Write) -> tuple[int, str]:
    return getattr(write.node, "lineno", 0), _written_name(write)


def _opens_to_write(call: ast.Call) -> bool:
    modes = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    texts = [each.value for each in modes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return name_called(call) == "open" and any(re.fullmatch(r"[rbt]*[wax+][wabtx+]*", text) for text in texts)

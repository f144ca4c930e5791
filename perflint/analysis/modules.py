"""Where the parameters of modules are, on a device or on the host, and which of them an optimizer is given."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perflint.analysis.call_graph import callers
from perflint.analysis.data.origins import Origins, parts_of
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.ir.occurrences import is_rebound
from perflint.analysis.values.hints import starts_on_device
from perflint.analysis.values.operations import given
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.walk import COMPREHENSIONS, last_name, own_nodes, path_of, reachable, receiver_of, returned_values

_NAMED = re.compile(r"device|gpu|cuda|(^|_)rank$", re.IGNORECASE)
_ELSEWHERE = re.compile(r"device|gpu|cuda|rank|parallel|prepare|accelerat|fabric", re.IGNORECASE)
_MOVES = frozenset({"to", "cuda", "cpu", "xpu", "to_empty"})
_PLAIN = frozenset("train eval requires_grad_ apply share_memory".split())
_SAME = _PLAIN | frozenset("float half double bfloat16".split())
_DEPTH = 6


@dataclass(frozen=True)
class Placed:
    """The place of a module's parameters, and the call that moved them there; `sure` if that has certainly run."""

    place: Place
    move: ast.Call | None = None
    sure: bool = False


_HOST, _UNKNOWN = Placed(Place.HOST), Placed(Place.UNKNOWN)


class Placement:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._flow = program.get(Flow)
        self._moved: defaultdict[str, list[ast.Call]] = defaultdict(list)  # in place, by the path of what is moved
        self._assigned: defaultdict[str, list[ast.expr]] = defaultdict(list)  # to attributes
        for call in program.of_type(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES and self.target(call) is not None:
                for path in self._paths(call.func.value):
                    self._moved[path].append(call)
        for assignment in program.of_type(ast.Assign):
            for target in assignment.targets:
                for path, value in _pairs(target, assignment.value):
                    self._assigned[path].append(value)

    def of(self, module: ast.expr, point: ast.AST) -> Placed:
        """Where the parameters of `module` are when `point` runs, in whose function it stands."""
        return self._of(module, point, _DEPTH)

    def target(self, call: ast.Call) -> Place | None:
        """Where a call of a module's method moves it, by the value or name of what it is given; None if not."""
        method = getattr(call.func, "attr", "")
        if method in ("cuda", "xpu", "cpu"):
            return Place.HOST if method == "cpu" else Place.DEVICE
        given = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "device")]
        if method not in _MOVES or not given:
            return None
        value = self._program.value(given[0])
        if value.is_literal:
            known = isinstance(value.literal, str)
            return (Place.HOST if value.literal == "cpu" else Place.DEVICE) if known else None
        if value.place is not Place.UNKNOWN and value.kind is Kind.DEVICE:
            return value.place
        named = value.kind is Kind.DEVICE or (value.kind is not Kind.LIBRARY and _NAMED.search(_last(given[0])))
        return Place.DEVICE if named or value.place is Place.DEVICE else None

    def _paths(self, node: ast.expr) -> Iterator[str]:
        """The path of the variable; of a loop over modules that are written out, also of each of them."""
        yield path_of(node)
        for origin in self._program.get(Origins).of(node) if isinstance(node, ast.Name) else ():
            if isinstance(origin, ast.For | ast.comprehension):
                yield from map(path_of, parts_of(origin.iter))

    def _of(self, node: ast.expr, point: ast.AST, depth: int) -> Placed:
        if not depth:
            return _UNKNOWN
        if isinstance(node, ast.Call):
            return self._of_call(node, point, depth)
        if isinstance(node, ast.IfExp):
            return _joined([self._of(each, point, depth - 1) for each in (node.body, node.orelse)])
        path = path_of(node)
        moves = [each for each in self._moved.get(path, ()) if path and self._near(each, point)]
        after = [each for each in moves if self._flow.graph(point).runs_after(point, each)]
        before = [each for each in after if not is_rebound(self._program, path, each, point)]
        if any(self.target(each) is Place.HOST for each in before):
            return _HOST
        if before:
            certain = [each for each in before if self._dominates(each, point)]
            return Placed(Place.DEVICE, (certain or before)[-1], bool(certain))
        if isinstance(node, ast.Name):
            found = self._of_name(node, point, depth)
            return _HOST if moves and found.place is Place.UNKNOWN else found
        return self._of_attribute(node, point, depth) if isinstance(node, ast.Attribute) else _UNKNOWN

    def _near(self, call: ast.Call, point: ast.AST) -> bool:
        return self._program.function_of(call) in (self._program.function_of(point), None)

    def _dominates(self, call: ast.Call, point: ast.AST) -> bool:
        graph = self._flow.graph(point)
        return call in graph.places and point in graph.places and graph.dominates(call, point)

    def _of_name(self, name: ast.Name, point: ast.AST, depth: int) -> Placed:
        function = self._program.function_of(name)
        found = self._flow.graph(name).definitions(name)
        if not found and function is not None:
            found = tuple(self._flow.graph_of(self._program.tree).bindings.get(name.id, ()))
        places = [self._of_definition(each, depth) for each in found if isinstance(each, Definition)]
        made = _joined(places)
        return _UNKNOWN if made.place is Place.HOST and self._is_handed_on(name, point) else made

    def _of_definition(self, definition: Definition, depth: int) -> Placed:
        if not isinstance(definition.node, ast.arg):
            return _joined([self._of(each, each, depth - 1) for each in given(self._program, definition)])
        known = self._program.given(definition.node)
        return _joined([self._of(each, site, depth - 1) if each is not None else _UNKNOWN for site, each in known])

    def _of_attribute(self, node: ast.Attribute, point: ast.AST, depth: int) -> Placed:
        path = path_of(node)
        if path.startswith("self.") and path.count(".") == 1 and (owner := self._program.class_around(node)):
            values = [each for each in self._assigned.get(path, ()) if self._program.class_around(each) is owner]
            here = [
                each for each in values
                if self._program.function_of(each) is self._program.function_of(point)
                and not is_rebound(self._program, path, each, point)
            ]  # fmt: skip
            places = [(each, self._of(each, each, depth - 1)) for each in here or values]
            found = _joined([place for _, place in places])
            sure = found.sure and bool(here) and all(self._dominates(p.move, point) for _, p in places if p.move)
            of_class = [
                each for own in ("self", path) for each in self._moved.get(own, ())
                if self._program.class_around(each) is owner
            ]  # fmt: skip
            if found.place is Place.DEVICE:
                return Placed(Place.DEVICE, found.move, sure)
            if earlier := [each for each in of_class if self._may_run_before(each, point)]:
                return Placed(Place.DEVICE, earlier[0])
            return found if values and (of_class or not owner.bases) else _UNKNOWN
        whole = self._of(node.value, point, depth - 1)
        return whole if whole.place is not Place.HOST else _UNKNOWN

    def _may_run_before(self, move: ast.Call, point: ast.AST) -> bool:
        """May a method of the class have moved its module at `point`? In a constructor, only what that calls."""
        making = self._program.function_of(point)
        if getattr(making, "name", "") != "__init__":
            return True
        here = (each for each in callers(self._program, move) if self._program.function_of(each) is making)
        return any(self._flow.graph(point).runs_after(point, each) for each in here)

    def _of_call(self, call: ast.Call, point: ast.AST, depth: int) -> Placed:
        method, target = getattr(call.func, "attr", ""), self.target(call)
        if target is not None:
            return (
                _HOST
                if target is Place.HOST
                else Placed(Place.DEVICE, call, self._dominates(call, point) or call is point)
            )
        if method in _SAME and isinstance(call.func, ast.Attribute) and self._program.callee(call) is None:
            return self._of(call.func.value, point, depth - 1)
        callee = self._program.callee(call)
        wrapped = self._of(call.args[0], point, depth - 1) if call.args and self._wraps(call) else _UNKNOWN
        if wrapped.place is Place.DEVICE:
            return wrapped
        if not self._builds(call):
            return _joined([self._of(each, each, depth - 1) for each in returned_values(callee)])
        own = self._program.value(call).node
        moves = any(self._program.class_around(each) is own for each in self._moved.get("self", ()))
        if moves or starts_on_device(self._program) or _ELSEWHERE.search(ast.unparse(call)):
            return _UNKNOWN
        return _HOST

    def _builds(self, call: ast.Call) -> bool:
        value = self._program.value(call.func)
        return value.kind is Kind.CLASS or _last(call.func)[:1].isupper()

    def _wraps(self, call: ast.Call) -> bool:
        return _last(call.func).endswith(("Parallel", "DDP", "DP", "compile"))

    def _is_handed_on(self, name: ast.Name, point: ast.AST) -> bool:
        graph = self._flow.graph(point)
        calls = own_nodes(self._program.scope_of(point))
        return any(
            isinstance(call, ast.Call)
            and call is not point
            and any(path_of(given) == name.id for given in call.args)
            and graph.runs_after(point, call)
            and (_ELSEWHERE.search(ast.unparse(call)) is not None or self._is_moved(call))
            for call in calls
        )

    def _is_moved(self, call: ast.Call) -> bool:
        chain = (each for each in self._program.ancestors(call) if isinstance(each, ast.Call))
        return any(self.target(each) is Place.DEVICE for each in chain)


def _joined(places: Iterable[Placed]) -> Placed:
    found = list(dict.fromkeys(places))
    moved = [each for each in found if each.place is Place.DEVICE]
    if moved:
        return Placed(Place.DEVICE, moved[0].move, len(found) == 1 and moved[0].sure)
    return _HOST if found == [_HOST] else _UNKNOWN


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, other)
    elif isinstance(target, ast.Attribute) and path_of(target):
        yield path_of(target), value


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        index = node.slice
        return str(index.value) if isinstance(index, ast.Constant) else _last(node.value)
    if isinstance(node, ast.Call):
        return _last(node.func)
    return getattr(node, "attr", getattr(node, "id", ""))


_GIVE = frozenset("parameters named_parameters modules named_modules children named_children".split())
_PASS = frozenset("builtins.list builtins.tuple builtins.set builtins.dict builtins.iter builtins.sorted".split())
_HAND_ON = frozenset("items values copy union".split())
_GROW = frozenset({"append", "extend", "add", "update", "insert"})
_HOLDS_PARAMETERS = re.compile(r"param|group|weights|vars$", re.IGNORECASE)


@dataclass(frozen=True)
class Optimized:
    """The `modules` whose parameters a collection holds; `complete` where it surely holds nothing else."""

    modules: tuple[ast.expr, ...]
    complete: bool


def optimized(program: Program, params: ast.expr) -> Optimized | None:
    """Whose parameters `params` holds; None where it holds other tensors, or nothing tells."""
    start: list[ast.AST] = [params]
    nodes = [*reachable(start, lambda node: [] if receiver_of(node, *_GIVE) else _parts(program, node) or [])]
    giving = [receiver_of(each, *_GIVE) for each in nodes]
    modules = [each for each in giving if each is not None]
    left = [node for node, module in zip(nodes, giving, strict=True) if module is None]
    named = [last_name(each) for each in left if _parts(program, each) is None]
    if not all(_HOLDS_PARAMETERS.search(each) and not each[:1].isupper() for each in named):
        return None
    return Optimized(tuple(modules), not named) if modules or named else None


def filled(program: Program, module: ast.expr) -> bool:
    """Has the module surely a parameter, as an optimizer of torch takes none without?"""
    origins = program.get(Origins)
    own = set(origins.of(module))
    optimizers = (each for each in program.of_type(ast.Call) if program.qualified(each.func).startswith("torch.optim."))
    held = (optimized(program, each.args[0]) for each in optimizers if each.args)
    known = {origin for each in held if each is not None for one in each.modules for origin in origins.of(one)}
    return bool(own) and own <= known


def _parts(program: Program, node: ast.AST) -> list[ast.AST] | None:
    if isinstance(node, ast.Name | ast.Attribute):
        found = [each for each in program.get(Origins).of(node) if each is not node]
        return [*found, *_grown(program, node)] if found else None
    if isinstance(node, ast.AugAssign | ast.Starred | ast.Subscript):
        return [node.value]
    if isinstance(node, ast.For | ast.comprehension):
        return [node.iter]
    if isinstance(node, (ast.List, ast.Tuple, ast.Set, *COMPREHENSIONS)):
        return [*parts_of(node)]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Dict):
        groups = [v for k, v in zip(node.keys, node.values, strict=True) if getattr(k, "value", "") == "params"]
        return list(groups or node.values)
    return _given(program, node) if isinstance(node, ast.Call) else None


def _given(program: Program, call: ast.Call) -> list[ast.AST] | None:
    name = program.qualified(call.func)
    if name == "builtins.dict" and (given := [each.value for each in call.keywords if each.arg == "params"]):
        return list(given)
    if name in _PASS or name.startswith("itertools.chain"):
        return list(call.args)
    if name in ("builtins.filter", "builtins.map"):
        return list(call.args[1:])
    if name == "builtins.enumerate":
        return list(call.args[:1])
    if (owner := receiver_of(call, *_HAND_ON)) is not None:
        return [owner]
    found = [each for each in program.get(Origins).of(call) if each is not call]
    return found or None


def _grown(program: Program, node: ast.expr) -> list[ast.AST]:
    path, scope = path_of(node), program.scope_of(node)
    found: list[ast.AST] = []
    for each in own_nodes(scope):
        if isinstance(each, ast.AugAssign) and path_of(each.target) == path:
            found.append(each)
        elif isinstance(each, ast.Call) and (grown := receiver_of(each, *_GROW)) is not None:
            found += each.args[-1:] if path_of(_whole(grown)) == path else []
    return found


def _whole(node: ast.expr) -> ast.expr:
    return _whole(node.value) if isinstance(node, ast.Subscript) else node

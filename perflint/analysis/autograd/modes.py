"""The modes at a place: whether gradients are recorded, and which modules are in training mode."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Graph
from perflint.analysis.links import GradMode, Manner
from perflint.syntax.scopes import arguments_of, bind, local_names, parameters_of
from perflint.syntax.walk import FUNCTIONS, Function, last_name, own_nodes, path_of, receiver_of

_OFF = frozenset(f"torch.{name}" for name in "no_grad inference_mode autograd.no_grad autograd.inference_mode".split())
_ON = frozenset({"torch.enable_grad", "torch.autograd.enable_grad"})
_SET = frozenset({"torch.set_grad_enabled", "torch.autograd.set_grad_enabled"})
_TELLING = re.compile(r"grad|eval|infer|freeze|frozen", re.IGNORECASE)  # names of contexts and decorators not analysed
_HOOK = re.compile(r"^(on_|(val|valid|validation|test|predict|prediction|eval|evaluation)_(step|epoch|loop|batch))")


class GradModes:
    def __init__(self, program: Program) -> None:
        self._program, self._flow = program, program.get(Flow)
        self._switches, self._is_old = "set_grad_enabled" in program.text, "volatile=" in program.text

    def of(self, node: ast.AST, *, callers: bool = True) -> GradMode:
        mode, function = self._local(node), self._program.function_of(node)
        if mode is None and callers and function is not None:
            modes = set(self._of_callers(function)) or {GradMode.ON}
            return modes.pop() if len(modes) == 1 else GradMode.UNKNOWN
        return mode or (self._of_uncalled(None) if callers else GradMode.ON)

    def _local(self, node: ast.AST) -> GradMode | None:
        for parent in self._program.ancestors(node):
            if isinstance(parent, FUNCTIONS):
                return self._first(getattr(parent, "decorator_list", ())) or self._switched(parent)
            if isinstance(parent, (ast.With, ast.AsyncWith)):
                mode = self._first([item.context_expr for item in parent.items][::-1])
                if mode is not None:
                    return mode
        return self._switched(self._program.tree)

    def _of_callers(self, function: Function) -> Iterator[GradMode]:
        pending, seen = [function], {function}
        for each in pending:
            sites = self._program.call_sites(each)
            yield from [] if sites and not self._may_be_quiet(each) else [self._of_uncalled(each)]
            for site in sites:
                mode, around = self._local(site), self._program.function_of(site)
                if mode is None and around is not None:
                    pending += [around] if around not in seen else []
                    seen.add(around)
                else:
                    yield mode or self._of_uncalled(None)

    def _of_uncalled(self, function: Function | None) -> GradMode:
        """The mode where nothing known sets one: a switch that is never switched back holds on."""
        is_quiet = self._is_switched_off or (function is not None and self._may_be_quiet(function))
        return GradMode.UNKNOWN if is_quiet else GradMode.ON

    @cached_property
    def _is_switched_off(self) -> bool:
        functions: Sequence[ast.FunctionDef] = self._program.of_type(ast.FunctionDef)
        scopes: list[ast.FunctionDef | ast.Module] = [self._program.tree, *functions]
        return self._switches and any(self._switched(each) is not None for each in scopes)

    def _may_be_quiet(self, function: Function) -> bool:
        is_method = self._program.class_of(function) is not None
        is_hook = is_method and _HOOK.search(getattr(function, "name", "")) is not None
        return is_hook or self._program.is_called(function, Manner.QUIET)

    def _first(self, contexts: Iterable[ast.expr]) -> GradMode | None:
        return next(filter(None, map(self._of_context, contexts)), None)

    def _of_context(self, node: ast.expr) -> GradMode | None:
        function = node.func if isinstance(node, ast.Call) else node
        name = self._program.qualified(function)
        if name in _OFF:
            return GradMode.OFF
        if name in _ON:
            return GradMode.ON
        if isinstance(node, ast.Call) and name in _SET:
            return self._set(node)
        if isinstance(node, ast.IfExp):
            return GradMode.UNKNOWN if self._of_context(node.body) or self._of_context(node.orelse) else None
        if isinstance(node, ast.Name) and not isinstance(self._program.value(node).node, FUNCTIONS):
            modes = {self._of_context(each) for each in self._assigned(node)}
            if modes - {None}:
                return modes.pop() if len(modes) == 1 else GradMode.UNKNOWN
        own = self._program.value(function).node
        body = ast.walk(own) if isinstance(own, (*FUNCTIONS, ast.ClassDef)) else ()
        names = (each for each in body if isinstance(each, ast.Attribute | ast.Name))
        is_own = any(self._program.qualified(each) in _OFF | _SET for each in names)
        return GradMode.UNKNOWN if is_own or _TELLING.search(path_of(function)) else None

    def _assigned(self, name: ast.Name) -> Iterator[ast.expr]:
        for each in self._flow.graph(name).definitions(name):
            if isinstance(each, Definition) and each.given is not None:
                yield each.given

    def _set(self, call: ast.Call) -> GradMode:
        mode = bind(call, ("mode",)).get("mode")
        literal = self._program.value(mode).literal if mode is not None else None
        return (GradMode.ON if literal else GradMode.OFF) if isinstance(literal, bool) else GradMode.UNKNOWN

    def _switched(self, scope: Function | ast.Module) -> GradMode | None:
        calls = (each for each in own_nodes(scope) if isinstance(each, ast.Call)) if self._switches else ()
        statements = (each for each in calls if isinstance(self._program.parent(each), ast.Expr))
        modes = {self._set(each) for each in statements if self._program.qualified(each.func) in _SET}
        if self._is_old and any(isinstance(each, ast.keyword) and each.arg == "volatile" for each in own_nodes(scope)):
            modes.add(GradMode.UNKNOWN)  # of torch before 0.4, for what is computed with it
        return GradMode.OFF if GradMode.OFF in modes else GradMode.UNKNOWN if modes - {GradMode.ON} else None


_TRAINING = re.compile(r"(^|_)(train|fit)", re.IGNORECASE)
_FREEZING = re.compile(r"freeze|set_requires_grad|toggle_grad", re.IGNORECASE)
_DEPTH = 3  # of calls


@dataclass(frozen=True)
class _Switch:
    """A call that may switch a module to training, or to evaluation mode; None where that isn't known."""

    node: ast.Call
    training: bool | None


class TrainingModes:
    """The modes of modules by their paths: `model`, `self.encoder`."""

    def __init__(self, program: Program) -> None:
        self._program, self._flow = program, program.get(Flow)
        self._switches: dict[ast.AST, Mapping[str, list[_Switch]]] = {}

    def at(self, node: ast.AST, depth: int = _DEPTH) -> dict[str, bool]:
        scope = self._program.function_of(node)
        modes = self._by_callers(scope, depth) if scope is not None and depth else {}
        for path, switches in self._of_scope(scope or self._program.tree).items():
            found = self._reaching(self._flow.graph(node), switches, node)
            if found:
                modes.pop(path, None)
            if len(found) == 1 and (mode := found.pop()) is not None:
                modes[path] = mode
        return modes

    @cached_property
    def may_evaluate(self) -> bool:
        switches = (switch for each in self._program.of_type(ast.Call) for _, switch in self._switched(each))
        return any(each.training is False for each in switches)

    def _reaching(self, graph: Graph, switches: list[_Switch], node: ast.AST) -> set[bool | None]:
        """The modes that one of the switches may have set last; None among them where none need have run."""
        before = [each for each in switches if graph.runs_after(node, each.node)]
        sure = [each for each in before if each.node in graph.places and graph.dominates(each.node, node)]
        last = [
            each for each in before
            if not any(one is not each and not graph.reaches(each.node, node, avoiding=one.node) for one in sure)
        ]  # fmt: skip
        return {each.training for each in last} | ({None} if last and not sure else set())

    def _of_scope(self, scope: Function | ast.Module) -> Mapping[str, list[_Switch]]:
        if scope not in self._switches:
            found: defaultdict[str, list[_Switch]] = defaultdict(list)
            self._switches[scope] = found  # for functions that call each other
            calls = [each for each in own_nodes(scope) if isinstance(each, ast.Call)]
            for call in calls:
                callee = self._program.callee(call)
                for path, switch in self._switched(call) if callee is None else self._given_by(call, callee):
                    found[path].append(switch)
            for call in calls if found else ():
                if _TRAINING.search(path_of(call.func).rpartition(".")[2]):
                    given = set(map(path_of, arguments_of(call)))
                    owner = path_of(call.func).partition(".")[0]
                    for path in [path for path in found if path in given or path.startswith(f"{owner}.")]:
                        found[path].append(_Switch(call, True))
        return self._switches[scope]

    def _switched(self, call: ast.Call) -> Iterator[tuple[str, _Switch]]:
        method = call.func
        if not isinstance(method, ast.Attribute) or method.attr not in ("eval", "train"):
            return
        if method.attr == "eval" and (call.args or call.keywords):
            return
        flag = bind(call, ("mode",)).get("mode")
        value = self._program.value(flag).literal if flag is not None else True
        training = False if method.attr == "eval" else value if isinstance(value, bool) else None
        around: ast.AST | None = call
        while isinstance(around, (ast.Call, ast.Attribute)):  # `model = Net().eval().to(device)`
            around = self._program.parent(around)
        made = around.targets if isinstance(around, ast.Assign) else []
        for path in filter(None, (path_of(method.value), *map(path_of, made))):
            yield path, _Switch(call, training)

    def _given_by(self, call: ast.Call, callee: Function) -> Iterator[tuple[str, _Switch]]:
        """The modes that the modules which a function returns have then, by the paths that they are assigned to."""
        around = self._program.parent(call)
        ends = [each for each in own_nodes(callee) if isinstance(each, ast.Return) and each.value is not None]
        targets = around.targets if isinstance(around, ast.Assign) and ends and self.may_evaluate else []
        for target in targets:
            parts = [*enumerate(target.elts)] if isinstance(target, ast.Tuple) else [(None, target)]
            for place, part in parts:
                modes = {self.at(end, 0).get(path_of(_part(end, place))) for end in ends}
                if path_of(part) and len(modes) == 1 and (mode := modes.pop()) is not None:
                    yield path_of(part), _Switch(call, mode)

    def _by_callers(self, function: Function, depth: int) -> dict[str, bool]:
        found: list[dict[str, bool]] = []
        is_evaluated = self._program.is_called(function, Manner.EVALUATED)
        if is_evaluated and not self._program.is_called(function, Manner.TRAINED):
            modules = (each.arg for each in parameters_of(function))
            found.append(dict.fromkeys(modules, False))
        for site in self._program.call_sites(function):
            modes = self.at(site, depth - 1)
            given = self._program.arguments(site, function).given
            own = {path: mode for path, mode in modes.items() if self._is_shared(path, site, function)}
            found.append(own | {name: modes[path] for name, each in given.items() if (path := path_of(each)) in modes})
        common = set(found[0]).intersection(*found[1:]) if found else set()
        return {path: found[0][path] for path in common if all(each[path] == found[0][path] for each in found)}

    def _is_shared(self, path: str, site: ast.AST, function: Function) -> bool:
        root = path.partition(".")[0]
        if root == "self":
            return path != root
        return not any(root in local_names(each) for each in (function, self._program.function_of(site)) if each)


def _part(end: ast.Return, place: int | None) -> ast.AST:
    """What a function returns, or the part of that at this place; else the statement."""
    if place is None:
        return end.value or end
    elements = end.value.elts if isinstance(end.value, ast.Tuple) else []
    return elements[place] if place < len(elements) else end


def frozen(program: Program) -> frozenset[str]:
    """The last names of the modules that the file may freeze, by a method, a loop or a function."""
    found = set[str]()
    for node in program.of_type(ast.Call, ast.For, ast.Assign):
        if isinstance(node, ast.Assign):  # `self.table.weight = nn.Parameter(weight, requires_grad=False)`
            given = node.value.keywords if isinstance(node.value, ast.Call) else []
            if any(each.arg == "requires_grad" and _is_off([each.value]) for each in given):
                found.update(last_name(each.value) for each in node.targets if isinstance(each, ast.Attribute))
        elif isinstance(node, ast.Call) and (owner := receiver_of(node, "requires_grad_")) is not None:
            while (inner := receiver_of(owner)) is not None:  # of `net.eval().requires_grad_(...)`
                owner = inner
            made = getattr(program.statement_of(node), "targets", ())
            found.update(map(last_name, (owner, *made)) if _is_off(node.args) else ())
        elif isinstance(node, ast.Call) and _FREEZING.search(path_of(node.func)):
            found.update(map(last_name, node.args))
            found.add(last_name(owner) if (owner := receiver_of(node)) is not None else "")
        elif isinstance(node, ast.For) and any(map(_switches_off, ast.walk(node))):
            owners = (each.value for each in ast.walk(node.iter) if isinstance(each, ast.Attribute))
            found.update(map(last_name, owners))
    return frozenset(found - {""})


def _switches_off(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return _is_off([node.value]) and any(getattr(each, "attr", "") == "requires_grad" for each in node.targets)
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "requires_grad_" and _is_off(node.args)


def _is_off(given: list[ast.expr]) -> bool:
    return bool(given) and isinstance(given[0], ast.Constant) and given[0].value is False

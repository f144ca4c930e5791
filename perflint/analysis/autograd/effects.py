"""The effects of running code, in all that it calls in the file and, by their summaries, in others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from perflint import torch_ops
from perflint.analysis.autograd.modes import GradModes
from perflint.analysis.call_graph import CallGraph, is_abstract, overridden
from perflint.analysis.data.origins import Attributes
from perflint.analysis.facts import Program
from perflint.analysis.links import Effect, GradMode, Likelihood
from perflint.analysis.memory.dispatch import Modules
from perflint.analysis.memory.roles import HOLDS
from perflint.analysis.values.codes import targets_of
from perflint.analysis.values.methods import MODULE_SELF
from perflint.analysis.values.values import UNKNOWN, Kind, Value
from perflint.syntax.scopes import arguments_of, local_names, parameters_of
from perflint.syntax.walk import FUNCTIONS, Function, last_name, method_of, own_nodes, path_of, reachable, receiver_of

_BACKWARD = frozenset({"backward", "manual_backward"})  # of tensors, and of accelerators, fabrics and their like
_TAKING = re.compile(
    r"^torch\.(autograd\.(grad|backward|functional\.\w+)"
    r"|(func|autograd\.forward_ad)\.(grad\w*|vjp|jvp|jac\w+|hessian|linearize)"
    r"|(autograd\.)?enable_grad)$"
)
_SETTING = frozenset({"torch.set_grad_enabled", "torch.autograd.set_grad_enabled"})
_SPELLED = frozenset({"autograd.grad", "autograd.backward"})  # of a package that is imported by another name
_NAMED = re.compile(
    r"attack|advers|perturb|pgd|fgsm|salien|attribut|explain|cam$|backprop|(^|_)(train_|fit|learn|optimi|minimi)", re.I
)
_OWN_PARTS = frozenset(
    {"zero_grad", "unwrap_model", "parameters", "state_dict", "load_state_dict", "named_parameters", "modules"}
)
_NO_RUNS = HOLDS | {"eval", "train"}  # `batch.items()` is a call of a container, though the batch may pass for a tensor
_OPTIMIZER = re.compile(r"optimi[sz]er|(^|[._])optim$")
_LOSS = re.compile(r"loss|criteri|metric", re.IGNORECASE)
# nothing in these differentiates by itself
KNOWN = ("torch.", "torchvision.", "torchaudio.", "torch_geometric.", "dgl.", "timm.", "transformers.", "einops.")


def runs_backward(program: Program, node: ast.Call) -> bool:
    """Is it `loss.backward()`, `torch.autograd.backward(loss)` or the like?"""
    if program.qualified(node.func) == "torch.autograd.backward":
        return True
    func = node.func
    if not isinstance(func, ast.Attribute) or func.attr not in _BACKWARD:
        return False
    return program.value(func.value).kind is not Kind.LIBRARY


def trains(program: Program, node: ast.Call) -> bool:
    """Is it `loss.backward()`, `optimizer.step()`, `optimizer.zero_grad()` or the like?"""
    if runs_backward(program, node):
        return True
    if not isinstance(node.func, ast.Attribute):
        return False
    name, owner = node.func.attr, program.value(node.func.value)
    if name == "step":
        return owner.kind is Kind.OPTIMIZER
    return name == "zero_grad"


def steps_optimizer(program: Program, node: ast.AST) -> bool:
    """Is it `optimizer.step()`, or `scaler.step(optimizer)`?"""
    if not isinstance(node, ast.Call) or receiver_of(node, "step") is None:
        return False
    return trains(program, node) or any(_may_be_optimizer(program, each) for each in node.args)


def _may_be_optimizer(program: Program, node: ast.expr) -> bool:
    return program.value(node).kind is Kind.OPTIMIZER or _OPTIMIZER.search(path_of(node)) is not None


def differentiates(program: Program, node: ast.Call) -> bool:
    """Does the call train, other than by zeroing, take gradients or ask for some, as far as its name tells?"""
    name = program.qualified(node.func)
    if trains(program, node) and last_name(node) != "zero_grad":
        return True
    if _TAKING.search(name) or path_of(node.func) in _SPELLED:
        return True
    if name in _SETTING:
        return all(map(_is_on, arguments_of(node)[:1]))
    return last_name(node) == "retain_grad" or asks_for_gradients(node)


def asks_for_gradients(node: ast.AST) -> bool:
    """Is a tensor made, or set, to get gradients?"""
    if isinstance(node, ast.Assign):
        return _is_on(node.value) and any(getattr(each, "attr", "") == "requires_grad" for each in node.targets)
    if not isinstance(node, ast.Call):
        return False
    if last_name(node) == "requires_grad_":
        return all(map(_is_on, arguments_of(node)[:1]))
    return any(each.arg == "requires_grad" and _is_on(each.value) for each in node.keywords)


def runs_module(program: Program, node: ast.Call) -> bool:
    callee = program.value(node.func)
    if isinstance(node.func, ast.Attribute) and node.func.attr in _NO_RUNS:
        return False
    if callee.kind is Kind.TENSOR:  # can't be called: it is a model, or a method of one
        return not isinstance(node.func, ast.Attribute) or program.value(node.func.value).kind is not Kind.TENSOR
    if callee.kind is Kind.MODULE:
        return True
    is_method = callee.owner is not None and callee.owner.kind is Kind.MODULE
    return is_method and getattr(node.func, "attr", "") not in MODULE_SELF | _OWN_PARTS


def is_loss(program: Program, node: ast.expr) -> bool:
    name = program.value(node).name
    return torch_ops.class_kind(name) == "loss" or _LOSS.search(path_of(node) + name) is not None


def _gives_results(program: Program, node: ast.Call) -> bool:
    callee = program.value(node.func)
    is_method = callee.owner is not None and getattr(node.func, "attr", "") != "forward"
    return not (is_method and isinstance(program.parent(node), ast.Expr))


def _end_of(function: Function) -> ast.AST:
    return function.body if isinstance(function, ast.Lambda) else function.body[-1]


def _is_on(node: ast.expr) -> bool:
    return not (isinstance(node, ast.Constant) and node.value is False)


class ModuleCalls(CallGraph):
    """The call graph with every `forward` that the call of a module may run."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._callees: dict[ast.Call, Sequence[Function]] = {}

    def calls(self, function: Function) -> Sequence[ast.Call]:
        return self.program.get(CallGraph).calls(function)

    def callees(self, call: ast.Call) -> Sequence[Function]:
        if call not in self._callees:
            self._callees[call] = self._found(call)
        return self._callees[call]

    def _found(self, call: ast.Call) -> Sequence[Function]:
        if self.program.value(call.func).kind is Kind.LIBRARY:
            return ()
        found = super().callees(call) or self.program.get(Modules).forwards(call) or self._of_parameter(call)
        return (
            [*found, *self._overriding(call)]
            if getattr(getattr(call.func, "value", None), "id", "") == "self"
            else found
        )

    def targets(self, call: ast.Call) -> Sequence[str]:
        """What a call may reach in other files; of a parameter, by what known callers give for it."""
        handed = [tuple(targets_of(each, (), call)) for each in self._handed(call)]
        return self.program.targets(call) or (sorted({name for each in handed for name in each}) if all(handed) else ())

    def _overriding(self, call: ast.Call) -> Iterator[Function]:
        callee = self.program.callee(call)
        owner = self.program.class_of(callee) if callee is not None else None
        for each in reachable([owner] if owner is not None else [], lambda each: each.subclasses):
            yield from (info.node for info in each.overriding(getattr(callee, "name", "")))

    def _of_parameter(self, call: ast.Call) -> Sequence[Function]:
        """The functions, or `forward`s, that known callers give the called parameter; all or none."""
        bodies = [_body_of(each.node) for each in self._handed(call)]
        found = [each for each in bodies if each is not None]
        return found if len(found) == len(bodies) else ()

    def _handed(self, call: ast.Call) -> list[Value]:
        function = self.program.function_of(call)
        if function is None or not isinstance(call.func, ast.Name) or call.func.id not in local_names(function):
            return []
        parameters = [each for each in parameters_of(function) if each.arg == call.func.id]
        given = [value for each in parameters for _, value in self.program.given(each)]
        return [self.program.value(each) if each is not None else UNKNOWN for each in given]


def _body_of(node: ast.AST | None) -> Function | None:
    if isinstance(node, FUNCTIONS):
        return node
    return method_of(node, "forward")


class Effects:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._graph, self._modes = program.get(ModuleCalls), program.get(GradModes)
        self._reached: dict[tuple[ast.AST, bool, bool], Sequence[ast.AST]] = {}
        self._known: dict[tuple[ast.AST, Effect], list[ast.AST]] = {}
        self._running: dict[ast.AST, bool] = {}

    def of(self, root: ast.AST, effect: Effect) -> list[ast.AST]:
        key = root, effect
        if key not in self._known:
            self._known[key] = self._of(root, effect)
        return self._known[key]

    def _of(self, root: ast.AST, effect: Effect) -> list[ast.AST]:
        if effect is Effect.RUNS_MODULE or effect is Effect.RECORDS:
            recorded = effect is Effect.RECORDS
            nodes = self.reached(root, inside=False, recorded=recorded)
            runs = [each for each in nodes if isinstance(each, ast.Call) and self._runs_model(each)]
            return [each for each in runs if not (recorded and self._may_be_quiet_itself(each))]
        has = {
            Effect.TRAINS: self._trains,
            Effect.DIFFERENTIATES: self._differentiates,
            Effect.ELSEWHERE: self._is_elsewhere,
            Effect.UNSEEN: self._is_unseen,
        }
        return list(filter(has[effect], self.reached(root)))

    def runs_model(self, root: ast.AST) -> bool:
        """Does running `root` run any module? The first that is reached tells."""
        if root not in self._running:
            nodes = self._reach(root, inside=False, recorded=False)
            self._running[root] = any(isinstance(each, ast.Call) and self._runs_model(each) for each in nodes)
        return self._running[root]

    def records(self, function: Function) -> bool:
        recorded = self.of(function, Effect.RECORDS)
        return bool(recorded) and recorded == self.of(function, Effect.RUNS_MODULE)

    def reached(self, root: ast.AST, *, inside: bool = True, recorded: bool = False) -> Sequence[ast.AST]:
        """What running `root` may run, in functions too, and with `inside` in modules.

        With `recorded`, only where gradients are, as far as is known, recorded.
        """
        key = root, inside, recorded
        if key not in self._reached:
            self._reached[key] = list(self._reach(root, inside, recorded))
        return self._reached[key]

    def _reach(self, root: ast.AST, inside: bool, recorded: bool) -> Iterator[ast.AST]:
        pending, seen = [root], {root}
        for each in pending:
            calls = list[ast.Call]()  # followed at last, for those who look for the first node of a kind
            for node in own_nodes(each):
                if isinstance(node, ast.Call):
                    if recorded and self._is_quiet(node):
                        continue
                    calls.append(node)
                yield node
            for call in calls:
                if inside or not (runs_module(self._program, call) and _gives_results(self._program, call)):
                    new = [callee for callee in self._graph.callees(call) if callee not in seen]
                    pending += new
                    seen.update(new)

    def functions(self, root: ast.AST) -> list[Function]:
        """The functions whose code running `root` may run: its own, or the one around it, first."""
        found = dict.fromkeys(self._program.function_of(each) for each in self.reached(root))
        return [each for each in found if each is not None]

    def _is_quiet(self, node: ast.AST) -> bool:
        return self._modes.of(node, callers=False) is not GradMode.ON

    def _runs_model(self, node: ast.Call) -> bool:
        is_run = runs_module(self._program, node) and _gives_results(self._program, node)
        return is_run and not is_loss(self._program, node.func)

    def _may_be_quiet_itself(self, node: ast.Call) -> bool:
        """Is it an unanalysed method, which may switch gradients off as `model.generate` does, or one that does?"""
        callee = self._program.value(node.func)
        forward = _body_of(callee.node) if callee.kind is Kind.MODULE else None
        callees = self._graph.callees(node) or ([forward] if forward is not None else [])
        if not callees:
            return callee.kind is Kind.METHOD and not self._program.records_elsewhere(self._graph.targets(node))
        return any(self._modes.of(each, callers=False) is not GradMode.ON for each in map(_end_of, callees))

    def _trains(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        return trains(self._program, node) or any(each.trains for each in self._program.summaries(node))

    def _differentiates(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return asks_for_gradients(node)
        if differentiates(self._program, node) or any(each.trains for each in self._program.summaries(node)):
            return True
        if self._graph.callees(node):
            return self._of_overriding(node) is Likelihood.CERTAIN
        return self._may_elsewhere(node)

    def _of_overriding(self, node: ast.Call) -> Likelihood | None:
        is_own = isinstance(node.func, ast.Attribute) and path_of(node.func.value) == "self"
        return self._program.differentiates_elsewhere([*overridden(self._program, node)]) if is_own else None

    def _may_elsewhere(self, node: ast.Call) -> bool:
        """May a call into other files differentiate, by its summary, its name, or an optimizer given?"""
        program = self._program
        name = program.qualified(node.func)
        if name.startswith(KNOWN) and not name.startswith("torch.utils."):
            return False
        if any(_may_be_optimizer(program, each) for each in arguments_of(node)):
            return True
        known = program.differentiates_elsewhere(self._graph.targets(node))
        last = path_of(node.func).rpartition(".")[2] or getattr(node.func, "attr", "")
        return known is Likelihood.CERTAIN if known is not None else _NAMED.search(last) is not None

    def _is_elsewhere(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or not runs_module(self._program, node) or self._graph.callees(node):
            return False
        return any(not each.startswith(KNOWN) for each in self._graph.targets(node))

    def _is_replaced(self, func: ast.expr) -> bool:
        is_held = isinstance(func, ast.Attribute) and self._is_module(func) and path_of(func.value) == "self"
        return is_held and isinstance(func, ast.Attribute) and not self._program.get(Attributes).is_own(func)

    def _is_module(self, node: ast.expr) -> bool:
        return self._program.value(node).kind is Kind.MODULE

    def _is_unseen(self, node: ast.AST) -> bool:
        """Does it run a module, or a part of one, that neither torch nor this file alone defines?"""
        if not isinstance(node, ast.Call):
            return False
        if self._is_replaced(node.func):
            return True
        if callees := self._graph.callees(node):
            return bool(self._of_overriding(node)) or all(map(is_abstract, callees))
        callee = self._program.value(node.func)
        owner = callee.owner if callee.kind is Kind.METHOD and callee.owner is not None else callee
        is_open = callee.kind is Kind.UNKNOWN and not isinstance(node.func, ast.Name)
        is_open |= owner.kind is Kind.INSTANCE and isinstance(owner.node, ast.ClassDef)  # of a base elsewhere
        gives = callee.kind in (Kind.UNKNOWN, Kind.LIBRARY) and any(map(self._is_module, node.args))
        if owner.name.startswith(KNOWN) or not (is_open or gives or runs_module(self._program, node)):
            return False
        return self._program.differentiates_elsewhere(self._graph.targets(node)) is not Likelihood.NO


def properties(program: Program, nodes: list[ast.AST]) -> list[Function]:
    """The properties of this file that `nodes` may read."""
    read = {each.attr for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load)}
    named = (each for each in program.of_type(ast.FunctionDef) if each.decorator_list and each.name in read)
    return [each for each in named if any(_is_property(program, wrapper) for wrapper in each.decorator_list)]


def _is_property(program: Program, decorator: ast.expr) -> bool:
    return not isinstance(decorator, ast.Call) and "property" in (program.qualified(decorator) or path_of(decorator))


_WRAPPERS = re.compile(
    r"(builtins\.)?(staticmethod|classmethod|property)$|\w+\.(setter|getter)$|(torch|typing|typing_extensions|abc)\."
)


def own_wrappers(program: Program, function: Function) -> list[ast.expr]:
    """The decorators that are none of Python's or torch's, and may do anything."""
    decorators: list[ast.expr] = getattr(function, "decorator_list", [])
    names = ((each, each.func if isinstance(each, ast.Call) else each) for each in decorators)
    return [each for each, name in names if not _WRAPPERS.match(program.qualified(name) or path_of(name))]

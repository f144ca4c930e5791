"""Finds in a step of training what a CUDA graph of the whole step would not hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from perflint import torch_ops
from perflint.analysis.autograd.effects import ModuleCalls, runs_backward, steps_optimizer
from perflint.analysis.call_graph import handlers
from perflint.analysis.ir.flow import Flow
from perflint.analysis.links import Heat
from perflint.analysis.memory.roles import FILLS, TAKES, scaler_of
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.scopes import keyword_of
from perflint.syntax.walk import FUNCTIONS, LOOPS, last_name, own_nodes, path_of, receiver_of
from perflint.transforms.aliases import is_own
from perflint.transforms.capture.calls import argument_names
from perflint.transforms.capture.obstacles import Obstacles
from perflint.transforms.host_code import is_output
from perflint.transforms.rewrite import Blocked, shown

_OWN_PARTS = frozenset(  # what a module, or an optimizer, gives of itself
    f"{each}{what}" for each in ("", "named_") for what in ("parameters", "buffers", "modules", "children")
)
_TRAINING = frozenset(  # functions that leave nothing behind but on the device
    "torch.nn.utils.clip_grad_norm_ torch.nn.utils.clip_grad_value_ torch.autograd.grad torch.autograd.backward"
    " torch.nn.parallel.data_parallel torch.nn.utils.parameters_to_vector".split()
)
_ON_HOST = frozenset({"LBFGS", "SparseAdam"})
_LOSS = re.compile("loss|criteri", re.IGNORECASE)
_MODEL = re.compile("(model|net|network)$", re.IGNORECASE)
_NOT_FILLED = (Kind.TENSOR, Kind.MODULE, Kind.OPTIMIZER, Kind.LIBRARY, Kind.LOADER, Kind.FUNCTION, Kind.CLASS)
DISTRIBUTION = "distribution"  # the class of torch's
_DRAWS = frozenset("sample rsample log_prob entropy mode mean cdf icdf perplexity".split())
_WALKED = (Kind.SEQUENCE, Kind.TENSOR, Kind.MAPPING, Kind.MODULE, Kind.STRING)
_KNOWN = frozenset({"torch", "builtins", "math", "numpy", "random", "typing", "logging", "time"})  # more is known
_BY_HAND = "decorate the step by hand, with `graphed_step` of perflint.runtime.graphs"


@dataclass
class StepObstacles(Obstacles):
    """Raises Blocked at what prevents replaying a step with its backward pass and optimizers.

    In-place writes may be to memory of others, as a replay writes there too. `opaque` are expressions evaluated before
    the step; `unplaced` indices made on the host, each with its tensor. What doesn't `train` is differentiated by
    others, leaves their tensors alone, and runs no foreign model that may do more than compute. Where nothing `steps`,
    optimizers work outside: a graph belongs to what the step names of them, also learning rates.
    """

    trains: bool = True
    steps: bool = True
    opaque: set[ast.AST] = field(default_factory=set)
    unplaced: dict[ast.Call, ast.expr] = field(default_factory=dict)

    def check(self, parts: Iterable[ast.AST], region: ast.AST) -> None:
        for part in parts:
            for node in own_nodes(part):
                if node not in self.opaque:
                    self._node(node, region)

    def _node(self, node: ast.AST, region: ast.AST) -> None:
        if isinstance(node, ast.Delete | ast.Import | ast.ImportFrom | ast.While):
            does = {ast.Delete: "deletes", ast.While: "loops by a test"}
            raise Blocked(
                f"it {does.get(type(node), 'imports')}, which a replay would not do: do that outside of the step", node
            )
        if isinstance(node, ast.For | ast.comprehension):
            self._walked(node.iter, region)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            self._held(node, region)
        super()._node(node, region)

    def _held(self, node: ast.Name | ast.Attribute, region: ast.AST) -> None:
        last = node.id if isinstance(node, ast.Name) else node.attr
        if last not in self.program.get(_filled) or self.program.value(node).kind in _NOT_FILLED:
            return
        call = self.program.parent(self.program.parent(node) or node)
        if call is not None and scaler_of(call) is node:
            return  # what updates it changes tensors, in place
        around = region if isinstance(region, FUNCTIONS) else None
        if isinstance(node, ast.Name):
            graph = self.program.get(Flow).graph(node)
            if around is not None and graph.reaching(node):
                return  # its own, or what it is given
            if around is None and any(graph.is_within(each, region) for each in graph.reaching(node)):
                return
        raise Blocked(f"{shown(self.program, node)} is filled on the host: give the step a tensor instead", node)

    def _walked(self, node: ast.expr, region: ast.AST) -> None:
        value = self.program.value(node)
        if value.kind is Kind.LOADER:
            raise Blocked("it walks a loader: the batches have to be there before the step", node)
        is_part = isinstance(node, ast.Call) and (self._is_part(node) or value.kind in _WALKED)
        if is_part or (isinstance(node, ast.Name) and node.id in argument_names(region)):
            return
        name = self.program.qualified(node.func) if isinstance(node, ast.Call) else ""
        if value.kind not in _WALKED and name not in {f"builtins.{each}" for each in ("range", "zip", "enumerate")}:
            raise Blocked(f"what {shown(self.program, node)} yields isn't known: fetch it before the step", node)

    def _is_part(self, node: ast.Call) -> bool:
        func = node.func
        return isinstance(func, ast.Attribute) and func.attr in _OWN_PARTS and not (node.args or node.keywords)

    def _call(self, node: ast.Call, region: ast.AST) -> None:
        program, func = self.program, node.func
        value, name = program.value(func), program.qualified(func)
        is_trained = runs_backward(program, node) or steps_optimizer(program, node)
        if is_trained and not self.trains:
            raise Blocked("it trains, which a graph that others differentiate can't do: do that behind it", node)
        if runs_backward(program, node):
            self._backward(node)
        elif name in _TRAINING and self.trains:
            if keyword_of(node, "error_if_nonfinite") is not None:
                raise Blocked(f"{shown(program, func)} reads on the host whether to fail: leave that out", node)
        elif isinstance(func, ast.Attribute) and self.trains and self._is_training(node, func):
            pass
        elif name.startswith("torch.distributions."):
            checks = keyword_of(node, "validate_args")
            if (checks is None or program.value(checks).literal is not False) and any(handlers(program, node)):
                # the device would check its arguments, and the host raise in one of the next calls
                raise Blocked(f"an error of {shown(program, func)} is handled: pass `validate_args=False`", node)
        elif value.owner and value.owner.name == DISTRIBUTION:
            if not isinstance(func, ast.Attribute) or func.attr not in _DRAWS:
                raise Blocked(f"whether a graph can hold {shown(program, func)} isn't known", node)
        elif value.kind is Kind.MODULE and (bodies := program.get(ModuleCalls).callees(node)):
            for body in bodies:
                if not isinstance(body, ast.FunctionDef):
                    raise Blocked(f"what {shown(program, func)} runs isn't known", node)
                self.check_function(body)
        elif self.trains and is_model(program, func):
            pass  # of another file: what it keeps of a call, its run shows
        elif isinstance(func, ast.Attribute) and self.trains and self._is_of_model(node, func):
            pass  # so is that
        elif isinstance(func, ast.Attribute) and func.attr in ("requires_grad_", "detach_"):
            if not is_own(program, region, func.value):
                raise Blocked(
                    f"{shown(program, func.value)} is changed, which a replay would not do: do that behind the step",
                    node,
                )
        elif (indexed := self._indexed(node)) is not None:
            self.unplaced[node] = indexed
        elif is_output(program, node):
            raise Blocked(f"{shown(program, func)} puts out what a replay would not: do that behind the step", node)
        elif self.trains and self._is_criterion(node, value):
            pass  # so is that
        elif value.kind is Kind.LIBRARY and not (name.partition(".")[0] in _KNOWN or program.computes_elsewhere(name)):
            raise Blocked(
                f"what {shown(program, func)} does isn't known: call it in front of the step, or {_BY_HAND}", node
            )
        else:
            super()._call(node, region)

    def _backward(self, node: ast.Call) -> None:
        func, name = node.func, self.program.qualified(node.func)
        of_tensor = isinstance(func, ast.Attribute) and (
            self.program.value(func.value).kind is Kind.TENSOR or scaler_of(func.value, "scale") is not None
        )
        if not (of_tensor or name == "torch.autograd.backward"):
            raise Blocked(f"what {shown(self.program, func)} does besides isn't known: call it on the loss", node)

    def _is_training(self, node: ast.Call, func: ast.Attribute) -> bool:
        """Is it a method of a module or optimizer that a graph holds? Raises Blocked where it never does."""
        owner = self.program.value(func.value)
        if owner.kind is Kind.OPTIMIZER and not self.steps:
            raise Blocked("the optimizer works outside of the graph", node)
        if func.attr == "zero_grad":
            return owner.kind in (Kind.OPTIMIZER, Kind.MODULE)
        if func.attr == "step" and owner.kind is Kind.OPTIMIZER:
            last = owner.name.rpartition(".")[2]
            if last in _ON_HOST or node.args or node.keywords:
                what = f"`{last}`" if last in _ON_HOST else "a closure"
                raise Blocked(f"{what} decides on the host how to step: use another optimizer", node)
            own = self.program.callee(node)
            if isinstance(own, ast.FunctionDef):
                self.check_function(own)
            return True
        if scaler_of(node) is not None:
            if func.attr == "scale" and not self.steps:
                return self.program.callee(node) is None
            raise Blocked(
                "a GradScaler decides on the host whether to step: autocast to bfloat16, which needs none", node
            )
        is_own = owner.kind is Kind.MODULE or owner.is_blank or owner.kind is Kind.METHOD  # of another file's module
        is_part = func.attr in _OWN_PARTS and is_own
        return is_part or (func.attr in ("values", "items", "keys") and owner.kind is Kind.MODULE and not node.args)

    def _is_of_model(self, node: ast.Call, func: ast.Attribute) -> bool:
        is_used = not isinstance(self.program.parent(node), ast.Expr)
        of_tensor = torch_ops.of_method(func.attr) is not None
        return is_used and not of_tensor and self.program.callee(node) is None and is_model(self.program, func.value)

    def _is_criterion(self, node: ast.Call, value: Value) -> bool:
        is_known = value.kind is not Kind.UNKNOWN and not value.is_blank
        is_used = not isinstance(self.program.parent(node), ast.Expr)
        return is_used and not is_known and bool(_LOSS.search(last_name(node))) and self.program.callee(node) is None

    def _indexed(self, node: ast.Call) -> ast.expr | None:
        entry = torch_ops.of_function(self.program.qualified(node.func))
        if entry is None or not entry.does("factory") or entry.does("of_data") or entry.does("random"):
            return None
        around = self.program.parent(node)
        index = self.program.parent(around) if isinstance(around, ast.Tuple) else around
        is_index = isinstance(index, ast.Subscript) and index.slice in (node, around)
        if not isinstance(index, ast.Subscript) or not is_index or keyword_of(node, "device") is not None:
            return None
        return index.value if path_of(index.value) and self.program.value(index.value).kind is Kind.TENSOR else None

    def _object(self, node: ast.Attribute | ast.Subscript, region: ast.AST) -> None:
        """What is no tensor is taken apart, or told from others, when the step is called."""

    def _written(self, node: ast.AST, base: ast.expr, region: ast.AST) -> None:
        if not self.trains:
            super()._written(node, base, region)
        elif self.program.value(base).kind is not Kind.TENSOR and not is_own(self.program, region, base):
            raise Blocked(
                f"{shown(self.program, base)} is changed, which a replay would not do: do that behind the step", node
            )


def _filled(program: Program) -> frozenset[str]:
    stored = (each for each in program.of_type(ast.Subscript) if not isinstance(each.ctx, ast.Load))
    found = [each.value for each in stored if not _is_set_up(program, each)]
    for call in program.of_type(ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in FILLS | TAKES:
            found.append(func.value)
        if isinstance(func, ast.Attribute) and func.attr in ("shuffle", "fill"):
            found += [func.value, *call.args[:1]]
    paths = (path_of(each) for each in found if program.value(each).kind not in _NOT_FILLED)
    return frozenset(each.rpartition(".")[2] for each in paths) - {""}


def _is_set_up(program: Program, item: ast.Subscript) -> bool:
    loops = (each for each in program.ancestors(item) if isinstance(each, LOOPS))
    return isinstance(program.value(item.slice).literal, str) and program.heat(item) is Heat.ONCE and not any(loops)


def is_model(program: Program, func: ast.expr) -> bool:
    value = program.value(func)
    if value.kind is Kind.MODULE:
        return not value.name.startswith("torch.")
    is_named = value.is_blank and bool(_MODEL.search(path_of(func)))
    return is_named or (value.kind in (Kind.UNKNOWN, Kind.TENSOR) and path_of(func) in program.get(_models))


def _models(program: Program) -> frozenset[str]:
    funcs = (each.func for each in program.of_type(ast.Call) if not each.args and not each.keywords)
    used = (each for each in funcs if isinstance(each, ast.Attribute) and each.attr in ("parameters", "train", "eval"))
    moved = (each for each in program.of_type(ast.Assign) if receiver_of(each.value, "to", "cuda") is not None)
    called = {path_of(each.func) for each in program.of_type(ast.Call)}
    paths = {path_of(target) for each in moved for target in each.targets} & called
    return (frozenset(path_of(each.value) for each in used) | paths) - {""}


def leaves(statement: ast.stmt) -> Iterator[ast.AST]:
    pending: list[tuple[ast.AST, bool]] = [(statement, False)]
    while pending:
        node, in_loop = pending.pop()
        is_exit = isinstance(node, ast.Break | ast.Continue) and not in_loop
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Await) or is_exit:
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            inside = in_loop or isinstance(node, LOOPS)
            pending += [(each, inside) for each in ast.iter_child_nodes(node)]

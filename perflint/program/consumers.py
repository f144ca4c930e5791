"""Follows a tensor to everything that reads it: through names, views, branches and the functions of the file."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from perflint.program import torch_table
from perflint.program.bindings import Bindings
from perflint.program.values import Kind
from perflint.program.walk import Function

if TYPE_CHECKING:
    from perflint.program import Program


class Role(Enum):
    """What a consumer does with the tensor. None of these writes to it or needs it contiguous."""

    ELEMENTWISE = "elementwise"  # operands broadcast
    READ = "read"  # concatenation, indexing, gather
    MATMUL = "matmul"
    REDUCTION = "reduction"


@dataclass(frozen=True)
class Consumer:
    """An expression or statement that reads the tensor as its `operand`.

    `in_place`: it writes its result into another tensor, whose shape and layout therefore hold.
    """

    node: ast.AST
    operand: ast.expr
    role: Role
    in_place: bool = False


@dataclass(frozen=True)
class Reading:
    """All that happens to a tensor; `measured`: its shape is asked for; `converted`: moved, or cast, on the way."""

    consumers: tuple[Consumer, ...]
    measured: bool
    converted: bool


VIEWS = frozenset(
    "unsqueeze squeeze transpose permute t swapaxes swapdims movedim moveaxis narrow select expand expand_as detach "
    "diagonal".split()
)
CONVERSIONS = frozenset("to cuda float double half bfloat16 long int bool byte type type_as".split())
CONCATENATIONS = frozenset(
    f"torch.{name}" for name in "cat concat concatenate stack hstack vstack dstack column_stack".split()
)
_VIEW_ATTRIBUTES = frozenset({"T", "mT", "data"})
_MEASURES = frozenset("shape dtype device ndim is_cuda size dim numel nelement ndimension get_device".split())
_MATMULS = frozenset("matmul bmm mm baddbmm".split())
_READERS = frozenset(
    "gather take_along_dim masked_select index_select scatter scatter_add scatter_reduce index_add "
    "repeat tile repeat_interleave".split()
)
_WRITING_READERS = frozenset(
    f"{name}_" for name in "scatter scatter_add scatter_reduce index_add index_copy copy masked_scatter".split()
)
_DISTANCES = frozenset(
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "cosine_similarity pairwise_distance".split()
)
_DISTANCE_MODULES = frozenset(
    "MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss CosineSimilarity PairwiseDistance".split()
)
_ONLY_LOOK = frozenset({"builtins.len", "builtins.isinstance", "builtins.print", "builtins.type", "builtins.id"})
_COPIES = frozenset({"clone"})  # pointwise in the table, and the end of every saving
_WRAPPERS = frozenset({"torch.autograd.Variable", "torch.autograd.variable.Variable"})
_DEPTH = 4


class _OutOfSight(Exception):
    """Something happens to the tensor of which too little is known."""


class Flow:
    """Where values go, and where names come from, in one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._bindings: dict[ast.AST, Bindings] = {}

    def bindings(self, node: ast.AST) -> Bindings:
        """The reaching definitions of the scope around `node`."""
        return self.bindings_of(self.program.function_of(node) or self.program.tree)

    def bindings_of(self, scope: Function | ast.Module) -> Bindings:
        """The reaching definitions in `scope`."""
        if scope not in self._bindings:
            self._bindings[scope] = Bindings(scope)
        return self._bindings[scope]

    def definitions(self, name: ast.Name) -> frozenset[ast.AST]:
        """The ast.Name or ast.arg nodes whose values `name` may have here; empty for names from further out."""
        return self.bindings(name).definitions.get(name, frozenset())

    def reading(self, node: ast.expr) -> Reading | None:
        """What happens to the value of `node`; None where that is not all in sight, or the tensor is written to."""
        follower = _Follower(self)
        try:
            follower.follow(node, ())
        except _OutOfSight:
            return None
        return Reading(tuple(follower.consumers), follower.measured, follower.converted)


class _Follower:
    def __init__(self, flow: Flow) -> None:
        self.flow, self.program = flow, flow.program
        self.consumers: list[Consumer] = []
        self.measured = self.converted = False
        self._seen: set[tuple[ast.AST, tuple[ast.Call, ...]]] = set()

    def follow(self, node: ast.expr, calls: tuple[ast.Call, ...]) -> None:
        """Find the consumers of the value of `node`; `calls` led into the function that it stands in."""
        if (node, calls) in self._seen:
            return
        self._seen.add((node, calls))
        parent = self.program.parent(node)
        if isinstance(parent, ast.Attribute):
            self._attribute(parent, calls)
        elif isinstance(parent, ast.Call):
            self._argument(parent, node, calls)
        elif isinstance(parent, ast.keyword):
            call = self.program.parent(parent)
            assert isinstance(call, ast.Call | ast.ClassDef)
            if isinstance(call, ast.ClassDef):
                raise _OutOfSight
            self._argument(call, node, calls, parent.arg or "**")
        elif isinstance(parent, ast.Subscript):
            self._subscript(parent, node, calls)
        elif isinstance(parent, ast.BinOp):
            self._operand(parent, node)
        elif isinstance(parent, ast.UnaryOp) and not isinstance(parent.op, ast.Not):
            self._consume(parent, node, Role.ELEMENTWISE)
        elif isinstance(parent, ast.Compare):
            if not all(isinstance(op, ast.Is | ast.IsNot) for op in parent.ops):
                if any(isinstance(op, ast.In | ast.NotIn) for op in parent.ops) or len(parent.ops) > 1:
                    raise _OutOfSight
                self._consume(parent, node, Role.ELEMENTWISE)
        elif isinstance(parent, ast.Tuple | ast.List):
            self._element(parent, node, calls)
        elif isinstance(parent, ast.IfExp) and node is not parent.test:
            self.follow(parent, calls)
        else:
            self._statement(parent, node, calls)

    def _statement(self, parent: ast.AST | None, node: ast.expr, calls: tuple[ast.Call, ...]) -> None:
        if isinstance(parent, ast.Assign):
            for target in parent.targets:
                self._assigned(target, node, calls)
        elif isinstance(parent, ast.AnnAssign):
            self._assigned(parent.target, node, calls)
        elif isinstance(parent, ast.NamedExpr):
            self._assigned(parent.target, node, calls)
            self.follow(parent, calls)
        elif isinstance(parent, ast.AugAssign) and node is parent.value:
            if self.program.value(parent.target).kind is not Kind.TENSOR or isinstance(parent.op, ast.MatMult):
                raise _OutOfSight
            self._consume(parent, node, Role.ELEMENTWISE, in_place=True)
        elif isinstance(parent, ast.Return) and calls:
            self.follow(calls[-1], calls[:-1])
        elif not isinstance(parent, ast.Expr):
            raise _OutOfSight

    def _assigned(self, target: ast.expr, value: ast.expr, calls: tuple[ast.Call, ...]) -> None:
        if isinstance(target, ast.Name):
            bindings = self.flow.bindings(target)
            if target.id in bindings.foreign:
                raise _OutOfSight
            self._uses(bindings.uses.get(target, []), calls)
            self._uses(bindings.captured.get(target.id, []), ())
        elif isinstance(target, ast.Subscript) and self.program.value(target.value).kind is Kind.TENSOR:
            self._consume(target, value, Role.ELEMENTWISE, in_place=True)
        else:
            raise _OutOfSight

    def _uses(self, uses: list[ast.Name], calls: tuple[ast.Call, ...]) -> None:
        for use in uses:
            if not isinstance(use.ctx, ast.Load):
                raise _OutOfSight  # the target of an augmented assignment
            self.follow(use, calls)

    def _element(self, parent: ast.Tuple | ast.List, node: ast.expr, calls: tuple[ast.Call, ...]) -> None:
        around = self.program.parent(parent)
        if isinstance(around, ast.Subscript) and parent is around.slice:
            self._subscript(around, node, calls)
        elif (
            isinstance(around, ast.Call)
            and around.args[:1] == [parent]
            and self.program.qualified(around.func) in CONCATENATIONS
        ):
            self._library(around, node, calls, "")
        elif isinstance(around, ast.Assign):
            for target in around.targets:
                if not isinstance(target, ast.Tuple) or len(target.elts) != len(parent.elts):
                    raise _OutOfSight
                self._assigned(target.elts[parent.elts.index(node)], node, calls)
        else:
            raise _OutOfSight

    def _attribute(self, parent: ast.Attribute, calls: tuple[ast.Call, ...]) -> None:
        call = self.program.parent(parent)
        name = parent.attr
        if not isinstance(parent.ctx, ast.Load):
            raise _OutOfSight
        if name in _MEASURES:
            self.measured |= name in ("shape", "size", "numel", "nelement")
        elif not isinstance(call, ast.Call) or call.func is not parent:
            if name not in _VIEW_ATTRIBUTES:
                raise _OutOfSight
            self.follow(parent, calls)
        elif name in VIEWS:
            self.follow(call, calls)
        elif name in CONVERSIONS:
            self.converted = True
            self.follow(call, calls)
        else:
            self._consume(call, parent.value, self._method_role(name, receiver=True))

    def _method_role(self, name: str, *, receiver: bool) -> Role:
        entry = torch_table.method(name)
        if entry is None or name in _COPIES or (receiver and (name.endswith("_") or "inplace" in entry.traits)):
            raise _OutOfSight
        if name in _MATMULS:
            return Role.MATMUL
        if name in _READERS or (not receiver and name in _WRITING_READERS):
            return Role.READ
        if "pointwise" in entry.traits:
            return Role.ELEMENTWISE
        if "reduction" in entry.traits and receiver:
            return Role.REDUCTION
        raise _OutOfSight

    def _subscript(self, parent: ast.Subscript, node: ast.expr, calls: tuple[ast.Call, ...]) -> None:
        if node is not parent.value:  # an index
            kind = self.program.value(parent.value).kind
            several = kind is Kind.UNKNOWN and isinstance(parent.slice, ast.Tuple)
            if (kind is not Kind.TENSOR and not several) or isinstance(parent.ctx, ast.Del):
                raise _OutOfSight
            self._consume(parent, node, Role.READ)
        elif not isinstance(parent.ctx, ast.Load):
            raise _OutOfSight
        elif any(self.program.value(index).kind is Kind.TENSOR for index in _indices(parent.slice)):
            self._consume(parent, node, Role.READ)
        else:
            self.follow(parent, calls)

    def _operand(self, parent: ast.BinOp, node: ast.expr) -> None:
        self._consume(parent, node, Role.MATMUL if isinstance(parent.op, ast.MatMult) else Role.ELEMENTWISE)

    def _argument(self, call: ast.Call, node: ast.expr, calls: tuple[ast.Call, ...], keyword: str = "") -> None:
        if node is call.func or keyword in ("**", "out"):
            raise _OutOfSight
        callee = self.program.callee(call)
        if callee is not None:
            self._into(callee, call, node, calls, keyword)
            return
        value = self.program.value(call.func)
        if value.kind is Kind.LIBRARY:
            self._library(call, node, calls, keyword)
        elif isinstance(call.func, ast.Attribute) and self._is_tensor_method(call.func):
            name = call.func.attr
            if name in ("view_as", "expand_as", "reshape_as", "type_as", "to"):
                self.measured = True
                return
            self._consume(call, node, self._method_role(name, receiver=False), in_place=name.endswith("_"))
        elif value.kind is Kind.MODULE and value.name.rpartition(".")[2] in _DISTANCE_MODULES and value.node is None:
            self._consume(call, node, Role.REDUCTION)
        else:
            raise _OutOfSight

    def _is_tensor_method(self, function: ast.Attribute) -> bool:
        kind = self.program.value(function.value).kind
        unmistakable = function.attr.startswith(("masked_", "scatter", "gather", "bmm", "matmul", "index_"))
        return kind is Kind.TENSOR or (kind is Kind.UNKNOWN and unmistakable)

    def _library(self, call: ast.Call, node: ast.expr, calls: tuple[ast.Call, ...], keyword: str) -> None:
        name = self.program.qualified(call.func)
        short = name.rpartition(".")[2]
        entry = torch_table.function(name)
        if name in CONCATENATIONS:
            self._consume(call, node, Role.READ)
        elif name in _WRAPPERS:
            self.follow(call, calls)
        elif name in _ONLY_LOOK:
            return
        elif entry is None or short in _COPIES or any(k.arg in ("out", "inplace") for k in call.keywords):
            raise _OutOfSight
        elif short in VIEWS:
            if node is not call.args[0]:
                raise _OutOfSight
            self.follow(call, calls)
        elif short in _MATMULS:
            self._consume(call, node, Role.MATMUL)
        elif short == "scaled_dot_product_attention" and (keyword == "attn_mask" or call.args[3:4] == [node]):
            self._consume(call, node, Role.READ)
        elif "inplace" in entry.traits:
            if node is call.args[0]:
                raise _OutOfSight
            self._consume(call, node, Role.ELEMENTWISE, in_place=True)
        elif "pointwise" in entry.traits or (name == "torch.where" and len(call.args) > 1):
            self._consume(call, node, Role.ELEMENTWISE)
        elif short in _READERS:
            self._consume(call, node, Role.READ)
        elif "reduction" in entry.traits or short in _DISTANCES:
            self._consume(call, node, Role.REDUCTION)
        elif "like" not in entry.traits:
            raise _OutOfSight

    def _into(
        self, callee: Function, call: ast.Call, node: ast.expr, calls: tuple[ast.Call, ...], keyword: str
    ) -> None:
        """Go on with the parameter that receives the tensor."""
        parameter = self.parameter(callee, call, node, keyword)
        if parameter is None or len(calls) >= _DEPTH or call in calls:
            raise _OutOfSight
        bindings = self.flow.bindings_of(callee)
        if parameter.arg in bindings.foreign or isinstance(callee, ast.Lambda):
            raise _OutOfSight
        self._uses(bindings.uses.get(parameter, []), (*calls, call))
        self._uses(bindings.captured.get(parameter.arg, []), ())

    def parameter(self, callee: Function, call: ast.Call, node: ast.expr, keyword: str) -> ast.arg | None:
        """The parameter of `callee` that receives the argument `node`."""
        arguments = callee.args
        if keyword:
            return next((each for each in (*arguments.args, *arguments.kwonlyargs) if each.arg == keyword), None)
        position = call.args.index(node)
        if any(isinstance(argument, ast.Starred) for argument in call.args[:position]):
            return None
        return next((each for each, argument in bound(self.program, callee, call) if argument is node), None)

    def _consume(self, node: ast.AST, operand: ast.expr, role: Role, *, in_place: bool = False) -> None:
        self.consumers.append(Consumer(node, operand, role, in_place))


def bound(program: Program, callee: Function, call: ast.Call) -> list[tuple[ast.arg, ast.expr]]:
    """The parameters of `callee` with the arguments that `call` gives them in plain sight."""
    parameters = [*callee.args.posonlyargs, *callee.args.args]
    static = any(getattr(each, "id", "") == "staticmethod" for each in getattr(callee, "decorator_list", ()))
    if program.class_of(callee) is not None and not static:
        parameters = parameters[1:]
    pairs = list(zip(parameters, call.args, strict=False))
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    return pairs + [
        (each, keywords[each.arg]) for each in (*parameters, *callee.args.kwonlyargs) if each.arg in keywords
    ]


def _indices(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


__all__ = ["CONCATENATIONS", "CONVERSIONS", "VIEWS", "Consumer", "Flow", "Reading", "Role", "bound"]

"""What an operation does with a tensor that it is given."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum

from perflint import torch_ops


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
    """All that happens to a tensor; `measured`: its shape is asked for; `converted`: moved, or cast, on the way.

    `shown`: code in other files may get hold of it, too; `unfinished`: as an attribute.
    """

    consumers: tuple[Consumer, ...]
    measured: bool
    converted: bool
    shown: bool
    unfinished: bool = False


class OutOfSight(Exception):
    """Something happens to the tensor of which too little is known."""


DISTANCE_MODULES = frozenset(
    "MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss KLDivLoss CosineSimilarity PairwiseDistance "
    "MarginRankingLoss GaussianNLLLoss PoissonNLLLoss".split()
)
ELEMENTWISE_MODULES = frozenset("Tanh Sigmoid GELU Softplus LogSigmoid Softsign".split())  # that write nothing in place
DISTRIBUTIONS = frozenset(
    f"torch.distributions.{module}{name}"
    for name in "Normal LogNormal Laplace Uniform Beta Gamma Bernoulli".split()
    for module in ("", f"{name.lower()}.")
) | {"torch.distributions.log_normal.LogNormal"}
WRAPPERS = frozenset({"torch.autograd.Variable", "torch.autograd.variable.Variable"})
COPIES = frozenset({"clone"})  # pointwise in the table, and the end of every saving


def joins(qualified: str) -> bool:
    """Does torch's function of that name make one tensor of several?"""
    operation = torch_ops.of_function(qualified)
    return operation is not None and operation.does("joining")


def is_view(name: str) -> bool:
    """Does an operation of that name give one view, whatever the layout?"""
    return torch_ops.does(name, "restriding")


def converts(name: str) -> bool:
    """Does a method of that name move the tensor, or cast it?"""
    return torch_ops.does(name, "cast") or torch_ops.does(name, "move")


def _reads(operation: torch_ops.Operation) -> bool:
    return operation.does("indexing") or operation.does("repeating")


def role_of_method(name: str, *, receiver: bool) -> Role:
    """What the tensor's method `name` does with the tensor itself, or with an argument."""
    entry = torch_ops.of_method(name)
    if entry is None or name in COPIES or (receiver and entry.in_place):
        raise OutOfSight
    if entry.does("matmul"):
        return Role.MATMUL
    if _reads(entry) or (not receiver and entry.name == "copy_"):
        return Role.READ
    if "pointwise" in entry.traits:
        return Role.ELEMENTWISE
    if receiver and "reduction" in entry.traits:
        return Role.REDUCTION
    raise OutOfSight


def role_of_function(name: str, call: ast.Call, node: ast.expr, keyword: str) -> tuple[Role, bool] | None:
    """What torch's function `name` does with its argument, and whether it writes into another; None for nothing."""
    short = name.rpartition(".")[2]
    entry = torch_ops.of_function(name)
    if name in DISTRIBUTIONS:
        return Role.READ, False
    if entry is None or short in COPIES or any(each.arg in ("out", "inplace") for each in call.keywords):
        raise OutOfSight
    if entry.does("matmul"):
        return Role.MATMUL, False
    if short == "scaled_dot_product_attention" and (keyword == "attn_mask" or call.args[3:4] == [node]):
        return Role.READ, False
    if entry.in_place:
        if any(node in each.of(call) for each in entry.writes):
            raise OutOfSight
        return Role.ELEMENTWISE, True
    if "pointwise" in entry.traits or (name == "torch.where" and len(call.args) > 1):
        return Role.ELEMENTWISE, False
    if _reads(entry):
        return Role.READ, False
    if "reduction" in entry.traits or entry.does("distance"):
        return Role.REDUCTION, False
    if "like" not in entry.traits:
        raise OutOfSight
    return None

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


VIEWS = frozenset(
    "unsqueeze squeeze transpose permute t swapaxes swapdims movedim moveaxis narrow select expand expand_as detach "
    "diagonal".split()
)
SEVERAL_VIEWS = frozenset("chunk split unbind tensor_split".split())
VIEW_ATTRIBUTES = frozenset({"T", "mT", "data"})
CONVERSIONS = frozenset("to cuda float double half bfloat16 long int bool byte type type_as".split())
CONCATENATIONS = frozenset(
    f"torch.{name}" for name in "cat concat concatenate stack hstack vstack dstack column_stack".split()
)
MATMULS = frozenset("matmul bmm mm baddbmm einsum".split())
READERS = frozenset(
    "gather take_along_dim masked_select index_select scatter scatter_add scatter_reduce index_add "
    "repeat tile repeat_interleave".split()
)
DISTANCES = frozenset(
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div "
    "cosine_similarity pairwise_distance margin_ranking_loss gaussian_nll_loss poisson_nll_loss".split()
)
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
_WRITING_READERS = frozenset(
    f"{name}_" for name in "scatter scatter_add scatter_reduce index_add index_copy copy masked_scatter".split()
)


def role_of_method(name: str, *, receiver: bool) -> Role:
    """What the tensor's method `name` does with the tensor itself, or with an argument."""
    entry = torch_ops.of_method(name)
    if entry is None or name in COPIES or (receiver and entry.in_place):
        raise OutOfSight
    if name in MATMULS:
        return Role.MATMUL
    if name in READERS or (not receiver and name in _WRITING_READERS):
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
    if short in MATMULS:
        return Role.MATMUL, False
    if short == "scaled_dot_product_attention" and (keyword == "attn_mask" or call.args[3:4] == [node]):
        return Role.READ, False
    if entry.in_place:
        if node is call.args[0]:
            raise OutOfSight
        return Role.ELEMENTWISE, True
    if "pointwise" in entry.traits or (name == "torch.where" and len(call.args) > 1):
        return Role.ELEMENTWISE, False
    if short in READERS:
        return Role.READ, False
    if "reduction" in entry.traits or short in DISTANCES:
        return Role.REDUCTION, False
    if "like" not in entry.traits:
        raise OutOfSight
    return None

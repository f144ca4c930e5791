"""Lifts losses: one number a step, each over that step alone, as torch.vmap gives them."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.values.values import Kind
from perflint.transforms.blocked import Blocked
from perflint.transforms.template import call_like, expression
from perflint.transforms.vectorize.modules import module_of
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.steps import MANY, Same, Steps, loosened
from perflint.transforms.vectorize.wrapping import is_scripted

_FUNCTIONS = frozenset(
    f"torch.nn.functional.{name}"
    for name in "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy"
    " binary_cross_entropy_with_logits".split()
)
_CLASSES = frozenset(
    f"torch.nn.{name}"
    for name in "CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss".split()
)
_OF_CLASSES = ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss")


def loss_of(scope: Scope, node: ast.Call) -> str:
    """The qualified name of the loss that is called; empty where it is none that torch.vmap knows."""
    value = scope.program.value(node.func)
    if value.kind is Kind.LIBRARY and value.name in _FUNCTIONS:
        return value.name
    known = value.kind is Kind.MODULE and value.sure and value.name in _CLASSES
    return value.name if known and torch_ops.class_kind(value.name) == "loss" else ""


def lift_loss(scope: Scope, node: ast.Call, loss: str, values: list[Steps | Same]) -> Steps:
    """The loss of each step: what it is averaged over, and what it ignores, is of that step alone; raises Blocked."""
    if not scope.facts.torch:
        raise Blocked("`torch` is not imported by that name", node)
    if is_scripted(scope.program):
        raise Blocked("torch.vmap cannot be scripted", node)
    for keyword in node.keywords:
        if not isinstance(keyword.value, ast.Constant):
            raise Blocked(f"the loss gets `{keyword.arg}`", node)
        if keyword.arg in ("reduce", "size_average"):
            raise Blocked("the loss is not known to be one number a step", node)
    words = {each.arg for each in node.keywords} | {each.arg for each in _built(scope, node)}
    if "label_smoothing" in words:
        raise Blocked("torch.vmap cannot smooth labels", node)
    if loss == "torch.nn.CrossEntropyLoss" and module_of(scope.program, node.func) is None:
        raise Blocked("it is not known how the loss was built", node)
    if len(values) != 2 or not any(isinstance(value, Steps) for value in values):
        raise Blocked("the loss gets more than an output and a target", node)
    steps = [loosened(value) if isinstance(value, Steps) else value for value in values]
    dims = [value.axis if isinstance(value, Steps) else None for value in steps]
    if len(set(dims)) == 1:
        where = "" if dims[0] == 0 else f", in_dims={dims[0]}"
    else:
        where = f", in_dims=({dims[0]}, {dims[1]})"
    call = ast.Call(ast.Name("f"), [value.code for value in steps], node.keywords)
    function = expression(f"{{torch}}.vmap({{f}}{where})", torch=scope.facts.torch, f=scope.code(node.func))
    made = call_like(call, function)
    least, most = _ranks(loss, _reduction(scope, node, loss), values)
    return Steps(made, 0, least, most, own=True)


def _built(scope: Scope, node: ast.Call) -> list[ast.keyword]:
    """The keywords with which the module that is called was built."""
    module = module_of(scope.program, node.func)
    return module.built.keywords if module is not None else []


def _reduction(scope: Scope, node: ast.Call, loss: str) -> str:
    """How the loss makes one number of many, or "none"; empty where that is not known."""
    words = {each.arg: each.value for each in node.keywords}
    if loss not in _FUNCTIONS:
        module = module_of(scope.program, node.func)
        words = {each.arg: each.value for each in _built(scope, node)}
        if module is None or len(module.built.args) > 1 or words.keys() & {"reduce", "size_average"}:
            return ""
    reduction = words.get("reduction", ast.Constant("mean"))
    return str(reduction.value) if isinstance(reduction, ast.Constant) else ""


def _ranks(loss: str, reduction: str, values: list[Steps | Same]) -> tuple[int, int]:
    """How many axes the loss of one step has at least and at most."""
    if reduction in ("mean", "sum"):
        return 0, 0
    ranks = [value.rank for value in values]
    if loss.endswith(_OF_CLASSES):
        ranks = [None if ranks[0] is None else ranks[0] - 1]  # the scores' axis for the classes goes
    known = [rank for rank in ranks if rank is not None]
    return (max(known), max(known)) if reduction == "none" and len(known) == len(ranks) else (0, MANY)

"""The batching rule of losses: one number a step, each over that step alone, as torch.vmap gives them."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.memory.hooks import is_scripted
from perflint.analysis.values.values import Kind
from perflint.transforms.blocked import Blocked
from perflint.transforms.template import call_like, expression
from perflint.transforms.vectorize.modules import Module, module_of
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import MANY, Batched, Invariant

_OF_CLASSES = ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss")
_OLD_REDUCTION = frozenset({"reduce", "size_average"})


def is_loss(scope: Scope, node: ast.Call) -> bool:
    """Is a loss called that torch.vmap knows?"""
    value = scope.program.value(node.func)
    is_class = value.kind is Kind.MODULE and value.sure and torch_ops.class_kind(value.name) == "loss"
    does = torch_ops.of_forward(value.name) if is_class else None
    if value.kind is Kind.LIBRARY and value.name.startswith("torch.nn.functional."):
        does = torch_ops.of_function(value.name)
    return does is not None and does.does("vmapped")


def lift_loss(scope: Scope, node: ast.Call, values: list[Batched | Invariant]) -> Batched:
    """The loss of each step: what it is averaged over, and what it ignores, is of that step alone; raises Blocked."""
    if not scope.facts.torch:
        raise Blocked("`torch` is not imported by that name", node)
    if is_scripted(scope.program):
        raise Blocked("torch.vmap cannot be scripted", node)
    for keyword in node.keywords:
        if not isinstance(keyword.value, ast.Constant):
            raise Blocked(f"the loss gets `{keyword.arg}`", node)
        if keyword.arg in _OLD_REDUCTION:
            raise Blocked("the loss is not known to be one number a step", node)
    module = module_of(scope.program, node.func)
    keywords = [*node.keywords, *(module.built.keywords if module is not None else ())]
    if any(each.arg == "label_smoothing" for each in keywords):
        raise Blocked("torch.vmap cannot smooth labels", node)
    value = scope.program.value(node.func)
    if value.name == "torch.nn.CrossEntropyLoss" and module is None:
        raise Blocked("it is not known how the loss was built", node)
    if len(values) != 2 or not any(isinstance(each, Batched) for each in values):
        raise Blocked("the loss gets more than an output and a target", node)
    steps = [each.loosened() if isinstance(each, Batched) else each for each in values]
    one, other = (each.axis if isinstance(each, Batched) else None for each in steps)
    where = f"({one}, {other})" if one != other else one
    function = expression(
        "{torch}.vmap({f}" + (f", in_dims={where})" if where != 0 else ")"),
        torch=scope.facts.torch,
        f=scope.code(node.func),
    )
    call = ast.Call(ast.Name("f"), [each.code for each in steps], node.keywords)
    reduction = _reduction(keywords, module, is_class=value.kind is Kind.MODULE)
    least, most = _ranks(reduction, values, picks=value.name.endswith(_OF_CLASSES))
    return Batched(call_like(call, function), 0, least, most, own=True)


def _reduction(keywords: list[ast.keyword], module: Module | None, *, is_class: bool) -> str:
    """How the loss makes one number of many, or "none"; empty where that is not known."""
    words = {each.arg: each.value for each in keywords}
    if is_class and (module is None or len(module.built.args) > 1 or words.keys() & _OLD_REDUCTION):
        return ""
    reduction = words.get("reduction", ast.Constant("mean"))
    return str(reduction.value) if isinstance(reduction, ast.Constant) else ""


def _ranks(reduction: str, values: list[Batched | Invariant], *, picks: bool) -> tuple[int, int]:
    """How many axes the loss of one step has at least and at most; `picks`: of scores, those of one class each."""
    if reduction in ("mean", "sum"):
        return 0, 0
    ranks = [value.rank for value in values]
    if picks:
        ranks = [None if ranks[0] is None else ranks[0] - 1]  # the scores' axis for the classes goes
    known = [rank for rank in ranks if rank is not None]
    return (max(known), max(known)) if reduction == "none" and len(known) == len(ranks) else (0, MANY)

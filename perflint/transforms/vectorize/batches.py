"""The batching rules of what treats each item of a batch by itself: all steps are one batch, or torch.vmap does it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from perflint import torch_ops
from perflint.analysis.memory.hooks import is_scripted
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.template import call_like, expression
from perflint.transforms.vectorize.modules import Module, module_of
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import MANY, Batched, Invariant

_SPATIAL = re.compile(r"(Conv|ConvTranspose|MaxPool|AvgPool|AdaptiveAvgPool|AdaptiveMaxPool)([123])d")
_ARGUMENTS = {"MaxPool": 4, "AdaptiveMaxPool": 1}  # of them, a further one may ask for indices, too
_OF_CLASSES = ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss")
_OLD_REDUCTION = frozenset({"reduce", "size_average"})


def is_of_batch(module: Module) -> bool:
    """Does it treat each item of a batch by itself, all axes of an item together?"""
    if module.name == "Flatten":
        return not module.built.args and not module.built.keywords
    return module.name == "GroupNorm" or bool(_SPATIAL.fullmatch(module.name))


def as_batch(scope: Scope, node: ast.Call, parts: list[Module], value: Batched) -> Batched:
    """A module, or one after the other those of an `nn.Sequential`, on all items of all steps; raises Blocked."""
    for position, part in enumerate(parts):
        if not _stands_alone(scope.program, part) or (part.is_in_place and not any(map(_makes, parts[:position]))):
            raise Blocked(f"{shown(scope.program, node.func)} holds modules for which there is no rule", node)
    found = next((_SPATIAL.fullmatch(part.name) for part in parts if is_of_batch(part)), None)
    axes = int(found[2]) if found is not None else None
    if len(parts) > 1 and axes is not None and value.rank == axes + 1:
        raise Blocked(f"{shown(scope.program, node.func)} gets no batch", node)
    steps = folded(scope, node, axes, value, lambda code: scope.code(node, {node.args[0]: code}))
    return steps.with_axes(2 - steps.least, steps.code) if any(part.name == "Flatten" for part in parts) else steps


def folded(
    scope: Scope, node: ast.Call, axes: int | None, value: Batched, written: Callable[[ast.expr], ast.expr]
) -> Batched:
    """A call that works on so many axes at the end of each item, `written` with all items; raises Blocked."""
    scope.draft.changes.add(f"{shown(scope.program, node.func)} holds the results of all steps at once")
    if axes is not None and value.rank == axes + 1:
        front = value.in_front()
        return front.computed(written(front.code))
    if axes is not None and value.least == axes + 2:
        value = value.narrowed(axes + 2, axes + 2)
    if value.rank is None or value.rank < 2 or (axes is not None and value.rank != axes + 2):
        raise Blocked(f"{shown(scope.program, node.func)} is not known to get a batch", node)
    placed = value.in_front() if value.kept or value.axis > 1 else value
    whole = scope.bound(placed.code)
    batch = written(expression("{whole}.flatten(0, 1)", whole=whole))
    return placed.computed(expression("{x}.unflatten(0, {whole}.shape[:2])", x=batch, whole=whole))


def _stands_alone(program: Program, module: Module) -> bool:
    """Does each item give the same whatever other items there are?"""
    most = _ARGUMENTS.get(module.name[:-2], MANY)
    if len(module.built.args) > most or any(each.arg == "return_indices" for each in module.built.keywords):
        return False
    return is_of_batch(module) or module.is_pointwise or module.is_dropout or module.reads_last_axis(program)


def _makes(module: Module) -> bool:
    """Does it give memory of its own?"""
    return module.name in ("Linear", "GroupNorm") or bool(_SPATIAL.fullmatch(module.name))


# -- losses: one number a step, each over that step alone, as torch.vmap gives them


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

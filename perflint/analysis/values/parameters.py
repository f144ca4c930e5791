"""Infers the parameters of a function from its calls, annotations, defaults and uses."""

from __future__ import annotations

import ast

from perflint.analysis.values.classes import FunctionInfo
from perflint.analysis.values.evaluate import Evaluator
from perflint.analysis.values.hints import kind_by_usage
from perflint.analysis.values.values import (
    DEVICE_TENSOR,
    GUESSED_TENSOR,
    LIKELY_LOADER,
    NUMBER,
    NUMPY,
    STRING,
    TENSOR,
    UNKNOWN,
    Kind,
    Place,
    Value,
    join,
    literal,
    mapping,
    sequence_of,
)
from perflint.syntax.scopes import is_static
from perflint.syntax.walk import path_of, text_of

STEP_METHODS = frozenset(
    {"forward", "loss", "training_step", "validation_step", "test_step", "predict_step", "train_step"}
)
TRAINER_STEPS = frozenset({"compute_loss", "training_step", "prediction_step"})  # of a trainer of transformers
_ANNOTATIONS = {"int": NUMBER, "float": NUMBER, "bool": NUMBER, "str": STRING}
_CLASSES = {
    **dict.fromkeys(("Tensor", "FloatTensor", "BoolTensor"), TENSOR),
    "LongTensor": TENSOR._replace(dtype="int"),
    "DataLoader": LIKELY_LOADER,
    "Module": Value(Kind.MODULE, sure=False),
    "Optimizer": Value(Kind.OPTIMIZER),
    "ndarray": NUMPY,
}
_SPREAD, _SPREAD_KEYWORDS = sequence_of(UNKNOWN), mapping((), complete=False)  # of `*args` and `**kwargs`
_TOLD = frozenset({"int", "bool", "str"})  # by fields; a loss may be kept in what is annotated as a float


def parameter_values(evaluator: Evaluator, info: FunctionInfo) -> dict[str, Value]:
    arguments, parameters, defaults = info.node.args, info.parameters, info.defaults
    is_bound = info.owner is not None and bool(parameters) and not is_static(info.node)
    is_demo = evaluator.is_demo and info.name in STEP_METHODS and info.owner is not None and info.owner.is_a("module")
    values = {}
    for parameter in parameters[is_bound and parameters[0].arg not in info.arguments :]:
        name = parameter.arg
        given = info.arguments.get(name)
        if given is None or (is_demo and _is_of_host(given)):
            values[name] = _expected(evaluator, info, parameter, defaults.get(name))
        elif given.kind is Kind.NUMBER:  # others may call it with another one
            values[name] = given.varying
        elif given.kind is Kind.UNKNOWN and "." in given.name:  # an object of a class in another file
            likely = _expected(evaluator, info, parameter, defaults.get(name))
            values[name] = likely._replace(name=given.name) if likely.kind is Kind.MODULE else given
        else:
            values[name] = given
        if name in info.arguments and name in defaults:
            values[name] = join(values[name], constant(defaults[name]))
    if info.owner is not None and is_bound and parameters[0].arg not in values:
        values[parameters[0].arg] = info.owner.instance
    if arguments.vararg is not None:
        values[arguments.vararg.arg] = _SPREAD
    if arguments.kwarg is not None:
        values[arguments.kwarg.arg] = _SPREAD_KEYWORDS
    return values


def annotated_fields(evaluator: Evaluator, info: FunctionInfo) -> dict[str, Value]:
    """The integers, flags and strings in parameters that are annotated with a class of this file, by their paths."""
    values = {}
    for parameter in info.parameters:
        named = info.parent.lookup(path_of(parameter.annotation)) if parameter.annotation is not None else None
        if named is None or not isinstance(named.node, ast.ClassDef):
            continue
        for field in named.node.body:
            if isinstance(field, ast.AnnAssign) and path_of(field.annotation) in _TOLD:
                values[f"{parameter.arg}.{path_of(field.target)}"] = _annotated(field.annotation)
    return values


def _is_of_host(value: Value) -> bool:
    return (value.kind in (Kind.TENSOR, Kind.DEVICE) and value.place is Place.HOST) or value.literal == "cpu"


def _expected(evaluator: Evaluator, info: FunctionInfo, parameter: ast.arg, default: ast.expr | None) -> Value:
    """What a parameter likely is where no call in this file tells."""
    method_of_module = info.owner is not None and (info.owner.is_a("module") or info.owner.is_a("differentiable"))
    annotated = _annotated(parameter.annotation)
    if annotated.kind is Kind.TENSOR:
        return annotated._replace(place=evaluator.module_place if method_of_module else Place.UNKNOWN)
    if annotated.kind is not Kind.UNKNOWN:
        return annotated
    if info.owner is not None and info.owner.is_a("dataset"):
        return NUMBER if info.name == "__getitem__" else UNKNOWN
    if default is not None and isinstance(default, ast.Constant) and default.value is not None:
        return constant(default).varying
    attributes = info.usage.get(parameter.arg, frozenset())
    if parameter.arg == "inputs" and info.name in TRAINER_STEPS and info.owner and info.owner.is_a("trainer"):
        return GUESSED_TENSOR._replace(place=evaluator.module_place)  # a batch: its parts are tensors
    likely = kind_by_usage(parameter.arg, attributes)
    if method_of_module:
        if likely.kind is Kind.TENSOR:
            return likely._replace(place=evaluator.module_place)
        if likely.kind is Kind.UNKNOWN and info.name in STEP_METHODS and parameter.arg != "ctx":
            return (DEVICE_TENSOR if "[:, ]" in attributes else GUESSED_TENSOR)._replace(place=evaluator.module_place)
    return likely


def _annotated(annotation: ast.expr | None) -> Value:
    text = text_of(annotation).strip() or (path_of(annotation) if annotation is not None else "")
    return _CLASSES.get(text.rpartition(".")[2], _ANNOTATIONS.get(text, UNKNOWN))


def constant(node: ast.expr | None) -> Value:
    """The value of a default, where that is written out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | type(None)):
        return literal(node.value)
    return UNKNOWN

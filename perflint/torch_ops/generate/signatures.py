"""Signatures of torch's functions in one form, whether from a stub, an operator's schema or annotations."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_SCALARS = {
    "_bool": "bool",
    "bool": "bool",
    "_int": "number",
    "int": "number",
    "_float": "number",
    "float": "number",
    "complex": "number",
    "_complex": "number",
    "Number": "number",
    "number": "number",
    "Scalar": "number",
    "_int | SymInt": "number",
    "SymInt": "number",
    "Size": "size",
    "tuple[_int, ...]": "size",
    "torch.Size": "size",
    "str": "str",
    "_device": "device",
    "_dtype": "dtype",
    "_dtype | None": "dtype",
    "None": "none",
    "list": "list",
    "dict": "other",
    "numpy.ndarray": "numpy",
}
_TENSOR = re.compile(r"(torch\.)?(Tensor|Self|S|Parameter)( \| None)?")
_TENSOR_TUPLE = re.compile(r"tuple\[(torch\.)?Tensor\b.*\]|torch\.return_types\.\w+|Sequence\[Tensor\]")
_TENSOR_LIST = re.compile(r"(list\[Tensor\]|Tensor\[\]|List\[Tensor\])")


@dataclass(frozen=True)
class Parameter:
    """One parameter; `wants` is the kind of argument as operation.Variant has it."""

    name: str
    wants: str
    required: bool
    keyword_only: bool
    variadic: bool = False

    @property
    def takes_tensor(self) -> bool:
        """Whether a tensor, or a sequence of them, can be the argument."""
        return self.wants in ("tensor", "tensors", "any")


@dataclass(frozen=True)
class Overload:
    """One way to call a function; a method's own tensor is its first parameter `self`."""

    parameters: tuple[Parameter, ...]
    result: str

    @property
    def required(self) -> tuple[tuple[str, bool], ...]:
        """The names of the parameters that must be given, and whether tensors go there."""
        return tuple((_common(p.name), p.wants == "tensor") for p in self.parameters if p.required)


def _common(name: str) -> str:
    return "self" if name == "input" else name


def result_kind(annotation: str) -> str:
    """The Entry's result for what is annotated as returned."""
    for noise in ("typing.", "<class '", "'>"):
        annotation = annotation.replace(noise, "")
    annotation = annotation.replace("torch.Tensor", "Tensor")
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    for pattern, kind in ((_TENSOR, "tensor"), (_TENSOR_TUPLE, "tuple"), (_TENSOR_LIST, "tensors")):
        if pattern.fullmatch(annotation):
            return kind
    return "unknown" if annotation in ("Any", "") else "other"


def argument_kind(annotation: str) -> str:
    """What kind of argument goes where this is annotated."""
    if annotation == "None":
        return "absent"
    if annotation == "Literal[True]":
        return "true"
    if annotation in ("Any", "object", ""):
        return "any"
    words = re.findall(r"\w+", annotation)
    if "Tensor" in words:
        return "tensors" if {"tuple", "list", "Sequence", "List"} & set(words) or "[]" in annotation else "tensor"
    if set(words) <= {"_int", "_float", "_complex", "Number", "SymInt", "int", "float"} and "[" not in annotation:
        return "number"
    return "given"


def of_stub(path: Path, class_name: str | None = None) -> dict[str, list[Overload]]:
    """The overloads of every function in a stub, or of every method of a class in it."""
    found: dict[str, list[Overload]] = defaultdict(list)
    for node in _body(path, class_name):
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            parameters = tuple(_stub_parameters(node.args))
            found[node.name].append(Overload(parameters, result_kind(ast.unparse(node.returns))))
    return dict(found)


def properties_of_stub(path: Path, class_name: str) -> dict[str, str]:
    """The annotations of a class's attributes."""
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in _body(path, class_name)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _body(path: Path, class_name: str | None) -> list[ast.stmt]:
    body = ast.parse(path.read_text()).body
    if class_name is None:
        return body
    return next(node for node in body if isinstance(node, ast.ClassDef) and node.name == class_name).body


def _stub_parameters(arguments: ast.arguments) -> Iterator[Parameter]:
    positional = arguments.posonlyargs + arguments.args
    optional = len(positional) - len(arguments.defaults)
    for index, argument in enumerate(positional):
        yield _stub_parameter(argument, index < optional, False)
    if arguments.vararg:
        yield replace(_stub_parameter(arguments.vararg, False, False), variadic=True)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _stub_parameter(argument, default is None, True)


def _stub_parameter(argument: ast.arg, required: bool, keyword_only: bool) -> Parameter:
    if argument.arg == "self" and argument.annotation is None:
        return Parameter("self", "tensor", True, False)
    annotation = ast.unparse(argument.annotation) if argument.annotation else ""
    return Parameter(argument.arg, argument_kind(annotation), required, keyword_only)


def of_schema(schema: Any) -> Overload:
    """The overload that an operator's schema describes, leaving out what it only writes to."""
    parameters = tuple(
        Parameter(a.name, _schema_kind(str(a.type)), not a.has_default_value(), a.kwarg_only)
        for a in schema.arguments
        if not a.is_out
    )
    returned = [str(each.type) for each in schema.returns]
    if len(returned) > 1:
        return Overload(parameters, "tuple" if set(returned) == {"Tensor"} else "other")
    if returned == ["List[Tensor]"]:
        return Overload(parameters, "tuple")  # that is what torch makes of it for Python
    return Overload(parameters, result_kind(returned[0]) if returned else "none")


def _schema_kind(kind: str) -> str:
    kind = re.sub(r"Optional\[(.*)\]", r"\1", kind)
    return argument_kind(kind.replace("number", "Number"))


def of_callable(function: Callable[..., Any]) -> list[Overload]:
    """The overload of a function written in Python, none if it is not; its result is "" if it doesn't say it."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    parameters = tuple(
        Parameter(
            each.name,
            "any" if each.annotation is each.empty else argument_kind(_text(each.annotation)),
            each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD),
            each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD),
            each.kind is each.VAR_POSITIONAL,
        )
        for each in signature.parameters.values()
    )
    returned = signature.return_annotation
    result = "" if returned is signature.empty else result_kind(_text(returned))
    return [Overload(parameters, result)]


def _text(annotation: Any) -> str:
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not getattr(annotation, "__args__", None):
        return annotation.__name__ if annotation.__module__ in ("builtins", "torch") else str(annotation)
    return str(annotation)

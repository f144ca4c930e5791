"""What operators do, by their schemas and tags, and by calls on small tensors of what ends up in them.

Composite operators and functions in Python carry no tags of their own; what they do is what the operators they end
up in do. A function whose arguments can't be guessed is simply not observed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from perflint.torch_ops.generate.by_hand import CHECKING_OPERATORS, POINTWISE_OPERATORS
from perflint.torch_ops.generate.signatures import Overload, of_schema

_SHAPES = ((4, 4), (2, 4, 4), (1, 2, 4, 4), (4,), (1,), (1, 2, 4, 4, 4))
_DTYPES = ("float32", "int32", "bool")
_NUMBERS, _INTEGERS = (1, 1.5), (1, 0, 2)
_FRACTIONAL, _WHOLE = frozenset(("float", "number", "List[float]")), frozenset(("int", "List[int]"))
_NEUTRAL = frozenset(
    f"aten::{name}"
    for name in ("_to_copy", "alias", "clone", "detach", "empty", "empty_like", "lift_fresh", "scalar_tensor")
)  # operators which don't keep a function from being pointwise
INDICES = frozenset(["index", "indices", "repeats", "target", "targets", "tensor_indices_or_sections"])
_MASKS = frozenset(["mask", "condition"])
_TRAIT_TAGS = {"pointwise": "pointwise", "reduction": "reduction", "nondeterministic_seeded": "random"}
_SYNC_TAGS = ("data_dependent_output", "dynamic_output_shape")


@dataclass(frozen=True)
class Observation:
    """What was seen in all the calls that succeeded."""

    traits: frozenset[str]
    syncs: bool
    dtype: str


@dataclass(frozen=True)
class _Call:
    operators: tuple[Any, ...]
    dtype: str
    keeps_shape: bool
    indexed_by_mask: bool


def tag_names(packet: Any) -> frozenset[str]:
    """The names of an operator's tags, with the one that torch forgot."""
    names = frozenset(tag.name for tag in packet.tags)
    bare = packet.name().partition(".")[0].rstrip("_")
    return names | {"pointwise"} if bare in POINTWISE_OPERATORS else names


def tagged_as_waiting(packet: Any) -> bool:
    """Whether the operator's tags say that its result's value or shape depends on values on the device."""
    return not tag_names(packet).isdisjoint(_SYNC_TAGS)


def observe(torch: Any, function: Callable[..., Any], parameters: Iterable[tuple[str, str]]) -> Observation | None:
    """Call with arguments for parameters given as (name, type in the language of schemas); None if no call worked."""
    named = list(parameters)
    kinds = {kind for _, kind in named}
    numbers = _NUMBERS if kinds & _FRACTIONAL else _NUMBERS[:1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        worlds = itertools.product(_DTYPES, numbers)
        calls = [call for dtype, number in worlds if (call := _first(torch, function, named, dtype, number))]
    if not calls:
        return None
    operators = {operator for call in calls for operator in call.operators}
    computing = [operator for operator in operators if operator.name().partition(".")[0] not in _NEUTRAL]
    pointwise = bool(computing) and all("pointwise" in tag_names(each) for each in computing)
    traits = {"pointwise"} if pointwise and all(call.keeps_shape for call in calls) else set()
    if any("nondeterministic_seeded" in tag_names(each) for each in operators):
        traits.add("random")
    dtypes = {call.dtype for call in calls}
    return Observation(
        traits=frozenset(traits),
        syncs=any(_waits(each, call) for call in calls for each in call.operators),
        dtype={"torch.bool": "bool", "torch.int64": "int"}.get(dtypes.pop(), "") if len(dtypes) == 1 else "",
    )


def _waits(operator: Any, call: _Call) -> bool:
    name = operator.name().partition(".")[0]
    if name == "aten::index":
        return call.indexed_by_mask
    return name in CHECKING_OPERATORS or tagged_as_waiting(operator)


def _first(
    torch: Any, function: Callable[..., Any], named: list[tuple[str, str]], dtype: str, number: float
) -> _Call | None:
    """The first call that works, over shapes and integers."""
    integers = _INTEGERS if any(kind in _WHOLE for _, kind in named) else _INTEGERS[:1]
    for shape, integer in itertools.product(_SHAPES, integers):
        try:
            arguments = {name: _argument(torch, name, kind, shape, dtype, integer, number) for name, kind in named}
        except KeyError:
            return None
        with contextlib.suppress(Exception):
            return _watch(torch, function, arguments, shape)
    return None


def _watch(torch: Any, function: Callable[..., Any], arguments: dict[str, Any], shape: tuple[int, ...]) -> _Call:
    watching = _recorder()()
    watching.seen, watching.masked = [], []
    with watching:
        result = function(**arguments)
    tensor = isinstance(result, torch.Tensor)
    keeps_shape = tensor and tuple(result.shape) == shape
    return _Call(tuple(watching.seen), str(result.dtype) if tensor else "", keeps_shape, any(watching.masked))


@functools.cache  # torch wraps the method of each new class
def _recorder() -> Any:
    """The class of dispatch modes that note the operators called, and whether masks index."""

    def dispatch(self: Any, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(operator)
        if operator.name().startswith("aten::index.") and isinstance(args[1], list):
            self.masked.extend(each is not None and each.dtype is torch_bool for each in args[1])
        return operator(*args, **(kwargs or {}))

    torch_bool = importlib.import_module("torch").bool
    base = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    recorder: Any = type("Recorder", (base,), {"__torch_dispatch__": dispatch})
    recorder.__torch_dispatch__ = dispatch  # without what torch lays around it for compiled code
    return recorder


def _argument(torch: Any, name: str, kind: str, shape: tuple[int, ...], dtype: str, integer: int, number: float) -> Any:
    """A value for one parameter; KeyError if there is none for its type."""
    if kind == "Tensor":
        return _tensor(torch, name, shape, dtype)
    if kind == "List[Tensor]":
        return [_tensor(torch, name, shape, dtype)] * 2
    return {
        "Optional[str]": None,
        "int": integer,
        "float": number,
        "number": number,
        "bool": False,
        "List[int]": [integer],
        "List[float]": [number],
        "Device": torch.device("cpu"),
        "dtype": torch.float32,
    }[kind]


def _tensor(torch: Any, name: str, shape: tuple[int, ...], dtype: str) -> Any:
    if name in _MASKS:
        return torch.ones(shape, dtype=torch.bool)
    if name in INDICES:
        return torch.ones(shape[-1:] if name in ("repeats", "index") else shape, dtype=torch.int64)
    values = torch.eye(shape[-1]).expand(shape).contiguous() if len(shape) > 1 else torch.ones(shape)
    return values.to(getattr(torch, dtype))


def schema_parameters(schema: Any) -> Iterator[tuple[str, str]]:
    """The parameters of an operator which have no default."""
    for argument in schema.arguments:
        if not argument.has_default_value():
            yield argument.name, str(argument.type)


def annotated_parameters(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """The parameters of a function written in Python which have no default; without annotation they take tensors."""
    for each in inspect.signature(function).parameters.values():
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD:
            annotation = each.annotation
            yield each.name, "Tensor" if annotation is each.empty else getattr(annotation, "__name__", str(annotation))


# -- what the schemas and tags of operators say


@dataclass(frozen=True)
class Operator:
    """One overload of an operator in torch.ops.aten."""

    overload: Overload
    traits: frozenset[str]
    syncs: bool
    dtype: str | None  # None if no call told


@functools.cache
def schemas(torch: Any, name: str) -> tuple[Any, ...]:
    """The schemas of all overloads of aten's `name`."""
    return tuple(
        schema
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        if torch._C._dispatch_has_kernel(".".join(filter(None, (schema.name, schema.overload_name))))
    )  # the others are TorchScript's, for Python scalars


@functools.cache
def operators(torch: Any, name: str) -> tuple[Operator, ...]:
    """All overloads of aten's `name` but those that write into given tensors."""
    return tuple(
        _operator(torch, packet_of(torch, schema), schema)
        for schema in schemas(torch, name)
        if not any(argument.is_out for argument in schema.arguments)
    )


def packet_of(torch: Any, schema: Any) -> Any:
    """The overload of an operator that a schema describes, to be called."""
    return getattr(getattr(torch.ops.aten, schema.name.removeprefix("aten::")), schema.overload_name or "default")


def _operator(torch: Any, packet: Any, schema: Any) -> Operator:
    tags = tag_names(packet)
    traits = {trait for tag, trait in _TRAIT_TAGS.items() if tag in tags}
    aliases = [each.alias_info for each in schema.returns if each.alias_info]
    if aliases and not any(alias.is_write for alias in aliases):
        traits.add("view")
    seen = observe(torch, packet, schema_parameters(schema))
    if seen:
        traits |= seen.traits
    waits = tagged_as_waiting(packet) or (seen is not None and seen.syncs)
    return Operator(of_schema(schema), frozenset(traits), waits, seen.dtype if seen else None)

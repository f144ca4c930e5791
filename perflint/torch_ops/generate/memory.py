"""Whose memory an operation's result shows, and what it writes: by schemas, signatures, and calls on small tensors."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perflint.torch_ops import METHODS
from perflint.torch_ops.generate import by_hand
from perflint.torch_ops.generate.probe import INDICES, packet_of
from perflint.torch_ops.generate.signatures import Overload, Parameter, of_callable

_SHAPES = ((4, 4), (2, 4, 4), (1, 2, 4, 4), (4,))
_DTYPES = ("float32", "int64")
_ALL_DTYPES = (
    *(*_DTYPES, "bool", "float16", "bfloat16", "float64", "int32", "int16", "int8", "uint8"),
    *("complex32", "complex64", "complex128"),
)
_INTEGERS = (1, 0, 2)
_MOST_REQUIRED = 5  # kernels of quantized cells, which trust all that they are given, have more
_UNSTUBBED = ("torch.linalg.", "torch.fft.", "torch.special.")  # whose schemas alone tell that there is an `out`
_KEYS = ("views", "may", "writes")


@dataclass
class Memory:
    """The arguments, as `perflint.torch_ops` reads them, by what happens to them."""

    views: dict[str, None] = field(default_factory=dict)
    may: dict[str, None] = field(default_factory=dict)
    writes: dict[str, None] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The words of a table's entry."""
        return [f"{key}={','.join(getattr(self, key))}" for key in _KEYS if getattr(self, key)]


@dataclass
class _Seen:
    """How many calls there were in which a result shared each argument's memory, and which arguments were written."""

    calls: int = 0
    shared: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    written: set[str] = field(default_factory=set)


def of_member(
    torch: Any, name: str, function: Callable[..., Any], schemas: Sequence[Any], overloads: Sequence[Overload]
) -> Memory:
    """What is known of the function or method `name`; the overloads of a method begin with self.

    `schemas` are those of its operator, none for what is written in Python.
    """
    if inspect.isfunction(function):  # it need not do what an operator of its name does
        overloads, schemas = of_callable(function), ()
    places = _Places(overloads, is_method=name.startswith(METHODS))
    memory = Memory()
    for schema in schemas:
        if not _is_out(schema):
            _read_schema(schema, places, memory)
        elif name.startswith(_UNSTUBBED):
            memory.writes["out" if len(schema.returns) == 1 else "out[]"] = None
    if not schemas:
        _read_calls(torch, function, overloads, places, memory)
    elif memory.writes.keys() <= {"out", "out[]"}:
        _check_schemas(torch, schemas, places, memory)
    _read_signature(overloads, places, memory)
    by_name = name.endswith("_") and not memory.writes and name not in by_hand.MEMORY
    if by_name and (first := _first_tensor(overloads)):
        memory.writes[places.named(first)] = memory.views[places.named(first)] = None
    if name in by_hand.WRITES_NO_VALUES:
        memory.writes.clear()
    return _completed(name, memory)


def _completed(name: str, memory: Memory) -> Memory:
    """With what is known by hand."""
    for key, text in (word.split("=", 1) for word in by_hand.MEMORY.get(name, "").split()):
        if key == "may":
            memory.views = {}
        setattr(memory, key, dict.fromkeys(text.split(",")))
    return memory


def of_module(torch: Any, name: str, cls: Any) -> Memory:
    """What is known of calling a module of this class; an `inplace` is an argument of its constructor."""
    return _completed(name, replace(_of_class(torch, cls)))


@functools.cache  # most classes have several names
def _of_class(torch: Any, cls: Any) -> Memory:
    memory, forward, built = Memory(), of_callable(cls.forward), of_callable(cls)
    places = _Places(forward, is_method=True)
    given = [each for each in forward[0].parameters[1:] if each.takes_tensor][:1]
    if not given:
        return memory
    for module in _modules(cls, built):

        def call(value: Any, training: bool = True, module: Any = module) -> Any:
            return (module if module.training is training else module.train(training))(value)

        named = Parameter(given[0].name, "tensor", True, False), Parameter("training", "true", False, False)
        _read_calls(torch, call, [Overload(named, "tensor")], places, memory)
    for index, parameter in enumerate(built[0].parameters if built else ()):
        if parameter.name == "inplace":
            place = f"{places.named(given[0].name)}?inplace@{index}"
            memory.may[place] = memory.writes[place] = None
    return memory


def _modules(cls: Any, built: Sequence[Overload]) -> Iterator[Any]:
    """An instance of the class whose required arguments are small numbers, if there is one."""
    required = [each for overload in built[:1] for each in overload.parameters if each.required]
    for number in (4, 1):
        with contextlib.suppress(Exception):
            yield cls(*[number] * len(required))
            return


class _Places:
    """Names and positions of arguments, as a call in Python has them."""

    def __init__(self, overloads: Sequence[Overload], is_method: bool) -> None:
        self._overloads = overloads
        self._is_method = is_method

    def at(self, index: int, schema_name: str, spread: str = "") -> str:
        if self._is_method and index == 0:
            return "self"
        for overload in self._overloads:
            if index < len(overload.parameters):
                parameter = overload.parameters[index]
                if parameter.takes_tensor and not parameter.keyword_only:
                    return self._text(parameter.name, index, spread)
        return self._text("input" if schema_name == "self" else schema_name, index, spread)

    def named(self, name: str, spread: str = "") -> str:
        for overload in self._overloads:
            for index, parameter in enumerate(overload.parameters):
                if parameter.name == name and self._is_method and index == 0:
                    return "self"
                if parameter.name == name:
                    spread = "*" if parameter.variadic else "[]" if parameter.wants == "tensors" else spread
                    return name + spread if parameter.keyword_only else self._text(name, index, spread)
        return name

    def _text(self, name: str, index: int, spread: str) -> str:
        return f"{name}@{index - self._is_method}{spread}"


def _read_schema(schema: Any, places: _Places, memory: Memory) -> None:
    returned = set().union(*(each.alias_info.before_set for each in schema.returns if each.alias_info))
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info:
            alias = argument.alias_info
            spread = "[]" if str(argument.type).startswith("List") else ""
            place = places.at(index, argument.name, spread)
            if alias.is_write:
                memory.writes[place] = None
            if not returned.isdisjoint(alias.before_set) or "*" in alias.after_set:  # the star: in a list
                memory.views[place] = None


def _is_composite(torch: Any, schema: Any) -> bool:
    """Whether an operator is made of others, so that torch does not check what its schema says of memory."""
    name = ".".join(filter(None, (schema.name, schema.overload_name)))
    is_composite: bool = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    return is_composite


def _is_out(schema: Any) -> bool:
    return any(each.is_out for each in schema.arguments)


def _read_signature(overloads: Sequence[Overload], places: _Places, memory: Memory) -> None:
    """Add what conventions say: `out=` and `inplace=`."""
    first = _first_tensor(overloads)
    for parameter in (each for overload in overloads for each in overload.parameters):
        if parameter.name == "out" and memory.writes.keys().isdisjoint(("out", "out[]")):
            memory.writes["out[]" if any(each.result == "tuple" for each in overloads) else "out"] = None
        if parameter.name == "inplace" and first:
            place = f"{places.named(first)}?{places.named('inplace')}"
            memory.may[place] = memory.writes[place] = None


def _first_tensor(overloads: Sequence[Overload]) -> str:
    parameters = (each for overload in overloads for each in overload.parameters)
    return next((each.name for each in parameters if each.wants in ("tensor", "tensors")), "")


def _check_schemas(torch: Any, schemas: Sequence[Any], places: _Places, memory: Memory) -> None:
    """Move to `may` what some calls return a copy of, and add what operators made of others share unannotated."""
    for schema in schemas:
        annotated = any(each.alias_info for each in schema.returns)
        if _is_out(schema) or not (annotated or _is_composite(torch, schema)):
            continue
        seen = _watch_operator(torch, packet_of(torch, schema))
        for index, argument in enumerate(schema.arguments):
            count = seen.shared[argument.name]
            if count < seen.calls and (count or argument.alias_info):
                place = places.at(index, argument.name)
                memory.views.pop(place, None)
                memory.may[place] = None
            elif count:
                memory.views[places.at(index, argument.name)] = None
    for each in memory.may:
        memory.views.pop(each, None)


def _read_calls(
    torch: Any, function: Callable[..., Any], overloads: Sequence[Overload], places: _Places, memory: Memory
) -> None:
    for overload in overloads:
        seen = _watch(torch, function, [_described(each) for each in overload.parameters])
        for name, count in seen.shared.items():
            target = memory.views if count == seen.calls and places.named(name) not in memory.may else memory.may
            target[places.named(name)] = None
        for name in seen.written:
            memory.writes[places.named(name)] = None
    for each in memory.may:
        memory.views.pop(each, None)


def _described(parameter: Parameter) -> tuple[str, str, bool]:
    kinds = {"tensor": "Tensor", "tensors": "List[Tensor]", "number": "int", "true": "bool", "any": "Tensor"}
    kind = "variadic" if parameter.variadic else kinds.get(parameter.wants, "unknown")
    return parameter.name, kind, parameter.required


@functools.cache  # functions and methods share operators
def _watch_operator(torch: Any, packet: Any) -> _Seen:
    arguments = packet._schema.arguments
    return _watch(torch, packet, [(each.name, str(each.type), not each.has_default_value()) for each in arguments])


def _watch(torch: Any, function: Callable[..., Any], parameters: Sequence[tuple[str, str, bool]]) -> _Seen:
    """Call with each combination of layouts, types and flags, and compare memory and versions before and after."""
    seen = _Seen()
    is_unary = [kind for _, kind, needed in parameters if needed] == ["Tensor"]  # as casts are
    dtypes = _ALL_DTYPES if is_unary else _DTYPES
    required = [(name, kind) for name, kind, needed in parameters if needed or kind == "variadic"]
    variadic = next((name for name, kind in required if kind == "variadic"), "")
    flags = [{name: value} for name, kind, needed in parameters if not needed for value in _FLAGS.get(kind, ())]
    if len(required) > _MOST_REQUIRED:
        return seen
    numbers = _INTEGERS if any(kind != "Tensor" for _, kind in required) else _INTEGERS[:1]
    layouts = [(shape, turned) for shape in _SHAPES for turned in (False, True) if len(shape) > 1 or not turned]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for (shape, turned), dtype, integer, flag in itertools.product(layouts, dtypes, numbers, [{}, *flags]):
            try:
                given = {name: _value(torch, name, kind, shape, dtype, integer, turned) for name, kind in required}
            except KeyError:
                break
            _call(torch, function, given, flag, variadic, seen)
    return seen


_FLAGS = {"bool": (True, False), "float": (0.0,)}


def _call(
    torch: Any, function: Callable[..., Any], given: dict[str, Any], flag: dict[str, Any], variadic: str, seen: _Seen
) -> None:
    tensors = {name: list(_tensors(torch, value)) for name, value in given.items()}
    before = {name: [each._version for each in values] for name, values in tensors.items()}
    positional = [each for name, value in given.items() for each in (value if name == variadic else [value])]
    try:
        result = function(*positional, **flag)
    except Exception:  # no call that the function takes
        return
    places = {each.untyped_storage().data_ptr() for each in _tensors(torch, result)} - {0}
    seen.calls += 1
    for name, values in tensors.items():
        if any(each.untyped_storage().data_ptr() in places for each in values):
            seen.shared[name] += 1
        if [each._version for each in values] != before[name]:
            seen.written.add(name)


def _tensors(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(torch, each)


def _value(torch: Any, name: str, kind: str, shape: tuple[int, ...], dtype: str, integer: int, turned: bool) -> Any:
    """A value for one parameter; KeyError if there is none for its type."""
    if kind == "Tensor":
        return _tensor(torch, name, shape, dtype, turned)
    if kind in ("List[Tensor]", "variadic"):
        return [_tensor(torch, name, shape, dtype, turned) for _ in range(1 + integer % 2)]
    return {
        "int": integer,
        "float": float(integer),
        "number": integer,
        "bool": bool(integer),
        "List[int]": [integer] if integer != 2 else list(shape),
        "Device": torch.device("cpu"),
    }[kind]


def _tensor(torch: Any, name: str, shape: tuple[int, ...], dtype: str, turned: bool) -> Any:
    if name in INDICES:
        dtype, shape = "int64", shape[-1:]
    made = torch.ones(shape, dtype=getattr(torch, dtype))
    return made.transpose(0, -1) if turned and made.dim() > 1 else made

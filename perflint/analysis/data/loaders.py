"""Finds where loaders are built, their settings for workers and pinned memory, and what runs have found enough."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from perflint import torch_ops
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.links import LOADERS
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.scopes import bind, keyword_of
from perflint.syntax.walk import Function, is_false, last_name, method_of, own_nodes, path_of, receiver_of, text_of

_GEOMETRIC = re.compile(r"torch_geometric\.(loader|data)\.(\w+\.)*(?!Cached|Prefetch)\w*Loader$")
_OTHERS = "jittor|mindspore|mxnet|oneflow|paddle|torch"  # whose classes of this name are known, or are not torch's
_KEEPING = "Infinite|Multi|Cached|Prefetch|Background|Fast|Persistent|Reus|Repeat"  # their workers, by their names
_DERIVED = re.compile(
    r"torch_geometric\.(loader|data)\.(\w+\.)*\w*Sampler$"
    rf"|(?!(?:{_OTHERS})\b)\.*(\w+\.)+(?!{_KEEPING})([A-Z]\w*)?DataLoader$"
)
_TORCH_ONLY = frozenset(
    {"num_workers", "pin_memory", "collate_fn", "worker_init_fn", "batch_sampler", "persistent_workers"}
)
_OPTIONS = ("num_workers", "pin_memory", "persistent_workers")
_TELLING = _TORCH_ONLY | {"shuffle", "drop_last", "sampler"}
_PARAMETERS = (
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory"),
    *("drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator", "prefetch_factor"),
    "persistent_workers",
)


class State(Enum):
    """What a call says of an option that is off by default."""

    ABSENT = "absent"
    OFF = "off"  # said in so many words: 0, False or None
    CHOICE = "choice"  # off unless the user of the program, or a caller, says otherwise
    ON = "on"  # a value that is not off, or not known to be
    UNKNOWN = "unknown"  # arguments come in that cannot be seen


@dataclass(frozen=True)
class Setting:
    """An option of one loader; `certain` is False where the `value` in the call may vary."""

    state: State
    value: ast.expr | None = None
    certain: bool = True

    @property
    def is_missing(self) -> bool:
        return self.state in (State.ABSENT, State.OFF)


@dataclass(frozen=True)
class LoaderCall:
    """A call that builds a loader; `offset` counts the positional arguments before the dataset.

    `certain` is False where the class comes by way of another file, or has a constructor.
    """

    call: ast.Call
    workers: Setting
    pinned: Setting
    offset: int = 0
    certain: bool = True
    persistent: Setting = Setting(State.ABSENT)  # of workers that stay from one epoch to the next

    def argument(self, name: str) -> ast.expr | None:
        return _given(self.call, name, self.offset)


class Loaders:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)

    @cached_property
    def calls(self) -> list[LoaderCall]:
        calls = filter(self._builds, self._program.of_type(ast.Call))
        return [self._loader(call, 0, certain=self._is_class_in_sight(call.func)) for call in calls]

    @cached_property
    def derived(self) -> list[LoaderCall]:
        told = (call for call in self._program.of_type(ast.Call) if keyword_of(call, "num_workers") is not None)
        others = (call for call in told if call not in self.by_call)
        calls = (call for call in others if _DERIVED.match(self._program.qualified(call.func)))
        return [self._loader(call, len(call.args), certain=True) for call in calls]

    def _loader(self, call: ast.Call, offset: int, *, certain: bool) -> LoaderCall:
        workers, pinned, kept = (self.setting(call, name, offset) for name in _OPTIONS)
        return LoaderCall(call, workers, pinned, offset, certain, kept)

    @cached_property
    def by_call(self) -> dict[ast.AST, LoaderCall]:
        return {loader.call: loader for loader in self.calls}

    @cached_property
    def command_line(self) -> dict[str, ast.expr | None]:
        return dict(self._options())

    def _options(self) -> Iterator[tuple[str, ast.expr | None]]:
        for call in self._program.of_type(ast.Call):
            if receiver_of(call, "add_argument", "option") is None:
                continue
            flags = [*filter(None, map(text_of, call.args))]
            named = {keyword.arg: keyword.value for keyword in call.keywords}
            flag = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "")
            destination = named.get("dest")
            name = destination.value if isinstance(destination, ast.Constant) else flag.lstrip("-").replace("-", "_")
            action = named.get("action")
            implied = ast.Constant(action.value == "store_false") if isinstance(action, ast.Constant) else None
            if isinstance(name, str) and name:
                yield name, named.get("default", implied)

    # -- which calls

    def _builds(self, call: ast.Call) -> bool:
        program, function = self._program, call.func
        value = program.value(function)
        if value.kind is Kind.LIBRARY:
            is_derived = any(each.returns == LOADERS for each in program.summaries(call))
            return is_derived or is_loader_class(value.name) or self._is_passed_on(call, value.name)
        if isinstance(function, ast.Attribute) and function.attr == "__init__":
            return self._is_super_of_loader(function.value)
        return value.kind is Kind.CLASS and isinstance(value.node, ast.ClassDef) and self.takes_options(value.node)

    def _is_passed_on(self, call: ast.Call, name: str) -> bool:
        """Is it torch's DataLoader, imported by way of another module, as its arguments tell?"""
        if not isinstance(call.func, ast.Name) or name.rpartition(".")[2] != "DataLoader":
            return False
        given = {keyword.arg for keyword in call.keywords}
        return "collate_fn" in given and len(given & _TELLING) > 1

    def _is_class_in_sight(self, function: ast.expr) -> bool:
        value = self._program.value(function)
        if value.kind is Kind.LIBRARY:
            return is_loader_class(value.name)
        if isinstance(value.node, ast.ClassDef):
            return not any(method_of(each, "__init__") for each in self._program.lineage(value.node))
        return value.kind is not Kind.UNKNOWN or not isinstance(function, ast.Name)

    def _is_super_of_loader(self, node: ast.expr) -> bool:
        is_super = isinstance(node, ast.Call) and path_of(node.func) == "super"
        around = self._program.class_around(node) if is_super else None
        return around is not None and any(is_loader_class(self._program.qualified(base)) for base in around.bases)

    def takes_options(self, node: ast.ClassDef) -> bool:
        """Is it a class of loaders that are built as torch's are, by its constructor or one that hands all on?"""
        lineage = self._program.lineage(node)
        bases = (base for each in lineage for base in self._program.base_names(each))
        own = [found for each in lineage if (found := method_of(each, "__init__")) is not None]
        is_walked_otherwise = bool(own) and any(method_of(each, "__iter__") for each in lineage)
        return any(map(is_loader_class, bases)) and all(map(_hands_on, own)) and not is_walked_otherwise

    # -- what they are told

    def setting(self, call: ast.Call, name: str, offset: int) -> Setting:
        expression = _given(call, name, offset)
        if expression is not None:
            state, certain = self.judge(expression)
            return Setting(state, expression, certain)
        if any(isinstance(argument, ast.Starred) for argument in call.args[: offset + _PARAMETERS.index(name) + 1]):
            return Setting(State.UNKNOWN)
        spread = [self._in_mapping(self._program.value(each.value), name) for each in call.keywords if each.arg is None]
        preset = self._program.value(call.func).item  # functools.partial's
        if preset is not None and preset.kind is Kind.MAPPING:
            spread.append(self._in_mapping(preset, name))
        states = {setting.state for setting in spread}
        for state in (State.ON, State.UNKNOWN, State.CHOICE, State.OFF):
            if state in states:
                return Setting(state, certain=False)
        return Setting(State.ABSENT)

    def _in_mapping(self, value: Value, name: str) -> Setting:
        if value.kind is not Kind.MAPPING or value.items is None:
            return Setting(State.UNKNOWN)
        if name in value.keys:
            part = value.items[value.keys.index(name)]
            return Setting(State.OFF if part.is_literal and not part.literal else State.ON)
        return Setting(State.ABSENT if value.sure else State.UNKNOWN)

    def judge(self, expression: ast.expr) -> tuple[State, bool]:
        states = {self._judge_origin(origin) for origin in self._origins.of(expression)}
        if (State.ON, True) in states:
            return State.ON, len(states) == 1
        for state in (State.ON, State.CHOICE, State.OFF):
            if (state, False) in states or (state, True) in states:
                return state, (state, True) in states and len(states) == 1
        return State.ON, False

    def _judge_origin(self, origin: ast.AST) -> tuple[State, bool]:
        if isinstance(origin, ast.Constant):
            return (State.ON, True) if origin.value else (State.OFF, True)
        if isinstance(origin, ast.arg):
            return State.CHOICE if is_false(self._program.default(origin)) else State.ON, False
        if isinstance(origin, ast.Attribute) and origin.attr in self.command_line:
            return State.CHOICE if is_false(self.command_line[origin.attr]) else State.ON, False
        if isinstance(origin, ast.Call) and self._program.qualified(origin.func).endswith("cpu_count"):
            return State.ON, True
        return State.ON, False


def _given(call: ast.Call, name: str, offset: int) -> ast.expr | None:
    return bind(call, (*("",) * offset, *_PARAMETERS)).get(name)


def _hands_on(constructor: Function) -> bool:
    named = [each.arg for each in constructor.args.args[1:]]
    rest = constructor.args.kwarg.arg if constructor.args.kwarg is not None else ""
    calls = (each for each in own_nodes(constructor) if isinstance(each, ast.Call) and last_name(each) == "__init__")
    is_spread = any(each.arg is None and path_of(each.value) == rest for call in calls for each in call.keywords)
    is_used = any(option in ast.unparse(constructor) for option in _OPTIONS)
    return is_spread and tuple(named) == _PARAMETERS[: len(named)] and not is_used


def is_loader_class(name: str) -> bool:
    """Does `name` qualify torch's DataLoader or one that passes its options on?"""
    return torch_ops.class_kind(name) == "loader" or _GEOMETRIC.match(name) is not None


OPTION = "measured"  # of rules that use figures
_ADDED = ("num_workers", "pin_memory", "prefetch_factor")


def as_option(figures: Iterable[tuple[str, int, int]]) -> str:
    """A line for each call: workers, batches that each keeps ready, its text. Of two for one call, neither."""
    known: dict[str, set[str]] = {}
    for call, workers, prefetch in figures:
        known.setdefault(call, set()).add(f"{workers} {prefetch} {call}")
    return "\n".join(sorted(line for lines in known.values() if len(lines) == 1 for line in lines))


def _of_option(option: str) -> dict[str, tuple[int, int]]:
    lines = (line.split(" ", 2) for line in option.splitlines())
    return {call: (int(workers), int(prefetch)) for workers, prefetch, call in lines}


def call_text(call: ast.Call) -> str:
    """What stays the same of a loader's call, however it is laid out, and whatever a fix adds to it."""
    kept = [keyword for keyword in call.keywords if keyword.arg not in _ADDED]
    return " ".join(ast.unparse(ast.Call(call.func, call.args, kept)).split())


def measured_workers(option: str, loader: LoaderCall) -> tuple[int, int] | None:
    """The workers, and the batches that each keeps ready, which runs of `loader` have found enough; None before.

    `option` is the value of the rule's option called `OPTION`.
    """
    return _of_option(option).get(call_text(loader.call))

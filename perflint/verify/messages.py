"""What the verifier and the processes of a program tell each other: data classes, and their JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from perflint.shim.joining import ALSO
from perflint.shim.plan import Plan
from perflint.verify.agent.timeline import Timeline

ORDERS, AGENT = "PERFLINT_VERIFY", "perflint.verify.agent.join"


class Kind(Enum):
    """How a program is named: by its script, by its module, or as a function to be called repeatedly."""

    SCRIPT = "script"
    MODULE = "module"
    CALL = "call"


@dataclass(frozen=True)
class Program:
    """A program, its arguments, and the folder that it is started in."""

    kind: Kind
    name: str
    arguments: tuple[str, ...]
    folder: Path

    def __str__(self) -> str:
        dash = {Kind.SCRIPT: (), Kind.MODULE: ("-m",), Kind.CALL: ("--call",)}[self.kind]
        return " ".join((*dash, self.name, *self.arguments))


@dataclass(frozen=True)
class Loop:
    """A module-level loop: the real path of its file, and its first and last line."""

    path: str
    first: int
    last: int


@dataclass(frozen=True)
class Variant:
    """A program with some fixes, or none, and the name that it is reported by.

    `loops` are the module-level loops of the original that hold fixes.
    """

    name: str
    plan: Plan
    loops: tuple[Loop, ...] = ()


@dataclass(frozen=True)
class Recording:
    """Write what each step computes to `folder`: all of it at the steps `full`, digests and samples at the others.

    After each of the steps `restart` the program goes on from the state recorded in the folder `follow`, if there is
    one. With `reference`, values are those of the same operations in double precision. Algorithms are deterministic,
    and TF32 is off unless the program asks for it. `shift` is added to the program's own seeds; with `other_samples`,
    random samples of its loaders are drawn from other numbers. Clocks run `clock` times as fast for moments, and as
    slow between these. Where there are `marks`, only digests of what was computed since the last mark are written, at
    these steps. `loops` are those of which it is reported whether they were left.
    """

    folder: str
    full: tuple[int, ...]
    restart: tuple[int, ...]
    follow: str = ""
    reference: bool = False
    shift: int = 0
    other_samples: bool = False
    clock: int = 1
    marks: tuple[int, ...] = ()
    loops: tuple[Loop, ...] = ()


@dataclass(frozen=True)
class Orders:
    """For each process of a program: the socket of the verifier, the kind of step that counts, the seed, the recording.

    `unit` is "" where every kind counts. The program runs to step `until` before it asks for leave. Files below the
    folders `roots` are kept in the folder `journal` before they change, except those in the folders `ours`.
    """

    address: str = ""
    unit: str = ""
    seed: int = 0
    recording: Recording | None = None
    until: int = 0
    journal: str = ""
    roots: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """The environment of a process that follows these orders."""
        variables = {ORDERS: json.dumps(encoded(self)), ALSO: AGENT}
        if self.recording:  # read as CUDA's libraries start
            variables |= {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": str(self.seed)}
            variables |= {"OMP_WAIT_POLICY": "PASSIVE"}  # others run beside it, who need the cores
        return variables


def orders() -> Orders | None:
    """The orders in this process's environment, if any."""
    given = os.environ.get(ORDERS)
    return decoded(Orders, json.loads(given)) if given else None


def of_rank(folder: str, rank: int) -> str:
    """Where a rank records: the first one in `folder` itself, the others below it."""
    return os.path.join(folder, f"rank {rank}") if folder and rank else folder  # noqa: PTH118


@dataclass(frozen=True)
class Leave:
    """A process may go on to step number `until`, and is `observed` meanwhile or not, which slows it down."""

    until: int
    observed: bool = False


@dataclass(frozen=True)
class Platform:
    """What a process runs on: its rank, the ranks on this host, its device, and versions.

    `gpu` is the end of its GPU's UUID, "" where torch doesn't tell, and None while no GPU is in use.
    """

    rank: int
    ranks: int
    device: str
    versions: Mapping[str, str]
    gpu: str | None = None


@dataclass(frozen=True)
class Arrival:
    """A process waits after step number `step`, of the kind `kind`, `seconds` after it was resumed.

    `device_bytes` and `host_bytes` are peaks, `device_share` that of the device's memory. `captures` counts captured
    graphs and compiled functions: a window in which it grows isn't steady. `timeline` is of steps that were observed,
    `unseen` names functions and loops with fixes that the program is in and has never left.
    """

    step: int
    kind: str
    seconds: float
    device_bytes: int
    host_bytes: int
    captures: int
    platform: Platform
    device_share: float = 0.0
    timeline: Timeline | None = None
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True)
class Departure:
    """A process ends after step number `left`."""

    left: int


def encoded(value: object) -> Any:
    """`value` as JSON types; numbers that are not finite as the strings "nan", "inf" and "-inf"."""
    if is_dataclass(value):
        return {field.name: encoded(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [encoded(each) for each in value]
    if isinstance(value, Mapping):
        return {name: encoded(each) for name, each in value.items()}
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def decoded(kind: Any, value: Any) -> Any:
    """What was encoded from a value of the type `kind`; raises ValueError for what can't have been.

    Unknown fields are ignored, and those with a default may be missing.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:
        (other,) = [part for part in parts if part is not NoneType]
        return None if value is None else decoded(other, value)
    if origin is tuple:
        return tuple(decoded(parts[0], each) for each in _checked(list, value))
    if origin is Mapping:
        return {_checked(str, name): decoded(parts[1], each) for name, each in _checked(dict, value).items()}
    if is_dataclass(kind):
        types = get_type_hints(kind)
        known = {field.name for field in fields(kind)} & _checked(dict, value).keys()
        try:
            return kind(**{name: decoded(types[name], value[name]) for name in known})  # type: ignore[operator]
        except TypeError as error:  # a field is missing
            raise ValueError(str(error)) from None
    if issubclass(kind, Enum):
        return kind(_checked(str, value))
    return _float(value) if kind is float else _checked(kind, value)


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int | str):
        raise ValueError(f"{value!r} is no number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{value} is too large") from None


def _checked(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value

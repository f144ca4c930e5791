"""Reduces the events of torch.profiler to plain data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from perflint.profile.record import Operation, Record, Span
from perflint.verify.agent.timeline import has, is_work, lag_of

_WORTH = ("Launch", "Memcpy", "Memset", "Synchronize")  # in the names of CUDA's functions that are kept
_SHOWN = 8  # dimensions of an argument


def keep_steps(record: Record, events: Sequence[Any], last: int) -> None:
    """Put what happened in the traced steps into the record; behind the nanosecond `last` the host waited for us."""
    begin = record.marks[0]
    if not record.is_gpu:
        ops = (event for event in events if event.duration_ns() > 0)
        record.ops = [_span(event) for event in ops if event.start_ns() + event.duration_ns() > begin]
        return
    device = sys.modules["torch"].autograd.DeviceType.CUDA
    work = [event for event in events if event.device_type() == device and is_work(event)]
    calls = [event for event in events if event.device_type() != device and has(event, _WORTH)]
    lag = lag_of(work, calls)
    record.work = [span for span in (_span(event, lag) for event in work) if span.end > begin]
    links = {span.link for span in record.work}
    spans = (_span(event) for event in calls if event.start_ns() < last)
    record.calls = [span for span in spans if span.end > begin or span.link in links]
    begun = (span.end for span in record.work if span.begin < record.marks[-1])
    record.marks[-1] = max(last, *begun, record.marks[-2] + 1)


def keep_operations(record: Record, events: Sequence[Any], steps: int) -> None:
    """Put the operations of so many steps into the record, with the time of their kernels; on a CPU, with their own."""
    device = sys.modules["torch"].autograd.DeviceType.CUDA
    ops = [event for event in events if event.device_type() != device and event.shapes()]
    kernels: dict[int, list[Any]] = {}
    for event in events:
        if event.device_type() == device and is_work(event) and event.linked_correlation_id() > 0:
            kernels.setdefault(event.linked_correlation_id(), []).append(event)
    totals: dict[tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...], tuple[Any, ...]], list[Any]] = {}
    alone = {} if record.is_gpu else _own(ops)
    for op in ops:
        launched = kernels.get(op.correlation_id(), []) if record.is_gpu else [op]
        if not launched:
            continue
        spent = sum(each.duration_ns() for each in launched) if record.is_gpu else alone[op.correlation_id()]
        longest = max(launched, key=lambda each: int(each.duration_ns())).name()
        total = totals.setdefault(_key(op), [longest, 0, 0])
        total[1] += 1
        total[2] += spent
    record.operations = [Operation(*key, kernel, calls, ns / 1e9) for key, (kernel, calls, ns) in totals.items()]
    record.operation_steps = steps


def _own(ops: Sequence[Any]) -> dict[int, int]:
    """The nanoseconds of each operation without those inside of it, by its number."""
    alone = {op.correlation_id(): int(op.duration_ns()) for op in ops}
    open_: dict[int, list[Any]] = {}
    for op in sorted(ops, key=lambda each: (each.start_ns(), -each.duration_ns())):
        stack = open_.setdefault(op.device_resource_id(), [])
        while stack and stack[-1].start_ns() + stack[-1].duration_ns() <= op.start_ns():
            stack.pop()
        if stack:
            alone[stack[-1].correlation_id()] -= int(op.duration_ns())
        stack.append(op)
    return alone


def _key(op: Any) -> tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...], tuple[Any, ...]]:
    shapes = tuple(tuple(each)[:_SHOWN] if isinstance(each, list) and _is_flat(each) else () for each in op.shapes())
    given = tuple(tuple(each) if isinstance(each, list) else each for each in op.concrete_inputs())
    return op.name(), shapes, tuple(op.dtypes()), given if _is_hashable(given) else ()


def _is_flat(shape: list[Any]) -> bool:
    return all(isinstance(each, int) for each in shape)


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _span(event: Any, lag: int = 0) -> Span:
    begin = event.start_ns() - lag
    end = begin + event.duration_ns()
    return Span(begin, end, event.name(), event.correlation_id(), event.device_resource_id())

"""Reduces the events of torch.profiler to plain data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from perflint.profile.partition import innermost
from perflint.profile.record import Operation, Record, Span
from perflint.verify.agent.timeline import has, is_work, lag_of

_WORTH = ("Launch", "Memcpy", "Memset", "Synchronize")  # in the names of CUDA's functions that are kept
_SHOWN = 8  # dimensions of an argument

_Key = tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...], tuple[Any, ...]]


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
    work: dict[int, list[tuple[int, str]]] = {}  # nanoseconds and names, by the numbers of operations
    if record.is_gpu:
        for event in events:
            if event.device_type() == device and is_work(event) and event.linked_correlation_id() > 0:
                work.setdefault(event.linked_correlation_id(), []).append((event.duration_ns(), event.name()))
    else:
        for begin, end, span in innermost(map(_span, ops)):
            work.setdefault(span.link, []).append((end - begin, span.name))
    totals: dict[_Key, list[Any]] = {}
    for op in ops:
        if launched := work.get(op.correlation_id()):
            total = totals.setdefault(_key(op), [max(launched)[1], 0, 0])
            total[1] += 1
            total[2] += sum(nanoseconds for nanoseconds, _ in launched)
    record.operations = [Operation(*key, kernel, calls, ns / 1e9) for key, (kernel, calls, ns) in totals.items()]
    record.operation_steps = steps


def _key(op: Any) -> _Key:
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

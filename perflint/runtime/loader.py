"""Adds workers and pinned memory to a DataLoader whose user left them out, where that is safe."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import sys
import traceback
import weakref
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, get_worker_info
from torch.utils.data._utils import worker

from perflint.project import available_cores
from perflint.runtime.probe import Probe, probe, unshared

ADDED = ("num_workers", "pin_memory")
_SHARED = Path("/dev/shm")
_PREFETCH = 2  # batches that each worker keeps ready, by torch's default
_MOST_WORKERS = 16
_probes: dict[int, tuple[weakref.ref[Any], object, Probe]] = {}  # by the numbers of datasets, which come again
_PATIENCE_S = 60
_READY_S = 1e-3  # from one batch to the next, at best
_WORTH_S = 2e-3  # of reading a batch; passing one from a worker takes about half a millisecond


@dataclass(frozen=True)
class Decision:
    """Arguments to add to a loader's, why there are no workers among them, and the seconds of a sample."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    sample: float = field(default=0.0, compare=False)


def decide(
    dataset: Any,
    given: Mapping[str, Any],
    *,
    unsafe: bool = False,
    proven: Collection[str] = ADDED,
    doubt: str = "it is not proven",
) -> Decision:
    """What to add to the arguments `given`, of those that the text of the loader has `proven` safe.

    Trying samples shows much of what workers would spoil, but not all: writes to globals stay in the workers, and a
    shuffling loader draws its order as the loop is entered, not at the first batch. Trying also leaves traces: a count,
    a moved generator, an open file. So it takes a `proven` text, or an `unsafe` mind, which accepts randomly drawn
    samples too. `doubt` is why nothing is proven.
    """
    if reason := _unfit(dataset, given):
        return Decision(reason=reason)
    if reason := unshared(dataset):
        return Decision(reason="" if "num_workers" in given else reason)
    is_tried = unsafe and "num_workers" not in given  # what reading opens would be shared by the workers that it has
    if not (is_tried or "num_workers" in proven or _is_in_memory(dataset)):
        return Decision(reason="" if "num_workers" in given else _unproven(doubt))
    try:
        seen = _probed(dataset, given)
    except Exception as error:
        return Decision(reason=f"its samples can't be tried out: {error!r}")
    pins = (
        "pin_memory" in proven
        and "pin_memory" not in given
        and torch.cuda.is_available()
        and seen.bytes > 0
        and not seen.device
    )
    pinned = {"pin_memory": True} if pins else {}
    if "num_workers" in given:
        return Decision(pinned)
    batch = batch_size(given)
    workers = _most_workers(dataset, batch)
    reason = _obstacle(seen, batch, unsafe) or _unsendable(dataset, given) or _too_large(seen, batch, workers)
    if not reason and not (unsafe or "num_workers" in proven):
        reason = _unproven(doubt)
    if not reason and workers < 1:
        reason = "there are no cores for workers"
    if reason:
        return Decision(pinned, reason)
    return Decision({**pinned, "num_workers": workers}, sample=seen.seconds)


class _Samples(Dataset[Probe]):
    def __init__(self, dataset: Any, collate: Any) -> None:
        self._dataset, self._collate = dataset, collate

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Probe:
        return probe(self._dataset, self._collate)


class _Apart(DataLoader[Probe]):
    """A loader of ours, which what watches the program's leaves alone."""


def more_workers(loader: Any) -> Decision:
    """As many workers as a batch each millisecond takes, where a loader has some and their number changes nothing."""
    names = ("num_workers", "batch_size", "batch_sampler", "collate_fn", "worker_init_fn", "multiprocessing_context")
    dataset: Any = loader.dataset
    given: dict[str, Any] = {name: getattr(loader, name, None) for name in names}
    if given["num_workers"] < 1:
        return Decision(reason="it has no workers")
    if reason := _unfit(dataset, given) or unshared(dataset):
        return Decision(reason=reason)
    samples, own = _Samples(dataset, given["collate_fn"]), torch.Generator()
    context = given["multiprocessing_context"]
    try:
        (seen,) = _Apart(
            samples, None, num_workers=1, generator=own, timeout=_PATIENCE_S, multiprocessing_context=context
        )
    except Exception as error:
        return Decision(reason=f"its samples can't be tried out: {error!r}")
    batch = batch_size(given)
    workers = min(_most_workers(dataset, batch), math.ceil(seen.seconds * batch / _READY_S))
    if reason := _obstacle(seen, batch, unsafe=False) or _too_large(seen, batch, workers):
        return Decision(reason=reason)
    if workers <= given["num_workers"]:
        return Decision(reason="it has as many workers as it needs, or as there are cores")
    return Decision({"num_workers": workers})


def as_measured(decision: Decision, given: Mapping[str, Any], workers: int, prefetch: int, *, on: int) -> Decision:
    """`decision`, with as many workers, if any, as were measured to pay `on` as many cores."""
    if "num_workers" not in decision.arguments or on != cores():
        return decision
    rest = {name: value for name, value in decision.arguments.items() if name != "num_workers"}
    if not workers:
        return Decision(rest, "none were worth it when it was tuned")
    ahead = {"prefetch_factor": prefetch} if prefetch != _PREFETCH and "prefetch_factor" not in given else {}
    return Decision({**rest, "num_workers": workers, **ahead})


def _unproven(doubt: str) -> str:
    return f"{doubt}: --unsafe tries it out"


def _unfit(dataset: object, given: Mapping[str, Any]) -> str:
    if not isinstance(dataset, Dataset) and not hasattr(dataset, "__getitem__"):
        return "it is no dataset with indices"
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return "each worker would go through all of an iterable dataset"
    if not len(dataset):
        return "it is empty"
    if given.get("worker_init_fn") is not None:
        return "it has a worker_init_fn, which would be run"
    if get_worker_info() is not None or multiprocessing.current_process().daemon:
        return "it is made inside a worker"
    return ""


def _is_in_memory(dataset: object) -> bool:
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return type(dataset) in (TensorDataset, list, tuple)


def _obstacle(seen: Probe, batch: int, unsafe: bool) -> str:
    if seen.device:
        return "its samples are on a device"
    if seen.changes:
        return "reading a sample changes it"
    if seen.recorded:
        return "its samples record gradients, which processes cannot send"
    if seen.copies:
        return "its samples are drawn from a generator of its own, and all workers would draw the same"
    if seen.draws and not unsafe:
        return "its samples are drawn at random, which would come out differently: --unsafe does it"
    if seen.seconds * batch < _WORTH_S:
        return f"a batch takes {seen.seconds * batch * 1e3:.1f} ms to read, which is less than workers would cost"
    return ""


def _probed(dataset: Any, given: Mapping[str, Any]) -> Probe:
    collate = given.get("collate_fn")
    seen, others, found = _probes.get(id(dataset), (None, None, None))
    if seen is not None and seen() is dataset and others is collate and found is not None:
        return found
    whole = collate if given.get("batch_size", 1) is not None or "batch_sampler" in given else None
    found = probe(dataset, whole)
    with suppress(TypeError):
        _probes[id(dataset)] = weakref.ref(dataset), collate, found
    return found


def start_method(given: Mapping[str, Any]) -> str:
    context = given.get("multiprocessing_context")
    if isinstance(context, str):
        return context
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _unsendable(dataset: object, given: Mapping[str, Any]) -> str:
    method = start_method(given)
    if method == "fork":
        return ""
    try:
        sent = pickle.dumps((dataset, given.get("collate_fn")))
    except Exception as error:
        return f"it can't be sent to workers: {error}"
    if b"__main__" in sent and not hasattr(sys.modules["__main__"], "__file__"):
        return f"workers that are started by {method} can't import what a notebook defines"
    return "" if _is_guarded() else f"workers that are started by {method} would run the script again: it has no guard"


def _is_guarded() -> bool:
    try:
        return "__name__" in Path(sys.modules["__main__"].__file__ or "").read_text("utf-8", "replace")
    except (AttributeError, OSError):
        return True  # an interactive session, of which workers run nothing


def _too_large(seen: Probe, batch: int, workers: int) -> str:
    try:
        status = os.statvfs(_SHARED)
    except OSError:
        return ""
    free, needed = status.f_bavail * status.f_frsize, seen.bytes * batch * workers * (_PREFETCH + 1)
    return "" if needed < free / 2 else f"{_SHARED} has too little room: {free >> 20} MiB for {needed >> 20} MiB"


def _most_workers(dataset: Any, batch: int) -> int:
    return min(cores() - 1, len(dataset) // max(batch, 1), _MOST_WORKERS)  # one core is the program's own


def batch_size(given: Mapping[str, Any]) -> int:
    sampler = given.get("batch_sampler")
    size = given.get("batch_size", 1) if sampler is None else getattr(sampler, "batch_size", 1)
    return size if isinstance(size, int) else 1


def cores() -> int:
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
    return available_cores() // max(ranks, 1)


class FromWorker(Exception):
    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class AsRaised(ExceptionWrapper):
    """Carries an error from a worker, to be raised again as it was, if it can be sent at all."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        super().__init__(exc_info, where)  # type: ignore[no-untyped-call]
        self._sent = _sent(sys.exc_info()[1])

    def reraise(self) -> NoReturn:
        if self._sent is None:
            super().reraise()  # type: ignore[no-untyped-call]
        assert self._sent is not None
        raise pickle.loads(self._sent) from FromWorker(self.exc_msg)


def _sent(error: BaseException | None) -> bytes | None:
    with suppress(Exception):
        data = pickle.dumps(error)
        same = pickle.loads(data)
        if type(same) is type(error) and _words(same) == _words(error):
            return data
    return None


def _words(error: BaseException | None) -> list[str]:
    return [repr(error), *traceback.format_exception_only(error)]


def raise_as_they_are(number: int) -> None:
    """A `worker_init_fn`: have this worker send its dataset's errors as they are."""
    worker.ExceptionWrapper = AsRaised  # type: ignore[attr-defined]

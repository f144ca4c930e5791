"""Records what a program computes: batches, losses, gradients, parameters, optimizer state, outputs."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perflint.shim.hooks import after, before, outermost
from perflint.verify.agent import determinism
from perflint.verify.agent.state import WEIGHT, Holders, State, Tensors, digest, sample, size, tensors_in, values_in
from perflint.verify.agent.steps import Steps, is_ours, rank_and_ranks
from perflint.verify.messages import Recording, of_rank

if TYPE_CHECKING:
    from perflint.verify.agent.reference import Reference

LOSS, OUTPUT = "loss", "output"
LATER = f"{OUTPUT} before"
_NOT_THEIRS = ("torch", "perflint")  # loggers that are not the program's
_FEW = 16  # numbers
_MOST_CALLS = 64  # of each function and step: it may be called for each sample
_PASS = "_perflint_pass"  # an attribute of iterators


class Read(NamedTuple):
    """A batch that a loader has yielded in pass `number` over dataset number `data`, of `length` batches.

    `samples` are the sampler's indices, if any; `columns` has digests of each sample's part of each tensor.
    """

    number: int
    data: int
    length: int | None
    samples: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.samples or tuple(map("".join, zip(*self.columns, strict=True)))


class Replayed(NamedTuple):
    """What step `number` leaves in `name`: taken eagerly, and by a replay from the same state."""

    number: int
    name: str
    eager: Any
    replayed: Any


def recorded(folder: Path) -> int:
    steps = {path: [int(each.stem) for each in path.glob("*.pt")] for path in (folder, *folder.glob("rank *"))}
    return min(max(each, default=0) for each in steps.values())


class _Step:
    def __init__(self) -> None:
        self.batches: list[str] = []  # digests
        self.samples: list[str] = []  # shapes
        self.reads: list[Read] = []  # where runs with several seeds are compared
        self.values: Tensors = {}  # losses, outputs, and what each output had become by the next call
        self.numbers: Counter[str] = Counter()  # of values of each kind
        self.logged: list[str] = []
        self.replays: list[Replayed] = []

    def add(self, kind: str, values: Mapping[str, Any]) -> None:
        self.values |= {f"{kind} {self.numbers[kind]}{path}": value for path, value in values.items()}
        self.numbers[kind] += 1


class Recorder:
    """Writes a file for each step, one for what follows the last, and one for each checkpoint."""

    def __init__(self, recording: Recording) -> None:
        self._orders = recording
        self._reference: Reference | None = None  # while a step is computed in double precision
        self._number, self._saves = 0, 0
        self.restarts = 0
        self._last: list[tuple[str, Any]] = []  # the tensors that the last call returned, not copies
        self._step = _Step()
        self._calls: Counter[Callable[..., Any]] = Counter()  # since the last step
        self._holders = Holders()
        self._state = State((), ())
        self._firsts: dict[str, str] = {}  # the first digests of the state
        self._moving: set[str] = set()  # what of it has changed since

    def watch(self, torch: Any) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter as iterator

        self._save = torch.save
        self._holders.watch()
        atexit.register(self._write_rest, os.getpid())
        backward = torch.Tensor.backward
        torch.Tensor.backward = outermost(backward, before(backward, self._unseen()(self._note_loss)))
        logging.Logger.handle = before(logging.Logger.handle, self._note_log)  # type: ignore[method-assign]
        if not self._orders.reference:
            torch.save = before(torch.save, self._unseen()(self._note_save))
        if self._orders.shift:
            Reads(lambda read: self._step.reads.append(read), other_samples=self._orders.other_samples).watch()
        iterator.__next__ = after(iterator.__next__, self._unseen()(self._note_batch))  # type: ignore[method-assign]

    def note_output(self, function: Callable[..., Any], result: object) -> None:
        """Record a function's result, and what became of its last one, whose memory may be reused."""
        self._calls[function] += 1
        if self._calls[function] > _MOST_CALLS or _is_capturing():
            return
        values = list(values_in(result))
        with self._unseen():
            if self._orders.marks:
                self._step.add(OUTPUT, {name: _brief(tensor) for name, tensor in values})
                return
            self._step.add(LATER, self._samples(self._last))
            self._last = values
            is_between = self._holders.optimizers and self._number + 1 not in self._orders.full
            self._step.add(OUTPUT, self._samples(values) if is_between else self._copies(values))

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """Outside of modes: a program's see all calls, one of ours looks for reads that no graph can hold."""
        from torch._C import DisableTorchFunction
        from torch.utils._python_dispatch import _disable_current_modes

        with DisableTorchFunction(), nullcontext() if self._reference else _disable_current_modes():
            yield

    @functools.cached_property
    def _recording(self) -> Recording:
        rank, _ = rank_and_ranks()
        folder, follow = (of_rank(folder, rank) for folder in (self._orders.folder, self._orders.follow))
        Path(folder).mkdir(exist_ok=True)
        return replace(self._orders, folder=folder, follow=follow)

    def passed(self) -> None:
        self._number += 1
        self._calls.clear()
        if self._orders.marks and self._number not in self._orders.marks:
            return
        with self._unseen():
            self._end_step()

    def _end_step(self) -> None:
        state = self._state = self._holders.state()
        if self._reference or not self._recording.reference:
            self._write(self._number, self._content(state))
        self._step = _Step()
        if self._reference:
            self._reference.__exit__(None, None, None)
            self._reference = None
        if self._recording.follow and self._number in self._recording.restart:
            self._restart(state)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Record nothing meanwhile."""
        kept = self._step, self._last, self._calls
        self._step, self._last, self._calls = _Step(), [], Counter()
        try:
            yield
        finally:
            self._step, self._last, self._calls = kept

    def held(self, result: object) -> Tensors:
        named = {**self._holders.state().tensors(), **{f"{OUTPUT}{path}": each for path, each in values_in(result)}}
        with self._unseen():
            return self._samples(named.items())

    def note_replay(self, eager: Tensors, replayed: Tensors) -> None:
        pairs = ((name, eager[name], replayed[name]) for name in eager.keys() & replayed.keys())
        self._step.replays += [Replayed(self._number, *pair) for pair in pairs]

    def _write_rest(self, process: int) -> None:
        if self._number and os.getpid() == process and not self._recording.reference:
            self._write(self._number + 1, vars(self._step))

    def _write(self, number: int, content: dict[str, Any]) -> None:
        whole = Path(self._recording.folder) / f"{number}.pt"
        part = whole.with_suffix(".part")  # the process may be ended at any time
        self._save({**content, "step": self._number}, part)
        part.replace(whole)

    def _content(self, state: State) -> dict[str, Any]:
        tensors = state.tensors()
        digests = {name: digest(tensor) for name, tensor in tensors.items()}
        content = {**vars(self._step), "digests": digests}
        self._moving |= {name for name, each in digests.items() if self._firsts.setdefault(name, each) != each}
        if self._number not in self._recording.full:
            return content
        still = {name for name in tensors if name.startswith(WEIGHT)} - self._moving
        large = {name for name in still if sample(tensors[name]) is not tensors[name]}  # there may be gigabytes of them
        kept = ((name, tensor) for name, tensor in tensors.items() if name not in large)
        gaps = sorted(self._reference.gaps) if self._reference else []
        return {**content, "tensors": self._copies(kept), "rng": determinism.rng_states(), "gaps": gaps}

    def _restart(self, state: State) -> None:
        import torch

        self.restarts += 1
        followed = Path(self._recording.follow) / f"{self._number}.pt"
        known = torch.load(followed, map_location="cpu", weights_only=False)
        state.restore(known["tensors"])
        determinism.restore_rng(known["rng"])
        if self._recording.reference:
            from perflint.verify.agent.reference import Reference, prefer_plain_kernels

            prefer_plain_kernels()
            self._reference = Reference()
            self._reference.__enter__()

    def _copies(self, named: Iterable[tuple[str, Any]]) -> Tensors:
        return {name: self._value(tensor.detach()).to("cpu", copy=True) for name, tensor in named}

    def _samples(self, named: Iterable[tuple[str, Any]]) -> Tensors:
        """Small tensors as they are; of large ones a sample, the RMS and a digest."""
        samples: Tensors = {}
        for name, tensor in named:
            value = self._value(tensor.detach())
            samples[name] = sample(value).to("cpu", copy=True)
            if samples[name].numel() < tensor.numel():
                samples |= {f"{name} in size": size(value).cpu(), f"{name} as a whole": digest(tensor)}
        return samples

    def _value(self, tensor: Any) -> Any:
        return self._reference.value(tensor) if self._reference else tensor

    def _note_loss(self, loss: Any, *_args: Any, **_kwargs: Any) -> None:
        if loss.numel() == 1 and not _is_capturing():
            import torch

            kind = torch.float64 if self._reference else torch.float32
            self._step.add(LOSS, {"": torch.tensor(float(self._value(loss.detach())), dtype=kind)})

    def _note_batch(self, batch: object, iterator: object) -> None:
        if is_ours(iterator):
            return
        tensors = [tensor for _, tensor in tensors_in(batch)]
        self._step.samples.append(" ".join(str(tuple(tensor.shape)) for tensor in tensors))
        self._step.batches.append(digest(tensors))

    def _note_log(self, _logger: object, record: logging.LogRecord) -> None:
        if not record.name.startswith(_NOT_THEIRS):
            self._step.logged.append(record.getMessage())

    def _note_save(self, value: object, file: object, *_args: Any, **_kwargs: Any) -> None:
        if not self._number:
            return  # nothing has been learned, and the rank may not be known
        self._saves += 1
        name = os.path.relpath(os.fspath(file)) if isinstance(file, str | os.PathLike) else "memory"
        live: dict[str, set[str]] = {}
        for key, tensor in self._state.tensors().items():
            live.setdefault(digest(tensor), set()).add(key)
        tensors = self._copies(values_in(value))
        of = {key: live.get(digest(tensor), set()) for key, tensor in tensors.items()}
        content = {"name": name, "step": self._number, "tensors": tensors, "of": of}
        self._save(content, Path(self._recording.folder) / f"{self._saves}.saved")


class Reads:
    """Tells `note` of each batch; with `other_samples`, random samples are drawn from other numbers, in that order."""

    def __init__(self, note: Callable[[Read], None], *, other_samples: bool) -> None:
        self._note, self._other_samples = note, other_samples
        self._data: list[Any] = []  # in the order of their first use
        self._passes = 0

    def watch(self) -> None:
        from torch.utils.data import dataloader

        iterator: Any = dataloader._BaseDataLoaderIter
        iterator.__init__ = after(iterator.__init__, self._begun)
        iterator._next_index = after(iterator._next_index, self._asked)
        iterator.__next__ = after(iterator.__next__, self._read)

    def _begun(self, _: None, iterator: Any, *_given: Any) -> None:
        if not is_ours(iterator):
            iterator._base_seed += self._other_samples  # from which its workers begin

    def _asked(self, samples: object, iterator: Any) -> None:
        if not is_ours(iterator):
            self._pass(iterator).ahead.append(samples)

    def _read(self, batch: object, iterator: Any) -> None:
        if not is_ours(iterator):
            self._note(self._pass(iterator).read(batch))

    def _pass(self, iterator: Any) -> _Pass:
        known: _Pass | None = getattr(iterator, _PASS, None)
        if known is None or known.sampler is not iterator._sampler_iter:
            self._passes += 1
            known = _Pass(self._passes, self._index(iterator._dataset), iterator)
            setattr(iterator, _PASS, known)
            if self._other_samples:
                determinism.reseed()
        return known

    def _index(self, data: Any) -> int:
        if not any(each is data for each in self._data):
            self._data.append(data)
        return next(number for number, each in enumerate(self._data) if each is data)


class _Pass:
    def __init__(self, number: int, data: int, iterator: Any) -> None:
        self.sampler, self.ahead = iterator._sampler_iter, deque[Any]()
        self._number, self._data, self._length = number, data, None
        with suppress(TypeError):
            self._length = len(iterator._index_sampler)

    def read(self, batch: object) -> Read:
        asked = self.ahead.popleft() if self.ahead else None
        known = asked if isinstance(asked, list | tuple) else [asked]
        samples = () if any(each is None for each in known) else tuple(map(repr, known))
        tensors = [tensor.detach().cpu() for _, tensor in tensors_in(batch)]
        sizes = {len(tensor) for tensor in tensors if tensor.dim()}
        size = len(samples) or (sizes.pop() if len(sizes) == 1 else 0)
        whole = (tensor for tensor in tensors if tensor.dim() and len(tensor) == size)
        columns = tuple(tuple(map(digest, tensor)) for tensor in whole)
        return Read(self._number, self._data, self._length, samples, columns)


def _brief(tensor: Any) -> Any:
    """A small tensor, or a large one's digest: there may be one for each of thousands of steps."""
    return tensor.detach().cpu().clone() if tensor.numel() <= _FEW else digest(tensor)


def _is_capturing() -> bool:
    cuda = sys.modules["torch"].cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())  # a forked process may not even ask


def take_twice(steps: Steps, recorder: Recorder, module: Any) -> None:
    """Take graphed steps eagerly first, to record their middle, and go on with what a replay makes.

    A replay that computes something else shows in the next step; where that restarts, it is compared with the same step
    taken eagerly. `module` is that of `graphed_step`.
    """
    kind = module.GraphedStep
    take = kind._replay

    @functools.wraps(take)
    def taken(step: Any, capture: Any, call: Any, scene: Any) -> Any:
        before, restarts = _Held(scene), recorder.restarts
        result = step.eagerly(call, scene)
        if recorder.restarts == restarts:
            before.restore()
            with steps.noting():
                return take(step, capture, call, scene)
        after, held = _Held(scene), list[Tensors]()  # the state is another run's now
        with steps.noting(), recorder.aside():
            for again in (partial(step.eagerly, call, scene), partial(take, step, capture, call, scene)):
                before.restore()
                held.append(recorder.held(again()))
        recorder.note_replay(*held)
        after.restore()
        return result

    kind._replay = taken
    module.Recall.find = lambda *_: None  # the shorter way, which has no scene


class _Held:
    def __init__(self, scene: Any) -> None:
        import torch

        states = (tensor for each in scene.optimizers for _, tensor in tensors_in(list(each.state.values())))
        self._gradients = [(leaf, leaf.grad) for leaf in scene.leaves]
        grads = (gradient for _, gradient in self._gradients if gradient is not None)
        # kernels of batch norm write to its averages without telling of it
        changed = {id(each): each for each in (*scene.walk.state, *scene.leaves, *states, *grads)}
        self._values = [(each, each.detach().clone()) for each in changed.values()]
        (device,) = scene.walk.devices
        self._generator = torch.cuda.default_generators[device]
        self._offset = self._generator.get_offset()

    def restore(self) -> None:
        for leaf, gradient in self._gradients:
            leaf.grad = gradient
        for tensor, value in self._values:
            tensor.data.copy_(value)  # unseen by a graph that has saved it
        self._generator.set_offset(self._offset)

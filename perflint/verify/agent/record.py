"""Records in the user's process what a program computes: batches, losses, gradients, parameters, states, outputs."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflint.verify.agent import dice
from perflint.verify.agent.gate import place
from perflint.verify.agent.noting import noting_calls, noting_results
from perflint.verify.agent.reads import Reads
from perflint.verify.agent.state import WEIGHT, Holders, State
from perflint.verify.agent.tensors import Tensors, digest, sample, size, tensors_in, values_in
from perflint.verify.run.orders import Recording, of_rank

if TYPE_CHECKING:
    from perflint.verify.agent.reference import Reference
    from perflint.verify.compare.data import Read

_NOT_THEIRS = ("torch", "perflint")  # loggers that tell of how a program is run
_FEW = 16  # numbers
_MOST_CALLS = 64  # of each function: it may be called for each sample


class Recorder:
    """Writes one file for each step, as it is ordered, one for what follows the last, and one for each checkpoint."""

    def __init__(self, recording: Recording) -> None:
        self._orders = recording
        self._reference: Reference | None = None  # behind a restart, where one is wanted
        self._step, self._saves = 0, 0
        self._last: list[tuple[str, Any]] = []  # what the last call returned, as it is and not as it was
        self._noted = _Noted()
        self._calls: Counter[Callable[..., Any]] = Counter()  # since the last step
        self._holders = Holders()
        self._state = State((), ())
        self._firsts: dict[str, str] = {}  # the first digests of what the program keeps
        self._moving: set[str] = set()  # what of that has changed since

    def watch(self, torch: Any) -> None:
        """Note losses, batches, checkpoints and what is logged from now on."""
        from torch.utils.data.dataloader import _BaseDataLoaderIter as iterator

        self._save = torch.save
        self._holders.watch()
        atexit.register(self._write_rest, os.getpid())
        _wrap(torch.Tensor, "backward", self._note_loss)
        _wrap(logging.Logger, "handle", self._note_log)
        if not self._orders.reference:
            _wrap(torch, "save", self._note_save)
        if self._orders.shift:
            Reads(lambda read: self._noted.reads.append(read), stirred=self._orders.stirred).watch()
        iterator.__next__ = noting_results(iterator.__next__, self._note_batch)  # type: ignore[method-assign]

    def note_output(self, function: Callable[..., Any], result: object) -> None:
        """Note what a function returned, and what became of what was returned before: memory may be used again."""
        self._calls[function] += 1
        if self._calls[function] > _MOST_CALLS or _is_captured():
            return
        values = list(values_in(result))
        if self._orders.marks:
            self._noted.outputs.append({name: _brief(tensor) for name, tensor in values})
            return
        self._noted.later.append(self._samples(self._last))
        self._last = values
        is_between = self._holders.are_trained and self._step + 1 not in self._orders.full
        self._noted.outputs.append(self._samples(values) if is_between else self._copies(values))

    @functools.cached_property
    def _recording(self) -> Recording:
        """The orders for this rank, which is known by its first step."""
        rank, _ = place()
        folder, follow = (of_rank(folder, rank) for folder in (self._orders.folder, self._orders.follow))
        Path(folder).mkdir(exist_ok=True)
        return replace(self._orders, folder=folder, follow=follow)

    def passed(self) -> None:
        """Write down a step."""
        self._step += 1
        self._calls.clear()
        if self._orders.marks and self._step not in self._orders.marks:
            return
        state = self._state = self._holders.state()
        if self._reference or not self._recording.reference:
            self._write(self._step, self._content(state))
        self._noted = _Noted()
        if self._reference:
            self._reference.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._reference = None
        if self._recording.follow and self._step in self._recording.restart:
            self._go_on(state)

    def _write_rest(self, process: int) -> None:
        """Write down, as the program ends, what came behind its last step; forked processes have no part in it."""
        if self._step and os.getpid() == process and not self._recording.reference:
            self._write(self._step + 1, vars(self._noted))

    def _write(self, number: int, content: dict[str, Any]) -> None:
        self._save({**content, "step": self._step}, Path(self._recording.folder) / f"{number}.pt")

    def _content(self, state: State) -> dict[str, Any]:
        tensors = state.tensors()
        digests = {name: digest(tensor) for name, tensor in tensors.items()}
        content = {**vars(self._noted), "digests": digests}
        self._moving |= {name for name, each in digests.items() if self._firsts.setdefault(name, each) != each}
        if self._step not in self._recording.full:
            return content
        moving = ((name, tensor) for name, tensor in tensors.items() if self._may_move(name))
        gaps = sorted(self._reference.gaps) if self._reference else []
        return {**content, "tensors": self._copies(moving), "dice": dice.states(), "gaps": gaps}

    def _may_move(self, name: str) -> bool:
        """Whether it is not a weight that has never changed: a model may have gigabytes of them that are frozen."""
        return name in self._moving or not name.startswith(WEIGHT)

    def _go_on(self, state: State) -> None:
        """From here on, go on from the state that was recorded in the run that is followed."""
        import torch

        followed = Path(self._recording.follow) / f"{self._step}.pt"
        known = torch.load(followed, map_location="cpu", weights_only=False)
        state.take_over(known["tensors"])
        dice.take_over(known["dice"])
        if self._recording.reference:
            from perflint.verify.agent.reference import Reference, prefer_plain_kernels

            prefer_plain_kernels()
            self._reference = Reference()
            self._reference.__enter__()  # type: ignore[no-untyped-call]

    def _copies(self, named: Iterable[tuple[str, Any]]) -> Tensors:
        return {name: self._value(tensor.detach()).to("cpu", copy=True) for name, tensor in named}

    def _samples(self, named: Iterable[tuple[str, Any]]) -> Tensors:
        """Copies of small tensors; of large ones a sample, the size of all numbers, and a digest."""
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
        if loss.numel() == 1:
            self._noted.losses.append(float(self._value(loss.detach())))

    def _note_batch(self, batch: object, _loader: object) -> None:
        tensors = [tensor for _, tensor in tensors_in(batch)]
        self._noted.samples.append(" ".join(str(tuple(tensor.shape)) for tensor in tensors))
        self._noted.batches.append(digest(tensors))

    def _note_log(self, _logger: object, record: logging.LogRecord) -> None:
        if not record.name.startswith(_NOT_THEIRS):
            self._noted.logged.append(record.getMessage())

    def _note_save(self, value: object, file: object, *_args: Any, **_kwargs: Any) -> None:
        if not self._step:
            return  # nothing has been learned, and the rank may not be known
        self._saves += 1
        name = os.path.relpath(os.fspath(file)) if isinstance(file, str | os.PathLike) else "memory"
        live: dict[str, set[str]] = {}
        for key, tensor in self._state.tensors().items():
            live.setdefault(digest(tensor), set()).add(key)
        tensors = self._copies(values_in(value))
        of = {key: live.get(digest(tensor), set()) for key, tensor in tensors.items()}
        content = {"name": name, "step": self._step, "tensors": tensors, "of": of}
        self._save(content, Path(self._recording.folder) / f"{self._saves}.saved")


class _Noted:
    """What has happened since the last step."""

    def __init__(self) -> None:
        self.batches: list[str] = []  # digests
        self.samples: list[str] = []  # shapes
        self.reads: list[Read] = []  # where runs with several seeds are compared
        self.losses: list[float] = []
        self.outputs: list[Tensors] = []
        self.later: list[Tensors] = []  # what each output had become by the next call
        self.logged: list[str] = []


def _brief(tensor: Any) -> Any:
    """A value, or its digest where it is large: there may be one for each of thousands of steps."""
    return tensor.detach().cpu().clone() if tensor.numel() <= _FEW else digest(tensor)


def _is_captured() -> bool:
    """Whether what the device is given is kept for later, so that nothing can be read from it now."""
    cuda = sys.modules["torch"].cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())  # a forked process may not even ask


def _wrap(owner: Any, name: str, note: Callable[..., None]) -> None:
    setattr(owner, name, noting_calls(getattr(owner, name), note))

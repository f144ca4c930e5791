"""Notes in the user's process which samples its loaders yield, and what each of them is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from perflint.verify.agent import dice
from perflint.verify.agent.noting import noting_results
from perflint.verify.agent.tensors import digest, tensors_in
from perflint.verify.compare.data import Read

_PASS = "_perflint_pass"  # an attribute of iterators


class Reads:
    """Tells `note` of each batch. If `stirred`, samples that draw random numbers draw others, in the same order."""

    def __init__(self, note: Callable[[Read], None], *, stirred: bool) -> None:
        self._note, self._stirred = note, stirred
        self._data: list[Any] = []  # in the order of their first use
        self._passes = 0

    def watch(self) -> None:
        """Note all batches from now on."""
        from torch.utils.data import dataloader

        iterator: Any = dataloader._BaseDataLoaderIter
        iterator.__init__ = noting_results(iterator.__init__, self._begun)
        iterator._next_index = noting_results(iterator._next_index, self._asked)
        iterator.__next__ = noting_results(iterator.__next__, self._fetched)

    def _begun(self, _: None, iterator: Any, *_given: Any) -> None:
        iterator._base_seed += self._stirred  # from which its workers begin

    def _asked(self, samples: Any, iterator: Any) -> None:
        self._pass(iterator).ahead.append(samples)

    def _fetched(self, batch: Any, iterator: Any) -> None:
        self._note(self._pass(iterator).read(batch))

    def _pass(self, iterator: Any) -> _Pass:
        """That in which an iterator is, of which there may be several."""
        known: _Pass | None = getattr(iterator, _PASS, None)
        if known is None or known.sampler is not iterator._sampler_iter:
            self._passes += 1
            known = _Pass(self._passes, self._number(iterator._dataset), iterator)
            setattr(iterator, _PASS, known)
            if self._stirred:
                dice.stir()
        return known

    def _number(self, data: Any) -> int:
        if not any(each is data for each in self._data):
            self._data.append(data)
        return next(number for number, each in enumerate(self._data) if each is data)


class _Pass:
    """One pass of a loader over its data, with the samples that it has asked for `ahead` of their batches."""

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
        whole = [tensor for tensor in tensors if tensor.dim() and len(tensor) == size]
        return Read(self._number, self._data, self._length, samples, tuple(_digests(tensor) for tensor in whole))


def _digests(tensor: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(digest, tensor))

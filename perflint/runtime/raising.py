"""Brings what a dataset raises in a loader's worker to the program as it was raised, and not in torch's words for it.

A program that has chosen no workers is written for the errors of its dataset: their types, arguments and attributes.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from contextlib import suppress
from typing import Any, NoReturn

from torch._utils import ExceptionWrapper
from torch.utils.data._utils import worker


class FromWorker(Exception):
    """Stands as the cause of an error for where it came about, as far as one process can tell another."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class AsRaised(ExceptionWrapper):
    """What a worker sends in place of a batch: an error that is raised again as it was, if it can be sent at all."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        super().__init__(exc_info, where)  # type: ignore[no-untyped-call]
        self._sent = _sent(sys.exc_info()[1])

    def reraise(self) -> NoReturn:
        """Raise the error."""
        if self._sent is None:
            super().reraise()  # type: ignore[no-untyped-call]
        assert self._sent is not None
        raise pickle.loads(self._sent) from FromWorker(self.exc_msg)


def _sent(error: BaseException | None) -> bytes | None:
    """`error` for another process, if it is the same there."""
    with suppress(Exception):
        data = pickle.dumps(error)
        same = pickle.loads(data)
        if type(same) is type(error) and _words(same) == _words(error):
            return data
    return None


def _words(error: BaseException | None) -> list[str]:
    return [repr(error), *traceback.format_exception_only(error)]


def raise_as_they_are(number: int) -> None:
    """Have this worker send its dataset's errors as they are: the `worker_init_fn` of a loader."""
    worker.ExceptionWrapper = AsRaised  # type: ignore[attr-defined]

"""Records how often the CUDA graphs of a run were replayed, and why the others stayed eager."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from perflint.shim.tally import Tallied, Tally, tallied
from perflint.shim.watches import Undo, Watch, replace, undo_all

MODULE = "perflint.runtime.records"
_KIND = "graph"


def watch(run: Path) -> Watch:
    """See the records of each function in the module of these as they are made and used; counts go to `run`."""

    def see(records: ModuleType) -> Undo:
        kind = records.Records
        make, replayed, refuse = kind.__init__, kind.replayed, kind.refuse

        @functools.wraps(make)
        def init(each: Any, *args: Any, **kwargs: Any) -> None:
            make(each, *args, **kwargs)
            _tally(run, each)

        @functools.wraps(replayed)
        def count(each: Any) -> None:
            replayed(each)
            _tally(run, each).add()

        @functools.wraps(refuse)
        def note(each: Any, mode: Any, reason: str) -> None:
            _tally(run, each).remark(reason)
            refuse(each, mode, reason)

        changes = {"__init__": init, "replayed": count, "refuse": note}
        return undo_all([replace(kind, name, change) for name, change in changes.items()])

    return see


def _tally(run: Path, records: Any) -> Tally:
    if not hasattr(records, "tally"):
        records.tally = Tally(run, _KIND, records._name)
    return records.tally  # type: ignore[no-any-return]


def graphed(run: Path) -> Iterator[Tallied]:
    """How often each graphed function of a run was replayed, and why if never."""
    return (each._replace(remark=each.remark or _reason()) for each in tallied(run, _KIND))


def _reason() -> str:
    torch = sys.modules.get("torch")
    return "it was not called often enough" if not torch or torch.cuda.is_available() else "there is no device"

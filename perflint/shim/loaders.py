"""Completes the arguments of DataLoaders that the user's files construct."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from perflint.shim import hooks
from perflint.shim.counts import Tally, tallied
from perflint.shim.hooks import Undo
from perflint.shim.plan import KnownLoader, Plan

if TYPE_CHECKING:
    from perflint.runtime.loader import Decision
    from perflint.shim.tuned import Tuning

MODULE = "torch.utils.data.dataloader"
LOADERS = "loaders"  # what rules name that have them watched
_ADDED = "_added_in_process"  # the attribute of a loader with the names of the arguments that were added, and the pid
_PENDING = "not tuned: it was read too seldom"


class Made(NamedTuple):
    """A loader that was made at a line of a file: the arguments that were added, why workers were not, and a note."""

    path: str
    line: int
    arguments: Mapping[str, Any]
    reason: str
    note: str = ""

    @property
    def is_pending(self) -> bool:
        return self.note == _PENDING


class Loaders:
    """The loaders of a process in the files of `plan`; decisions are written to the folder `run`."""

    def __init__(self, plan: Plan, run: Path) -> None:
        self._plan, self._run = plan, run
        self._reported: set[str] = set()
        self._has_ended = False
        self._tuning: Tuning | None = None

    def watch(self, module: ModuleType) -> Undo:
        """See each DataLoader of torch's `module` as it is made."""
        from inspect import signature  # here: torch has it, and a process without torch need not

        if self._plan.tunes:
            from perflint.shim.tuned import Tuning  # here: few runs tune, and it needs torch

            self._tuning = Tuning(self._plan, lambda path, line, note: self._report(Made(path, line, {}, "", note)))
        kind = module.DataLoader
        original, defaults = kind.__init__, signature(kind).parameters

        @functools.wraps(original)
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            if type(loader) is not kind or self._has_ended:  # later patches by others may hold on to this one
                original(loader, *args, **kwargs)
                return
            added = self._added(original, _maker(sys._getframe(1), loader), (loader, *args), kwargs)
            original(loader, *args, **kwargs, **added)
            if added:
                setattr(loader, _ADDED, (os.getpid(), tuple(added)))  # on the loader, which may move to a child

        def take_back(loader: Any) -> None:
            """In another process, remove what was added: daemons may have no workers, forks may not pin memory."""
            process, added = getattr(loader, _ADDED, (0, ()))
            if added and process != os.getpid():
                delattr(loader, _ADDED)
                for name in added:
                    setattr(loader, name, defaults[name].default)

        undo = [
            hooks.replace(kind, "__init__", init),
            hooks.replace(kind, "__iter__", hooks.before(kind.__iter__, take_back)),
        ]
        if self._tuning:
            undo.append(self._tuning.watch(kind))
        return hooks.undo_all([lambda: setattr(self, "_has_ended", True), *undo])

    def _added(
        self, original: Callable[..., None], frame: FrameType, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        from inspect import signature

        path, line = frame.f_code.co_filename, frame.f_lineno
        known = self._plan.loader_at(path, line)
        if known is None:
            return {}
        try:
            given = signature(original).bind(*args, **kwargs).arguments
            if "num_workers" in given and "pin_memory" in given:
                return {}
            return _as_without_workers(self._arguments(path, known, args[0], given), given)
        except TypeError:
            return {}  # torch says what is wrong with the arguments
        except Exception as error:
            hooks.warn(f"leaves the loader at {path}:{line} alone: {error!r}")
            return {}

    def _arguments(self, path: str, known: KnownLoader, loader: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
        decision = self._decided(known, given)
        if self._tuning and "num_workers" in decision.arguments:
            if self._tuning.begin(loader, path, known.line, given, decision):
                self._report(Made(path, known.line, {}, "", _PENDING))
            return {name: value for name, value in decision.arguments.items() if name != "num_workers"}
        if decision.arguments or decision.reason:
            self._report(Made(path, known.line, dict(decision.arguments), decision.reason))
        return decision.arguments

    def _decided(self, known: KnownLoader, given: Mapping[str, Any]) -> Decision:
        from perflint.runtime.loader import as_measured, decide

        unsafe = self._plan.unsafe
        decision = decide(given["dataset"], given, unsafe=unsafe, proven=known.proven, doubt=known.doubt)
        if known.measured is None or self._plan.tunes:
            return decision
        return as_measured(decision, given, *known.measured, on=known.cores)

    def _report(self, made: Made) -> None:
        line = json.dumps(made)
        if line not in self._reported:
            self._reported.add(line)
            Tally(self._run, LOADERS, line)


def _maker(frame: FrameType, loader: Any) -> FrameType:
    """The frame that makes a loader: Lightning, say, wraps the constructor, and a wrapper already has the loader."""
    while frame.f_back is not None and any(each is loader for each in frame.f_locals.values()):
        frame = frame.f_back
    return frame


def _as_without_workers(added: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is `added`, and what else a program without workers needs to behave as it did.

    Errors of the dataset are raised as they are, and the start method of processes can still be set.
    """
    if "num_workers" not in added:
        return added
    from perflint.runtime.loader import raise_as_they_are, start_method

    rest = {"worker_init_fn": raise_as_they_are, "multiprocessing_context": start_method(given)}
    return {**added, **{name: value for name, value in rest.items() if name not in given}}


def made(run: Path) -> Iterator[Made]:
    loaders = [Made(*json.loads(each.name)) for each in tallied(run, LOADERS)]
    tuned = {(each.path, each.line) for each in loaders if each.note and not each.is_pending}
    return (each for each in loaders if not each.is_pending or (each.path, each.line) not in tuned)

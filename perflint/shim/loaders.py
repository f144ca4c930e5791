"""Intercepts the DataLoaders that the user's files construct, and completes their arguments."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from perflint.shim import fault
from perflint.shim.plan import KnownLoader, Plan
from perflint.shim.watches import Undo, replace

if TYPE_CHECKING:
    from perflint.runtime.loader import Decision
    from perflint.shim.tuned import Tuning

MODULE = "torch.utils.data.dataloader"
LOADERS = "loaders"  # what rules name that have them watched
_SUFFIX = ".loaders"
_ADDED = "_added_in_process"  # the attribute of a loader that tells what was added to its arguments, and where
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
        """Whether it is still to be found out how many workers it needs."""
        return self.note == _PENDING


class Loaders:
    """The loaders of a process in the files that `plan` owns; what was decided goes to the folder `run`."""

    def __init__(self, plan: Plan, run: Path) -> None:
        self._plan, self._run = plan, run
        self._reported: set[str] = set()
        self._tuning = self._new_tuning() if plan.tunes else None
        self._has_ended = False

    def watch(self, module: ModuleType) -> Undo:
        """See each DataLoader of torch's `module` as it is made."""
        kind = module.DataLoader
        original = kind.__init__

        @functools.wraps(original)
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            if type(loader) is not kind or self._has_ended:  # others may hold on to this by their own patch
                original(loader, *args, **kwargs)
                return
            added = self._added(original, sys._getframe(1), (loader, *args), kwargs)
            original(loader, *args, **kwargs, **added)
            if added:
                setattr(loader, _ADDED, (os.getpid(), tuple(added)))  # not kept here: it goes where the loader goes

        undo = [replace(kind, "__init__", init), _take_back_elsewhere(kind)]
        if self._tuning:
            undo.append(self._tuning.watch(kind))

        def undo_all() -> None:
            self._has_ended = True
            for each in undo:
                each()

        return undo_all

    def _added(
        self, original: Callable[..., None], frame: FrameType, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        import inspect  # here: torch has it, and a process without torch need not

        path, line = frame.f_code.co_filename, frame.f_lineno
        known = self._plan.loader_at(path, line)
        if known is None:
            return {}
        try:
            given = inspect.signature(original).bind(*args, **kwargs).arguments
            if "num_workers" in given and "pin_memory" in given:
                return {}
            return _as_without_workers(self._arguments(path, known, args[0], given), given)
        except TypeError:
            return {}  # torch says what is wrong with the arguments
        except Exception as error:
            fault.tell(f"leaves the loader at {path}:{line} alone: {error!r}")
            return {}

    def _arguments(self, path: str, known: KnownLoader, loader: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
        decision = self._decided(known, given)
        if self._tuning and "num_workers" in decision.arguments:
            if self._tuning.begin(loader, path, known.line, given, decision):
                self._tell(Made(path, known.line, {}, "", _PENDING))
            return {name: value for name, value in decision.arguments.items() if name != "num_workers"}
        if decision.arguments or decision.reason:
            self._tell(Made(path, known.line, dict(decision.arguments), decision.reason))
        return decision.arguments

    def _decided(self, known: KnownLoader, given: Mapping[str, Any]) -> Decision:
        from perflint.runtime.loader import as_measured, decide

        unsafe = self._plan.unsafe
        decision = decide(given["dataset"], given, unsafe=unsafe, proven=known.proven, doubt=known.doubt)
        if known.measured is None or self._plan.tunes:
            return decision
        return as_measured(decision, given, *known.measured, on=known.cores)

    def _new_tuning(self) -> Tuning:
        from perflint.shim.tuned import Tuning  # here: few runs tune

        return Tuning(self._plan, lambda path, line, note: self._tell(Made(path, line, {}, "", note)))

    def _tell(self, made: Made) -> None:
        line = json.dumps(made)
        if line not in self._reported:
            self._reported.add(line)
            with (self._run / f"{os.getpid()}{_SUFFIX}").open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")


def _take_back_elsewhere(kind: Any) -> Undo:
    """Have loaders gone through without what was added, in another process than the one that they were made in.

    What was decided for that one need not hold: a daemonic process may not have workers, nor a forked one pin memory.
    """
    from inspect import signature  # here: torch has it, and a process without torch need not

    original, defaults = kind.__iter__, signature(kind).parameters

    @functools.wraps(original)
    def iterate(loader: Any) -> Any:
        process, added = getattr(loader, _ADDED, (0, ()))
        if added and process != os.getpid():
            delattr(loader, _ADDED)
            for name in added:
                setattr(loader, name, defaults[name].default)
        return original(loader)

    return replace(kind, "__iter__", iterate)


def _as_without_workers(added: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is `added`, and what else a program that has chosen no workers needs to run on as it did.

    Errors of the dataset come out as they were raised, and how processes are started is still to be chosen.
    """
    if "num_workers" not in added:
        return added
    from perflint.runtime.loader import start_method
    from perflint.runtime.raising import raise_as_they_are

    rest = {"worker_init_fn": raise_as_they_are, "multiprocessing_context": start_method(given)}
    return {**added, **{name: value for name, value in rest.items() if name not in given}}


def made(run: Path) -> Iterator[Made]:
    """The loaders that processes of a run made, each place and decision once."""
    lines = [line for file in sorted(run.glob(f"*{_SUFFIX}")) for line in file.read_text("utf-8").splitlines()]
    loaders = []
    for line in dict.fromkeys(lines):
        with suppress(ValueError):  # of a process that was killed as it wrote
            loaders.append(Made(*json.loads(line)))
    tuned = {(each.path, each.line) for each in loaders if each.note and not each.is_pending}
    return (each for each in loaders if not each.is_pending or (each.path, each.line) not in tuned)

"""Tunes the loaders of a run: times them during the run, and keeps the result."""

from __future__ import annotations

import datetime
import functools
import os
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from perflint.project.figures import LoaderFigure, keep
from perflint.report.words import count
from perflint.shim.hooks import Undo, replace
from perflint.shim.plan import Plan

if TYPE_CHECKING:
    from perflint.runtime.loader import Decision
    from perflint.runtime.tuning import Times, Tuner

Tell = Callable[[str, int, str], None]  # path and line of a loader, and what to report of it


class Tuning:
    """The loaders that are being tuned in this process; `tell` is called with each result."""

    def __init__(self, plan: Plan, tell: Tell) -> None:
        self._plan, self._tell = plan, tell
        self._tuners: weakref.WeakKeyDictionary[Any, Tuner] = weakref.WeakKeyDictionary()
        self._of_place: dict[tuple[str, int, int], Tuner] = {}  # by the dataset, too: a place may make several loaders
        self._found: dict[tuple[str, int], LoaderFigure] = {}

    def watch(self, kind: Any) -> Undo:
        """Time iterations over loaders of the class `kind`."""
        original = kind.__iter__

        @functools.wraps(original)
        def iterate(loader: Any) -> Any:
            batches = original(loader)
            tuner = self._tuners.get(loader)
            return tuner.timed(batches) if tuner else batches

        return replace(kind, "__iter__", iterate)

    def begin(self, loader: Any, path: str, line: int, given: Mapping[str, Any], decision: Decision) -> bool:
        """Time the `loader` made at a line of a file, which may have `decision`'s workers; is it the first?"""
        from perflint.runtime.tuning import Tuner

        place = (path, line, id(given["dataset"]))
        is_first = place not in self._of_place
        if is_first:
            kept = {name: value for name, value in given.items() if name != "self"}  # not the loader: it has the tuner
            self._of_place[place] = Tuner(decision.sample, partial(self._decide, path, line, kept, decision))
        self._tuners[loader] = self._of_place[place]
        return is_first

    def _decide(self, path: str, line: int, given: Mapping[str, Any], decision: Decision, times: Times) -> None:
        try:
            figure = self._measured(path, line, given, decision, times)
        except Exception as error:  # the program is in the middle of its loop
            self._tell(path, line, f"not tuned: {error!r}")
            return
        known = self._found.get((path, line))
        if known is None or known.workers < figure.workers:
            self._found[path, line] = figure
            self._tell(path, line, f"{described(figure)}; {self._kept(figure)}")

    def _measured(
        self, path: str, line: int, given: Mapping[str, Any], decision: Decision, times: Times
    ) -> LoaderFigure:
        from perflint.runtime.loader import batch_size, cores
        from perflint.runtime.tuning import choose, seconds_per_batch

        size = batch_size(given)
        most = decision.arguments["num_workers"]
        choice = choose(times, most, partial(seconds_per_batch, given["dataset"], given, size))
        known = self._plan.loader_at(path, line)
        return LoaderFigure(
            path=os.path.relpath(os.path.realpath(path), self._plan.root),
            call=known.call if known else "",
            workers=choice.workers,
            prefetch=choice.prefetch,
            batch_size=size,
            sample_ms=_milliseconds(times.sample),
            batch_ms=_milliseconds(times.batch),
            step_ms=_milliseconds(times.step),
            ready_ms=_milliseconds(choice.ready),
            cores=cores(),
            date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        )

    def _kept(self, figure: LoaderFigure) -> str:
        if not figure.call:
            return "not kept: `perflint fix` would not change this one"
        if os.environ.get("RANK", "0") != "0":
            return "the first rank's are kept"
        try:
            keep(self._plan.root, figure)
        except OSError as error:
            return f"not kept: {error}"
        return "kept for later runs and for `perflint fix`"


def described(figure: LoaderFigure) -> str:
    """A decision, and the measurements behind it."""
    workers = count(figure.workers, "worker")
    ahead = f" with {figure.prefetch} batches each" if figure.workers and figure.prefetch != 2 else ""
    ready = f", and with {workers} one every {figure.ready_ms:.3g} ms" if figure.workers else ""
    return (
        f"{workers}{ahead}: a sample takes {figure.sample_ms:.3g} ms, a batch of {figure.batch_size} "
        f"{figure.batch_ms:.3g} ms{ready}; a step takes {figure.step_ms:.3g} ms"
    )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 2)

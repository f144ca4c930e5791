"""The changes that a run makes to Python's and torch's modules, and how each is undone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

Undo = Callable[[], None]
Watch = Callable[[ModuleType], Undo]
Code = Callable[[str, bytes], "CodeType | None"]


def replace(owner: Any, name: str, new: object) -> Undo:
    """Put `new` in the place of an attribute; the undoing leaves alone what others have put there since."""
    original = getattr(owner, name)
    setattr(owner, name, new)

    def undo() -> None:
        if vars(owner).get(name) is new:
            setattr(owner, name, original)

    return undo


def undo_all(changes: Iterable[Undo]) -> Undo:
    """The undoing of several changes."""
    each_of = list(changes)

    def undo() -> None:
        for each in each_of:
            each()

    return undo


def compiler(hits: Iterable[Callable[[int], None]]) -> Watch:
    """Let torch.compile take the counters for what is called beside a graph, and need not end it."""

    def watch(config: ModuleType) -> Undo:
        others = set(getattr(config, "reorderable_logging_functions", ()))
        config.reorderable_logging_functions = {*others, *hits}  # type: ignore[attr-defined]
        return lambda: setattr(config, "reorderable_logging_functions", others)

    return watch


def exporter(hits: Iterable[Callable[[int], None]]) -> Watch:
    """The same for torch.export, which has a configuration of its own."""

    def watch(trace: ModuleType) -> Undo:
        config = getattr(trace, "DEFAULT_EXPORT_DYNAMO_CONFIG", None)
        functions: set[object] = getattr(config, "reorderable_logging_functions", set())
        functions.update(hits)
        return lambda: functions.difference_update(hits)

    return watch


def files_run(patches: Callable[[str], bool], code: Code) -> Watch:
    """Patch files that are run without an import, as processes that are spawned run the program again."""

    def watch(runpy: ModuleType) -> Undo:
        original = runpy._get_code_from_file

        @functools.wraps(original)
        def patched(*args: str) -> object:
            found = original(*args)  # (run_name, path) gives (code, path) up to Python 3.11; then (path) gives the code
            path = args[-1]
            with suppress(OSError):
                ours = code(path, Path(path).read_bytes()) if patches(path) else None
                if ours is not None:
                    return (ours, *found[1:]) if isinstance(found, tuple) else ours
            return found

        return replace(runpy, "_get_code_from_file", patched)

    return watch


def files_located(swap: Callable[[Any], None]) -> Watch:
    """Let `swap` see what is to be imported from the place of a file, and by no finder."""

    def watch(util: ModuleType) -> Undo:
        original = util.spec_from_file_location

        @functools.wraps(original)
        def located(*args: Any, **kwargs: Any) -> Any:
            spec = original(*args, **kwargs)
            if spec is not None and kwargs.get("loader") is None:
                swap(spec)
            return spec

        return replace(util, "spec_from_file_location", located)

    return watch

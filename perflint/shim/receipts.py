"""Caches which plan belongs to a command line, for as long as the plan holds.

So a program starts without what reads the command line and the settings, and knows the rules. What the words up to a
program's name ask for depends on nothing that follows it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from perflint.shim import plan, store
from perflint.shim.basis import Basis, Tree
from perflint.shim.plan import Plan
from perflint.shim.running import Program, folder_of

if TYPE_CHECKING:
    from perflint.shim.planning import Planned

_MOST_WORDS = 16  # in front of what is the program's; more are read again each time


def keep(words: Sequence[str], program: Program, planned: Planned) -> None:
    """Remember that `words` asked for `program`, and with them the plan that was made for it.

    Nothing is kept of a plan that is not in the cache of its project.
    """
    place = _place(words, program.folder)
    if planned.path is None or planned.path.parent != place.parent:
        return
    basis = planned.basis
    trees = [(tree.folder, tree.endings, sorted(tree.skipped)) for tree in basis.trees]
    content = [program.is_module, program.quiet, planned.path.name, planned.look.digest]
    with suppress(OSError):
        store.write(place, json.dumps([*content, trees, basis.distributions, basis.files]).encode("ascii"))


def find(words: Sequence[str]) -> tuple[Program, Plan] | None:
    """The program that `words` ask for, and its plan; None where that has to be found out."""
    for end, word in enumerate(words[:_MOST_WORDS], 1):
        if word.startswith("-"):
            continue
        with suppress(OSError, ValueError, TypeError):
            folder = folder_of(word) if "-m" not in words[:end] and Path(word).exists() else Path.cwd()
            return _read(_place(words[:end], folder), word, tuple(words[end:]))
    return None


def _place(words: Sequence[str], folder: Path) -> Path:
    """Where a receipt for `words` is, if they ask for a program in `folder`."""
    seed = repr((tuple(words), str(Path.cwd()), sys.path, sys.version, __file__)).encode("utf-8", "surrogatepass")
    return store.place(store.project_of(folder)) / f"words-{blake2b(seed, digest_size=16).hexdigest()}.json"


def _read(place: Path, name: str, arguments: tuple[str, ...]) -> tuple[Program, Plan]:
    is_module, quiet, file, digest, trees, distributions, files = json.loads(store.read(place))
    read = (Tree(folder, tuple(endings), frozenset(skipped)) for folder, endings, skipped in trees)
    if Basis(tuple(read), tuple(distributions), tuple(files)).look().digest != digest:
        raise ValueError("something has changed")
    return Program(name, arguments, is_module, quiet), plan.load(place.with_name(file))

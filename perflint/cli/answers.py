"""What `check` answered a command line, kept while all that it looked at stays the same.

A kept answer is given before the command line, settings or rules are read.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perflint.documents import digest
from perflint.project import CACHE, make_cache
from perflint.shim.plan import Basis, Look, Tree, read, sweep, write

if TYPE_CHECKING:
    from perflint.cli.session import Session

_ANSWERS = "answers"  # the folder of a cache
_TERMINAL = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS")


class Question(NamedTuple):
    """What is asked, and its inputs as they looked before they were read."""

    place: Path
    basis: Basis
    look: Look


def asked(session: Session, config: Path | None) -> Question | None:
    from perflint.project.stored import VERDICTS, nearest
    from perflint.shim.planning import basis_of

    settings = session.settings
    cache = settings.cache_dir or settings.root / CACHE
    is_kept = settings.cache and not session.reads_stdin and cache in _caches()
    if os.name == "nt" or not is_kept or nearest(settings.root.resolve(), VERDICTS):  # of which more may be told
        return None
    with suppress(OSError):
        make_cache(cache)  # before anything is looked at, for it lies in the project
    discovery, _ = session.discover()
    folder = session.folder
    above = dict.fromkeys((folder, *folder.parents, Path.cwd(), *Path.cwd().parents))
    named = (each for each in (config, settings.baseline) if each is not None)
    folders = (discovery.top,) if discovery.top else ()
    basis = basis_of(
        session.rules.selected, settings, folders, discovery.passed_over, [*above], map(Path.absolute, named)
    )
    look = basis.look()
    others = {str(Path.cwd() / each) for each in discovery.files} - look.paths
    if others and not {*map(os.path.realpath, others)} <= {*map(os.path.realpath, look.paths)}:
        return None
    return Question(_place(cache), basis, look)


def keep(question: Question, text: str, took: str, code: int, *, is_for_humans: bool) -> None:
    if not question.basis.holds(question.look):
        return
    with suppress(OSError):
        question.place.parent.mkdir(exist_ok=True)
        parts = text.rpartition(took) if took else ("", "", text)
        trees, *others = question.basis
        basis = [(folder, endings, sorted(skipped)) for folder, endings, skipped in trees], *others
        # no pickle: whoever wrote the project could have put one here
        write(question.place, json.dumps((question.look.digest, basis, parts, is_for_humans, code)).encode())
        sweep(question.place.parent)


def answer() -> int | None:
    began = time.perf_counter()
    for cache in _caches():
        with suppress(OSError, ValueError, TypeError):
            look, (trees, *others), (text, took, rest), is_for_humans, code = json.loads(read(_place(cache)))
            within = (Tree(folder, tuple(endings), frozenset(skipped)) for folder, endings, skipped in trees)
            if Basis(tuple(within), *others).look().digest == look:
                now = f"{time.perf_counter() - began:.2f} s" if took else ""
                encoding = sys.stdout.encoding if is_for_humans else "utf-8"
                _print(f"{text}{now}{rest}".encode(encoding, "backslashreplace"))
                return int(code)
    return None


def _caches() -> list[Path]:
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it is gone, as whoever reads the settings says
        return []
    return [folder / CACHE for folder in (here, *here.parents)]


def _place(cache: Path) -> Path:
    streams = [(each.isatty(), each.encoding, each.errors) for each in (sys.stdout, sys.stderr)]
    size = os.get_terminal_size(sys.stdout.fileno()) if sys.stdout.isatty() else None
    terminal = streams, size, [os.environ.get(name) for name in _TERMINAL]
    seed = repr((sys.argv[1:], str(Path.cwd()), terminal, sys.path, sys.version, __file__))
    return cache / _ANSWERS / digest(seed.encode("utf-8", "surrogatepass"))


def _print(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

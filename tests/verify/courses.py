"""Programs of these tests under the verifier."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import CompletedProcess

from perflint.documents import digest
from perflint.engine.edits import line_map
from perflint.engine.rule import Safety
from perflint.shim.plan import PatchedFile, Plan
from perflint.verify.messages import OPTIMIZER, Kind, Program, Variant
from perflint.verify.processes import Guardian
from perflint.verify.protocol import Budget, Protocol
from perflint.verify.recordings import Records
from perflint.verify.runs import Course
from perflint.verify.verdict import Likeness
from tests import forks

PROGRAMS = Path(__file__).parents[2] / "fixtures" / "verify"


def verify(folder: Path, *arguments: str) -> CompletedProcess[str]:
    """Run the command `verify`."""
    return forks.run([sys.executable, "-m", "perflint", "verify", *arguments], cwd=folder)


@contextmanager
def course(name: str, *arguments: str, folder: Path = PROGRAMS) -> Iterator[Course]:
    """A course for the program of that name, which is run in `folder`."""
    with closing(Guardian()) as guardian:
        yield Course(Program(Kind.SCRIPT, str(PROGRAMS / name), arguments, folder), guardian)


def original(store: Path) -> Variant:
    """A program as it is."""
    return Variant("original", Plan(str(PROGRAMS), {}, (), (), {}, False, False, str(store)))


def changed(store: Path, name: str, old: str, new: str, calls: Sequence[str] = ()) -> Variant:
    """The program with `old` replaced by `new`, and with functions of whose calls the verifier is told."""
    path = PROGRAMS / name
    before = path.read_text(encoding="utf-8")
    assert old in before
    after = before.replace(old, new)
    file = PatchedFile(digest(path.read_bytes()), after, tuple(line_map(after, before)), (), (), tuple(calls))
    return Variant("changed", original(store).plan._replace(files={str(path): file}))


class Bench:
    """A program that is recorded once, and compared with what becomes of it by a change."""

    def __init__(self, records: Records, change: Callable[[str, str], Variant]) -> None:
        self.records, self._change = records, change

    def likeness(self, old: str, new: str, promise: Safety = Safety.EXACT) -> Likeness:
        """How alike the program is to what it becomes with `old` replaced by `new`."""
        return self.likenesses([(old, new)], promise)[0]

    def likenesses(self, changes: Iterable[tuple[str, str]], promise: Safety = Safety.EXACT) -> list[Likeness]:
        """The same of several changes, which are recorded side by side."""
        variants = [self._change(old, new) for old, new in changes]
        runs = self.records.add(variants)
        return [self.records.graded(variant, run, promise) for variant, run in zip(variants, runs, strict=True)]

    def likeness_in_haste(self, old: str, new: str, promise: Safety) -> Likeness:
        """The same where no time is left once the change is recorded."""
        variant = self._change(old, new)
        (run,) = self.records.add([variant])
        self.records.course = self.records.course.within(Budget(0.0))
        return self.records.graded(variant, run, promise)


@contextmanager
def bench(
    name: str, folder: Path, *arguments: str, steps: int, unit: str = OPTIMIZER, calls: Sequence[str] = ()
) -> Iterator[Bench]:
    """The program of that name, of which `steps` steps are compared; it is run in the folder `work`."""

    def change(old: str, new: str) -> Variant:
        return changed(folder / "store", name, old, new, calls)

    for each in ("work", "records", "store"):
        (folder / each).mkdir()
    protocol = Protocol(unit, 1, 1, 1, 3, steps, 60.0)
    with course(name, *arguments, folder=folder / "work") as races:
        records = Records(races, change("", ""), protocol, folder / "records", 1e6, lambda _: None)
        records.add([])
        yield Bench(records, change)

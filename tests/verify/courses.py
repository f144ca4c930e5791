"""Programs of these tests under the verifier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from perflint.line_map import line_map
from perflint.shim.plan import PatchedFile, Plan, digest
from perflint.verify.guardian import Guardian
from perflint.verify.race import Course
from perflint.verify.spec import Kind, Program, Variant

PROGRAMS = Path(__file__).parents[2] / "fixtures" / "verify"


@contextmanager
def course(name: str, *arguments: str) -> Iterator[Course]:
    """A course for the program of that name."""
    with closing(Guardian()) as guardian:
        yield Course(Program(Kind.SCRIPT, str(PROGRAMS / name), arguments, PROGRAMS), guardian)


def original(store: Path) -> Variant:
    """A program as it is."""
    return Variant("original", Plan(str(PROGRAMS), {}, (), (), {}, False, False, str(store)))


def changed(store: Path, name: str, old: str, new: str) -> Variant:
    """The program with `old` replaced by `new`."""
    path = PROGRAMS / name
    before = path.read_text(encoding="utf-8")
    assert old in before
    after = before.replace(old, new)
    file = PatchedFile(digest(path.read_bytes()), after, tuple(line_map(after, before)), (), ())
    return Variant("changed", original(store).plan._replace(files={str(path): file}))

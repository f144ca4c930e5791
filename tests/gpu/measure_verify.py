"""Verifies the workloads, and races each against what an expert makes of it: `python -m tests.gpu.measure_verify`."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from perflint.documents import digest
from perflint.engine.edits import line_map
from perflint.project.settings import load
from perflint.project.stored import VERDICTS
from perflint.shim.plan import PatchedFile
from perflint.shim.planning import Project
from perflint.verify import verdicts
from perflint.verify.messages import Kind, Program, Variant
from perflint.verify.processes import Guardian
from perflint.verify.protocol import Schedule
from perflint.verify.race import race
from perflint.verify.runs import Course
from perflint.verify.statistics import Estimate, speedup
from perflint.verify.summary import ratio_with_interval
from perflint.verify.variants import Variants
from perflint.verify.verdict import Verdict

WORKLOADS = Path(__file__).parents[2] / "fixtures" / "workloads"
BEFORE, PATCH, BY_HAND = "before", "patch", "by hand"  # none whose start is timed: they all start side by side
_PREPARED = {"images"}  # these write files first
_LONGER = {  # so many steps that windows of them can be timed
    "attention": "--steps 4000",
    "context": "--steps 20000",
    "greedy": "--batches 4000",
    "images": "--epochs 20 --folder .",
    "seq2seq": "--steps 4000",
    "reinforce": "--episodes 100000",
    "unguarded": "--epochs 40",
    "chatty": "--epochs 40",
}


def arguments(name: str) -> list[str]:
    """Those of the real size, as the program's docstring has them."""
    lines = (WORKLOADS / f"{name}.py").read_text("utf-8").splitlines()
    line = next(line for line in lines if line.startswith("python"))
    return [*shlex.split(line)[2:], *shlex.split(_LONGER.get(name, ""))]


def copy(name: str, folder: Path, typed: Sequence[str]) -> None:
    """Make the program a project of its own in `folder`."""
    shutil.copy(WORKLOADS / f"{name}.py", folder)
    (folder / "perflint.toml").touch()  # a project of its own
    if name in _PREPARED:
        subprocess.run([sys.executable, f"{name}.py", *typed, "--epochs", "0"], cwd=folder, check=True)


def verified(name: str, folder: Path, typed: Sequence[str], budget: float, way: str = "verify") -> Verdict:
    """What `perflint verify`, or `tune` with the same promises, says of the program in `folder`."""
    promises = ["--allow", "behaviour"] if way == "tune" else []
    command = [sys.executable, "-m", "perflint", way, "--budget", f"{budget:g}s", *promises, f"{name}.py", *typed]
    subprocess.run(command, cwd=folder, check=False)
    return next(iter(verdicts.read(folder / ".perflint" / VERDICTS)))


def raced(
    name: str, folder: Path, typed: Sequence[str], verdict: Verdict | None, budget: float
) -> Mapping[str, Estimate]:
    """How many times as fast as the original the version by hand is, and as that one what was kept of the patch.

    Without a `verdict` every fix is.
    """
    path = folder / f"{name}.py"
    with closing(Guardian()) as guardian:
        variants = Variants(Project(folder, folder, load(folder).settings, None))
        kept = {(fix.path, fix.line, fix.rule, fix.title) for fix in (verdict.fixes if verdict else ()) if fix.kept}
        keys = [key for key in variants.fixes if not verdict or (key.path, key.line, key.rule, key.title) in kept]
        original, patched = variants.with_fixes(BEFORE, ()), variants.with_fixes(PATCH, keys)
        course = Course(Program(Kind.SCRIPT, path.name, tuple(typed), folder), guardian)
        look = course.look(original, budget / 10)
        samples = race(
            course, [original, patched, _by_hand(path, original)], Schedule(look).protocol(3, budget), lambda _: False
        )
    pairs = {"by hand": (BEFORE, BY_HAND), "patch": (BEFORE, PATCH), "patch to by hand": (BY_HAND, PATCH)}
    estimates = {what: speedup(samples.samples, [before], [after]) for what, (before, after) in pairs.items()}
    return {what: estimate for what, estimate in estimates.items() if estimate}


def _by_hand(path: Path, original: Variant) -> Variant:
    text = (WORKLOADS / "by_hand" / path.name).read_text("utf-8")
    calls = tuple(call for file in original.plan.files.values() for call in file.calls)
    lines = tuple(line_map(text, path.read_text("utf-8")))
    file = PatchedFile(digest(path.read_bytes()), text, lines, (), (), calls)
    return Variant(BY_HAND, original.plan._replace(files={str(path): file}))


def main() -> None:
    """Measure and print one line for each program, and keep all verdicts in a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=sorted(each.stem for each in WORKLOADS.glob("*.py")))
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each verification; 0: none")
    parser.add_argument("--by-hand", type=float, default=30.0, help="seconds of each race against the version by hand")
    parser.add_argument("--tune", action="store_true", help="tune instead of verify")
    parser.add_argument("--small", action="store_true", help="at the size of the tests")
    parser.add_argument("--output", type=Path, help="a folder for verdicts and reports")
    typed = parser.parse_args()
    for name in typed.names:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary).resolve()
            sizes = shlex.split(_LONGER.get(name, "")) if typed.small else arguments(name)
            copy(name, folder, sizes)
            verdict = (
                verified(name, folder, sizes, typed.budget, "tune" if typed.tune else "verify")
                if typed.budget
                else None
            )
            estimates: Mapping[str, Estimate] = {}
            if typed.by_hand and (WORKLOADS / "by_hand" / f"{name}.py").exists():
                estimates = raced(name, folder, sizes, verdict, typed.by_hand)
            said = ", ".join(f"{what} {ratio_with_interval(each)}" for what, each in estimates.items())
            print(f"=== {name}: {f'{verdict.outcome.value}; ' if verdict else ''}{said}", flush=True)
            if typed.output:
                (folder / ".perflint").mkdir(exist_ok=True)
                shutil.copytree(folder / ".perflint", typed.output / name)
                content = {what: asdict(each) for what, each in estimates.items()}
                (typed.output / name / "by_hand.json").write_text(json.dumps(content), "utf-8")


if __name__ == "__main__":
    main()

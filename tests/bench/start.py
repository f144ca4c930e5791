"""Times the start of programs by `perflint run` against that by `python`, once their plan is known.

    python tests/bench/start.py [--rounds 20]

One program is empty; the other imports a module that is patched all over. They import a torch that holds nothing, so
that what is timed is perflint's own part. Both ways take turns. Prints the medians; exits with 1 where a start takes
more than 50 ms, and 1 ms for each 10 kB of patched source, longer than by Python.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parents[2]
START_MS, MS_PER_KB = 50, 0.1
TORCH = "class nn:\n    Module = object\n"
COPIES = 160  # of a module of half a kilobyte


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        size = make(project)
        kept = [compare(project, "empty.py", 0, rounds), compare(project, "full.py", size, rounds)]
    return 0 if all(kept) else 1


def make(project: Path) -> float:
    """Write both programs; the size of the patched module in kilobytes."""
    head, _, body = (HERE / "fixtures" / "run" / "decoders.py").read_text("utf-8").partition("class Decoder")
    models = head + "".join(f"class Decoder{number}{body}\n\n" for number in range(COPIES))
    files = {"pyproject.toml": "", "empty.py": "", "full.py": "import models\n", "models.py": models, "torch.py": TORCH}
    for name, text in files.items():
        (project / name).write_text(text, "utf-8")
    return len(models) / 1000


def compare(project: Path, script: str, size: float, rounds: int) -> bool:
    """Print how long `script` takes both ways; whether perflint's is within its bounds for `size` kB patched."""
    ways = {"python": [script], "perflint run": ["-m", "perflint", "run", "-q", script]}
    for _ in range(2):  # the first makes the plan, the second is settled
        spent(project, ways["perflint run"])
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, arguments in ways.items():
            times[way].append(spent(project, arguments))
    medians = {way: statistics.median(each) for way, each in times.items()}
    added, bound = medians["perflint run"] - medians["python"], START_MS + MS_PER_KB * size
    shown = ", ".join(f"{way} {median:.1f} ms" for way, median in medians.items())
    print(f"{script} ({size:.0f} kB patched): {shown}: {added:.1f} ms added, of {bound:.0f}")
    return added <= bound


def spent(project: Path, arguments: Sequence[str]) -> float:
    """How long Python takes to run `arguments` in the project, in milliseconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(HERE)
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=project, env=environment, check=True)
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    sys.exit(main())

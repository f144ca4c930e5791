"""Measures how much slower a program is while the verifier asks nvidia-smi: `python -m tests.gpu.measure_monitor`.

Windows with and without take turns in one process of a workload that waits for its launches. About 40 s on an H200.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import tempfile
from contextlib import closing
from pathlib import Path

from perflint.verify.messages import OPTIMIZER, Kind, Program
from perflint.verify.processes import Guardian, Monitor
from perflint.verify.runs import Course
from tests.gpu.measure_verify import WORKLOADS, arguments
from tests.verify.courses import original

_WARM_UP, _PATIENCE = 8, 300.0


def main() -> None:
    """Print the median ratio of each pair, its quartiles, and how much was read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--window", type=int, default=12, help="steps")
    parser.add_argument("--arguments", help="of seq2seq.py; those of its real size without")
    given = parser.parse_args()
    typed = arguments("seq2seq") if given.arguments is None else shlex.split(given.arguments)
    ratios, readings = [], 0
    with tempfile.TemporaryDirectory() as folder, closing(Guardian()) as guardian:
        program = Program(Kind.SCRIPT, str(WORKLOADS / "seq2seq.py"), tuple(typed), Path(folder))
        with Course(program, guardian).running(original(Path(folder)), OPTIMIZER) as running:
            step = running.advance(_WARM_UP, _PATIENCE).step
            for number in range(given.pairs):
                seconds = {}
                for asks in (True, False) if number % 2 else (False, True):
                    monitor = Monitor() if asks else None
                    step += given.window
                    seconds[asks] = running.advance(step, _PATIENCE).seconds
                    if monitor:
                        readings += len(monitor.readings([""], 0.0))
                        monitor.close()
                ratios.append(seconds[True] / seconds[False])
    low, middle, high = statistics.quantiles(ratios)
    print(f"{middle:.3f} times as long while nvidia-smi is asked ({low:.3f} to {high:.3f}), {readings} readings")


if __name__ == "__main__":
    main()

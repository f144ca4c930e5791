"""Builds records of programs as a GPU would leave them, in microseconds, for tests of what is made of them."""

from __future__ import annotations

from perflint.profile.partition import Division, divide
from perflint.profile.record import Node, Owned, Record, Span
from perflint.profile.roofline import Regime

FILE = "/project/train.py"
KERNELS = {"gemm": "sm90_xmma_gemm_bf16", "add": "vectorized_elementwise_kernel", "nccl": "ncclDevKernel_AllReduce"}


class Recorder:
    """A program of steps that take so many microseconds each, of which nothing is known yet."""

    def __init__(self, step: int, steps: int = 4) -> None:
        marks = [1000 * step * number for number in range(1, steps + 2)]
        self.step, self.steps = step, steps
        self.record = Record(
            is_gpu=True,
            timed=[mark - marks[-1] for mark in marks],
            marks=marks,
            nodes=[Node(-1, "", 0, "")],
            operation_steps=1,
        )
        self._lines: list[tuple[int, int]] = []
        self._link = 0

    def at(self, moment: int, line: int) -> None:
        """In each step, the host comes to a line at a moment."""
        place = Node(0, FILE, line, "main")
        if place not in self.record.nodes:
            self.record.nodes.append(place)
        self._lines += [(begin + 1000 * moment, self.record.nodes.index(place)) for begin in self.record.marks[:-1]]

    def kernel(self, launched: int, begin: int, end: int, kind: str = "add") -> None:
        """In each step, a kernel that was launched at a moment takes from `begin` to `end`."""
        for start in self.record.marks[:-1]:
            self._link += 1
            name = KERNELS.get(kind, kind)
            self.record.work.append(Span(start + 1000 * begin, start + 1000 * end, name, self._link))
            moment = start + 1000 * launched
            self.record.calls.append(Span(moment, moment + 1000, "cudaLaunchKernel", self._link))

    def graph(self, launched: int, *kernels: tuple[int, int, str]) -> None:
        """In each step, a graph of kernels, each of which takes from its begin to its end."""
        for number, start in enumerate(self.record.marks[:-1], 10**6):
            self.record.calls.append(Span(start + 1000 * launched, start + 1000 * launched, "cudaGraphLaunch", number))
            for begin, end, kind in kernels:
                self.record.work.append(Span(start + 1000 * begin, start + 1000 * end, KERNELS[kind], number))

    def wait(self, begin: int, end: int, call: str = "cudaStreamSynchronize") -> None:
        """In each step, the host waits for the device."""
        spans = ((start + 1000 * begin, start + 1000 * end) for start in self.record.marks[:-1])
        self.record.calls += [Span(*span, call) for span in spans]

    def fetch(self, begin: int, end: int, line: int) -> None:
        """In each step, the host waits for a loader that was made at a line."""
        spans = ((start + 1000 * begin, start + 1000 * end) for start in self.record.marks[:-1])
        self.record.fetches += [Owned(*span, FILE, line) for span in spans]

    @property
    def done(self) -> Record:
        """The record."""
        self._lines.sort()
        self.record.times = [moment for moment, _ in self._lines]
        self.record.at = [node for _, node in self._lines]
        return self.record

    @property
    def division(self) -> Division:
        """How the wall time of its steps divides."""
        return divide(self.done)

    @property
    def shares(self) -> dict[str, int]:
        """The shares of the regimes that have any, in percent."""
        return {regime.value: round(100 * share) for regime, share in self.division.shares.items() if share > 0.005}


def line_of(division: Division, record: Record, regime: Regime) -> int:
    """The line that most of a regime's time goes to."""
    sums: dict[int, float] = {}
    for cell in division.cells:
        if cell.regime is regime:
            line = record.nodes[cell.node].line
            sums[line] = sums.get(line, 0.0) + cell.seconds
    return max(sums, key=lambda line: sums[line])

"""What the verifier asks of every process of a program, as data in their environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from perflint.shim.joining import ALSO
from perflint.verify.spec import Loop

ORDERS, FOLLOWER = "PERFLINT_VERIFY", "perflint.verify.agent.inside"


@dataclass(frozen=True)
class Recording:
    """Write what each step computes to `folder`: at the steps `full` all of it, at the others digests and samples.

    Behind each of the steps `restart` the program goes on from the state that is recorded in the folder `follow`, if
    there is one. With `reference` the values are those of the same operations in double precision. Torch is told to
    choose repeatable algorithms, and TF32 is off unless the program asks for it. Seeds of the program's own are larger
    by `shift`; if `stirred`, samples of its loaders draw other random numbers. Its clocks run `clock` times as fast for
    moments, and as slow between these. Where there are `marks`, it is written at these steps alone, by digests, what
    was computed since the last one. `loops` are the program's own that hold fixes: it is told whether they were left.
    """

    folder: str
    full: tuple[int, ...]
    restart: tuple[int, ...]
    follow: str = ""
    reference: bool = False
    shift: int = 0
    stirred: bool = False
    clock: int = 1
    marks: tuple[int, ...] = ()
    loops: tuple[Loop, ...] = ()


@dataclass(frozen=True)
class Orders:
    """Where to ask for leave to go on, the kind of step that counts, the seed, and what to record.

    `unit` is empty where every kind counts. Until the step `until` no leave need be asked for. What files were before
    they change is kept in the folder `journal`, and which are new below the folders `roots`, but for those of the
    folders `ours`.
    """

    address: str = ""
    unit: str = ""
    seed: int = 0
    recording: Recording | None = None
    until: int = 0
    journal: str = ""
    roots: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to follow these orders."""
        variables = {ORDERS: json.dumps(asdict(self)), ALSO: FOLLOWER}
        if self.recording:  # read as CUDA's libraries start
            variables |= {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": str(self.seed)}
            variables |= {"OMP_WAIT_POLICY": "PASSIVE"}  # others run beside it, who need the cores
        return variables


def of_rank(folder: str, rank: int) -> str:
    """Where a rank records: the first one in `folder` itself, if there is one, the others below."""
    return os.path.join(folder, f"rank {rank}") if folder and rank else folder  # noqa: PTH118


def orders() -> Orders | None:
    """The orders that this process has, if any."""
    given = os.environ.get(ORDERS)
    if not given:
        return None
    values = json.loads(given)
    recording = values.pop("recording")
    roots, ours = (tuple(values.pop(name)) for name in ("roots", "ours"))
    return Orders(**values, roots=roots, ours=ours, recording=_recording(**recording) if recording else None)


def _recording(marks: list[int], loops: list[list[Any]], **rest: Any) -> Recording:
    rest |= {name: tuple(rest.pop(name)) for name in ("full", "restart")}
    return Recording(**rest, marks=tuple(marks), loops=tuple(Loop(*each) for each in loops))

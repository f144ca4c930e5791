"""What the verifier and the processes of a program tell each other."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.machinery import PathFinder
from pathlib import Path

from perflint.documents import NOTEBOOK
from perflint.documents.disk import Unreadable
from perflint.documents.document import read
from perflint.engine import UserError
from perflint.engine.results import problem_of
from perflint.shim.plan import Plan, find_program
from perflint.shim.session import ALSO
from perflint.verify.agent.timeline import Timeline

# What counts as a step:
OPTIMIZER, BATCH, BACKWARD, CALLS = "optimizer steps", "loader batches", "backward passes", "calls"
EVALUATION = "evaluation batches"  # steps of their own kind beside a training's, where that is asked for
AGENT = "perflint.verify.agent.join"
PATIENT = {"OMP_WAIT_POLICY": "PASSIVE"}  # the environment of programs that run beside others, who need the cores
ORDERS, GATE = "orders", "gate"  # in the folder of a run: a pickle of its Orders, and the socket of the verifier


_LAUNCHER = ("torchrun", "torch.distributed.run")
SHORT = 8  # iterations of a loop that is shortened, and of a test that also holds once in so many


class Kind(Enum):
    SCRIPT = "script"
    MODULE = "module"
    CALL = "call"


@dataclass(frozen=True)
class Program:
    kind: Kind
    name: str
    arguments: tuple[str, ...]
    folder: Path

    @classmethod
    def named(cls, name: str, arguments: tuple[str, ...], kind: Kind) -> Program:
        """Raises UserError for what Python can't run."""
        if (kind, name) == (Kind.SCRIPT, _LAUNCHER[0]):
            kind, name = Kind.MODULE, _LAUNCHER[1]
        module = name.partition(":")[0]
        if kind is Kind.SCRIPT:
            find_program(name)
            _check(Path(name))
        if kind is Kind.CALL and module == name:
            raise UserError(f"{name}: name a function as PACKAGE.MODULE:FUNCTION")
        outermost = module.partition(".")[0]  # finding what lies inside would import it
        if kind is not Kind.SCRIPT and PathFinder.find_spec(outermost, [os.curdir, *sys.path]) is None:
            raise UserError(f"No module named {module}")
        return cls(kind, name, arguments, Path.cwd())

    @property
    def start(self) -> Path:
        return Path(os.path.realpath(self.name)).parent if self.kind is Kind.SCRIPT else self.folder

    def __str__(self) -> str:
        dash = {Kind.SCRIPT: (), Kind.MODULE: ("-m",), Kind.CALL: ("--call",)}[self.kind]
        return " ".join((*dash, self.name, *self.arguments))


@dataclass(frozen=True)
class Loop:
    """A module-level loop; `path` is real."""

    path: str
    first: int
    last: int


@dataclass(frozen=True)
class Variant:
    """A program with some fixes and the name in reports; `loops` are the original's module-level loops with fixes."""

    name: str
    plan: Plan
    loops: tuple[Loop, ...] = ()


@dataclass(frozen=True)
class Recording:
    """Write what each step computes to `folder`: all of it at the steps `full`, digests and samples at the others.

    After the steps `restart` the program goes on from the state recorded in `follow`, if given. With `reference`,
    values are those of the same operations in double precision. Algorithms are deterministic; TF32 is off unless the
    program asks for it. `shift` is added to the program's seeds; with `other_samples`, loaders draw other random
    samples. Clocks alternate between running `clock` times as fast and as slow. With `marks`, only digests are written,
    at these steps, of all computed since the last. Of `loops` it is reported whether they were left.
    """

    folder: str
    full: tuple[int, ...]
    restart: tuple[int, ...]
    follow: str = ""
    reference: bool = False
    shift: int = 0
    other_samples: bool = False
    clock: int = 1
    marks: tuple[int, ...] = ()
    loops: tuple[Loop, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Undoable:
    """How a process's writes can be undone.

    Files below `roots` are copied to the folder `journal`, if given, before they change, except those in `ours`;
    nothing below `cover` is written where the system can prevent it.
    """

    journal: str = ""
    roots: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    cover: tuple[str, ...] = ()

    def place(self, run: Path) -> Path:
        return run


@dataclass(frozen=True)
class Orders(Undoable):
    """For each process of a program: the kind of step that counts ("": any), the seed, the recording.

    The program runs to step `until` before it asks for leave. Recordings may run `side_by_side`.
    """

    unit: str = ""
    seed: int = 0
    recording: Recording | None = None
    until: int = 0
    side_by_side: bool = False

    def place(self, run: Path) -> Path:
        return Path(self.recording.folder) if self.recording else run

    def environment(self) -> dict[str, str]:
        variables = {ALSO: AGENT}
        if self.recording:  # read as CUDA's libraries start
            variables |= {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": str(self.seed)}
            variables |= PATIENT if self.side_by_side else {}
        return variables


def _check(script: Path) -> None:
    if script.is_dir() and not (script / "__main__.py").is_file():
        raise UserError(f"{script}: there is no __main__.py to run in it")
    if script.suffix.lower() not in (".py", NOTEBOOK):  # an archive, or a folder
        return
    text = ""
    try:
        text = read(script).text
        compile(text, str(script), "exec", dont_inherit=True)
    except (Unreadable, SyntaxError, ValueError) as error:
        problem = error.problem if isinstance(error, Unreadable) else problem_of(error, text)
        raise UserError(f"{script}{f':{problem.line}' if problem.line else ''}: {problem.message}") from error


def of_rank(folder: str, rank: int) -> str:
    return os.path.join(folder, f"rank {rank}") if folder and rank else folder  # noqa: PTH118


@dataclass(frozen=True)
class Leave:
    """A process may run to step `until`; being `observed` slows it down."""

    until: int
    observed: bool = False


@dataclass(frozen=True)
class Platform:
    """What a process runs on: its rank, the ranks on this host, device and versions.

    `gpu` is the end of its GPU's UUID, "" where torch doesn't tell, None while no GPU is in use.
    """

    rank: int
    ranks: int
    device: str
    versions: Mapping[str, str]
    gpu: str | None = None


@dataclass(frozen=True)
class Arrival:
    """A process waits after step `step`, of the kind `kind`, `seconds` after it was resumed.

    `device_bytes` and `host_bytes` are peaks, `device_share` that of the device's memory. `captures` counts captured
    graphs and compiled functions: a window in which it grows isn't steady. `unseen` names functions and loops with
    fixes that were entered and never left. `frames` are where the program is, innermost first.
    """

    step: int
    kind: str
    seconds: float
    device_bytes: int
    host_bytes: int
    captures: int
    platform: Platform
    device_share: float = 0.0
    timeline: Timeline | None = None
    unseen: tuple[str, ...] = ()
    frames: tuple[tuple[str, int], ...] = ()

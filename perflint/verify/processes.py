"""The processes of programs that run: how they start, what they use, and how they end with all their children.

Processes are known by a variable of their environment, whoever started them.
"""

from __future__ import annotations

import datetime
import math
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from perflint.shim.session import RUN
from perflint.verify.verdict import QUIET, Reading, Stranger

_COMMAND = "nvidia-smi"
_FORMAT = "--format=csv,noheader,nounits"
_READ = "timestamp,uuid,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active"
_USED = "gpu_uuid,pid,used_memory,process_name"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_EVERY = 2000  # milliseconds: to ask takes the driver's time, and a core's
_GLANCE = 0.3  # seconds in which that is seen
_MONITORED = 10.0  # seconds for an answer
_LEAVING, _LOOKS = 1.0, 5  # seconds between so many looks at programs of ours that have ended and may still be listed
_REASONS = {
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x20: "heat",
    0x40: "heat, by the hardware",
    0x80: "power brake",
}  # of NVML's clocksEventReasons; others, as being idle or set by hand, disturb nobody


class Monitor:
    """Polls this machine's GPUs with nvidia-smi, if installed, until closed."""

    def __init__(self) -> None:
        self._loads: list[float] = []
        self._strangers: frozenset[Stranger] = frozenset()
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        with suppress(OSError):
            self._process = process = subprocess.Popen(
                [_COMMAND, f"--query-gpu={_READ}", _FORMAT, "-lms", str(_EVERY)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # not a file: it ends when nobody is left to read
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
            self._reader = threading.Thread(target=lambda: self._lines.extend(process.stdout or ()), daemon=True)
            self._reader.start()

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def look_around(self) -> None:
        self._loads.append(psutil.cpu_percent(_GLANCE) / 100)
        if not self._process:
            return
        found = _users()
        for _ in range(_LOOKS):
            if found <= self._strangers:  # those that are known stay, those that are leaving have gone
                break
            time.sleep(_LEAVING)
            found &= _users()
        self._strangers |= found

    @property
    def load(self) -> float:
        return statistics.median(self._loads) if self._loads else 0.0

    def readings(self, gpus: Collection[str], since: float) -> tuple[Reading, ...]:
        return tuple(each for each in readings("".join(self._lines)) if each.time >= since and _is_one(each.gpu, gpus))

    def strangers(self, gpus: Collection[str]) -> tuple[Stranger, ...]:
        found = (each for each in self._strangers if _is_one(each.gpu, gpus))
        return tuple(sorted(found, key=lambda each: (each.gpu, each.pid)))


def readings(text: str) -> Iterator[Reading]:
    for line in text.splitlines():
        with suppress(ValueError):
            moment, gpu, driver, *numbers, reasons = line.split(", ")
            sm, memory, watts, celsius = (math.nan if each[:1] == "[" else float(each) for each in numbers)  # [N/A]
            seconds = datetime.datetime.strptime(moment, "%Y/%m/%d %H:%M:%S.%f").timestamp()
            bits = int(reasons, 16) if reasons.startswith("0x") else 0
            yield Reading(seconds, gpu, driver, sm, memory, watts, celsius, bits)


def facts(read: Sequence[Reading]) -> Mapping[str, str]:
    known = {
        "GPU clock": _range([each.sm_mhz for each in read], "MHz"),
        "GPU memory clock": _range([each.memory_mhz for each in read], "MHz"),
        "GPU power": _range([each.watts for each in read], "W"),
        "GPU temperature": _range([each.celsius for each in read], "°C"),
        "driver": ", ".join(sorted({each.driver for each in read})),
    }
    return {name: text for name, text in known.items() if text}


def disturbances(load: float, gpus: Collection[str], read: Sequence[Reading]) -> Iterator[str]:
    if load > QUIET:
        yield f"other programs kept {100 * load:.0f} % of the cores busy"
    if gpus and not read:
        yield f"{_COMMAND} tells nothing of the clocks of the GPU, nor whether others use it"
    held = [each.reasons for each in read if each.reasons & sum(_REASONS)]
    reasons = [name for bit, name in _REASONS.items() if any(bits & bit for bits in held)]
    if held:
        yield f"in {len(held)} of {len(read)} readings the clocks of the GPU were held back by {', '.join(reasons)}"


def gpu_names() -> frozenset[str]:
    return frozenset() if os.environ.get(_VISIBLE) in ("", "-1") else frozenset(_asked("gpu=name"))


def _users() -> frozenset[Stranger]:
    rows = (line.split(", ", 3) for line in _asked(f"compute-apps={_USED}"))
    return frozenset(Stranger(row[0], row[1], row[3]) for row in rows if len(row) == 4)


def _asked(query: str) -> Sequence[str]:
    command = [_COMMAND, f"--query-{query}", _FORMAT]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_MONITORED, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return answer.stdout.splitlines() if answer.returncode == 0 else ()


def _is_one(gpu: str, gpus: Collection[str]) -> bool:
    return any(gpu.endswith(each) for each in gpus)


def _range(values: Iterable[float], unit: str) -> str:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return ""
    middle, low, high = (f"{value:.0f}" for value in (statistics.median(known), min(known), max(known)))
    return f"{middle} {unit}" if low == high else f"{middle} {unit} ({low} to {high})"


_GONE = (psutil.NoSuchProcess, psutil.AccessDenied)
_STILL = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE)
_SIZES = ("pss", "uss", "rss")  # the first that the system reports
_PATIENCE = 10.0  # seconds that processes have to react to signals
_JOURNAL, _GUARDIAN = "journal", f"{__package__}.guardian"
_LONGEST = 60  # characters of a folder: the paths of sockets in it have 104 at most


def processes(run: str) -> Iterator[psutil.Process]:
    """The living processes of a run, except this one; children without an environment are found by their session."""
    living = dict[psutil.Process, int]()  # and their sessions, 0 for none
    named = set[psutil.Process]()
    for process in (each for each in psutil.process_iter() if each.pid != os.getpid()):
        living[process] = 0
        with suppress(OSError):
            living[process] = os.getsid(process.pid)
        with suppress(*_GONE):
            named.update([process] if process.environ().get(RUN) == run else ())
    sessions = {living[process] for process in named} - {os.getsid(0), 0}
    yield from (process for process, session in living.items() if process in named or session in sessions)


def memory(run: str) -> int:
    used = 0
    for process in processes(run):
        with suppress(*_GONE):
            info = process.memory_full_info()
            used += next(getattr(info, name) for name in _SIZES if hasattr(info, name))
    return used


def pause(run: str, known: Iterable[int]) -> frozenset[int]:
    """Stop all processes of a run, the `known` groups at once; return their groups once they stand still."""
    _signal(known, signal.SIGSTOP)
    end = time.monotonic() + _PATIENCE
    groups = _groups(processes(run))
    while (moving := [group for group, status in groups if status not in _STILL]) and time.monotonic() < end:
        _signal(moving, signal.SIGSTOP)
        time.sleep(0.001)
        groups = _groups(processes(run))
    return frozenset(group for group, _ in groups)


def resume(groups: Iterable[int]) -> None:
    _signal(groups, signal.SIGCONT)


def kill(run: str) -> None:
    found: set[psutil.Process] = set()  # kept: a dying process has lost its environment already
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        found.update(processes(run))
        left = [group for group, status in _groups(found) if status != psutil.STATUS_ZOMBIE]
        if not left:
            return
        _signal(left, signal.SIGKILL)
        time.sleep(0.02)


def _groups(family: Iterable[psutil.Process]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for process in family:
        with suppress(ProcessLookupError, *_GONE):
            if process.is_running():  # else its number may be another's
                found.append((os.getpgid(process.pid), process.status()))
    return found


def _signal(groups: Iterable[int], number: signal.Signals) -> None:
    for group in {*groups} - {os.getpgrp()}:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


class Guardian:
    """A process that outlives this one, kills what it started, restores files from `journal` and removes `folder`."""

    def __init__(self) -> None:
        usual = tempfile.gettempdir()
        self.folder = Path(usual if len(usual) <= _LONGEST else "/tmp") / f"perflint-{secrets.token_hex(6)}"
        self.journal = self.folder / _JOURNAL
        command = [sys.executable, "-m", _GUARDIAN, str(self.folder), str(self.journal)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, text=True)
        self.folder.mkdir(mode=0o700)  # after the guardian has started, which removes it
        self.journal.mkdir()

    def watch(self, run: str) -> None:
        print(run, file=self._process.stdin, flush=True)

    def close(self) -> None:
        self._process.communicate()

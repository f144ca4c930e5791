"""What disturbs a race on a GPU is noticed and named; nvidia-smi is a script of ours here."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from perflint.verify import processes
from perflint.verify.processes import Monitor, disturbances, facts, readings
from perflint.verify.statistics import Outcome
from perflint.verify.summary import sentence
from perflint.verify.verdict import Reading, Stranger
from tests.verify.verdicts import verdict

GPU = "GPU-0b9d7de2-9bc1-2c1e-7b8c-1a3c84a40c1d"
LINE = "2026/11/21 20:55:26.123, {gpu}, 580.159.03, {clock}, 3201, 312.45, 41, {reasons}\n"
CALM = LINE.format(gpu=GPU, clock=1980, reasons="0x0000000000000000")
HELD = LINE.format(gpu=GPU, clock=1755, reasons="0x0000000000000024")
IDLE = LINE.format(gpu=GPU, clock=345, reasons="0x0000000000000001")

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a script in place of nvidia-smi."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(processes, "_LEAVING", 0.0)

    def installed(script: str) -> None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)

    return installed


def test_readings_are_taken_until_the_monitor_is_closed(install: Install) -> None:
    install(f"printf '{CALM}{HELD}'")
    with closing(Monitor()) as monitor:
        monitor._reader.join(60.0)
        (calm, held) = monitor.readings([GPU[-12:]], 0.0)
        assert monitor.readings(["another"], 0.0) == monitor.readings([GPU], held.time + 1) == ()
    assert (calm.sm_mhz, calm.memory_mhz, calm.watts, calm.celsius, calm.reasons) == (1980, 3201, 312.45, 41, 0)
    assert calm.driver == "580.159.03"


def test_what_a_gpu_does_not_tell_is_no_number_and_other_lines_are_passed_over() -> None:
    silent = IDLE.replace("312.45", "[N/A]").replace("0x0000000000000001", "[N/A]")
    first, second = readings(f"{IDLE}\n... 9 bytes ...\n{silent}2026")
    assert first.watts == 312.45
    assert math.isnan(second.watts) and second.reasons == 0


def test_the_environment_holds_the_usual_clock_and_its_range() -> None:
    known = facts(tuple(readings(CALM + CALM + HELD)))
    assert known["GPU clock"] == "1980 MHz (1755 to 1980)"
    assert known["GPU memory clock"] == "3201 MHz"
    assert known["driver"] == "580.159.03"
    assert not facts(())


def test_clocks_that_are_held_back_are_named_with_their_reasons() -> None:
    read = tuple(readings(CALM + IDLE + HELD))
    assert list(disturbances(0.0, [GPU], read)) == [
        "in 1 of 3 readings the clocks of the GPU were held back by power limit, heat"
    ]
    assert not list(disturbances(0.0, [GPU], read[:2]))


def test_others_that_keep_the_cores_busy_are_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shares = iter([90.0, 10.0, 80.0])
    monkeypatch.setattr(psutil, "cpu_percent", lambda _: next(shares))
    with closing(Monitor()) as monitor:
        assert monitor.load == 0
        for _ in range(3):
            monitor.look_around()
    assert list(disturbances(monitor.load, [], ())) == ["other programs kept 80 % of the cores busy"]


def test_without_nvidia_smi_the_report_says_what_is_not_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with closing(Monitor()) as monitor:
        monitor.look_around()
        assert not monitor.readings([GPU], 0.0)
        assert not monitor.strangers([GPU])
    assert "nvidia-smi tells nothing" in next(disturbances(0.0, [GPU], ()))
    assert not list(disturbances(0.0, [], ()))  # a program on the CPU


def test_programs_of_others_are_named_but_not_those_that_are_leaving(install: Install) -> None:
    stays, leaves = (f"{GPU}, {pid}, 512, /usr/bin/python, or so" for pid in (7, 8))
    install(f"case $1 in --query-compute*) cat now; echo '{stays}' > now;; *) sleep 60;; esac")
    (Path(os.environ["PATH"].split(os.pathsep)[0]) / "now").write_text(f"{stays}\n{leaves}\n")
    with closing(Monitor()) as monitor:
        monitor.look_around()
        (stranger,) = monitor.strangers([GPU])
    assert str(stranger) == "process 7 (/usr/bin/python, or so)"


def test_there_is_no_verdict_on_speed_while_others_use_the_gpu() -> None:
    made = replace(verdict(), strangers=(Stranger(GPU, "7", "python"),))
    assert made.outcome is Outcome.UNSURE
    assert not made.is_faster
    assert sentence(made) == (
        "Can't tell: the patched program gives bitwise the same results, "
        "but how fast it is can't be measured while others use the GPU: process 7 (python)."
    )


def test_a_reading_is_kept_as_it_is(tmp_path: Path) -> None:
    from perflint.verify.verdicts import add, read

    made = replace(verdict(), readings=(Reading(1.5, GPU, "580", 1980.0, 3201.0, math.inf, 41.0, 4),))
    add(tmp_path / "verdicts.json", made)
    assert read(tmp_path / "verdicts.json") == (made,)

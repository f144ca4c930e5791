"""Reports say the same, in the same order, and are never lost; the device's part is played by the host."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from perflint.runtime import reports  # noqa: E402
from perflint.runtime.reports import flush, later  # noqa: E402
from tests import forks  # noqa: E402


class Copying:
    """An event of a device that is done when somebody waits for it."""

    def __init__(self) -> None:
        self.is_done, self.waits = False, 0

    def query(self) -> bool:
        return self.is_done

    def synchronize(self) -> None:
        self.is_done, self.waits = True, self.waits + 1


class Device:
    """Lets tensors on the host count as those of a device."""

    def __init__(self) -> None:
        self.events: list[Copying] = []

    def copied(self, tensor: Any, devices: set[Any]) -> Any:
        devices.add(tensor.device)
        return tensor.detach().clone()

    def recorded(self, _: object) -> Copying:
        self.events.append(Copying())
        return self.events[-1]


SCRIPT = """
import os, sys, torch
from perflint.runtime import reports
from perflint.runtime.reports import later
from tests.runtime.test_reports import Device

sys.stdout.reconfigure(line_buffering=True)
device = Device()
reports._copied, reports._recorded = device.copied, device.recorded
torch.cuda.is_current_stream_capturing = lambda: False
loss = torch.zeros(())


def say(step):
    loss.add_(1)
    later(lambda step, loss: print("step", step, loss), step, loss.item)


say(0)
say(1)
"""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    made = Device()
    monkeypatch.setattr(reports, "_copied", made.copied)
    monkeypatch.setattr(reports, "_recorded", made.recorded)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(reports, "_PACE", 0.0)
    yield made
    flush()


def ran(behind: str, *options: str) -> CompletedProcess[str]:
    """A program that reports two steps, and goes on so."""
    return forks.run([sys.executable, *options, "-c", SCRIPT + behind], cwd=Path(__file__).parents[2])


STEPS = "step 0 1.0\nstep 1 2.0\n"


def test_nothing_is_waited_for_and_values_are_those_of_the_call(device: Device) -> None:
    said, loss = list[tuple[int, float]](), torch.zeros(())
    for step in range(5):
        loss += 1
        later(lambda step, loss: said.append((step, loss)), step, loss.item)
    assert said == [] and not any(event.waits for event in device.events)
    flush()
    assert said == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (4, 5.0)]


def test_what_has_arrived_is_reported_by_the_next_call(device: Device) -> None:
    said, loss = list[int](), torch.zeros(())
    for step in range(3):
        later(lambda step, loss: said.append(step), step, loss.item)
        device.events[0].is_done = True
    assert said == [0]


def test_what_has_arrived_is_not_looked_at_in_each_of_many_calls(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, loss = list[int](), torch.zeros(())
    monkeypatch.setattr(reports, "_PACE", 3600.0)
    monkeypatch.setattr(reports._reports, "_looked", time.time())
    for step in range(32):
        later(lambda step, loss: said.append(step), step, loss.item)
        device.events[-1].is_done = True
    assert said == []
    later(lambda step, loss: said.append(step), 32, loss.item)
    assert said == [*range(32)]


def test_reports_wait_for_those_before_them(device: Device) -> None:
    said, loss = list[int](), torch.zeros(())
    for step in range(3):
        later(lambda step, loss: said.append(step), step, loss.item)
    device.events[1].is_done = True
    later(lambda step: said.append(step), 3)
    assert said == []
    flush()
    assert said == [0, 1, 2, 3]


def test_no_more_than_so_many_are_outstanding(device: Device) -> None:
    said, loss = list[int](), torch.zeros(())
    for step in range(100):
        later(lambda step, loss: said.append(step), step, loss.item)
    assert said == [*range(68)]


def test_without_a_device_it_is_called_at_once() -> None:
    said, loss = list[Any](), torch.ones((), requires_grad=True)
    later(said.append, loss.item)
    later(said.append, loss.numpy)
    later(said.append, loss)
    assert said == [1.0, loss.detach().numpy(), loss] and said[2] is loss


def test_the_function_that_shows_is_called_with_what_the_tensors_give(
    device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = torch.ones(2)
    later(print, "losses", losses.tolist, [losses.sum().item], sep=": ", file=sys.stderr)
    losses.zero_()
    assert not device.events[0].waits
    flush()
    assert capsys.readouterr().err == "losses: [1.0, 1.0]: [2.0]\n"


def test_what_turns_out_to_be_no_tensor_is_read_where_it_stands(device: Device) -> None:
    class Meter:
        value = 1.0

        def item(self) -> float:
            return self.value

    said, losses, counts, meter = list[Any](), torch.ones(2), numpy.ones(2), Meter()
    later(lambda *values: said.extend(values), losses.sum().item, counts.sum().item, counts.tolist, meter.item)
    counts[0], meter.value = 5.0, 5.0
    flush()
    assert said == [2.0, 2.0, [1.0, 1.0], 1.0]


def test_a_default_that_may_change_is_shown_at_once(device: Device) -> None:
    said, names, loss = list[str](), ["x"], torch.ones(())
    later(lambda loss, names=names: said.append(f"{names} {loss}"), loss.item)
    assert said == ["['x'] 1.0"]


def test_other_output_does_not_overtake(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    loss = torch.ones(())
    later(lambda loss: print(loss), loss.item)
    print("behind")
    later(lambda loss: print(loss), loss.item)
    sys.stdout.writelines(["behind\n"])
    later(lambda loss: print(loss, file=sys.stderr), loss.item)
    print("behind", file=sys.stderr)
    assert capsys.readouterr() == ("1.0\nbehind\n1.0\nbehind\n", "1.0\nbehind\n")


def test_flushing_a_stream_reports(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    later(lambda loss: print(loss, end=""), torch.ones(()).item)
    sys.stdout.flush()
    assert capsys.readouterr().out == "1.0"


def test_output_goes_where_it_went_when_it_was_reported(device: Device) -> None:
    loss = torch.ones(())
    with contextlib.redirect_stdout(io.StringIO()) as first:
        later(lambda loss: print(loss), loss.item)
    with contextlib.redirect_stdout(io.StringIO()) as second:
        later(lambda loss: print(loss + 1), loss.item)
        flush()
    assert (first.getvalue(), second.getvalue()) == ("1.0\n", "2.0\n")


def test_a_stream_tells_what_was_reported_to_it(device: Device, tmp_path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        later(lambda loss: print(loss), torch.ones(()).item)
    assert said.getvalue() == "1.0\n"
    with (tmp_path / "log").open("w") as file, contextlib.redirect_stdout(file):
        later(lambda loss: print(loss), torch.ones(()).item)
    assert (tmp_path / "log").read_text() == "1.0\n"


def logging_to(handler: logging.Handler) -> logging.Logger:
    log = logging.Logger("test")
    log.addHandler(handler)
    handler.setFormatter(logging.Formatter("%(message)s %(funcName)s %(created)f"))
    return log


def test_logs_keep_their_order_time_and_function(device: Device) -> None:
    said = io.StringIO()
    log = logging_to(logging.StreamHandler(said))
    later(lambda log, loss: log.info("%f", loss), log, torch.ones(()).item)
    assert not device.events[0].waits
    log.info("behind")
    (first, name, created), (second, other, then) = (line.split() for line in said.getvalue().splitlines())
    assert (first, second) == ("1.000000", "behind")
    assert name == other and created <= then


def test_what_a_log_writes_to_later_is_watched_as_the_first_was(device: Device) -> None:
    handler, said = logging.StreamHandler(io.StringIO()), io.StringIO()
    log = logging_to(handler)
    for stream in (handler.stream, said):
        handler.setStream(stream)
        later(lambda log, loss: log.info("%f", loss), log, torch.ones(()).item)
    said.write("behind\n")
    assert said.getvalue().splitlines()[-1] == "behind"
    assert said.getvalue().startswith("1.000000")


def test_without_a_device_logs_name_the_same_function() -> None:
    said = io.StringIO()
    log = logging_to(logging.StreamHandler(said))
    later(lambda log, loss: log.info("%f", loss), log, torch.ones(()).item)
    log.info("behind")
    first, second = (line.split()[1] for line in said.getvalue().splitlines())
    assert first == second


@pytest.mark.parametrize("change", ["removeHandler", "setLevel", "disabled", "disable", "close", "filter", "read"])
def test_a_log_has_all_reports_before_it_changes_or_is_read(device: Device, tmp_path: Path, change: str) -> None:
    handler = logging.FileHandler(tmp_path / "log")
    log = logging_to(handler)
    later(lambda log, loss: log.info("%f", loss), log, torch.ones(()).item)
    assert not device.events[0].waits
    changes: dict[str, Callable[[], object]] = {
        "removeHandler": lambda: log.removeHandler(handler),
        "setLevel": lambda: log.setLevel("ERROR"),
        "disabled": lambda: setattr(log, "disabled", True),
        "disable": lambda: logging.disable(logging.NOTSET),
        "close": handler.close,
        "filter": lambda: handler.addFilter(lambda record: False),
        "read": lambda: None,
    }
    changes[change]()
    assert (tmp_path / "log").read_text().startswith("1.0")


def test_a_handler_of_another_class_is_told_at_once(device: Device) -> None:
    records = list[logging.LogRecord]()
    log = logging_to(type("Kept", (logging.Handler,), {"emit": lambda _, record: records.append(record)})())
    later(lambda log, loss: log.info("%f", loss), log, torch.ones(()).item)
    assert [record.getMessage() for record in records] == ["1.000000"]


def test_a_stream_of_another_class_is_written_to_at_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    class Capture:
        def __init__(self) -> None:
            self.lines = list[str]()

        def write(self, text: str) -> None:
            self.lines.append(text)

    stream = Capture()
    monkeypatch.setattr(sys, "stdout", stream)
    later(lambda loss: print(loss), torch.ones(()).item)
    assert stream.lines == ["1.0", "\n"]


def test_a_stream_is_read_after_its_reports(device: Device) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        later(lambda loss: print(loss), torch.ones(()).item)
    assert not device.events[0].waits
    said.seek(0)
    assert list(said) == ["1.0\n"]


def test_bytes_do_not_overtake(device: Device) -> None:
    said = ran("sys.stdout.buffer.write(b'behind\\n')", "-u").stdout
    assert said == f"{STEPS}behind\n"


def test_containers_are_copied_with_their_tensors(device: Device) -> None:
    said, losses, names = list[object](), {"a": torch.ones(()), "b": [torch.zeros(())]}, ["x"]
    later(lambda *values: said.append(values), {"a": losses["a"].item}, [losses["b"][0].tolist], names)
    losses["a"].add_(1)
    losses["b"] = []
    names.append("y")
    flush()
    assert said == [({"a": 1.0}, [0.0], ["x"])]


def test_values_that_may_change_are_reported_at_once(device: Device) -> None:
    class Meter:
        average = 1

    said, loss, meter = list[float](), torch.ones(()), Meter()
    later(lambda loss: said.append(loss), loss.item)
    later(lambda meter, loss: said.append(meter.average + loss), meter, loss.item)
    assert said == [1.0, 2.0]


def test_a_method_of_what_can_not_be_watched_is_called_at_once(device: Device) -> None:
    class Meter:
        def say(self, loss: Any, sizes: tuple[int, ...] = (1, 2)) -> None:
            said.append((loss, sizes))

    said = list[tuple[float, tuple[int, ...]]]()
    later(Meter().say, torch.ones(()).item)
    assert said == [(1.0, (1, 2))]


def test_tensors_to_be_shown_as_they_are_are_reported_at_once(device: Device) -> None:
    said, shown = list[str](), torch.ones((), requires_grad=True)
    later(lambda shown, loss: said.append(str(shown)), shown, torch.ones(()).item)
    assert said == [str(shown)]


def test_what_can_not_be_watched_is_written_to_at_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slotted:
        __slots__ = ("said",)

        def __init__(self) -> None:
            self.said = ""

        def write(self, text: str) -> None:
            self.said += text

    stream = Slotted()
    monkeypatch.setattr(sys, "stdout", stream)
    later(lambda loss: print(loss), torch.ones(()).item)
    assert stream.said == "1.0\n"


def test_what_a_report_raises_is_raised_and_the_others_still_run(device: Device) -> None:
    said, loss = list[float](), torch.ones(())
    later(lambda loss: 1 / 0, loss.item)
    later(lambda loss: said.append(loss), loss.item)
    with pytest.raises(ZeroDivisionError):
        flush()
    flush()
    assert said == [1.0]


def test_a_report_may_report(device: Device) -> None:
    said, loss = list[int](), torch.ones(())

    def outer(loss: Any) -> None:
        later(lambda: said.append(1))
        said.append(2)

    later(outer, loss.item)
    flush()
    assert said == [1, 2]


def test_other_threads_report_at_once_and_leave_the_rest_alone(device: Device) -> None:
    said, loss = list[int](), torch.ones(())
    later(lambda loss: said.append(1), loss.item)
    thread = threading.Thread(target=lambda: later(lambda loss: said.append(2), loss.item))
    thread.start()
    thread.join()
    assert said == [2]
    flush()
    assert said == [2, 1]


def test_a_progress_bar_shows_what_it_was_told(device: Device) -> None:
    bars = pytest.importorskip("tqdm")
    file = io.StringIO()
    with bars.tqdm(range(3), file=file, mininterval=1000) as bar:
        for step in bar:
            later(bar.set_postfix, loss=torch.tensor(float(step)).item)
    assert "loss=2" in file.getvalue().split("\r")[-1]


def test_a_summary_writer_keeps_the_order_of_its_events(device: Device, tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        added = list[str]()
        write = writer.file_writer.add_summary

        def add(summary: Any, *rest: Any) -> None:
            added.append(summary.value[0].tag)
            write(summary, *rest)

        writer.file_writer.add_summary = add
        later(writer.add_scalar, "loss", torch.ones(()).item, 0)
        writer.add_scalar("rate", 0.1, 0)
        later(writer.add_scalar, "last", torch.ones(()).item, 0)
    assert added == ["loss", "rate", "last"]


def test_all_is_reported_at_exit() -> None:
    assert ran("").stdout == STEPS
    assert ran("sys.exit(3)").stdout == STEPS


def test_all_is_reported_before_an_error_is_shown() -> None:
    found = ran("sys.stderr = sys.stdout\nraise ValueError('it failed')")
    assert found.stdout.startswith(f"{STEPS}Traceback") and found.returncode == 1


def test_an_error_at_exit_loses_nothing() -> None:
    found = ran("later(lambda loss: 1 / 0, loss.item)\nsay(2)", "-u")  # no fork, which tells no errors at exit
    assert found.stdout == f"{STEPS}step 2 3.0\n" and "ZeroDivisionError" in found.stderr


def test_all_is_reported_before_other_programs_write() -> None:
    assert ran("os.system('echo behind')").stdout == f"{STEPS}behind\n"
    assert ran("import subprocess\nsubprocess.run(['echo', 'behind'])").stdout == f"{STEPS}behind\n"
    assert ran("os.execvp('echo', ['echo', 'behind'])").stdout == f"{STEPS}behind\n"


def test_a_forked_process_reports_what_is_its_own() -> None:
    forked = "child = os.fork()\nif child:\n    os.waitpid(child, 0)\nelse:\n    say(2)\nprint('end')"
    assert ran(forked).stdout == f"{STEPS}step 2 3.0\nend\nend\n"


def test_a_forked_process_does_not_repeat_what_a_thread_left_outstanding() -> None:
    forked = (
        "import threading\ndef fork():\n    child = os.fork()\n    if not child:\n        sys.exit()\n"
        "    os.waitpid(child, 0)\nthread = threading.Thread(target=fork)\nthread.start()\nthread.join()"
    )
    assert ran(forked).stdout == STEPS

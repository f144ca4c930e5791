"""What a distribution is given is checked in a replay, too, and told even if nothing is replayed afterwards."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from perflint.runtime import checks
from perflint.runtime.checks import Checks, _Flag, _raise_last, raise_failed


class Event:
    """The end of a stream's work, which the device comes to at the second look, or never."""

    looks = 0
    comes = True

    def record(self, stream: object) -> None:
        assert stream == "stream"

    def query(self) -> bool:
        self.looks += 1
        if self.comes and self.looks == 2:
            checks._flags[torch.device("cpu")].known.fill_(True)
            return True
        return False


@pytest.fixture
def flag(monkeypatch: pytest.MonkeyPatch) -> _Flag:
    streams: Any = {"stream"}
    made = _Flag(torch.ones((), dtype=torch.bool), torch.zeros((), dtype=torch.bool), streams)
    monkeypatch.setattr(checks, "_flags", {torch.device("cpu"): made})
    monkeypatch.setattr(checks, "_PATIENCE", 0.05)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return made


def test_what_the_last_replay_finds_is_raised_at_exit_as_soon_as_the_device_is_done(flag: _Flag) -> None:
    with pytest.raises(ValueError, match="invalid arguments"):
        _raise_last(os.getpid())
    assert not flag.known and not flag.failed
    raise_failed()


def test_a_device_that_is_never_done_keeps_no_program_from_ending(flag: _Flag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Event, "comes", False)
    _raise_last(os.getpid())
    assert flag.failed


def test_a_forked_process_asks_no_device(flag: _Flag) -> None:
    flag.known.fill_(True)
    _raise_last(os.getpid() + 1)
    assert flag.known


@pytest.mark.parametrize("sizes", [((5, 3), (5, 3)), ((64, 1), (3,))])
def test_what_a_capture_draws_is_what_torch_draws(
    sizes: tuple[tuple[int, ...], tuple[int, ...]], flag: _Flag, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean, deviation = (torch.rand(size) for size in sizes)
    made = Checks()
    torch.manual_seed(1)
    expected = [torch.normal(mean, deviation), torch.rand(3)]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    made._flag = flag
    flag.failed.zero_()
    torch.manual_seed(1)
    with made:
        policy: Any = torch.distributions.Normal(mean.expand_as(expected[0]), deviation.expand_as(expected[0]))
        found = policy.sample()
    assert torch.equal(found, expected[0]) and torch.equal(torch.rand(3), expected[1])
    assert not flag.failed and made._has_checks
    with made:
        torch.normal(mean, deviation - 2)
    assert flag.failed

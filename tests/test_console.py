"""The terminal gets a progress bar where somebody waits for it, and no character that it can't show."""

from __future__ import annotations

import io
import sys

import pytest

from perflint.cli import console


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """Standard error, as a terminal; from within a test, because pytest changes the stream between fixture and test."""
    stream = _Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_a_run_that_takes_its_time_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    monkeypatch.setattr(console, "_PATIENCE", 0)
    with console.progress(True) as progress:
        assert progress
        progress(3, 4)
        progress(4, 4)
    assert "Checking" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_a_short_run_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    monkeypatch.setattr(console, "_PATIENCE", 3600)
    with console.progress(True) as progress:
        assert progress
        progress(1, 1)
    assert terminal.getvalue() == ""


def test_there_is_no_progress_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    _terminal(monkeypatch)
    with console.progress(False) as progress:
        assert progress is None
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with console.progress(True) as progress:
        assert progress is None


def test_the_bar_goes_away_when_the_run_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    monkeypatch.setattr(console, "_PATIENCE", 0)
    with pytest.raises(KeyboardInterrupt), console.progress(True) as progress:
        assert progress
        progress(1, 4)
        raise KeyboardInterrupt
    shown = terminal.getvalue()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is back


@pytest.mark.parametrize(("encoding", "expected"), [("ascii", b"\\xe9\\u2603"), ("latin-1", b"\xe9\\u2603")])
def test_characters_that_a_stream_lacks_are_escaped(
    monkeypatch: pytest.MonkeyPatch, encoding: str, expected: bytes
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    console.show("é☃")
    assert written.getvalue() == expected


def test_a_dumb_terminal_gets_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", _Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert console.wants_color("auto")
    monkeypatch.setenv("TERM", "dumb")
    assert not console.wants_color("auto")

"""The shim as a context manager: what is imported inside is patched, and after it everything is as before."""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from perflint.engine import UserError
from perflint.shim import hooks, installed
from tests.shim.runs import project

WRAPPER = """
from torch.utils.data import DataLoader

theirs = DataLoader.__init__


def init(self, *arguments, **given):
    theirs(self, *arguments, **given)


DataLoader.__init__ = init
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose modules can be imported, and are forgotten after the test."""
    project(tmp_path, "decoders.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("decoders", None)


def test_modules_imported_inside_are_patched_and_compute_the_same(folder: Path) -> None:
    plain = importlib.import_module("decoders")
    torch.manual_seed(0)
    expected = plain.Decoder()(torch.ones(2, 3, 4))
    del sys.modules["decoders"]
    with installed(folder) as run:
        patched = importlib.import_module("decoders")
        torch.manual_seed(0)
        torch.testing.assert_close(patched.Decoder()(torch.ones(2, 3, 4)), expected)
        assert "(1 time)" in run.lines()[1]


def test_what_an_earlier_block_patched_counts_on_for_that_block(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with installed(folder) as first:
        module = importlib.import_module("decoders")
        with installed(project(tmp_path_factory.mktemp("other"), "identity.py")):
            module.Decoder()(torch.ones(2, 3, 4))
        assert "(1 time)" in first.lines()[1]


def test_everything_is_as_before_behind_the_block(folder: Path) -> None:
    before = list(sys.meta_path), dict(os.environ), DataLoader.__init__, runpy._get_code_from_file  # type: ignore[attr-defined]
    location = importlib.util.spec_from_file_location
    with installed(folder):
        assert (sys.meta_path, location) != (before[0], importlib.util.spec_from_file_location)
    after = list(sys.meta_path), dict(os.environ), DataLoader.__init__, runpy._get_code_from_file  # type: ignore[attr-defined]
    assert (after, importlib.util.spec_from_file_location) == (before, location)
    module = importlib.import_module("decoders")
    assert type(module.__loader__).__name__ == "SourceFileLoader"


def test_what_others_changed_meanwhile_is_left_to_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "before")  # and back, after the test
    with installed(folder):
        os.environ["PYTHONPATH"] = "elsewhere"
    assert os.environ["PYTHONPATH"] == "elsewhere"


def test_what_others_have_wrapped_does_nothing_more_behind_the_block(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(folder, "reads.py")
    (folder / "wraps.py").write_text(WRAPPER)
    monkeypatch.setattr(DataLoader, "__init__", DataLoader.__init__)  # and back, after the test
    with installed(folder, unsafe=True):
        importlib.import_module("wraps")
    faults: list[str] = []
    monkeypatch.setattr(hooks, "warn", faults.append)
    assert len(importlib.import_module("reads").choose()) == 2
    assert not faults


def test_a_file_changed_since_the_plan_is_run_as_it_is(folder: Path) -> None:
    with installed(folder) as run:
        with (folder / "decoders.py").open("a") as file:
            file.write("ADDED = 1\n")
        assert importlib.import_module("decoders").ADDED == 1
        assert "not applied: 1 fix in files that were not loaded, or were changed meanwhile" in run.lines()[1]


def test_rules_are_chosen_as_on_the_command_line(folder: Path) -> None:
    with installed(folder, ignore=["decode-loop"]) as run:
        importlib.import_module("decoders")
        assert run.lines() == ["perflint: 0 fixes took effect"]
    with pytest.raises(UserError, match="decode-lop"), installed(folder, select=["decode-lop"]):
        pass


def test_a_folder_that_there_is_none_of_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"), installed(tmp_path / "nowhere"):
        pass
    assert not (tmp_path / "nowhere").exists()

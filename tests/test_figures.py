"""What runs have measured of loaders is what fixes write, for as long as the call is the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perflint.engine.fix import fix_text
from perflint.project import figures, stored
from perflint.project.figures import LoaderFigure
from perflint.project.settings import load
from rules.dataloader_defaults import DataloaderDefaults

CALL = "DataLoader(data, batch_size=4)"
PROGRAM = f"""\
import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return (torch.ones(2) * index**2,)


def main():
    data = Squares()
    for (batch,) in {CALL}:
        print(batch.cuda())


if __name__ == "__main__":
    main()
"""
FIGURE = LoaderFigure("train.py", CALL, 3, 2, 4, 1.0, 4.0, 2.0, 1.5, 8, "2026-11-21")


def fixed(folder: Path, text: str = PROGRAM) -> str:
    """The loop over the loader after its fix, by the settings that hold in `folder`, in one line."""
    result = fix_text(text, [DataloaderDefaults()], load(folder).settings.rules)
    head = result.text[result.text.index("in DataLoader") :]
    return " ".join(head[: head.index("):") + 2].split())


@pytest.mark.parametrize(
    ("workers", "prefetch", "added"),
    [
        (3, 2, "num_workers=3, pin_memory=True"),
        (3, 5, "num_workers=3, pin_memory=True, prefetch_factor=5"),
        (0, 2, "pin_memory=True"),
    ],
)
def test_a_fix_writes_what_was_measured(tmp_path: Path, workers: int, prefetch: int, added: str) -> None:
    figures.keep(tmp_path, FIGURE._replace(workers=workers, prefetch=prefetch))
    assert fixed(tmp_path).endswith(f" DataLoader(data, batch_size=4, {added}):")


def test_a_call_that_was_changed_since_gets_the_default(tmp_path: Path) -> None:
    figures.keep(tmp_path, FIGURE)
    assert "num_workers=4" in fixed(tmp_path, PROGRAM.replace("batch_size=4", "batch_size=8"))
    assert "num_workers=3" in fixed(tmp_path, PROGRAM.replace("data, batch_size=4", "data,  batch_size=4"))


def test_two_places_with_the_same_call_that_differ_are_told_nothing(tmp_path: Path) -> None:
    figures.keep(tmp_path, FIGURE)
    figures.keep(tmp_path, FIGURE._replace(path="other.py", workers=5))
    assert "num_workers=4" in fixed(tmp_path)


def test_what_is_measured_again_takes_the_place_of_what_was(tmp_path: Path) -> None:
    figures.keep(tmp_path, FIGURE)
    figures.keep(tmp_path, FIGURE._replace(workers=5))
    assert [each.workers for each in figures.load(stored.nearest(tmp_path / "package", stored.LOADERS))] == [5]


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege there")
def test_a_file_that_is_a_link_stays_one(tmp_path: Path) -> None:
    shared = tmp_path / "shared.json"
    shared.touch()
    (tmp_path / stored.FOLDER).mkdir()
    (tmp_path / stored.FOLDER / stored.LOADERS).symlink_to(shared)
    figures.keep(tmp_path, FIGURE)
    assert figures.load(shared) == (FIGURE,)
    assert [each.name for each in (tmp_path / stored.FOLDER).iterdir()] == [stored.LOADERS]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"version": 2, "loaders": []}', '{"version": 1, "loaders": [{"x": 1}]}']
)
def test_a_file_that_is_damaged_or_of_another_version_is_no_file(tmp_path: Path, content: str) -> None:
    figures.keep(tmp_path, FIGURE)
    (tmp_path / stored.FOLDER / stored.LOADERS).write_text(content)
    assert "num_workers=4" in fixed(tmp_path)


def test_figures_are_shown_among_the_settings_and_left_out_with_them(tmp_path: Path) -> None:
    figures.keep(tmp_path, FIGURE)
    resolved = load(tmp_path)
    assert resolved.settings.rules["dataloader-defaults"]["measured"] == f"3 2 {CALL}"
    assert resolved.origins["rules.dataloader-defaults.measured"].endswith("loaders.json")
    assert load(tmp_path, isolated=True).settings.rules["dataloader-defaults"]["measured"] == ""

"""Settings of a whole program take effect where they can, say why where they can't, and are undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from perflint.shim.counts import tallied
from perflint.shim.settings import SETTINGS, watch


def made(folder: Path, *names: str) -> tuple[Any, dict[str, tuple[int, str]]]:
    """A convolution and optimizers that are made with these settings, and what was tallied."""
    undo = watch(folder, names, torch)
    try:
        conv = nn.Conv2d(3, 4, 3)
        linear = nn.Linear(2, 2)
        optimizers = (torch.optim.Adam(linear.parameters()), torch.optim.SGD(conv.parameters(), 0.1, foreach=True))
        autocast = linear(torch.ones(1, 2)).dtype
    finally:
        undo()
    return (conv, optimizers, autocast), {each.name: (each.times, each.remark) for each in tallied(folder, SETTINGS)}


def test_convolutions_get_weights_in_channels_last(tmp_path: Path) -> None:
    (conv, _, _), tallies = made(tmp_path, "channels-last")
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert tallies["channels-last"][0] == 1
    assert nn.Conv2d(3, 4, 3).weight.is_contiguous()


def test_optimizers_are_fused_unless_the_program_chooses(tmp_path: Path) -> None:
    (_, (adam, sgd), _), tallies = made(tmp_path, "fused-optimizer")
    assert adam.defaults["fused"] is True and not sgd.defaults["fused"]
    assert tallies["fused-optimizer"] == (1, "the program chooses how its optimizers step")


def test_bfloat16_is_on_while_the_program_runs(tmp_path: Path) -> None:
    (_, _, kind), _ = made(tmp_path, "bfloat16")
    expected = torch.bfloat16 if not torch.version.cuda else torch.float32  # the program computes on the CPU
    assert kind is expected and not torch.is_autocast_enabled("cpu")


def test_what_needs_cuda_says_so(tmp_path: Path) -> None:
    if torch.version.cuda:
        return
    _, tallies = made(tmp_path, "tf32", "cudnn-benchmark")
    assert set(tallies.values()) == {(0, "this torch has no CUDA")}

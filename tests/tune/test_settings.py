"""Settings of a whole program take effect where they can, say why where they can't, and are undone."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from perflint.engine.catalogue import all_rules
from perflint.engine.rule import Safety
from perflint.runtime import loader
from perflint.shim.hooks import tallied
from perflint.shim.settings import KNOWN, SETTINGS, watch
from perflint.verify.messages import Variant
from perflint.verify.verdict import Grade
from tests.verify.courses import bench, original


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


@pytest.fixture
def channels_last(tmp_path: Path) -> Iterator[Callable[[], tuple[int, str]]]:
    """Watches convolutions, and gives what has been tallied."""
    undo = watch(tmp_path, ["channels-last"], torch)
    yield lambda: next((each.times, each.remark) for each in tallied(tmp_path, SETTINGS))
    undo()
    assert "_compiled_call_impl" not in vars(nn.Conv2d)


def test_convolutions_get_weights_in_channels_last_as_they_are_called(
    channels_last: Callable[[], tuple[int, str]],
) -> None:
    conv = nn.Conv2d(3, 4, 3)
    copied = copy.deepcopy(conv)
    with torch.inference_mode():
        copied(torch.ones(1, 3, 5, 5))
    assert copied.weight.is_contiguous(memory_format=torch.channels_last) and not copied.weight.is_inference()
    assert conv.weight.is_contiguous() and conv._forward_pre_hooks == {} and channels_last()[0] == 1


def test_convolutions_in_channels_last_are_filled_with_the_same_random_numbers(
    channels_last: Callable[[], tuple[int, str]],
) -> None:
    convs = [nn.Conv2d(3, 4, 3) for _ in range(2)]
    for conv, is_called in zip(convs, (False, True), strict=True):
        torch.manual_seed(0)
        nn.init.kaiming_normal_(conv.weight)
        _ = is_called and conv(torch.ones(1, 3, 5, 5))
    assert torch.equal(convs[0].weight, convs[1].weight) and channels_last()[0] == 1


@pytest.mark.parametrize("keep", [nn.Module.state_dict, lambda conv: conv.weight.data[0], nn.Module.share_memory])
def test_weights_whose_memory_something_else_has_as_well_stay_there(
    keep: Callable[[Any], Any], channels_last: Callable[[], tuple[int, str]]
) -> None:
    conv = nn.Conv2d(3, 4, 3)
    kept, weight = keep(conv), conv.weight.data_ptr()
    conv(torch.ones(1, 3, 5, 5))
    assert kept is not None and conv.weight.data_ptr() == weight
    assert channels_last() == (0, "the program keeps the memory of a convolution's weights elsewhere, too")


def test_convolutions_in_channels_last_may_be_pickled_scripted_and_compiled(
    channels_last: Callable[[], tuple[int, str]],
) -> None:
    conv, given = nn.Conv2d(3, 4, 3), torch.ones(1, 3, 5, 5)
    kinds = (
        pickle.loads(pickle.dumps(conv)),
        torch.jit.script(conv),
        torch.compile(copy.deepcopy(conv), backend="eager", fullgraph=True),
    )
    for each in (*kinds, conv):
        torch.testing.assert_close(each(given), conv(given))


def test_optimizers_are_fused_unless_the_program_chooses(tmp_path: Path) -> None:
    (_, (adam, sgd), _), tallies = made(tmp_path, "fused-optimizer")
    assert adam.defaults["fused"] is True and not sgd.defaults["fused"]
    assert tallies["fused-optimizer"] == (1, "the program chooses how its optimizers step")


def test_bfloat16_is_on_while_the_program_runs(tmp_path: Path) -> None:
    (_, _, kind), _ = made(tmp_path, "bfloat16")
    expected = torch.bfloat16 if not torch.version.cuda else torch.float32  # the program computes on the CPU
    assert kind is expected and not torch.is_autocast_enabled("cpu")


class Sums(Dataset[int]):
    """Samples that take longer to compute than a worker costs, and may be drawn, or read from what the first opens."""

    def __init__(self, drawn: bool = False, opens: bool = False) -> None:
        self.drawn, self.opens, self.opened = drawn, opens, 0

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        self.opened += self.opens
        return sum(range(100_000)) * (random.randrange(2) if self.drawn else 1) + index


def test_loaders_with_workers_get_more_unless_samples_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "cores", lambda: 4)
    undo = watch(tmp_path, ["more-workers"], torch)
    try:
        batches = DataLoader(Sums(), 4, num_workers=1)
        read = torch.cat(list(batches)).tolist()
        drawn = DataLoader(Sums(drawn=True), 4, num_workers=1)
        iter(drawn)
        said = [each.remark for each in tallied(tmp_path, SETTINGS)]
        opening = Sums(opens=True)
        opened = DataLoader(opening, 4, num_workers=1)
        iter(opened)
    finally:
        undo()
    assert read == [Sums()[index] for index in range(24)]
    assert (batches.num_workers, drawn.num_workers, opened.num_workers) == (3, 1, 1)
    assert opening.opened == 0  # samples are tried out in a worker
    (tally,) = tallied(tmp_path, SETTINGS)
    assert tally.times == 1 and "reading a sample changes it" in tally.remark
    assert "samples are drawn at random" in said[0]


def test_trying_out_a_loader_is_no_batch_of_the_program(tmp_path: Path) -> None:
    with bench("workers.py", tmp_path, steps=6) as trial:
        plan = original(tmp_path / "store").plan._replace(settings=("more-workers",))
        tuned = Variant("tuned", plan)
        (run,) = trial.records.add([tuned])
        assert trial.records.graded(tuned, run, Safety.EXACT).grade is Grade.BITWISE


def test_what_needs_cuda_says_so(tmp_path: Path) -> None:
    if torch.version.cuda:
        return
    _, tallies = made(tmp_path, "tf32", "cudnn-benchmark")
    assert set(tallies.values()) == {(0, "this torch has no CUDA")}


def test_rules_that_stand_for_a_setting_name_one_that_there_is() -> None:
    named = {each.setting for each in all_rules() if each.setting}
    assert named and named <= KNOWN.keys()

"""Calls have equal keys if, and only if, a graph of one would do for the other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from perflint.runtime.tree import flatten, rebuild
from perflint.runtime.walk import HOST_VALUES, Scope, Walk

LIMIT = 5
SETTINGS = SimpleNamespace(width=3, unread=1)
TABLE = torch.zeros(2)


def walk(scope: Scope, function: Any, *args: Any, **kwargs: Any) -> Walk:
    structure, leaves = flatten((args, kwargs))
    return Walk(scope, function, structure, leaves)


def learned(function: Any, *args: Any) -> Scope:
    scope = Scope(function)
    while scope.learn([*(w := walk(scope, function, *args)).modules, *w.objects]):
        pass
    return scope


class Attention(nn.Module):
    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.drop = nn.Dropout(0.5)
        self.heads = 2
        self.seen = 0
        self.register_buffer("mask", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.helper(x) * self.mask

    def helper(self, x: Tensor) -> Tensor:
        return self.drop(self.linear(x)) * self.heads  # type: ignore[no-any-return]


def decode(model: Attention, x: Tensor, steps: int) -> Tensor:
    for _ in range(min(steps, LIMIT)):
        x = model(x) * SETTINGS.width + TABLE
    return x


def replace_weight(model: Attention) -> None:
    model.linear.weight = nn.Parameter(model.linear.weight.detach().clone())


def move_weight(model: Attention) -> None:
    model.linear.weight.data = torch.ones(2, 2)


CHANGES: dict[str, Callable[[Attention], object]] = {
    "a parameter is replaced": replace_weight,
    "a parameter's memory is replaced": move_weight,
    "a parameter is frozen": lambda model: model.linear.requires_grad_(False),
    "the mode changes": lambda model: model.eval(),
    "the mode of a part changes": lambda model: model.drop.eval(),
    "a part is replaced": lambda model: setattr(model, "linear", nn.Linear(2, 2)),
    "a part is added": lambda model: model.add_module("more", nn.Identity()),
    "a setting that the forward pass reads changes": lambda model: setattr(model, "heads", 3),
    "a setting of torch's own changes": lambda model: setattr(model.drop, "p", 0.1),
}


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host tensors of state are looked at as those on a device are: by identity and address."""

    def tensor(self: Walk, value: Tensor) -> None:
        self.state.append(value)
        self._parts += (id(value), value.data_ptr(), value.requires_grad)

    monkeypatch.setattr(Walk, "_tensor", tensor)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_key_of_a_call_changes_when(change: Callable[[Attention], object]) -> None:
    model, x = Attention(), torch.ones(1, 2)
    scope = learned(decode, model, x, 3)
    before = walk(scope, decode, model, x, 3).key()
    assert walk(scope, decode, model, x, 3).key() == before
    change(model)
    assert walk(scope, decode, model, x, 3).key() != before


@pytest.mark.usefixtures("on_device")
def test_weights_updated_or_loaded_in_place_leave_the_key_as_it_is() -> None:
    model, x = Attention(), torch.ones(1, 2)
    scope = learned(decode, model, x, 3)
    before = walk(scope, decode, model, x, 3).key()
    with torch.no_grad():
        model.linear.weight.add_(1)
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    model.seen += 1  # which the forward pass doesn't read
    SETTINGS.unread += 1
    assert walk(scope, decode, model, x, 3).key() == before


@pytest.mark.usefixtures("on_device")
def test_globals_and_settings_that_the_code_reads_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Attention(), torch.ones(1, 2)
    scope = learned(decode, model, x, 3)
    keys = {walk(scope, decode, model, x, 3).key()}
    monkeypatch.setitem(globals(), "LIMIT", 6)
    keys.add(walk(scope, decode, model, x, 3).key())
    monkeypatch.setattr(SETTINGS, "width", 4)
    keys.add(walk(scope, decode, model, x, 3).key())
    monkeypatch.setitem(globals(), "TABLE", torch.ones(2))
    keys.add(walk(scope, decode, model, x, 3).key())
    assert len(keys) == 4


def test_values_and_types_of_other_arguments_are_in_the_key() -> None:
    scope = Scope(decode)
    arguments: list[Any] = [1, 1.0, True, "1", None, (1,), [1], {"a": 1}, {"b": 1}, torch.float32, range(1), (1, 1)]
    assert len({walk(scope, decode, value).key() for value in arguments}) == len(arguments)
    assert walk(scope, decode, x=1, y=[2, (3, None)]).key() == walk(scope, decode, x=1, y=[2, (3, None)]).key()


def test_modes_of_the_thread_are_in_the_key() -> None:
    scope = Scope(decode)
    keys = {walk(scope, decode).key()}
    with torch.no_grad():
        keys.add(walk(scope, decode).key())
    with torch.inference_mode():
        keys.add(walk(scope, decode).key())
    assert len(keys) == 3


def test_what_a_closure_holds_is_in_the_key_and_its_function_is_not() -> None:
    def make(end: int) -> Callable[[int], bool]:
        def test(token: int) -> bool:
            return token == end

        return test

    scope = Scope(make(1))
    assert walk(scope, make(1)).key() == walk(scope, make(1)).key()
    assert walk(scope, make(1)).key() != walk(scope, make(2)).key()


def test_short_host_tensors_count_by_value_and_long_ones_are_refused() -> None:
    scope = Scope(decode)
    assert walk(scope, decode, torch.tensor([1, 2])).key() == walk(scope, decode, torch.tensor([1, 2])).key()
    assert walk(scope, decode, torch.tensor([1, 2])).key() != walk(scope, decode, torch.tensor([1, 3])).key()
    assert walk(scope, decode, torch.ones(HOST_VALUES)).refusal is None
    assert "host tensor" in str(walk(scope, decode, torch.ones(HOST_VALUES + 1)).refusal)


def test_what_no_graph_can_hold_is_refused() -> None:
    scope = Scope(decode)
    hooked = nn.Sequential(nn.Linear(2, 2))
    hooked[0].register_forward_hook(lambda *_: None)
    assert "hooks" in str(walk(scope, decode, hooked).refusal)
    assert "generator" in str(walk(scope, decode, torch.Generator()).refusal)
    assert "scripted" in str(walk(scope, decode, torch.jit.script(nn.Linear(2, 2))).refusal)
    assert "layout" in str(walk(scope, decode, torch.ones(2, 2).to_sparse()).refusal)


def test_a_scope_names_what_helpers_and_methods_read_too() -> None:
    scope = learned(decode, Attention(), torch.ones(1, 2), 3)
    assert {"heads", "width"} <= scope.names
    assert {name for _, name in scope.globals} == {"LIMIT", "SETTINGS", "TABLE"}


def test_an_attribute_is_not_taken_for_the_global_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def scale(model: Attention) -> int:
        return model.heads * LIMIT

    def assigns() -> None:
        global LIMIT
        LIMIT = 6

    monkeypatch.setitem(globals(), "heads", torch.ones(HOST_VALUES + 1))
    assert [name for _, name in Scope(scale).globals] == [name for _, name in Scope(assigns).globals] == ["LIMIT"]
    assert walk(Scope(scale), scale, Attention()).refusal is None


@pytest.mark.parametrize(
    "value",
    [3, (1, [2, {"a": (3,)}], None), {"b": 1, "a": [2]}, torch.max(torch.ones(2, 2), 0), torch.Size([2, 3]), ()],
    ids=repr,
)
def test_nested_values_are_put_together_again(value: Any) -> None:
    structure, leaves = flatten(value)
    again = rebuild(structure, iter(leaves))
    assert type(again) is type(value) and repr(again) == repr(value)
    assert flatten(again)[0] == structure and hash(structure) == hash(flatten(value)[0])

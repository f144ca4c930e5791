"""Calls have equal keys if, and only if, a graph of one would do for the other."""

from __future__ import annotations

import copy
import itertools
import operator
import random
import weakref
from argparse import Namespace
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from perflint.runtime.glance import Glance
from perflint.runtime.replay import flatten, rebuild
from perflint.runtime.scope import Scope
from perflint.runtime.walk import ARRAY_BYTES, HOST_VALUES, ITEMS, Arguments, Walk

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


def test_numbers_of_numpy_are_told_by_their_values() -> None:
    low, again, high = (Arguments(*flatten(((np.float32(each),), {}))) for each in (-1, -1, 1))
    assert low.parts == again.parts != high.parts and not low.others


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
    "a weight becomes a part of itself": lambda model: setattr(
        model.linear.weight, "data", model.linear.weight.data[:1]
    ),
    "a setting that the forward pass reads changes": lambda model: setattr(model, "heads", 3),
    "a setting of torch's own changes": lambda model: setattr(model.drop, "p", 0.1),
}


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host tensors of state are looked at as those on a device are: by identity and address."""

    def tensor(self: Walk, value: Tensor) -> None:
        self.state.append(value)
        self.reads.tensor(value)
        self._parts += (id(value), value.data_ptr(), value.shape, value.requires_grad)

    monkeypatch.setattr(Walk, "_tensor", tensor)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_key_of_a_call_changes_when(change: Callable[[Attention], object]) -> None:
    model, x = Attention(), torch.ones(1, 2)
    scope = learned(decode, model, x, 3)
    first = walk(scope, decode, model, x, 3)
    before, glance = first.key(), Glance(first.reads)
    assert walk(scope, decode, model, x, 3).key() == before and glance.holds()
    change(model)
    assert walk(scope, decode, model, x, 3).key() != before and not glance.holds()


@pytest.mark.usefixtures("on_device")
def test_weights_updated_or_loaded_in_place_leave_the_key_as_it_is() -> None:
    model, x = Attention(), torch.ones(1, 2)
    scope = learned(decode, model, x, 3)
    first = walk(scope, decode, model, x, 3)
    before, glance = first.key(), Glance(first.reads)
    with torch.no_grad():
        model.linear.weight.add_(1)
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    model.seen += 1  # which the forward pass doesn't read
    SETTINGS.unread += 1
    assert walk(scope, decode, model, x, 3).key() == before and glance.holds()


@pytest.mark.usefixtures("on_device")
def test_globals_and_settings_that_the_code_reads_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Attention(), torch.ones(1, 2)
    scope = learned(decode, model, x, 3)
    seen = [walk(scope, decode, model, x, 3)]
    glances = [Glance(seen[0].reads)]
    for place, name, value in ((globals(), "LIMIT", 6), (vars(SETTINGS), "width", 4), (globals(), "TABLE", TABLE + 1)):
        monkeypatch.setitem(place, name, value)
        seen.append(walk(scope, decode, model, x, 3))
        glances.append(Glance(seen[-1].reads))
    assert len({each.key() for each in seen}) == 4
    assert [each.holds() for each in glances] == [False, False, False, True]


class Plain:
    beta = 1.0
    limits: list[float]

    def __init__(self) -> None:
        self.limits = [1.0]
        self.inner = SimpleNamespace(depth=SimpleNamespace(beta=1.0))

    @property
    def half(self) -> float:
        return self.limits[-1] / 2

    def __getitem__(self, _: str) -> float:
        return self.inner.depth.beta  # type: ignore[no-any-return]


class AttrDict(dict[str, Any]):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


@dataclass(slots=True)
class Slots:
    beta: float = 1.0


class Weighted(nn.CrossEntropyLoss):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return super().forward(x, y)


class Temperature(float):
    pass


class Bytes(bytearray):
    pass


def patched(x: Tensor) -> Tensor:
    return x


def _scheduler() -> Any:
    return torch.optim.lr_scheduler.StepLR(torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1), 1)


def _partial() -> Any:
    return partial(round, ndigits=[1])


HELD: Any = None  # what the function below reads, and a change of it
READS: dict[str, tuple[Any, Callable[[], Any], Callable[[], object]]] = {
    "a class's attribute": (Plain, lambda: HELD.beta, lambda: setattr(HELD, "beta", HELD.beta / 2)),
    "a class's attribute through an instance": (Plain(), lambda: HELD.beta, lambda: setattr(Plain, "beta", 0.1)),
    "an item of an attribute": (Plain(), lambda: HELD.limits, lambda: HELD.limits.append(2.0)),
    "a property's source": (Plain(), lambda: HELD.half, lambda: HELD.limits.append(2.0)),
    "a special method's source": (Plain(), lambda: HELD["x"], lambda: setattr(HELD.inner.depth, "beta", 2)),
    "a constant getattr": (Plain(), lambda: getattr(HELD, "limits"), lambda: HELD.limits.append(2.0)),  # noqa: B009
    "a computed getattr": (
        Plain(),
        lambda: [getattr(HELD, str(n)) for n in HELD],
        lambda: setattr(HELD.inner, "unnamed", 3.0),
    ),
    "all attributes": (SimpleNamespace(x=1), lambda: vars(HELD), lambda: setattr(HELD, "x", 2)),
    "an argparse namespace": (Namespace(x=1), lambda: HELD.x, lambda: setattr(HELD, "x", 2)),
    "a dict with attributes": (AttrDict(beta=1.0), lambda: HELD.beta, lambda: setattr(HELD, "beta", 0.5)),
    "a slot": (Slots(), lambda: HELD.beta, lambda: setattr(HELD, "beta", 0.5)),
    "a NumPy array": (np.array([1.0, 2.0]), lambda: HELD[0], lambda: HELD.__imul__(2)),
    "a NumPy number": ([np.float64(1)], lambda: HELD[0], lambda: HELD.__setitem__(0, np.float64(2))),
    "a number of a type of its own": ([Temperature(1)], lambda: HELD, lambda: HELD.__setitem__(0, Temperature(2))),
    "a dict of many": ({str(n): n for n in range(99)}, lambda: HELD["7"], lambda: HELD.update({"7": 0})),
    "a list of many": ([1.0] * 99, lambda: HELD[7], lambda: HELD.__setitem__(7, 0.0)),
    "a deque": (deque([1.0]), lambda: sum(HELD), lambda: HELD.append(0.5)),
    "a defaultdict": (defaultdict(float), lambda: HELD["x"], lambda: HELD.update(x=2)),
    "an OrderedDict": (OrderedDict(x=1), lambda: HELD["x"], lambda: HELD.update(x=2)),
    "a set": ({1, 2}, lambda: sum(HELD), lambda: HELD.add(3)),
    "a partial's argument": (_partial(), lambda: HELD(1.0), lambda: HELD.keywords["ndigits"].append(2)),
    "a scheduler's rate": (_scheduler(), lambda: HELD.get_last_lr(), lambda: HELD._last_lr.append(1.0)),
    "label smoothing": (nn.CrossEntropyLoss(), lambda: HELD(1), lambda: setattr(HELD, "label_smoothing", 0.5)),
    "an inherited setting": (Weighted(), lambda: HELD(1), lambda: setattr(HELD, "label_smoothing", 0.5)),
    "a slope": (nn.LeakyReLU(0.1), lambda: HELD(1), lambda: setattr(HELD, "negative_slope", 0.5)),
    "a loss's delta": (nn.HuberLoss(), lambda: HELD(1), lambda: setattr(HELD, "delta", 0.5)),
    "a norm's switch": (nn.BatchNorm1d(2), lambda: HELD(1), lambda: setattr(HELD, "track_running_stats", False)),
    "a method that is replaced": (nn.ReLU(), lambda: HELD(1), lambda: setattr(HELD, "forward", patched)),
    "a padding": (nn.Conv1d(2, 2, 3), lambda: HELD(1), lambda: setattr(HELD, "padding", (1,))),
}


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize(("held", "read", "change"), READS.values(), ids=READS)
def test_the_key_changes_with(
    held: Any, read: Callable[[], Any], change: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plain, "beta", 1.0)
    monkeypatch.setitem(globals(), "HELD", held)
    scope = learned(read)
    first = walk(scope, read)
    before, glance = first.key(), Glance(first.reads)
    assert walk(scope, read).key() == before and walk(scope, read).refusal is None and glance.holds()
    change()
    assert walk(scope, read).key() != before and not glance.holds()


@pytest.mark.usefixtures("on_device")
def test_what_was_read_may_die_and_another_object_in_its_place_is_not_taken_for_it() -> None:
    model, settings, x = Attention(), SimpleNamespace(model=[Attention()], scale=0.5), torch.ones(1, 2)
    scope = learned(lambda: settings.model[0](x) * settings.scale)
    read = lambda: settings.model[0](x) * settings.scale  # noqa: E731
    glances = [Glance(walk(scope, decode, model, x, 3).reads), Glance(walk(scope, read).reads)]
    assert all(each.holds() for each in glances)
    dead = [weakref.ref(model), weakref.ref(settings.model[0])]
    settings.model[0] = Attention()
    del model
    assert [each() for each in dead] == [None, None]
    assert not any(each.holds() for each in glances)


HIDDEN = {
    "list": [0] * (ITEMS + 1),
    "dict": dict.fromkeys(range(ITEMS + 1)),
    "ndarray": np.zeros(ARRAY_BYTES),
    "array of objects": np.array([[], {}], dtype=object),
    "list_iterator": iter([1]),
    "count": itertools.count(),
    "Random": random.Random(),
    "Generator": np.random.default_rng(0),
    "bytearray": bytearray(1),
    "Bytes": Bytes(1),
    "attrgetter": operator.attrgetter("x"),
}


@pytest.mark.parametrize("value", HIDDEN.values(), ids=HIDDEN)
def test_what_no_key_tells_apart_is_refused_by_its_name(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "HELD", SimpleNamespace(numbers=value))
    read = lambda: HELD.numbers  # noqa: E731
    assert "`numbers`" in str(walk(learned(read), read).refusal)


def test_an_attribute_that_is_not_named_counts_if_names_are_computed() -> None:
    held = SimpleNamespace(named=1, other=1)
    known: tuple[Callable[[], Any], ...] = (
        lambda: (held.named, nn.ReLU().eval()),
        lambda: getattr(held, "named", None),
        lambda: [getattr(held, name) for name in "ab"],
        lambda: held.__dict__,
    )
    found = []
    for read in known:
        before = walk(learned(read), read)
        held.other += 1
        found.append(walk(before.scope, read).key() != before.key())
    assert found == [False, False, True, True]


def test_deep_and_cyclic_values_are_refused_or_end() -> None:
    scope, cyclic, itself = Scope(decode), SimpleNamespace(), list[Any]()
    cyclic.width = cyclic
    itself.append(itself)
    assert walk(scope, decode, cyclic).refusal is None
    assert "more than is followed" in str(walk(scope, lambda: itself).refusal)


def test_what_is_defined_behind_the_function_is_in_the_key() -> None:
    space: dict[str, Any] = {}
    exec("def read(): return helper() + late\n", space)
    scope = Scope(space["read"])
    exec("late, further = 1, 1\ndef helper(): return further\n", space)
    while scope.learn(walk(scope, space["read"]).objects):
        pass
    keys = {walk(scope, space["read"]).key()}
    for name in ("late", "further", "helper"):
        space[name] = 2
        keys.add(walk(scope, space["read"]).key())
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


def test_what_torch_compiles_is_refused_by_the_marks_that_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patched, "_torchdynamo_orig_callable", patched, raising=False)
    assert "compiled function, patched" in str(walk(Scope(decode), decode, patched).refusal)
    monkeypatch.setattr(patched, "_torchdynamo_disable", True, raising=False)  # as torch.compiler.disable does
    assert walk(Scope(decode), decode, patched).refusal is None


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

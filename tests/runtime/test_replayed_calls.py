"""A call of a step is replayed only while all that the step reads is what it was, on a device's double."""

# mypy: disable-error-code="no-untyped-call, no-any-return"

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from perflint.runtime import glance
from perflint.runtime.glance import check_of_forms, identities
from perflint.runtime.graphs import graphed_step
from tests.runtime.device_double import Device, a_device

SCALE = 1.0
X, Y = torch.ones(4, 2), torch.ones(4, 3)


@dataclass(frozen=True)
class Frozen:
    """Settings that only `object.__setattr__` changes."""

    weight: float = 1.0


class Net(nn.Module):
    """A model with each kind of part."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.0).eval()
        self.last = nn.Linear(8, 3)
        self.factor, self.seen = 1.0, 0

    def forward(self, x: Tensor) -> Tensor:
        """As usual."""
        return self.last(self.drop(F.relu(self.norm(self.first(x))))) * self.factor


@dataclass
class Program:
    """A program that trains, and its step."""

    model: Net = field(default_factory=Net)
    options: dict[str, float] = field(default_factory=lambda: {"a": 1.0})
    weights: list[float] = field(default_factory=lambda: [1.0, 2.0])
    frozen: Frozen = field(default_factory=Frozen)
    decay: float = 1.0

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        model, optimizer, options = self.model, self.optimizer, self.options
        weights, frozen, decay = self.weights, self.frozen, self.decay

        def rebind(value: float) -> None:
            nonlocal decay
            decay = value

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            factor = sum(options.values()) * weights[0] * frozen.weight * decay * SCALE
            loss = F.mse_loss(model(x), y) * factor
            loss.backward()
            optimizer.step()
            return loss

        self.rebind, self.step = rebind, graphed_step(step)

    @property
    def weight(self) -> Tensor:
        return self.model.first.weight


@pytest.fixture
def device() -> Iterator[Device]:
    with a_device() as double:
        yield double


def replayed(device: Device, call: Callable[[], object]) -> int:
    before = device.replays
    call()
    return device.replays - before


def running(device: Device) -> Program:
    program = Program()
    program.step.clear()  # what is known of its code
    for _ in range(6):
        program.step(X, Y)
    assert not program.step.eager_because
    assert program.step.graphs == 1 and replayed(device, lambda: program.step(X, Y)) == 1
    return program


def _through_data(program: Program) -> None:
    program.weight.data = program.weight.data.clone()


def _transposed(program: Program) -> None:
    square = program.model.last.weight
    square.data = square.data.as_strided((3, 8), (1, 3))


def _in_bits(program: Program) -> None:
    program.model.norm.running_mean.data = program.model.norm.running_mean.data.view(torch.int32)  # type: ignore[union-attr]


def _renamed(program: Program) -> None:
    members = program.model.last.__dict__
    members["further"] = members.pop("out_features")


def _other_dict(program: Program) -> None:
    program.model.drop.__dict__ = {**program.model.drop.__dict__, "p": 0.5}


CHANGES: dict[str, Callable[[Program], object]] = {
    "an attribute": lambda p: setattr(p.model, "factor", 2.0),
    "an attribute of torch's": lambda p: setattr(p.model.drop, "p", 0.5),
    "an attribute behind setattr": lambda p: p.model.drop.__dict__.update(p=0.5),
    "an attribute more": lambda p: setattr(p.model.drop, "forward", lambda x: x),
    "an attribute of another name": _renamed,
    "another dict of attributes": _other_dict,
    "another class": lambda p: setattr(p.model.drop, "__class__", nn.Identity),
    "a value of a dict": lambda p: p.options.update(a=2.0),
    "a key of a dict": lambda p: (p.options.pop("a"), p.options.update(b=1.0)),
    "an entry more": lambda p: p.options.update(b=1.0),
    "an item of a list": lambda p: p.weights.__setitem__(0, 2.0),
    "swapped items": lambda p: p.weights.reverse(),
    "an item less": lambda p: p.weights.pop(),
    "a field of a frozen dataclass": lambda p: object.__setattr__(p.frozen, "weight", 2.0),
    "a cell": lambda p: p.rebind(2.0),
    "a parameter": lambda p: setattr(p.model.first, "weight", nn.Parameter(p.weight.detach().clone())),
    "a parameter less": lambda p: setattr(p.model.last, "bias", None),
    "a parameter's memory": _through_data,
    "a parameter's strides": _transposed,
    "a buffer's type": _in_bits,
    "a buffer": lambda p: p.model.norm.register_buffer("running_mean", torch.zeros(8)),
    "a frozen parameter": lambda p: p.weight.requires_grad_(False),
    "a frozen model": lambda p: p.model.requires_grad_(False),
    "a hook on a gradient": lambda p: p.weight.register_hook(lambda g: g),
    "a hook on an accumulated gradient": lambda p: p.weight.register_post_accumulate_grad_hook(lambda _: None),
    "a hook on a module": lambda p: p.model.drop.register_forward_hook(lambda *_: None),
    "a hook before a module": lambda p: p.model.register_forward_pre_hook(lambda *_: None),
    "a hook on a module's gradients": lambda p: p.model.first.register_full_backward_hook(lambda *_: None),
    "another mode": lambda p: p.model.eval(),
    "another mode of a part": lambda p: p.model.norm.eval(),
    "a part": lambda p: setattr(p.model, "drop", nn.Identity()),
    "an optimizer's betas": lambda p: p.optimizer.param_groups[0].update(betas=(0.5, 0.9)),
    "a setting of another type": lambda p: p.optimizer.param_groups[0].update(weight_decay=False),
    "a flag of an optimizer": lambda p: p.optimizer.param_groups[0].update(maximize=True),
    "a loaded state": lambda p: p.optimizer.load_state_dict(copy.deepcopy(p.optimizer.state_dict())),
    "a hook on an optimizer": lambda p: p.optimizer.register_step_pre_hook(lambda *_: None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_call_is_not_replayed_after_a_change_of(change: Callable[[Program], object], device: Device) -> None:
    program = running(device)
    change(program)
    try:
        count = replayed(device, lambda: program.step(X, Y))
    except Exception:
        count = 0  # as eager mode raises, too
    assert count == 0


def test_a_call_is_not_replayed_after_a_change_of_a_global(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    program = running(device)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert replayed(device, lambda: program.step(X, Y)) == 0


def test_a_call_is_not_replayed_while_a_gradient_is_held(device: Device) -> None:
    program = running(device)
    held: list[Any] = [program.weight.grad]
    with pytest.warns(RuntimeWarning, match="gradients of an earlier step are held"):
        assert replayed(device, lambda: program.step(X, Y)) == 0
    held.clear()
    assert replayed(device, lambda: program.step(X, Y)) == 1


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Autocast:
    def __enter__(self) -> None:
        torch.set_autocast_enabled("cuda", True)

    def __exit__(self, *_: object) -> None:
        torch.set_autocast_enabled("cuda", False)


class _Default:
    def __enter__(self) -> None:
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(torch.float32)


AROUND: dict[str, Callable[[], Any]] = {
    "autocast": _Autocast,
    "a default device": lambda: torch.device("cpu"),
    "a function mode": _Functions,
    "a dispatch mode": _Operations,
    "another default type": _Default,
    "anomaly detection": lambda: torch.autograd.detect_anomaly(check_nan=False),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.filterwarnings("ignore")
def test_a_call_is_not_replayed_under(around: Callable[[], AbstractContextManager[Any]], device: Device) -> None:
    program = running(device)
    with around():
        assert replayed(device, lambda: program.step(X, Y)) == 0
    assert replayed(device, lambda: program.step(X, Y)) == 1 or program.step.eager_because


class _Kind(Tensor):
    pass


def test_arguments_of_other_forms_and_kinds_are_not_taken_for_those_of_the_graph(device: Device) -> None:
    program = running(device)
    others = (X[:2], torch.ones(2, 4).t(), X.as_subclass(_Kind))
    with pytest.warns(RuntimeWarning, match="an argument is a _Kind"):
        for other in others:
            assert replayed(device, lambda: program.step(other, Y[: len(other)])) == 0  # noqa: B023


def test_what_the_step_does_not_read_may_change(device: Device) -> None:
    program = running(device)
    program.model.seen += 1
    program.optimizer.param_groups[0]["lr"] = 0.3  # which is refreshed
    with torch.no_grad():
        program.weight.add_(1)
    assert replayed(device, lambda: program.step(X.clone(), Y.clone())) == 1


def test_a_model_that_is_gone_leaves_nothing_behind(device: Device) -> None:
    program = running(device)
    gone = weakref.ref(program.weight)
    program.step.clear()
    del program
    gc.collect()
    assert gone() is None


def test_identities_are_those_of_the_items() -> None:
    one, other = (None, 1.5, "x"), (None, float("1.5"), "x")
    assert identities(one) == identities((*one,)) != identities(other)
    assert identities(one) != identities(one[:2]) and identities(()) == identities(())
    assert glance._ids(one) != glance._ids(other)


@pytest.mark.parametrize("is_plain", [False, True])
def test_the_forms_of_tensors_are_told_apart(is_plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_plain:
        monkeypatch.delattr(torch._C._dynamo.guards, "TensorGuards")
    x = torch.zeros(4, 4)
    have = check_of_forms([x])
    others = (x[:3], x[:, :3], x.t(), x.int(), x.detach().requires_grad_(), x.view(2, 8))
    assert have(x) and have(x.clone() + 1) == have(torch.ones(4, 4)) and not any(map(have, others))

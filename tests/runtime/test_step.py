"""What a training step shows when it is watched, and what stays as it is without a device."""

from __future__ import annotations

import gc
import math
import pickle
import random
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perflint.runtime import optimizers, records, scene
from perflint.runtime.glance import Glance, Reads
from perflint.runtime.graphs import graphed_step
from perflint.runtime.records import CannotCapture, Unsettled
from perflint.runtime.replay import flatten
from perflint.runtime.scene import Gradient, Pattern, Scene, Showed, watch
from perflint.runtime.scope import Scope
from perflint.runtime.step_replay import Gradients, Pool
from perflint.runtime.walk import Walk

Step = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(scene, "aside", lambda walk: nullcontext())
    records.has_cuda.cache_clear()


def watched(step: Step, *arguments: Any) -> Showed:
    """What the second call of a step shows."""
    step(*arguments)
    scope, (structure, leaves) = Scope(step), flatten((arguments, {}))
    while scope.learn((*(found := Scene(Walk(scope, step, structure, leaves))).walk.objects, step)):
        pass
    return watch(found, partial(step, *arguments))[1]


class Training:
    """A model, its optimizer, and a step with room for something else at its end."""

    def __init__(self, kind: type[Any] = torch.optim.SGD, *, zeroes: Any = True, **options: Any) -> None:
        self.model = nn.Linear(2, 3)
        self.optimizer = kind(self.model.parameters(), **{"lr": 0.1, **options})
        self.zeroes = zeroes

    def step(self, also: Callable[[], object] = lambda: None) -> Step:
        model, optimizer, zeroes = self.model, self.optimizer, self.zeroes

        def step(x: Tensor) -> Tensor:
            if zeroes is not None:
                optimizer.zero_grad(set_to_none=zeroes)
            loss = F.mse_loss(model(x), torch.ones(5, 3))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            also()
            return loss

        return step


X = torch.ones(5, 2)


@pytest.mark.parametrize(("scale", "is_valid"), [(1.0, True), (math.nan, False)])
def test_a_distribution_checks_its_arguments_at_once_where_nothing_is_captured(scale: float, is_valid: bool) -> None:
    training = Training()
    scales = torch.full((3,), scale)
    step = training.step(lambda: torch.distributions.Normal(0.0, scales, validate_args=True))  # else Dynamo decides
    with nullcontext() if is_valid else pytest.raises(ValueError, match="parameter scale"):
        watched(step, X)


def test_without_a_device_the_function_is_called() -> None:
    plain, other = Training(), Training()
    other.model.load_state_dict(plain.model.state_dict())
    graphed = graphed_step(other.step())
    expected = [plain.step()(X).item() for _ in range(3)]
    assert [graphed(X).item() for _ in range(3)] == expected
    assert (graphed.graphs, graphed.bytes, graphed.eager_because) == (0, 0, ())


@graphed_step
def named(x: Tensor) -> Tensor:
    """Double."""
    return 2 * x


class Owner:
    @graphed_step
    def step(self, x: Tensor) -> Tensor:
        return x + 1


def test_it_looks_like_the_function() -> None:
    assert (named.__name__, named.__doc__) == ("named", "Double.")  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(named)) is named
    assert torch.equal(Owner().step(X), X + 1)


def test_what_is_no_function_is_refused() -> None:
    def generator() -> Any:
        yield 1

    for wrong in (generator, 3):
        with pytest.raises(TypeError, match="graphed_step"):
            graphed_step(wrong)  # type: ignore[arg-type]


def test_gradients_set_to_none_are_new_and_others_stay_where_they_are() -> None:
    new, same = Training(zeroes=True), Training(zeroes=False)
    leaves = [{id(each) for each in training.model.parameters()} for training in (new, same)]
    assert watched(new.step(), X).pattern == Pattern(frozenset(leaves[0]), frozenset(), frozenset())
    showed = watched(same.step(), X)
    assert showed.pattern == Pattern(frozenset(), frozenset(), frozenset(leaves[1]))
    assert showed.stepped == (same.optimizer,)


def test_gradients_that_are_read_before_they_are_replaced_are_carried() -> None:
    training = Training()
    model, optimizer = training.model, training.optimizer

    def step(x: Tensor) -> None:
        if model.weight.grad is not None:
            optimizer.step()
        optimizer.zero_grad()
        model(x).sum().backward()

    leaves = frozenset(id(each) for each in model.parameters())
    assert watched(step, X).pattern == Pattern(frozenset(), leaves, frozenset())


def with_history(through: Callable[[Tensor], Any]) -> tuple[Any, Showed]:
    """What a step shows that is given a tensor with a history, where `through` says what it computes of that."""
    training = Training()
    state = X * torch.ones((), requires_grad=True)

    def step() -> Any:
        training.optimizer.zero_grad()
        given = through(state)
        (training.model(X).sum() + given.sum()).backward()
        training.optimizer.step()
        return given

    step()
    found = Scene(Walk(Scope(step), step, *flatten(((), {}))))
    found.walk.state = [each for each in found.walk.state if each is not state]
    found.walk.inputs.append(state := X * torch.ones((), requires_grad=True))
    return watch(found, step)


def test_what_it_detaches_may_have_a_history() -> None:
    result, _ = with_history(lambda state: state.detach() + 1)
    assert not result.requires_grad
    result, _ = with_history(lambda state: state.data * state.shape[0])
    assert not result.requires_grad


@pytest.mark.parametrize(
    "through",
    [
        lambda state: state * 2,
        lambda state: Carrying((state * 2, state.detach())),
        lambda state: state.detach_(),
        lambda state: torch.where(state.detach() > 0, state, 0),
    ],
)
def test_gradients_that_may_flow_through_what_it_is_given_are_refused(through: Callable[[Tensor], Any]) -> None:
    with pytest.raises(CannotCapture, match="gradients may flow through an argument"):
        with_history(through)


class Carrying(tuple[Tensor, ...]):
    """A state whose sum leaves its first tensor out."""

    def sum(self) -> Tensor:
        return self[1].sum()


def test_a_scheduler_inside_is_refused() -> None:
    training = Training()
    slow = torch.optim.lr_scheduler.StepLR(training.optimizer, 100)
    fast = torch.optim.lr_scheduler.ExponentialLR(training.optimizer, 0.9)
    with pytest.raises(Unsettled, match="scheduler"):
        watched(training.step(slow.step), X)
    with pytest.raises(CannotCapture, match="settings"):
        watched(training.step(fast.step), X)


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), random.random, np.random.rand], ids=["torch", "", "numpy"])
def test_random_numbers_of_the_host_are_refused(draw: Callable[[], object]) -> None:
    with pytest.raises(CannotCapture, match="random numbers on the host"):
        watched(Training().step(draw), X)


def test_models_that_exchange_parameters_or_split_batches_are_refused() -> None:
    kinds = [type(name, (nn.Linear,), {}) for name in ("FullyShardedDataParallel", "FSDPModule")]
    split = nn.DataParallel(nn.Linear(2, 2), [])
    split.device_ids = [0, 1]
    for model in (*(kind(2, 2) for kind in kinds), split):
        step = model.forward
        assert Scene(Walk(Scope(step), step, *flatten(((), {}))))._spread()


def test_an_optimizer_that_is_not_named_is_refused() -> None:
    training, other = Training(), Training().optimizer
    unseen = weakref.ref(other)
    with pytest.raises(CannotCapture, match="neither an argument nor named"):
        watched(training.step(lambda: unseen().step()), X)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "reason"), [(torch.optim.LBFGS, "LBFGS"), (torch.optim.Adagrad, "counts its steps on the host")]
)
def test_optimizers_that_decide_or_count_on_the_host_are_refused(kind: type[Any], reason: str) -> None:
    assert reason in str(optimizers.refusal([Training(kind).optimizer]))


@pytest.mark.parametrize("name", [name for name in dir(torch.optim) if name[0].isupper() and name != "Optimizer"])
def test_each_of_torch_s_optimizers_has_a_capturable_form_keeps_nothing_on_the_host_or_is_refused(name: str) -> None:
    weights = [nn.Parameter(torch.ones(2, 2))]
    optimizer = getattr(torch.optim, name)(weights, lr=0.1)
    weights[0].grad = torch.ones(2, 2).to_sparse() if name == "SparseAdam" else torch.ones(2, 2)
    optimizer.step(*([lambda: 0.0] if name == "LBFGS" else []))
    is_capturable = all("capturable" in group for group in optimizer.param_groups)
    states = [each for state in optimizer.state.values() for each in state.values()]
    keeps_none = not any(
        isinstance(each, int | float) or (isinstance(each, Tensor) and not each.dim()) for each in states
    )
    assert is_capturable or keeps_none or optimizers.refusal([optimizer])


def test_hooks_on_steps_are_refused() -> None:
    optimizer = Training().optimizer
    assert optimizers.refusal([optimizer]) is None
    optimizer.register_step_post_hook(lambda *_: None)
    assert "hooks" in str(optimizers.refusal([optimizer]))


def test_other_settings_and_other_states_are_seen() -> None:
    optimizer = Training(momentum=0.9).optimizer
    before = optimizers.numbers([optimizer]), optimizers.addresses([optimizer])
    optimizer.param_groups[0]["momentum"] = 0.8
    assert optimizers.numbers([optimizer]) != before[0]
    assert optimizers.addresses([optimizer]) == before[1]
    optimizer.state[optimizer.param_groups[0]["params"][0]]["momentum_buffer"] = torch.zeros(3, 2)
    assert optimizers.addresses([optimizer]) != before[1]


def test_gradients_that_somebody_else_holds_are_seen() -> None:
    leaf, gradient = nn.Parameter(torch.ones(3)), torch.zeros(3)
    gradients = Gradients([(leaf, gradient)])
    del gradient
    gradients.count()
    for is_there in (True, False):
        leaf.grad = gradients.made[0][1] if is_there else None
        where = Gradient.of(gradients.made[0][1])
        assert where.form[0] == (3,) and not gradients.is_held()
        held = [gradients.made[0][1]]
        assert gradients.is_held()
        held = [held[0].view(3, 1)]
        assert gradients.is_held()
        held.clear()
        assert not gradients.is_held()


def test_gradients_of_later_graphs_in_the_same_memory_are_seen_while_somebody_holds_them() -> None:
    pool, graphs = Pool(), [nn.Identity() for _ in range(3)]
    leaf = nn.Parameter(torch.ones(3))
    numbers = [pool.add(graph, "memory") for graph in graphs]
    for number in numbers:
        pool.left[number] = Gradients([(leaf, torch.zeros(3))])
        pool.left[number].count()
    held = pool.left[numbers[1]].made[0][1]
    assert [pool.is_in_use(number) for number in numbers] == [True, False, False]
    del held
    assert not pool.is_in_use(numbers[0]) and [*pool.left] == numbers[:1]


def test_memory_whose_graphs_are_gone_is_not_used_again() -> None:
    pool, graph = Pool(), nn.Identity()
    pool.add(graph, "memory")
    assert pool.handle == "memory"
    del graph
    gc.collect()
    assert pool.handle is None


def test_what_was_prepared_is_restored() -> None:
    training = Training(torch.optim.Adam)
    training.step()(X)
    before = training.optimizer.state_dict()
    optimizers.prepare([training.optimizer])
    with optimizers.capturable([training.optimizer]):
        assert training.optimizer.param_groups[0]["capturable"] is True
    assert training.optimizer.param_groups[0]["capturable"] is False
    optimizers.restore([training.optimizer])
    after = training.optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert all(after["state"][0][name] is value for name, value in before["state"][0].items())


def _move_average(optimizer: Any) -> None:
    state = next(iter(optimizer.state.values()))
    state["exp_avg"] = state["exp_avg"].clone()


OF_OPTIMIZERS: dict[str, Callable[[Any], object]] = {
    "another rate": lambda o: o.param_groups[0].update(lr=0.3),
    "other betas": lambda o: o.param_groups[0].update(betas=(0.5, 0.9)),
    "a setting more": lambda o: o.param_groups[0].update(more=1),
    "a parameter less": lambda o: o.param_groups[0]["params"].pop(),
    "a group more": lambda o: o.add_param_group({"params": [nn.Parameter(torch.ones(1))]}),
    "a frozen parameter": lambda o: o.param_groups[0]["params"][0].requires_grad_(False),
    "a state that was loaded": lambda o: o.load_state_dict(o.state_dict()),
    "a state in other memory": _move_average,
    "no state": lambda o: o.state.clear(),
    "a hook on its steps": lambda o: o.register_step_post_hook(lambda *_: None),
    "counters on the device": lambda o: optimizers.prepare([o]),
}


@pytest.mark.parametrize("change", OF_OPTIMIZERS.values(), ids=OF_OPTIMIZERS)
def test_a_glance_tells_of_an_optimizer(change: Callable[[Any], object]) -> None:
    training = Training(torch.optim.Adam)
    training.step()(torch.ones(5, 2))
    reads = Reads()
    optimizers.look(reads, [training.optimizer])
    glance = Glance(reads)
    training.step()(torch.ones(5, 2))
    assert glance.holds()
    change(training.optimizer)
    assert not glance.holds()
